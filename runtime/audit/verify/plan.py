"""Plans a comparison, by the ledger and both logs, and stores its progress in a file.

A comparison that was interrupted resumes from the file. The first line is the plan as it was made at the
start, each further line the result of one task. The pieces of a line that was cut in the middle are compared
again. Keys and values of records that differ may be in the file: only its owner can read it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from runtime.audit.ledger import (
    AuditFailure,
    LedgerNotFound,
    NothingCopied,
    as_audit_failure,
    ledger_of,
    progress_at,
)
from runtime.audit.partition_logs import PartitionLogs, logs_of, open_spec
from runtime.audit.verify.file_plan import plan_stored
from runtime.audit.verify.loaded_plan import plan_loaded
from runtime.audit.verify.pieces import (
    PIECE,
    SAMPLED,
    PlannedPartition,
    VerificationPiece,
    VerifiedPiece,
    VerifyRequest,
)
from runtime.contract.records.ledger import (
    NO_ORPHANS,
    Orphans,
    PartitionKey,
    Progress,
    orphaned_ranges,
)
from runtime.contract.records.offset_map import EndOfOffsetMap, MappedOffset, OffsetMap, Run, encode_runs
from runtime.contract.spec.flow import ENDED
from runtime.contract.spec.naming import is_other_topic
from runtime.contract.spec.route import is_reserved
from runtime.contract.spec.selection import NamePatterns, regex
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.protocol.offsets import TopicPartition

TOGETHER = 100  # ranges of a sample in a task


class FlowLedgerSnapshot(Struct, frozen=True):
    """Holds a flow's partitions by the ledger, and both sides' logs from before the ledger was read."""

    progress: Mapping[PartitionKey, Progress]
    maps: Mapping[PartitionKey, OffsetMap]
    orphans: Mapping[PartitionKey, Orphans]
    own: Mapping[PartitionKey, Sequence[tuple[int, int]]]
    source_logs: PartitionLogs
    destination_logs: PartitionLogs


async def plan(asked: VerifyRequest) -> list[PlannedPartition]:
    """Returns the plan of every partition. Raises AuditFailure."""
    if asked.flow.files is not None:
        return await plan_stored(asked)
    if asked.flow.lines is not None:
        return await plan_loaded(asked)
    read = await read_ledger(asked)
    return [
        _Partition(asked, number, key, read).planned() for number, key in enumerate(sorted(read.progress))
    ]


async def read_ledger(asked: VerifyRequest) -> FlowLedgerSnapshot:
    """Reads the ledger after the destination's end offsets, so that it covers all records below them."""
    flow = asked.flow
    async with (
        open_spec(asked.source, flow.source) as source,
        open_spec(asked.destination, flow.destination) as destination,
    ):
        opened = await ledger_of(destination)
        if opened is None:
            raise LedgerNotFound(flow.destination)
        keys = _chosen(asked, await progress_at(flow.destination, opened, flow.name))
        copies = [TopicPartition(one.destination_topic, key.partition) for key, one in keys.items()]
        destination_logs = await logs_of(destination, flow.destination, copies, asked.within_s)
        progress = await progress_at(flow.destination, opened, flow.name)
        maps, orphans = opened.maps.all(flow.name), opened.ledger.orphans(flow.name)
        with as_audit_failure(flow.source):
            originals = [TopicPartition(key.topic, key.partition) for key in keys]
            source_logs = await logs_of(source, flow.source, originals, asked.within_s)
            own = await _left_by_the_opposite(asked, source, progress)
    return FlowLedgerSnapshot(
        {key: progress[key] for key in keys}, maps, orphans, own, source_logs, destination_logs
    )


