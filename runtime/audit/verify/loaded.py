"""Plans and compares a flow from files: the lines or rows of files, and the records that were made of them.

The ledger says how far each file was read. Its lines up to there must be in its partition, in their order,
with equal bytes. The records of all files of a partition are read together, because only their content says
which transaction belongs to which file.
"""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from typing import TYPE_CHECKING

from msgspec import Struct, field

from runtime.audit.ledger import AuditFailure, NothingCopied, as_audit_failure, existing_ledger
from runtime.audit.partition_logs import (
    CommittedRecordReader,
    PartitionLogs,
    RecordsExpired,
    fetch_places,
    logs_of,
    open_spec,
)
from runtime.audit.verify.comparer import LIMIT, WINDOW, RecordComparer
from runtime.audit.verify.failures import noted
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
    ComparedRecord,
    PlannedPartition,
    RecordContent,
    RecordDifference,
    VerificationPiece,
    VerifiedPiece,
    VerifyRequest,
)
from runtime.audit.verify.plan import Comparison, FlowPartition
from runtime.batch import Batch, records
from runtime.batch.layout import NO_PRODUCER
from runtime.contract.records.ledger import PartitionKey, Progress
from runtime.contract.results.records import UncomparableRange
from runtime.contract.spec.files import LinesSpec
from runtime.files.manifest import EndpointUnavailable
from runtime.files.source.known_files import KnownFile, Reconciliation, reconcile
from runtime.files.source.sources import source_of
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.queries import log_start
from runtime.slot.budget import TokenBucket

if TYPE_CHECKING:
    from runtime.sql.transformer import Evaluates

_NAMED = 10  # files that a text names


class LoadedComparison(Comparison):
    """Compares the topic of a flow from files with the lines or rows of the files."""

    def __init__(self, request: VerifyRequest, lines: LinesSpec) -> None:
        super().__init__(request)
        self._lines = lines
        self.unit = lines.unit

    async def plan(self) -> list[PlannedPartition]:
        request, flow, lines = self.request, self.request.flow, self._lines
        if request.sample < 100 or (request.low, request.high, request.last) != (None, None, None):
            what = f"{flow.name} reads files: --range and --sample choose offsets of a topic"
            raise AuditFailure(lines.endpoint, what, "name no range, no share: the files are compared whole")
        async with open_spec(request.destination, flow.destination) as cluster:
            progress = await (await existing_ledger(cluster, flow.destination)).progress(flow.name)
            if not progress:
                raise NothingCopied(flow.destination, flow.name)
            names = request.chosen({key.topic for key in progress}, lines.endpoint, "read", "file")
            chosen = {key: made for key, made in progress.items() if key.topic in names}
            places = {TopicPartition(lines.topic, key.partition) for key in chosen}
            with as_audit_failure(flow.destination):
                logs = await logs_of(cluster, flow.destination, places, request.within_s)
        files = await asyncio.to_thread(_reconciled, lines, chosen)
        ends: dict[int, int] = {}
        for key, made in progress.items():
            ends[key.partition] = max(ends.get(key.partition, 0), made.destination_end)
        gone = {file.name for file in (*files.replaced, *files.vanished)}
        unseen = {key.partition for key in progress if key not in chosen or key.topic in gone}
        return [
            ComparedFile(
                flow.destination,
                number,
                key,
                made,
                files,
                logs,
                ends[key.partition],
                alone=key.partition not in unseen,
            ).planned(request)
            for number, (key, made) in enumerate(sorted(chosen.items()))
        ]

    async def compare(
        self, pieces: Sequence[VerificationPiece], bucket: TokenBucket, _: Evaluates | None = None
    ) -> list[VerifiedPiece]:
        """Compares the given files: all that are read into their partitions. Raises AuditFailure."""
        request = self.request
        by_partition: defaultdict[int, list[VerificationPiece]] = defaultdict(list)
        for piece in pieces:
            by_partition[piece.partition].append(piece)
        results: list[VerifiedPiece] = []
        async with open_spec(request.destination, request.flow.destination) as cluster:
            for files in by_partition.values():
                results += await LoadedPartition(request, self._lines, files, cluster, bucket).compare()
        return results


