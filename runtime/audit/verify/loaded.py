"""Plans and compares a flow from files: the lines or rows of files, and the records that were made of them.

The ledger says how far each file was read, and by its offset map which records of the partition hold its
lines. So a partition is read once, and each run of records is compared with the next lines of its file.
"""

from __future__ import annotations

import asyncio
import sys
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from runtime.audit.ledger import AuditFailure, NothingCopied, as_audit_failure, existing_ledger
from runtime.audit.partition_logs import (
    CommittedRecordReader,
    PartitionLogs,
    RecordsExpired,
    fetch_places,
    logs_of,
    open_spec,
)
from runtime.audit.verify.comparer import LIMIT, RecordComparer
from runtime.audit.verify.file_lines import (
    NO_TIME,
    FileLine,
    FileLines,
    body_of,
    content_of_body,
    digest_of,
)
from runtime.audit.verify.pieces import (
    ComparedRecord,
    LoadedFile,
    PlannedPartition,
    RecordDifference,
    VerifiedPiece,
    VerifyRequest,
)
from runtime.audit.verify.plan import Comparison, noted, planned
from runtime.contract.records.consumer_record import ConsumerRecord
from runtime.contract.records.ledger import PartitionKey, Progress
from runtime.contract.records.offset_map import OffsetMap, Run, decode_runs, encode_runs
from runtime.contract.results.records import UncomparableRange
from runtime.contract.spec.files import LinesSpec
from runtime.contract.spec.naming import TopicPartition
from runtime.files.manifest import EndpointUnavailable
from runtime.files.source.known_files import KnownFile, Reconciliation, reconcile
from runtime.files.source.sources import source_of
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.queries import log_start
from runtime.slot.budget import TokenBucket

if TYPE_CHECKING:
    from runtime.sql.transformer import Evaluates


_LINES: Final = 1_000  # that are read at a time


class LoadedComparison(Comparison[LoadedFile]):
    """Compares the topic of a flow from files with the lines or rows of the files."""

    together = True  # lines of a file that was not read may be taken for those of another one

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
            opened = await existing_ledger(cluster, flow.destination)
            await opened.decided(flow.name)
            progress = opened.progress(flow.name)
            if not progress:
                raise NothingCopied(flow.destination, flow.name)
            names = request.chosen({key.topic for key in progress}, lines.endpoint, "read", "file")
            chosen = {key: made for key, made in progress.items() if key.topic in names}
            maps = opened.all(flow.name)
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
            loaded_file(
                request,
                number,
                key,
                made,
                maps[key],
                files,
                logs,
                ends[key.partition],
                alone=key.partition not in unseen,
            )
            for number, (key, made) in enumerate(sorted(chosen.items()))
        ]

    async def compare(
        self, pieces: Sequence[LoadedFile], bucket: TokenBucket, _: Evaluates | None = None
    ) -> list[VerifiedPiece]:
        """Compares the given files: all that are read into their partitions. Raises AuditFailure."""
        request = self.request
        results: list[VerifiedPiece] = []
        async with open_spec(request.destination, request.flow.destination) as cluster:
            for files in self.groups(pieces):
                results += await LoadedPartition(request, self._lines, files, cluster, bucket).compare()
        return results

    def groups(self, pieces: Sequence[LoadedFile]) -> list[Sequence[LoadedFile]]:
        """Returns the files of each partition: they are compared with its records in one pass."""
        by_partition: dict[int, list[LoadedFile]] = {}
        for piece in pieces:
            by_partition.setdefault(piece.partition, []).append(piece)
        return list(by_partition.values())

    def size(self, pieces: Sequence[LoadedFile]) -> int:
        passes = {piece.partition: piece.destination_high - piece.destination_low for piece in pieces}
        return max(sum(piece.records for piece in pieces), sum(passes.values()))


def _reconciled(lines: LinesSpec, chosen: Mapping[PartitionKey, Progress]) -> Reconciliation:
    """Returns what became of the files that were read. Raises AuditFailure."""
    source = source_of(lines)
    try:
        listing = source.look()
    except EndpointUnavailable as problem:
        hint = "it is read on this machine, with --on-cluster on those of the job"
        raise AuditFailure(lines.endpoint, str(problem), hint) from None
    known_files = {key.topic: KnownFile.of(key.topic, progress) for key, progress in chosen.items()}
    return reconcile(listing.files, known_files, lambda name, file: source.holds(listing.files, name, file))