async def _left_by_the_opposite(
    asked: VerifyRequest, source: KafkaCluster, progress: Mapping[PartitionKey, Progress]
) -> dict[PartitionKey, list[tuple[int, int]]]:
    """Returns destination offsets that the opposite flow gave up, or had not copied when it ended.

    They are the destination's own records. The opposite flow's ledger is at the source.
    """
    opened = await ledger_of(source) if asked.opposite is not None else None
    if opened is None or asked.opposite is None:
        return {}
    theirs = await progress_at(asked.flow.source, opened, asked.opposite)
    orphans = opened.ledger.orphans(asked.opposite)
    found = {}
    for key, one in progress.items():
        other = PartitionKey(asked.opposite, one.destination_topic, key.partition)
        orphaned = orphaned_ranges(orphans.get(other, NO_ORPHANS), one.destination_topic_id)
        found[key] = [(left.low, left.end) for left in orphaned]
        if other in theirs and not is_other_topic(theirs[other].source_topic_id, one.destination_topic_id):
            found[key] += [(gap.low, gap.end) for gap in theirs[other].gaps]
    return found


def _chosen(asked: VerifyRequest, progress: Mapping[PartitionKey, Progress]) -> dict[PartitionKey, Progress]:
    flow = asked.flow
    own = {key: one for key, one in progress.items() if not is_reserved(key.topic)}
    if not own:
        raise NothingCopied(flow.destination, flow.name)
    if asked.topics is None:
        return own
    wanted = regex(asked.topics)
    chosen = {key: one for key, one in own.items() if wanted.matches(key.topic)}
    if not chosen:
        copied = ", ".join(sorted({key.topic for key in own})[:10])
        what = f"{flow.name} copied no topic {asked.topics}"
        raise AuditFailure(flow.destination, what, f"it copied {copied}")
    return chosen