def _reconciled(lines: LinesSpec, chosen: Mapping[PartitionKey, Progress]) -> Reconciliation:
    """Returns what became of the files that were read. Raises AuditFailure."""
    source = source_of(lines)
    try:
        listing = source.look()
    except EndpointUnavailable as problem:
        hint = "it is read on this machine, with --on-cluster on those of the job"
        raise AuditFailure(lines.endpoint, str(problem), hint) from None
    known = {
        key.topic: KnownFile(key.topic, made.position, made.source_topic_id, made.source_epoch)
        for key, made in chosen.items()
    }
    return reconcile(listing.files, known, lambda name, file: source.holds(listing.files, name, file))


class ComparedFile(FlowPartition):
    """Holds the positions of a file that was read. `alone`: all other files of its partition are there, too.

    `end`: where the flow's records end in the partition.
    """

    def __init__(
        self,
        cluster: str,
        number: int,
        key: PartitionKey,
        read: Progress,
        files: Reconciliation,
        logs: PartitionLogs,
        end: int,
        *,
        alone: bool = True,
    ) -> None:
        super().__init__(key, read.destination_topic)
        self._number, self._read, self._written_end, self._alone = number, read, end, alone
        self._at = at = TopicPartition(read.destination_topic, key.partition)
        self._logs = logs
        self._name = next((new for known, new in files.moved if known.name == key.topic), key.topic)
        self.end = read.position
        self.unread = logs.problem(at, read.destination_topic_id, cluster, "took the records")
        if not self.unread and any(file.name == key.topic for file in files.replaced):
            self.unread = "it is not the file that was read: it was truncated or overwritten"
        if self.unread:
            self.low = self.end
        elif any(file.name == key.topic for file in files.vanished):
            self.gone = [(self.end, "the file is not there any more")]
        elif at.topic in logs.compacted:
            self.gone = [(self.end, f"{at.topic} is compacted, so its records can't be counted")]

    def pieces(self, share: float, begin: int, low: int, high: int) -> list[VerificationPiece]:
        if low >= high:
            return []
        read, (start, log_end) = self._read, self._logs.bounds[self._at]
        piece = VerificationPiece(
            number=self._number,
            topic=self.key.topic,
            partition=self.key.partition,
            source_id=b"",
            destination_topic=self._at.topic,
            destination_id=read.destination_topic_id,
            low=0,
            high=high,
            destination_low=start,
            destination_high=max(min(self._written_end, log_end), start),
            owned_end=self._written_end,
            alone=self._alone,
            read=KnownFile(self._name, read.position, read.source_topic_id, read.source_epoch),
            records=read.records,
        )
        return [piece]


class WrittenRecords(Struct):
    """Holds the records of a partition that transactions wrote, in the order of their ends."""

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

    def producer_of(self, transaction: TransactionRange) -> int:
        """Returns the producer id that wrote a transaction."""
        return self.producers[bisect_left(self.ranges, transaction)]

    def of(self, transactions: Iterable[TransactionRange]) -> WrittenRecords:
        """Returns the digests and offsets of the records of some transactions."""
        some = WrittenRecords()
        for begin, end in transactions:
            some.digests += self.digests[begin:end]
            some.offsets += self.offsets[begin:end]
        return some