def loaded_file(
    request: VerifyRequest,
    number: int,
    key: PartitionKey,
    read: Progress,
    offsets: OffsetMap,
    files: Reconciliation,
    logs: PartitionLogs,
    written_end: int,
    *,
    alone: bool = True,
) -> PlannedPartition:
    """Plans a file that was read. `alone`: all other files of its partition are there, too.

    `written_end`: where the flow's records end in the partition.
    """
    at, cluster = TopicPartition(read.destination_topic, key.partition), request.flow.destination
    end, gone = read.position, ""
    unread = logs.problem(at, read.destination_topic_id, cluster, "took the records")
    if not unread and any(file.name == key.topic for file in files.replaced):
        unread = "it is not the file that was read: it was truncated or overwritten"
    if unread:
        return PlannedPartition(key, at.topic, end, end, unread=unread)
    start, kept_from = logs.bounds[at].start, end
    runs = [run for span in offsets.spans for run in span.runs]
    if any(file.name == key.topic for file in files.vanished):
        gone = "the file is not there any more"
    elif at.topic in logs.compacted:
        gone = f"{at.topic} is compacted, so its records can't be counted"
    else:
        gone = f"retention passed at {cluster}"
        kept = next((number for number, run in enumerate(runs) if run.destination_end > start), len(runs))
        # The first run of a chunk begins at a line. Others of the chunk follow it without a gap. Rows have
        # no such gaps, and each run begins at one.
        in_rows = request.flow.lines is not None and request.flow.lines.unit == "rows"
        while not in_rows and 0 < kept < len(runs) and runs[kept].source == runs[kept - 1].source_end:
            kept -= 1
        if not kept:
            kept_from = offsets.low
        elif kept < len(runs):
            kept_from = runs[kept].source

    def pieces(_: int, low: int, high: int) -> list[LoadedFile]:
        if low >= high:
            return []
        name = next((new for old, new in files.moved if old.name == key.topic), key.topic)
        piece = LoadedFile(
            number=number,
            topic=key.topic,
            partition=key.partition,
            destination_topic=at.topic,
            destination_id=read.destination_topic_id,
            low=low,
            high=high,
            destination_low=start,
            destination_high=max(written_end, start),
            runs=encode_runs((run for run in runs if run.source >= low), 0, 0),
            alone=alone,
            read=KnownFile.of(name, read),
            records=read.records,
        )
        return [piece]

    before = f"below the offset map, which begins at {offsets.low}"
    return planned(request, key, at.topic, offsets.low, end, pieces, before=before, gone=[(kept_from, gone)])


