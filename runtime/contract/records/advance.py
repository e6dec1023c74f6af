"""Computes a partition's progress: after a transaction, after a gap, and after a side was recreated."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from msgspec.structs import replace

from runtime.contract.records.ledger import (
    BatchIdentity,
    Gap,
    LedgerKey,
    LedgerValue,
    PartitionKey,
    Progress,
    ProgressKey,
    SegmentKey,
)
from runtime.contract.records.offset_map import Run, Span, append, encode_runs

SEAL_AT = 128  # runs in the progress record before they become a segment of the map
LARGEST = 8_192  # runs in a segment: a heavily compacted topic has a run per record
KEPT_GAPS = 16


class Advance(NamedTuple):
    """Describes the effect of one transaction on a partition: the new runs, and the position behind them."""

    position: int
    source_epoch: int
    runs: tuple[Run, ...] = ()
    destination_epoch: int = -1
    records: int = 0
    bytes: int = 0
    dropped: int = 0
    last_timestamp: int = -1
    mark: BatchIdentity | None = None
    quarantined: int = 0
    tombstones: int = 0


def first_progress(
    *,
    generation: int,
    source_topic_id: bytes,
    destination_topic: str,
    destination_topic_id: bytes,
    position: int,
    destination_end: int,
    now_ms: int,
) -> Progress:
    """Returns the progress that the driver commits before a partition is copied for the first time (R1)."""
    return Progress(
        generation=generation,
        source_topic_id=source_topic_id,
        destination_topic=destination_topic,
        destination_topic_id=destination_topic_id,
        position=position,
        source_epoch=-1,
        destination_end=destination_end,
        destination_epoch=-1,
        open_low=position,
        open_destination=destination_end,
        open_end=position,
        written_at=now_ms,
    )


def advance(progress: Progress, step: Advance, generation: int, now_ms: int) -> tuple[Progress, list[Span]]:
    """Returns the progress after a transaction, and the segments of the offset map that it seals (R6).

    A segment is sealed as soon as there are `SEAL_AT` open runs. Raises ValueError for a position that moves
    back and for runs beyond the position.
    """
    if step.position < progress.position:
        raise ValueError(f"position {step.position} lies before {progress.position}")
    if step.runs and step.runs[-1].source_end > step.position:
        raise ValueError(f"{step.runs[-1]} reaches beyond the position {step.position}")
    segments: list[Span] = []
    after, remaining = progress, step.runs
    while after.open_runs + len(remaining) > LARGEST:
        room = LARGEST - after.open_runs
        added, remaining = remaining[:room], remaining[room:]
        after, segment = seal(_with_runs(after, added, added[-1].source_end if added else after.position))
        segments.append(segment)
    after = replace(
        _with_runs(after, remaining, step.position),
        generation=generation,
        source_epoch=max(step.source_epoch, progress.source_epoch),
        destination_epoch=max(step.destination_epoch, progress.destination_epoch),
        records=progress.records + step.records,
        bytes=progress.bytes + step.bytes,
        dropped=progress.dropped + step.dropped,
        last_timestamp=max(progress.last_timestamp, step.last_timestamp),
        mark=step.mark or progress.mark,
        quarantined=progress.quarantined + step.quarantined,
        tombstones=progress.tombstones + step.tombstones,
        written_at=now_ms,
    )
    if after.open_runs >= SEAL_AT:
        after, segment = seal(after)
        segments.append(segment)
    return after, segments


def _with_runs(progress: Progress, runs: Sequence[Run], position: int) -> Progress:
    last = runs[-1] if runs else None
    return replace(
        progress,
        position=position,
        destination_end=last.destination_end if last else progress.destination_end,
        open=progress.open + encode_runs(runs, progress.open_end, progress.destination_end),
        open_end=last.source_end if last else progress.open_end,
        open_runs=progress.open_runs + len(runs),
    )


def seal(progress: Progress) -> tuple[Progress, Span]:
    """Returns the progress with an empty open span behind the one that is sealed, and the sealed one."""
    after = replace(
        progress,
        open_low=progress.position,
        open_destination=progress.destination_end,
        open_end=progress.position,
        open_runs=0,
        open=b"",
        segments=progress.segments + 1,
    )
    return after, progress.open_span()


def progress_records(
    key: PartitionKey, progress: Progress, sealed: Sequence[Span]
) -> dict[LedgerKey, LedgerValue | None]:
    """Returns the ledger's records of a progress and of the segments that were sealed for it."""
    records: dict[LedgerKey, LedgerValue | None] = {ProgressKey(key): progress}
    for number, segment in enumerate(sealed, start=progress.segments - len(sealed)):
        records[SegmentKey(progress.map_key(key), progress.incarnation, number)] = segment
    return records


def without_lost(progress: Progress, destination_end: int) -> Progress:
    """Returns the progress of a partition whose destination lost the records from an offset on.

    The runs of these records leave the map. Where a sealed segment holds some of them, a new map begins.
    """
    if destination_end >= progress.destination_end:
        return progress
    if destination_end < progress.open_destination:
        again = start_over(progress, progress.position, destination_end)
        return replace(again, source_epoch=progress.source_epoch)
    kept: list[Run] = []
    for run in progress.open_span().runs:
        if (records := min(run.records, destination_end - run.destination)) > 0:
            append(kept, run._replace(records=records))
    return replace(
        progress,
        open=encode_runs(kept, progress.open_low, progress.open_destination),
        open_runs=len(kept),
        open_end=kept[-1].source_end if kept else progress.open_low,
        destination_end=kept[-1].destination_end if kept else progress.open_destination,
    )


def give_up(
    progress: Progress,
    position: int,
    why: Literal["lost", "skipped"],
    *,
    generation: int,
    now_ms: int,
    source_epoch: int = -1,
) -> Progress:
    """Moves the position over source offsets that will not be copied, and records the gap (R4).

    `why` is the reason. Raises ValueError for a position that moves back.
    """
    if position < progress.position:
        raise ValueError(f"position {position} lies before {progress.position}")
    gap = Gap(progress.position, position, why, now_ms)
    return replace(
        progress,
        generation=generation,
        position=position,
        source_epoch=source_epoch,
        gaps=(*progress.gaps, gap)[-KEPT_GAPS:],
        written_at=now_ms,
    )


def start_over(progress: Progress, position: int, destination_end: int) -> Progress:
    """Returns the progress at another position, after one side was recreated or truncated.

    It begins a new offset map behind what the destination holds: older segments no longer count.
    """
    return replace(
        progress,
        position=position,
        source_epoch=-1,
        destination_end=destination_end,
        destination_epoch=-1,
        open_low=position,
        open_destination=destination_end,
        open_end=position,
        open_runs=0,
        open=b"",
        incarnation=progress.incarnation + 1,
        mark=None,
        restored=0,
    )


def start_again(before: Progress | None, first: Progress) -> Progress:
    """Returns `first` for a partition that was never copied.

    Any other one starts over at the position and at the topics of `first`, and keeps its totals.
    """
    if before is None:
        return first
    moved = replace(
        before,
        generation=first.generation,
        source_topic_id=first.source_topic_id,
        destination_topic=first.destination_topic,
        destination_topic_id=first.destination_topic_id,
        written_at=first.written_at,
    )
    return start_over(moved, first.position, first.destination_end)
