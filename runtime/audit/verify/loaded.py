"""Compares the lines or rows of files with the records that a flow from files made of them.

The ledger says how far each file was read. Its lines up to there must be in its partition, in their order,
with equal bytes. The records of all files of a partition are compared together, because only their content
says which transaction belongs to which file.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, islice

from msgspec import Struct, field
from msgspec.structs import replace

from runtime.audit.partition_logs import (
    CommittedRecordReader,
    OpenTransactionTimeout,
    RecordsExpired,
    fetch_places,
    open_spec,
)
from runtime.audit.verify.file_lines import (
    NO_TIME,
    FileRecords,
    UnreadableFile,
    body_of,
    content_of_body,
    digest_of,
    records_up_to,
)
from runtime.audit.verify.interleaving import (
    Interleaving,
    TransactionRange,
    match,
    numbers,
    owners_of_unknown,
    places_of,
)
from runtime.audit.verify.pieces import (
    LIMIT,
    WINDOW,
    ComparedRecord,
    RecordComparer,
    RecordContent,
    RecordDifference,
    VerificationPiece,
    VerifiedPiece,
    VerifyRequest,
)
from runtime.batch import Batch, BatchFailure, PartitionLocation, records
from runtime.batch.layout import NO_PRODUCER
from runtime.contract.results.records import UncomparableRange
from runtime.contract.spec.files import LinesSpec
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import WireError
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.queries import log_start
from runtime.slot.budget import TokenBucket

_NAMED = 10  # files that a text names


async def verify_loaded(
    asked: VerifyRequest, tasks: int, pieces: Sequence[VerificationPiece]
) -> list[VerifiedPiece]:
    """Compares the given files, which are all that are read into their partitions. Raises AuditFailure."""
    bucket = TokenBucket(asked.rate // tasks or 1 if asked.rate else None, time.monotonic)
    by_partition: defaultdict[int, list[VerificationPiece]] = defaultdict(list)
    for piece in pieces:
        by_partition[piece.partition].append(piece)
    async with open_spec(asked.destination, asked.flow.destination) as cluster:
        found = []
        for some in by_partition.values():
            found += await _LoadedPartition(asked, some, cluster, bucket).compare()
        await asyncio.sleep(bucket.wait_s())  # the next task has a bucket of its own
        return found


class _Written(Struct):
    """The records of a partition that transactions wrote, in the order of their ends."""

    digests: array[int] = field(default_factory=numbers)
    offsets: array[int] = field(default_factory=numbers)
    times: array[int] = field(default_factory=numbers)
    ranges: list[TransactionRange] = field(default_factory=list)
    producers: array[int] = field(default_factory=numbers)  # the producer id of each range
    appended: bool = False
    others: int = 0  # records that no transaction wrote

    def add(self, transaction: Iterable[tuple[int, int, int]], producer_id: int = NO_PRODUCER) -> None:
        begin = len(self.digests)
        for offset, timestamp, digest in transaction:
            self.offsets.append(offset)
            self.times.append(timestamp)
            self.digests.append(digest)
        if len(self.digests) > begin:
            self.ranges.append(TransactionRange(begin, len(self.digests)))
            self.producers.append(producer_id)

    def producer_of(self, one: TransactionRange) -> int:
        """Returns the producer id that wrote a range."""
        return self.producers[bisect_left(self.ranges, one)]


class _RepeatedLines:
    """Finds which transactions repeat lines of a file.

    Such a transaction stands between those of the file, `taken`, and behind the line before its own lines.
    Before or behind them all, it may be of a file that the ledger has forgotten.
    """

    def __init__(self, lines: Sequence[int], taken: Sequence[TransactionRange], name: str) -> None:
        self.name = name
        self._lines = lines
        self._begins = [one.begin for one in reversed(taken)]
        self._counts = [0, *accumulate(one.end - one.begin for one in reversed(taken))]

    def line_of(self, one: TransactionRange, content: Sequence[int]) -> int | None:
        """Returns the number of the first line that a transaction repeats, or None."""
        before = self._counts[bisect_left(self._begins, one.begin)]
        if not 0 < before < len(self._lines):
            return None
        return next(places_of(self._lines, content, 1, before), None)


class _LoadedPartition:
    """Compares the files of one partition of the topic."""

    def __init__(
        self,
        asked: VerifyRequest,
        pieces: Sequence[VerificationPiece],
        cluster: KafkaCluster,
        bucket: TokenBucket,
    ) -> None:
        assert asked.flow.lines is not None, "the flow reads no files"
        self._lines: LinesSpec = asked.flow.lines
        self._asked, self._cluster, self._bucket = asked, cluster, bucket
        self._pieces = pieces
        self._files: dict[str, FileRecords] = {}
        self._unread: dict[str, str] = {}
        first = pieces[0]
        self._at = TopicPartition(first.destination_topic, first.partition)
        self._topic_id = first.destination_id
        self._low, self._high = first.destination_low, first.destination_high

    async def compare(self) -> list[VerifiedPiece]:
        """Compares all files. It says of each why that was not possible."""
        try:
            written = await self._written_from_its_start()
        except (WireError, BatchFailure, OpenTransactionTimeout) as error:
            return [_result(piece, unread=str(error)) for piece in self._pieces]
        except RecordsExpired as error:
            return [_result(piece, unread=f"{error}: run it again") for piece in self._pieces]
        for piece in self._pieces:
            await asyncio.to_thread(self._read, piece, timed=not written.appended)
        prints = {name: one.digests for name, one in self._files.items()}
        found = match(prints, written.digests, written.ranges)
        own = self._written_by_the_flow(found, written)
        likely = owners_of_unknown(found, prints, written.digests)
        owned = self._certain(likely, own)
        unsure = {name for name, some in likely.items() if owned[name] != some}
        known = {one for some in owned.values() for one in some}
        doubles = self._doubles(found, [one for one in found.unknown if one in own - known], written)
        known.update(one for some in doubles.values() for one in some)
        others = written.others + sum(one.end - one.begin for one in found.unknown if one not in known)
        results = []
        for piece in self._pieces:
            if piece.topic in self._unread:
                results.append(_result(piece, unread=self._unread[piece.topic]))
                continue
            twice = doubles.get(piece.topic, {})
            some = owned.get(piece.topic, [])
            results.append(await self._file(piece, written, found, some, twice, unsure=piece.topic in unsure))
        return [replace(results[0], others=others), *results[1:]] if results else []

    async def _written_from_its_start(self) -> _Written:
        """Reads the partition, once more where retention deletes records meanwhile."""
        try:
            return await self._written()
        except RecordsExpired:
            self._low = await log_start(self._cluster, self._at)
            return await self._written()

    async def _written(self) -> _Written:
        """Reads the partition. Raises what a CommittedRecordReader raises."""
        where = PartitionLocation(*self._at)
        reader = CommittedRecordReader(
            self._cluster, self._at, self._topic_id, self._low, self._high, self._bucket, self._asked.within_s
        )
        written = _Written()
        begun: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
        while not reader.ended:
            position = reader.position
            for member, seen in await reader.next_sets():
                if isinstance(member, Batch) and member.control:
                    written.add(begun.pop(member.producer_id, ()), member.producer_id)
                elif seen:
                    found = [one for one in records(member, where) if position <= one.offset < self._high]
                    if not isinstance(member, Batch) or not member.transactional:
                        written.others += len(found)
                        continue
                    written.appended |= member.log_append_time
                    begun[member.producer_id] += (
                        (one.offset, one.timestamp, digest_of(body_of(one))) for one in found
                    )
        for producer_id, transaction in begun.items():
            written.add(transaction, producer_id)
        return written

    def _read(self, piece: VerificationPiece, *, timed: bool) -> None:
        """Reads one file, or notes why that is not possible."""
        assert piece.read is not None, "a piece of another flow"
        try:
            self._files[piece.topic] = records_up_to(self._lines, piece.read, timed=timed)
        except UnreadableFile as error:
            self._unread[piece.topic] = str(error)
        except OSError as error:
            self._unread[piece.topic] = error.strerror or str(error)

    @staticmethod
    def _written_by_the_flow(found: Interleaving, written: _Written) -> set[TransactionRange]:
        """Returns the unknown transactions whose producer wrote lines of files, too."""
        producers = {written.producer_of(one) for some in found.taken.values() for one in some}
        return {one for one in found.unknown if written.producer_of(one) in producers}

    def _certain(
        self, likely: Mapping[str, list[TransactionRange]], own: Collection[TransactionRange]
    ) -> dict[str, list[TransactionRange]]:
        """Returns the likely transactions of each file, less those that others may have written.

        Where lines are gone, one that is equal by chance would make all lines behind it missing.
        """
        if not self._low:
            return dict(likely)
        alone = {piece.topic for piece in self._pieces if piece.alone and not self._unread}
        return {name: [one for one in some if one in own and name in alone] for name, some in likely.items()}

    def _doubles(
        self, found: Interleaving, unknown: Sequence[TransactionRange], written: _Written
    ) -> dict[str, dict[TransactionRange, int]]:
        """Returns the transactions that hold lines of a complete file once more, and where these begin.

        The ledger must have counted the lines once: a file that was read anew is there twice by design.
        """
        if self._unread:
            return {}
        once = [
            _RepeatedLines(self._files[piece.topic].digests, found.taken[piece.topic], piece.topic)
            for piece in self._pieces
            if piece.alone
            and not found.left[piece.topic]
            and piece.read is not None
            and piece.read.records == len(self._files[piece.topic].digests)
        ]
        doubles: defaultdict[str, dict[TransactionRange, int]] = defaultdict(dict)
        for one in unknown:
            content = written.digests[one.begin : one.end]
            for file in once:
                if (at := file.line_of(one, content)) is not None:
                    doubles[file.name][one] = at
                    break
        return doubles

    async def _file(
        self,
        piece: VerificationPiece,
        written: _Written,
        found: Interleaving,
        owned: Sequence[TransactionRange],
        twice: Mapping[TransactionRange, int],
        *,
        unsure: bool,
    ) -> VerifiedPiece:
        """Returns the result of one file. Its first `left` lines are in no transaction as they are."""
        file, left = self._files[piece.topic], found.left[piece.topic]
        matched = len(file.digests) - left
        try:
            wrong = [*_other_times(file, written, found.taken[piece.topic]), *_once_more(twice)]
            later = await self._edits(wrong[:LIMIT], file, 0, written.offsets)
        except (WireError, BatchFailure, OSError, UnreadableFile) as error:
            return _result(piece, matched, unread=str(error))
        if not left:
            return _result(piece, matched, edits=later, more=len(later) >= LIMIT)
        if piece.topic in found.alike and (owned or not self._low):
            names = sorted(found.alike - {piece.topic})
            alike = ", ".join([*names[:_NAMED], *(["others"] if len(names) > _NAMED else [])])
            return _result(piece, matched, unread=f"its lines can't be told from those of {alike}")
        prints, offsets = numbers(), numbers()
        for one in owned:
            prints += written.digests[one.begin : one.end]
            offsets += written.offsets[one.begin : one.end]
        skipped = _expired(file, left, prints) if self._low else 0
        why = f"retention passed at {self._asked.flow.destination}"
        if unsure:
            why += ", or its lines can't be told from records of others"
        gone = UncomparableRange(low=0, end=file.position(skipped), why=why)
        comparer = _compared(file, left, skipped, prints)
        try:
            edits = await self._edits(comparer.edits, file, skipped, offsets)
        except (WireError, BatchFailure, OSError, UnreadableFile) as error:
            return _result(piece, matched, unread=str(error))
        matched += comparer.matched + sum(edit.what == "changed" for edit in edits)
        result = _result(piece, matched, edits=[*edits, *later], more=comparer.full or len(later) >= LIMIT)
        return replace(result, not_comparable=[gone] if skipped else [])

    async def _edits(
        self,
        edits: Sequence[RecordDifference],
        file: FileRecords,
        skipped: int,
        offsets: Sequence[int],
    ) -> list[RecordDifference]:
        """Returns differences with real positions, offsets and contents. Raises WireError, OSError.

        A record that retention has deleted meanwhile makes no difference.
        """
        wanted = [offsets[one.destination_offset] for one in edits if one.destination_offset is not None]
        there = await fetch_places(self._cluster, self._at, self._topic_id, wanted, self._bucket.take)
        shown = []
        for one in edits:
            source = one.source_offset + skipped if one.source_offset is not None else None
            offset = offsets[one.destination_offset] if one.destination_offset is not None else None
            seen = there.get(offset) if offset is not None else None
            if offset is not None and seen is None:
                continue
            content = None
            if seen is not None:
                content = content_of_body(seen.timestamp if file.timed else NO_TIME, body_of(seen))
            shown.append(
                RecordDifference(
                    one.what,
                    file.position(one.near + skipped),
                    file.position(source) if source is not None else None,
                    None,
                    offset,
                    await asyncio.to_thread(file.content, source) if source is not None else None,
                    content,
                    file.position(one.twin + skipped) if one.twin is not None else None,
                    file.read.name,
                )
            )
        return shown


def _other_times(
    file: FileRecords, written: _Written, taken: Iterable[TransactionRange]
) -> list[RecordDifference]:
    """Returns the records that are equal but for their timestamps, by their numbers at both sides.

    `taken` are the transactions of the file, the last one first.
    """
    if not file.times:
        return []
    found: list[RecordDifference] = []
    end = len(file.digests)
    for one in taken:
        begin = end - (one.end - one.begin)
        if file.times[begin:end] != written.times[one.begin : one.end]:
            found += (
                RecordDifference("changed", at, at, None, one.begin + at - begin, None, None)
                for at in range(begin, end)
                if file.times[at] != written.times[one.begin + at - begin]
            )
        end = begin
    return sorted(found, key=lambda one: one.near)[:LIMIT]


def _once_more(twice: Mapping[TransactionRange, int]) -> Iterator[RecordDifference]:
    """Yields the records that are there once more, with the number of the line that each has."""
    for one, line in twice.items():
        for at in range(one.begin, one.end):
            number = line + at - one.begin
            yield RecordDifference("extra", number, None, None, at, None, None, number)


def _expired(file: FileRecords, left: int, found: Sequence[int]) -> int:
    """Returns how many lines at the beginning retention has deleted: those before the first record left."""
    if not found:
        return left
    wanted, numbers_of = set(found), dict[int, int]()
    for number, digest in enumerate(islice(file.digests, left)):
        if digest in wanted:
            numbers_of.setdefault(digest, number)
    known = ((numbers_of[digest], at) for at, digest in enumerate(found) if digest in numbers_of)
    number, at = next(known, (0, 0))
    return max(number - at, 0)  # a record before it may be a line that was changed


def _compared(file: FileRecords, left: int, skipped: int, found: Sequence[int]) -> RecordComparer:
    """Compares lines with the records of the transactions that are likely to hold them."""
    comparer = RecordComparer(0, compacted=False)
    source, destination = _numbered(file.digests[skipped:left]), _numbered(found)
    while not comparer.done:
        if comparer.wants_source:
            lines = list(islice(source, WINDOW))
            comparer.add_source(lines) if lines else comparer.end_source()
        if comparer.wants_destination:
            lines = list(islice(destination, WINDOW))
            comparer.add_destination(lines) if lines else comparer.end_destination()
        comparer.advance()
    return comparer


def _numbered(found: Sequence[int]) -> Iterator[ComparedRecord]:
    for number, digest in enumerate(found):
        yield ComparedRecord(number, number, RecordContent(0, None, digest.to_bytes(8, signed=True), ()))


def _result(
    piece: VerificationPiece,
    compared: int = 0,
    *,
    edits: Sequence[RecordDifference] = (),
    more: bool = False,
    unread: str = "",
) -> VerifiedPiece:
    end = piece.low if unread else piece.high
    return VerifiedPiece(piece.number, piece.low, end, compared, 0, 0, 0, 0, list(edits), more, unread)