class _Partition:
    def __init__(
        self, asked: VerifyRequest, number: int, key: PartitionKey, read: FlowLedgerSnapshot
    ) -> None:
        self._asked, self._number, self._key = asked, number, key
        self._progress, self._map = read.progress[key], read.maps[key]
        self._source_logs, self._destination_logs = read.source_logs, read.destination_logs
        orphaned = orphaned_ranges(read.orphans.get(key, NO_ORPHANS), self._progress.source_topic_id)
        given_up = [(gap.low, gap.end, gap.why) for gap in self._progress.gaps]
        self._gaps = [*((one.low, one.end, one.why) for one in orphaned), *given_up]
        self._own = tuple(read.own.get(key, ()))
        self._replayed = [
            (low, one.end, one.records)
            for low, one in sorted(read.orphans.get(key, NO_ORPHANS).replayed, key=itemgetter(0))
            if one.topic == self._progress.destination_topic
            and not is_other_topic(one.source_topic_id, self._progress.source_topic_id)
        ]
        self._at = TopicPartition(key.topic, key.partition)
        self._at_copy = TopicPartition(self._progress.destination_topic, key.partition)

    def planned(self) -> PlannedPartition:
        planned = PlannedPartition(self._key, self._progress.destination_topic, self._map.low, self._map.low)
        planned.unread = self._unreadable()
        if not planned.unread:
            self._bounds(planned)
            planned.pieces = self._pieces(planned.low, planned.end)
            planned.replayed = [one for one in self._replayed if self._all_seen(one[0], planned)]
        return planned

    def _all_seen(self, low: int, planned: PlannedPartition) -> bool:
        """Returns whether the pieces must contain all records that were replayed from this source offset on.

        They lie behind the records that the flow had copied before.
        """
        if not planned.pieces or self._asked.sample < 100 or planned.pieces[-1].high < self._map.end:
            return False
        first = planned.pieces[0]
        return not first.compacted and first.destination_low <= self._map.destination_behind(low)

    def _unreadable(self) -> str:
        progress, flow = self._progress, self._asked.flow
        sides = (
            (self._at, progress.source_topic_id, self._source_logs, flow.source),
            (self._at_copy, progress.destination_topic_id, self._destination_logs, flow.destination),
        )
        for at, known, logs, cluster in sides:
            if at.topic not in logs.ids:
                return f"there is no topic {at.topic} at {cluster}"
            if is_other_topic(known, logs.ids[at.topic]):
                return f"{at.topic} at {cluster} is not the topic that was copied: it was recreated"
            if at not in logs.starts or at not in logs.ends:
                return f"{at.topic}-{at.partition} at {cluster} has no leader that answers"
        return ""

    def _bounds(self, planned: PlannedPartition) -> None:
        asked, offsets, flow = self._asked, self._map, self._asked.flow
        start = self._source_logs.starts[self._at]
        high = asked.high if asked.high is not None else offsets.end
        low = asked.low if asked.low is not None else min(start, offsets.low)
        if asked.last is not None:
            low = max(offsets.end - asked.last, 0)
        why = f"below the offset map, which begins at {offsets.low}"
        planned.exclude(max(low, start), min(offsets.low, high), why)
        planned.exclude(max(low, offsets.end), high, f"not replicated yet by {flow.name}")
        low, end = max(low, offsets.low), min(high, offsets.end)
        for first, cluster in ((start, flow.source), (self._kept_from(), flow.destination)):
            planned.exclude(low, min(first, end), f"retention passed at {cluster}")
            low = max(low, first)
        planned.low, planned.end = min(low, max(end, 0)), end

    def _kept_from(self) -> int:
        """Returns the source offset of the first copied record that the destination still has."""
        start, offsets = self._destination_logs.starts[self._at_copy], self._map
        if start <= offsets.destination_low:
            return offsets.low
        origin = offsets.origin(start)
        return origin.offset if isinstance(origin, MappedOffset) else offsets.end

    def _pieces(self, low: int, end: int) -> list[VerificationPiece]:
        if low > end:
            return []
        if self._asked.sample >= 100:
            cuts = [*range(low, end, PIECE), end] if low < end else [low, end]
            return [self._piece(begin, behind) for begin, behind in itertools.pairwise(cuts)]
        begins = range(low, end, SAMPLED)
        count = min(len(begins), max(1, round(len(begins) * self._asked.sample / 100)))
        chosen = sorted(random.Random().sample(begins, count))  # noqa: S311 - no secret
        return [self._piece(begin, min(begin + SAMPLED, end)) for begin in chosen]

    def _piece(self, low: int, high: int) -> VerificationPiece:
        progress = self._progress
        begin, behind = self._copied_to(low), self._copied_to(high)
        if high == self._map.end and (self._alone or self._replayed) and self._asked.high is None:
            behind = max(behind, self._destination_logs.ends[self._at_copy])
        runs = self._runs(low, high)
        return VerificationPiece(
            number=self._number,
            topic=self._key.topic,
            partition=self._key.partition,
            source_id=progress.source_topic_id,
            destination_topic=progress.destination_topic,
            destination_id=progress.destination_topic_id,
            low=low,
            high=high,
            destination_low=begin,
            destination_high=behind,
            owned_end=self._map.destination_end,
            runs=encode_runs(runs, low, begin),
            gaps=tuple(gap for gap in self._gaps if gap[0] <= high and low <= gap[1]),
            compacted=self._key.topic in self._source_logs.compacted
            or progress.destination_topic in self._destination_logs.compacted,
            alone=self._alone,
            replayed=tuple(self._replayed),
            own=self._own,
        )

    @property
    def _alone(self) -> bool:
        """Returns whether only the flow may write behind the copied records.

        Other producers may write to a promoted topic, and to the destination of a flow that ended.
        """
        promoted = NamePatterns(self._asked.flow.promoted).match(self._key.topic)
        return self._asked.flow.state not in ENDED and not promoted

    def _copied_to(self, offset: int) -> int:
        """Returns the destination offset at which a range from this source offset on begins."""
        offsets = self._map
        answer = offsets.translate(offset)
        found = (
            answer.offset if isinstance(answer, MappedOffset | EndOfOffsetMap) else offsets.destination_low
        )
        if offset == offsets.low:
            found = offsets.destination_low
        return max(found, self._destination_logs.starts[self._at_copy])

    def _runs(self, low: int, high: int) -> Iterator[Run]:
        """Yields the runs of the range, cut at both ends."""
        for span in self._map.spans:
            if span.low < high and low < span.end:
                for run in span.runs:
                    begin, end = max(run.source, low), min(run.source_end, high)
                    if begin < end:
                        yield Run(begin, run.destination + begin - run.source, end - begin)