class _RepeatedLines:
    """Finds which transactions repeat lines of a file.

    Such a transaction stands between those of the file, `taken`, and behind the line before its own lines.
    Before or behind them all, it may be of a file that the ledger has forgotten.
    """

    def __init__(self, lines: Sequence[int], taken: Sequence[TransactionRange]) -> None:
        self._lines = lines
        self._begins = [begin for begin, _ in reversed(taken)]
        self._counts = [0, *accumulate(transaction.size for transaction in reversed(taken))]

    def line_of(self, transaction: TransactionRange, content: Sequence[int]) -> int | None:
        """Returns the number of the first line that the transaction with this content repeats, or None."""
        before = self._counts[bisect_left(self._begins, transaction.begin)]
        if not 0 < before < len(self._lines):
            return None
        return next(places_of(self._lines, content, 1, before), None)


class LoadedPartition:
    """Compares the files of one partition of the topic."""

    def __init__(
        self,
        request: VerifyRequest,
        lines: LinesSpec,
        pieces: Sequence[VerificationPiece],
        cluster: KafkaCluster,
        bucket: TokenBucket,
    ) -> None:
        self._lines = lines
        self._request, self._cluster, self._bucket = request, cluster, bucket
        self._pieces = pieces
        self._files: dict[str, FileRecords] = {}
        self._unread: dict[str, str] = {}
        first = pieces[0]
        self._at = TopicPartition(first.destination_topic, first.partition)
        self._topic_id = first.destination_id
        self._low, self._high = first.destination_low, first.destination_high

    async def compare(self) -> list[VerifiedPiece]:
        """Compares all files. It says of each why that was not possible."""
        partition = VerifiedPiece.begin(self._pieces[0])
        with noted(partition):
            try:
                written = await self._written()
            except RecordsExpired:  # retention deletes records meanwhile
                self._low = await log_start(self._cluster, self._at)
                written = await self._written()
        if partition.unread:
            why = f"{partition.unread}: run it again" if partition.passed else partition.unread
            return [VerifiedPiece.begin(piece, why) for piece in self._pieces]
        for piece in self._pieces:
            await asyncio.to_thread(self._read, piece, timed=not written.appended)
        digests = {name: file.digests for name, file in self._files.items()}
        matched = match(digests, written.digests, written.ranges)
        own = self._written_by_the_flow(matched, written)
        likely = owners_of_unknown(matched, digests, written.digests)
        owned = self._certain(likely, own)
        known = {transaction for some in owned.values() for transaction in some}
        doubles = self._doubles(
            matched, [range_ for range_ in matched.unknown if range_ in own - known], written
        )
        known.update(transaction for some in doubles.values() for transaction in some)
        results = []
        for piece in self._pieces:
            name, result = piece.topic, VerifiedPiece.begin(piece, self._unread.get(piece.topic, ""))
            results.append(result)
            if result.unread:
                continue
            of_file = owned.get(name, [])
            unsure = of_file != likely.get(name, [])
            await self._compare(result, piece, written, matched, of_file, doubles[name], unsure=unsure)
            if not result.unread:
                result.end = piece.high
        others = (transaction.size for transaction in matched.unknown if transaction not in known)
        results[0].others = written.others + sum(others)
        return results

    async def _written(self) -> WrittenRecords:
        """Reads the partition. Raises what a CommittedRecordReader raises."""
        reader = CommittedRecordReader(
            self._cluster,
            self._at,
            self._topic_id,
            self._low,
            self._high,
            self._request.within_s,
            self._bucket,
        )
        written = WrittenRecords()
        transactions: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
        while not reader.ended:
            position = reader.position
            for member, committed in await reader.next_sets():
                if isinstance(member, Batch) and member.control:
                    written.add(transactions.pop(member.producer_id, ()), member.producer_id)
                elif committed:
                    some = [one for one in records(member, self._at) if position <= one.offset < self._high]
                    if not isinstance(member, Batch) or not member.transactional:
                        written.others += len(some)
                        continue
                    written.appended |= member.log_append_time
                    transactions[member.producer_id] += (
                        (record.offset, record.timestamp, digest_of(body_of(record))) for record in some
                    )
        for producer_id, transaction in transactions.items():
            written.add(transaction, producer_id)
        return written

    def _read(self, piece: VerificationPiece, *, timed: bool) -> None:
        """Reads one file, or notes why that is not possible."""
        assert piece.read is not None, "a piece of another flow"
        try:
            self._files[piece.topic] = records_up_to(self._lines, piece.read, timed=timed)
        except UnreadableFile as error:
            self._unread[piece.topic] = str(error)

    @staticmethod
    def _written_by_the_flow(matched: Interleaving, written: WrittenRecords) -> set[TransactionRange]:
        """Returns the unknown transactions whose producer wrote lines of files, too."""
        producers = {written.producer_of(range_) for taken in matched.taken.values() for range_ in taken}
        return {range_ for range_ in matched.unknown if written.producer_of(range_) in producers}

    def _certain(
        self, likely: Mapping[str, list[TransactionRange]], own: Collection[TransactionRange]
    ) -> dict[str, list[TransactionRange]]:
        """Returns the likely transactions of each file, less those that others may have written.

        Where lines are gone, one that is equal by chance would make all lines behind it missing.
        """
        if not self._low:
            return dict(likely)
        alone = {piece.topic for piece in self._pieces if piece.alone and not self._unread}
        return {
            name: [range_ for range_ in ranges if range_ in own and name in alone]
            for name, ranges in likely.items()
        }

    def _doubles(
        self, matched: Interleaving, unknown: Sequence[TransactionRange], written: WrittenRecords
    ) -> defaultdict[str, dict[TransactionRange, int]]:
        """Returns the transactions that hold lines of a complete file once more, and where these begin.

        The ledger must have counted the lines once: a file that was read anew is there twice by design.
        """
        doubles: defaultdict[str, dict[TransactionRange, int]] = defaultdict(dict)
        if self._unread:
            return doubles
        complete = {
            piece.topic: _RepeatedLines(self._files[piece.topic].digests, matched.taken[piece.topic])
            for piece in self._pieces
            if piece.alone
            and not matched.left[piece.topic]
            and piece.records == len(self._files[piece.topic].digests)
        }
        for transaction in unknown:
            content = written.digests[transaction.begin : transaction.end]
            for name, lines in complete.items():
                if (number := lines.line_of(transaction, content)) is not None:
                    doubles[name][transaction] = number
                    break
        return doubles

    async def _compare(
        self,
        result: VerifiedPiece,
        piece: VerificationPiece,
        written: WrittenRecords,
        matched: Interleaving,
        owned: Sequence[TransactionRange],
        doubles: Mapping[TransactionRange, int],
        *,
        unsure: bool,
    ) -> None:
        """Compares one file: its first lines with the transactions that are likely to be its own, `owned`.

        All lines behind them are known to be in its transactions, but for the times of the records.
        """
        name, file = piece.topic, self._files[piece.topic]
        left = matched.left[name]  # lines at its beginning that no transaction holds as they are
        result.compared = len(file.digests) - left
        if left and name in matched.alike and (owned or not self._low):
            names = sorted(matched.alike - {name})
            alike = ", ".join([*names[:_NAMED], *(["others"] if len(names) > _NAMED else [])])
            result.unread = f"its lines can't be told from those of {alike}"
            return
        there = written.of(owned)
        skipped = expired(file, left, there.digests) if left and self._low else 0
        known = [*other_times(file, written, matched.taken[name]), *once_more(doubles)]
        await compare_lines(result, file, skipped, left, there.digests)
        with noted(result):
            later = await self._placed(known[:LIMIT], file, 0, written.offsets)
            edits = await self._placed(result.edits, file, skipped, there.offsets)
            result.edits = [*edits, *later]
            result.more |= len(later) >= LIMIT
        if result.unread:
            result.compared, result.edits, result.more = len(file.digests) - left, [], False
            result.end = piece.low
        elif skipped:
            why = f"retention passed at {self._request.flow.destination}"
            why += ", or its lines can't be told from records of others" if unsure else ""
            result.not_comparable = [UncomparableRange(low=0, end=file.position(skipped), why=why)]

    async def _placed(
        self, edits: Sequence[RecordDifference], file: FileRecords, skipped: int, offsets: Sequence[int]
    ) -> list[RecordDifference]:
        """Returns differences with positions, offsets and contents in place of numbers of lines and records.

        A record that retention has deleted meanwhile makes no difference. Raises WireError, UnreadableFile.
        """
        wanted = [offsets[edit.destination.offset] for edit in edits if edit.destination is not None]
        there = await fetch_places(self._cluster, self._at, self._topic_id, wanted, self._bucket.take)
        placed = []
        for edit in edits:
            source = destination = None
            if edit.destination is not None:
                offset = offsets[edit.destination.offset]
                if offset not in there:
                    continue
                record = there[offset]
                time = record.timestamp if file.timed else NO_TIME
                destination = ComparedRecord(offset, None, content_of_body(time, body_of(record)))
            if edit.source is not None:
                number = edit.source.offset + skipped
                content = await asyncio.to_thread(file.content, number)
                source = ComparedRecord(file.position(number), None, content)
            placed.append(
                RecordDifference(
                    edit.what,
                    file.position(edit.near + skipped),
                    source,
                    destination,
                    file.position(edit.twin + skipped) if edit.twin is not None else None,
                    file.read.name,
                )
            )
        return placed