class FilePiece:
    """Compares the lines of one file with its records, run by run, in order.

    `run` is the run that is read, `records` are its records, and `left` counts the runs behind it.
    """

    def __init__(self, lines: LinesSpec, piece: LoadedFile) -> None:
        self.piece, self.result = piece, VerifiedPiece.begin(piece)
        self.runs = decode_runs(piece.runs, 0, 0)
        self.left = len(self.runs)
        self.records: list[ConsumerRecord] = []
        self.name = piece.read.name
        self._spec, self._read = lines, piece.read
        self._lines = FileLines(lines, piece.read, piece.low)

    @property
    def run(self) -> Run:
        return self.runs[len(self.runs) - self.left - 1]

    def open(self) -> None:
        """Begins the next run."""
        self.left -= 1
        self.records = []

    def close(self) -> None:
        """Closes the file until its next run."""
        self._lines.close()

    async def compare(self, start: int, passed: str) -> None:
        """Compares the lines of the run with its records.

        The log begins at `start` now, and `passed` says why. Raises UnreadableFile.
        """
        result, run, records = self.result, self.run, self.records

        def taken() -> tuple[list[FileLine], list[FileLine]]:
            unmapped = self._lines.take(run.source, LIMIT)
            return unmapped, self._lines.take(self.piece.high, run.records)

        unmapped, lines = await asyncio.to_thread(taken)
        if expired := min(max(start - run.destination, 0), len(lines)):
            end = lines[expired].position if expired < len(lines) else self._lines.position
            result.not_comparable = [UncomparableRange(low=self.piece.low, end=end, why=passed)]
            result.end, lines = end, lines[expired:]
        same = len(lines) == len(records) == run.records - expired and all(map(_are_equal, lines, records))
        if same and not unmapped:
            result.compared += len(lines)
            result.end = self._lines.position
        else:
            await self._differ(unmapped, lines, run.destination + expired, records)

    async def finish(self) -> None:
        """Compares what follows the last run, which no record holds. Raises UnreadableFile."""
        if rest := await asyncio.to_thread(self._lines.take, self.piece.high, LIMIT):
            await self._differ(rest, (), 0, ())
        self.result.end = self.piece.high

    async def _differ(
        self,
        unmapped: Sequence[FileLine],
        lines: Sequence[FileLine],
        destination: int,
        records: Sequence[ConsumerRecord],
    ) -> None:
        """Notes the differences of lines, of which the first ones are not in the map, and their records."""
        result, before = self.result, len(self.result.edits)
        timed = not any(record.appended for record in records)

        def content(line: FileLine) -> ComparedRecord:
            time = line.timestamp if timed else NO_TIME
            return ComparedRecord(line.position, None, content_of_body(time, line.body))

        has_times = timed and any(line.timestamp != NO_TIME for line in lines)
        here = [content(line) for line in unmapped]
        here += [content(line)._replace(at=offset) for offset, line in enumerate(lines, destination)]
        there = [
            ComparedRecord(
                record.offset,
                None,
                content_of_body(record.timestamp if has_times else NO_TIME, body_of(record)),
            )
            for record in records
        ]
        await RecordComparer(result, in_order=True).run(_at_once(here), _at_once(there))
        begins = [*(line.offset for line in here), self._lines.position]
        result.edits[before:] = [
            replace(edit, near=begins[bisect_left(begins, edit.near)], file=self.name)
            for edit in result.edits[before:]
        ]
        result.end = self._lines.position

    @property
    def is_whole(self) -> bool:
        """Returns whether each line that the ledger counts was compared, and was equal."""
        result, piece = self.result, self.piece
        equal = not (result.edits or result.unread or result.more or result.not_comparable)
        return equal and not piece.low and piece.alone and result.compared == piece.records

    def repeated(self, others: Sequence[int], digests: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Yields the offsets of records that repeat lines of this file, and where these lines begin.

        `others` are offsets with the digests of their records. Adjacent ones repeat lines where they stand
        between the records of the file, and behind the line before their own lines. Before or behind them
        all, they may be of a file that the ledger has forgotten. Raises UnreadableFile.
        """
        reader, lines, positions = FileLines(self._spec, self._read, 0), array("q"), array("q")
        try:
            while taken := reader.take(self.piece.high, _LINES):
                lines.extend(digest_of(line.body) for line in taken)
                positions.extend(line.position for line in taken)
        finally:
            reader.close()
        begin = 0
        for end, offset in enumerate(others, 1):
            if end < len(others) and others[end] == offset + 1:
                continue
            before = sum(run.records for run in self.runs if run.destination < others[begin])
            if 0 < before < len(lines):
                first = next(places_of(lines, digests[begin:end], 1, before), None)
                if first is not None:
                    yield from zip(others[begin:end], positions[first:], strict=False)
            begin = end


def _are_equal(line: FileLine, record: ConsumerRecord) -> bool:
    timed = line.timestamp != NO_TIME and not record.appended
    return line.body == body_of(record) and (not timed or line.timestamp == record.timestamp)


async def _at_once(records: Sequence[ComparedRecord]) -> AsyncIterator[Sequence[ComparedRecord]]:
    if records:
        yield records


class LoadedPartition:
    """Compares the files of one partition of the topic."""

    def __init__(
        self,
        request: VerifyRequest,
        lines: LinesSpec,
        pieces: Sequence[LoadedFile],
        cluster: KafkaCluster,
        bucket: TokenBucket,
    ) -> None:
        self._request, self._lines = request, lines
        self._pieces = pieces
        self._cluster, self._bucket = cluster, bucket
        first = pieces[0]
        self._at = TopicPartition(first.destination_topic, first.partition)
        self._topic_id = first.destination_id
        self._low, self._high = first.destination_low, first.destination_high
        self._reading: FilePiece | None = None
        self._files: list[FilePiece] = []
        self._waiting: deque[tuple[int, int]] = deque()  # where the next runs begin, and of which file
        self._opened: list[FilePiece] = []  # those whose run is being read
        self._between = 0  # the files that have records before and behind what is being read

    async def compare(self) -> list[VerifiedPiece]:
        """Compares all files. It says of each why that was not possible."""
        partition = VerifiedPiece.begin(self._pieces[0])
        results: list[VerifiedPiece] = []
        with noted(partition):
            try:
                results = await self._compared()
            except RecordsExpired:  # retention deletes records meanwhile
                self._low = await log_start(self._cluster, self._at)
                results = await self._compared()
        if partition.unread:
            why = f"{partition.unread}: run it again" if partition.passed else partition.unread
            return [VerifiedPiece.begin(piece, why) for piece in self._pieces]
        return results

    async def _compared(self) -> list[VerifiedPiece]:
        """Compares all files. Raises what a CommittedRecordReader raises."""
        self._files = files = [FilePiece(self._lines, piece) for piece in self._pieces]
        begins = ((run.destination, number) for number, file in enumerate(files) for run in file.runs)
        self._waiting = deque(sorted(begins))
        self._opened, self._between = [], 0
        try:
            others, digests, count = await self._read()
            for file in files:
                await self._note(file, file.finish)
        finally:
            self._switch(None)
        for file in () if any(file.result.unread for file in files) else files:
            if others and file.is_whole:
                doubled = await self._doubled(file, others, digests)
                left = [at for at, offset in enumerate(others) if offset not in doubled]
                others, digests = (array("q", (some[at] for at in left)) for some in (others, digests))
                count -= len(doubled)
        files[0].result.others = count
        return [file.result for file in files]

    async def _read(self) -> tuple[array[int], array[int], int]:
        """Reads the partition, and compares each run.

        Returns how many records are in no run. Of those that may repeat lines, it returns the offsets and
        digests: a producer of the flow wrote them between the records of a file.
        """
        producer_ids: set[int] = set()
        others, digests = array("q"), array("q")
        count = limit = 0
        low, high, within_s = self._low, self._high, self._request.within_s
        async for records in CommittedRecordReader(
            self._cluster, self._at, self._topic_id, low, high, within_s, self._bucket
        ):
            for record in records:
                if record.offset >= limit:
                    limit = await self._advance_to(record.offset)
                for file in self._opened:
                    file.records.append(record)
                    producer_ids.add(record.producer_id)
                if not self._opened:
                    count += 1
                    if self._between and record.producer_id in producer_ids:
                        others.append(record.offset)
                        digests.append(digest_of(body_of(record)))
        await self._advance_to(sys.maxsize)
        return others, digests, count

    async def _advance_to(self, offset: int) -> int:
        """Opens the runs that begin up to an offset, and compares those that end there.

        Returns the next offset where one begins or ends.
        """
        while self._waiting and self._waiting[0][0] <= offset:
            begin, number = self._waiting.popleft()
            await self._compare_before(begin)
            file = self._files[number]
            file.open()
            self._opened.append(file)
            if len(file.runs) > 1:
                self._between += (file.left == len(file.runs) - 1) - (file.left == 0)
        await self._compare_before(offset)
        next_begin = self._waiting[0][0] if self._waiting else sys.maxsize
        return min([next_begin, *(file.run.destination_end for file in self._opened)])

    async def _compare_before(self, offset: int) -> None:
        """Compares the runs that end before an offset."""
        for file in [file for file in self._opened if file.run.destination_end <= offset]:
            self._opened.remove(file)
            passed = f"retention passed at {self._request.flow.destination}"
            await self._note(file, partial(file.compare, self._low, passed))

    async def _note(self, file: FilePiece, compare: Callable[[], Awaitable[None]]) -> None:
        """Compares lines of a file, unless it could not be read before. One file is open at a time (R8)."""
        if not file.result.unread and not file.result.more:
            self._switch(file)
            with noted(file.result):
                await compare()

    def _switch(self, file: FilePiece | None) -> None:
        if self._reading is not None and self._reading is not file:
            self._reading.close()
        self._reading = file

    async def _doubled(self, file: FilePiece, others: Sequence[int], digests: Sequence[int]) -> set[int]:
        """Notes the records that hold lines of a file once more, and returns their offsets."""
        result, twins = file.result, dict[int, int]()
        with noted(result):
            twins = dict(await asyncio.to_thread(lambda: list(file.repeated(others, digests))))
            shown = dict(islice(twins.items(), LIMIT))
            there = await fetch_places(self._cluster, self._at, self._topic_id, shown, self._bucket.take)
            for offset, position in shown.items():
                if offset in there:  # retention has not deleted it meanwhile
                    content = content_of_body(NO_TIME, body_of(there[offset]))
                    copy = ComparedRecord(offset, None, content)
                    result.edits.append(RecordDifference("extra", position, None, copy, position, file.name))
            result.more |= len(twins) >= LIMIT
        return set(twins)


def places_of(lines: Sequence[int], content: Sequence[int], begin: int, end: int) -> Iterator[int]:
    """Yields the numbers `begin … end` of lines from which on a file has these lines."""
    at, end = begin, min(end, len(lines) - len(content))
    while at <= end:
        try:
            at = lines.index(content[0], at, end + 1)
        except ValueError:
            return
        if lines[at : at + len(content)] == content:
            yield at
        at += 1