def grouped(planned: Sequence[PlannedPartition]) -> list[list[VerificationPiece]]:
    """Returns one group of pieces for each task: a whole piece, or many ranges of a sample.

    The files that are read into one partition are one group.
    """
    files: dict[int, list[VerificationPiece]] = {}
    for one in planned:
        for piece in one.pieces:
            if piece.read is not None:
                files.setdefault(piece.partition, []).append(piece)
    if files:
        return list(files.values())
    whole = [[piece] for one in planned for piece in one.pieces if piece.high - piece.low > SAMPLED]
    small = [piece for one in planned for piece in one.pieces if piece.high - piece.low <= SAMPLED]
    return whole + [small[at : at + TOGETHER] for at in range(0, len(small), TOGETHER)]


_VERSION = 1


class SavedVerification(msgspec.Struct, frozen=True, omit_defaults=True):
    """Holds the stored progress. `pieces`: those that were compared to their end.

    The first line of the file is the plan, without pieces. Each further line has the pieces of a group.
    """

    at_ms: int
    planned: list[PlannedPartition]
    pieces: list[VerifiedPiece] = []
    version: int = 0


_saved = msgspec.json.Decoder(SavedVerification)
_pieces = msgspec.json.Decoder(list[VerifiedPiece])


class VerificationFile:
    """Stores the progress of one comparison. Without a file it stores nothing."""

    def __init__(self, file: Path | None) -> None:
        self._file = file

    def begin(self, at_ms: int, planned: list[PlannedPartition]) -> None:
        if self._file is None:
            return
        self._file.unlink(missing_ok=True)
        first = SavedVerification(at_ms, planned, version=_VERSION)
        self._write(msgspec.json.encode(first), os.O_CREAT | os.O_EXCL)

    def add(self, group: Sequence[VerificationPiece], pieces: Sequence[VerifiedPiece]) -> None:
        """Stores the compared pieces of a group. A piece that could not be read is compared again.

        The files that are read into a partition are compared together, so all of them are compared again.
        """
        read = [piece for piece in pieces if not piece.unread or piece.passed]
        if len(read) < len(pieces) and any(piece.read is not None for piece in group):
            return
        if self._file is not None and read:
            self._write(msgspec.json.encode(read), os.O_APPEND)

    def load(self) -> SavedVerification | None:
        """Returns the stored progress, or None where there is nothing to resume."""
        if self._file is None or not self._file.exists():
            return None
        first, *more = self._file.read_bytes().split(b"\n")
        try:
            saved = _saved.decode(first)
        except msgspec.DecodeError:
            return None
        return replace(saved, pieces=list(_whole(more))) if saved.version == _VERSION else None

    def close(self) -> None:
        """Deletes the file, because the comparison is complete."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)

    def _write(self, line: bytes, how: int) -> None:
        assert self._file is not None
        with os.fdopen(os.open(self._file, os.O_WRONLY | how, 0o600), "wb") as file:
            file.write(line + b"\n")


def begin(asked: VerifyRequest, file: VerificationFile) -> SavedVerification:
    """Plans a comparison and stores the plan. Raises AuditFailure."""
    begun = SavedVerification(int(time.time() * 1000), asyncio.run(plan(asked)))
    file.begin(begun.at_ms, begun.planned)
    return begun


def remaining(
    groups: Sequence[Sequence[VerificationPiece]], pieces: Iterable[VerifiedPiece]
) -> list[list[VerificationPiece]]:
    """Returns the pieces of each group that are still to be compared."""
    done = {(piece.number, piece.low) for piece in pieces}
    rest = ([piece for piece in group if (piece.number, piece.low) not in done] for group in groups)
    return [group for group in rest if group]


def resumed(groups: Sequence[object], todo: Sequence[object]) -> str:
    """Returns what the command says when it continues an interrupted comparison."""
    return f"goes on behind {len(groups) - len(todo)} of {len(groups)} stretches"


def _whole(lines: Iterable[bytes]) -> Iterable[VerifiedPiece]:
    for line in lines:
        with suppress(msgspec.DecodeError):
            yield from _pieces.decode(line)
