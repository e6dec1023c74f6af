"""Plans the rounds of a flow into files, and translates positions to status and ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from runtime.contract.records.job_status import PartitionState, PartitionStatus
from runtime.contract.records.ledger import Gap, Progress
from runtime.contract.records.manifest import FilePosition, OffsetGap
from runtime.files.export import ExportedPartition, ExportPartition, ExportTicket

_KEPT_GAPS: Final = 20
S = PartitionState


class SourcePartition(Struct, frozen=True):
    """A partition as the source shows it at the start of a round; -1 where its leader does not answer."""

    topic: str
    topic_id: bytes
    partition: int
    start: int = -1
    end: int = -1

    @property
    def key(self) -> tuple[str, int]:
        return self.topic, self.partition


class PlannedRound(Struct, frozen=True):
    """What a round copies, the states of the other partitions, and positions that move without a copy."""

    copy: list[ExportPartition] = field(default_factory=list)
    moved: list[FilePosition] = field(default_factory=list)
    states: dict[tuple[str, int], tuple[PartitionState, str]] = field(default_factory=dict)


def plan_round(
    found: Iterable[SourcePartition],
    positions: Mapping[tuple[str, int], FilePosition],
    accepts_loss: Callable[[tuple[str, int]], bool],
    now_ms: int,
) -> PlannedRound:
    """Decides for each partition whether it is copied, from where, and why not (R4). It is pure."""
    planned = PlannedRound()
    for one in found:
        position = positions[one.key]
        state, why = _finding(one, position)
        if state is not None and accepts_loss(one.key):
            low = position.position
            target = one.start if state is S.DATA_LOSS else one.end
            gap = OffsetGap(low=min(low, target), end=max(low, target), why=str(state), at_ms=now_ms)
            position = replace(position, position=target, gaps=[*position.gaps, gap][-_KEPT_GAPS:])
            planned.moved.append(position)
            state = None
        if state is not None:
            planned.states[one.key] = state, why
        elif one.end < 0:
            planned.states[one.key] = S.RETRYING, "its leader at the source does not answer"
        elif position.position < one.end:
            planned.states[one.key] = S.COPYING, ""
            planned.copy.append(
                ExportPartition(one.topic, one.topic_id, one.partition, position.position, one.end)
            )
        else:
            planned.states[one.key] = S.CAUGHT_UP, ""
    return planned


def _finding(one: SourcePartition, position: FilePosition) -> tuple[PartitionState | None, str]:
    if one.end < 0 or one.start < 0:
        return None, ""
    if position.position < one.start:
        return S.DATA_LOSS, f"the offsets {position.position} to {one.start - 1} are gone and were not copied"
    if position.position > one.end:
        return S.DIVERGED, f"the source ends at {one.end}, {position.position} was copied already"
    return None, ""


def tickets_of(
    copy: Sequence[ExportPartition], tasks: int, make: Callable[[list[ExportPartition]], ExportTicket]
) -> list[ExportTicket]:
    """Spreads partitions over at most `tasks` tickets, so that each has about as many records to copy."""
    loads: list[tuple[int, list[ExportPartition]]] = [(0, []) for _ in range(min(tasks, len(copy)))]
    for one in sorted(copy, key=lambda one: one.position - one.end):
        least = min(range(len(loads)), key=lambda at: loads[at][0])
        load, partitions = loads[least]
        loads[least] = load + one.end - one.position, [*partitions, one]
    return [make(partitions) for _, partitions in loads]


def seen_at(one: SourcePartition, status: PartitionStatus, now_ms: int) -> PartitionStatus:
    """Returns the status with what the source showed at the start of a round."""
    return replace(
        status,
        source_start=one.start,
        source_end=one.end,
        source_high_watermark=one.end,
        last_fetch_ms=now_ms if one.end >= 0 else status.last_fetch_ms,
    )


def at_position(status: PartitionStatus, position: FilePosition) -> PartitionStatus:
    """Returns the status at a committed position."""
    return replace(
        status,
        position=position.position,
        destination_end=position.position,
        last_timestamp=position.last_timestamp,
        records=position.records,
        bytes=position.bytes,
        dropped=position.dropped,
        tombstones=position.tombstones,
    )


def advanced(position: FilePosition, done: ExportedPartition) -> FilePosition:
    """Returns a position after what a task has copied."""
    newest = max((file.last_timestamp for file in done.files), default=-1)
    return replace(
        position,
        position=done.position,
        records=position.records + done.records,
        bytes=position.bytes + done.bytes,
        dropped=position.dropped + done.filtered,
        tombstones=position.tombstones + done.tombstones,
        last_timestamp=max(position.last_timestamp, newest),
    )


def progress_of(one: SourcePartition, position: FilePosition, generation: int, now_ms: int) -> Progress:
    """Returns a position as progress: the topic stands for its own files, offset for offset."""
    at = position.position
    return Progress(
        generation=generation,
        source_topic_id=one.topic_id,
        destination_topic=one.topic,
        destination_topic_id=one.topic_id,
        position=at,
        source_epoch=-1,
        destination_end=at,
        destination_epoch=-1,
        open_low=at,
        open_destination=at,
        open_end=at,
        records=position.records,
        bytes=position.bytes,
        dropped=position.dropped,
        last_timestamp=position.last_timestamp,
        written_at=now_ms,
        gaps=tuple(Gap(gap.low, gap.end, "lost", gap.at_ms) for gap in position.gaps),
        tombstones=position.tombstones,
    )


def facts_of(progress: Progress) -> tuple[object, ...]:
    """Returns what makes it worth writing progress to the ledger again."""
    return progress.generation, progress.source_topic_id, progress.position, progress.records, progress.gaps