def other_times(
    file: FileRecords, written: WrittenRecords, taken: Iterable[TransactionRange]
) -> list[RecordDifference]:
    """Returns the records that are equal but for their timestamps, by their numbers at both sides.

    `taken` are the transactions of the file, the last one first.
    """
    if not file.times:
        return []
    changed: list[RecordDifference] = []
    end = len(file.digests)
    for transaction in taken:
        begin = end - transaction.size
        if file.times[begin:end] != written.times[transaction.begin : transaction.end]:
            shift = transaction.begin - begin
            changed += (
                RecordDifference("changed", number, ComparedRecord(number), ComparedRecord(number + shift))
                for number in range(begin, end)
                if file.times[number] != written.times[number + shift]
            )
        end = begin
    return sorted(changed, key=lambda edit: edit.near)[:LIMIT]


def once_more(doubles: Mapping[TransactionRange, int]) -> Iterator[RecordDifference]:
    """Yields the records that are there once more, with the number of the line that each has."""
    for (begin, end), line in doubles.items():
        for number in range(begin, end):
            twin = line + number - begin
            yield RecordDifference("extra", twin, None, ComparedRecord(number), twin)


async def compare_lines(
    result: VerifiedPiece, file: FileRecords, skipped: int, left: int, there: Sequence[int]
) -> None:
    """Compares the lines `skipped … left-1` of a file with records, by their numbers from 0 on."""
    comparer = RecordComparer(result, in_order=True)
    await comparer.run(_numbered(file.digests[skipped:left]), _numbered(there))


async def _numbered(digests: Sequence[int]) -> AsyncIterator[list[ComparedRecord]]:
    for begin in range(0, len(digests), WINDOW):
        yield [
            ComparedRecord(number, number, RecordContent(NO_TIME, None, digest.to_bytes(8, signed=True), ()))
            for number, digest in enumerate(digests[begin : begin + WINDOW], begin)
        ]


def expired(file: FileRecords, left: int, digests: Sequence[int]) -> int:
    """Returns how many lines at the beginning retention has deleted: those before the first record left."""
    if not digests:
        return left
    wanted, numbers_of = set(digests), dict[int, int]()
    for number, digest in enumerate(islice(file.digests, left)):
        if digest in wanted:
            numbers_of.setdefault(digest, number)
    known = ((numbers_of[digest], at) for at, digest in enumerate(digests) if digest in numbers_of)
    number, at = next(known, (0, 0))
    return max(number - at, 0)  # a record before it may be a line that was changed
