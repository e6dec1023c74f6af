"""Copying turns round: a flow begins where its opposite, the flow the other way, has ended. Pure.

Two flows are opposites where one is the `reverse_of` the other; only one of them runs at a time. What the
one copied last is the exact place where the own history of its destination begins, so there the other starts
(R1). Its offset map begins with that of its opposite, read the other way round: a record that came from there
is still the same record (R6), so groups go home to the exact record, however often the direction changes.

In which order the two ran is told by their generations: `life` counts how often a flow came back, `after` by
which life of its opposite it began. So an older end is never taken for the newest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from runtime.contract.records.advance import first_progress, start_over
from runtime.contract.records.ledger import Generation, Progress, Segment
from runtime.contract.records.offset_map import OffsetMap, Run, encode_runs
from runtime.contract.spec.jobspec import FlowSpec, JobSpec

_RUNNING = ("active", "paused")


def opposite_of(job: JobSpec, flow: FlowSpec) -> str | None:
    """The flow that goes the other way in its place."""
    if flow.reverse_of is not None:
        return flow.reverse_of
    return next((route.name for route in job.routes if route.reverse_of == flow.name), None)


def taken_up(before: Generation | None, record: Generation) -> Generation:
    """A generation with what the one before knew of its lives: one that had ended comes back."""
    if before is None:
        return replace(record, turning=record.state in _RUNNING)
    back = before.ended and not before.turning and record.state in _RUNNING
    return replace(
        record,
        life=before.life + 1 if back else before.life,
        after=before.after,
        turning=before.turning or back,
    )


def may_turn(mine: Generation, opposite: Generation) -> bool:
    """Whether the opposite ended after it had begun where this flow's life before this one ended."""
    return opposite.ended and opposite.after == mine.life - 1


def may_come_back(ended: Generation, opposite: Generation) -> bool:
    """The same, of a flow that has not come back yet. One that ended before it had begun did not live."""
    begun = ended.life - 1 if ended.turning else ended.life
    return opposite.ended and opposite.after == begun


def handed_over(ended: Generation, opposite: Generation) -> bool:
    """Whether the opposite began where this flow ended: what its source got since is no more to be copied."""
    return ended.ended and opposite.after == ended.life and not opposite.turning


def turned(mine: Generation, opposite: Generation | None) -> Generation:
    """Its positions are taken from there."""
    return replace(mine, turning=False, after=opposite.life if opposite is not None else mine.after)


@dataclass(frozen=True, slots=True)
class Here:
    """Both sides of a partition as they are now. `source_start` and `destination_end` bound the logs."""

    source_topic_id: bytes
    source_start: int
    destination_topic: str
    destination_topic_id: bytes
    destination_end: int


class Begun(NamedTuple):
    """`segments` are numbered from `first` on, in the incarnation of `progress`."""

    progress: Progress
    first: int
    segments: list[Segment]


def begin(
    before: Progress | None,
    opposite: Progress,
    offsets: OffsetMap,
    here: Here,
    *,
    generation: int,
    now_ms: int,
) -> Begun:
    """Where a partition starts whose opposite's ledger says `opposite` and `offsets`.

    A side that was recreated since holds nothing that was copied: all that the source has travels. A
    destination that lost its end gets it back. What travels of that came from the destination itself.
    """
    position, segments = here.source_start, list[Segment]()
    mine, theirs = opposite.destination_topic_id, opposite.source_topic_id
    if (mine, theirs) == (here.source_topic_id, here.destination_topic_id):
        position = _position(opposite, offsets, here.destination_end)
        segments = list(_inverted(offsets, position, here.destination_end))
    restored = opposite.destination_end if mine == here.source_topic_id else 0
    if before is None:
        started = first_progress(
            generation=generation,
            source_topic_id=here.source_topic_id,
            destination_topic=here.destination_topic,
            destination_topic_id=here.destination_topic_id,
            position=position,
            destination_end=here.destination_end,
            now_ms=now_ms,
        )
    else:
        started = start_over(
            before,
            position=position,
            destination_end=here.destination_end,
            source_topic_id=here.source_topic_id,
            destination_topic_id=here.destination_topic_id,
            generation=generation,
            now_ms=now_ms,
        )
    first = started.segments
    return Begun(replace(started, segments=first + len(segments), restored=restored), first, segments)


def _position(opposite: Progress, offsets: OffsetMap, destination_end: int) -> int:
    """Behind what the opposite wrote last, or before the first of it that this side no longer has."""
    position = opposite.destination_end
    for span in reversed(offsets.spans):
        for run in reversed(span.runs):
            if run.source_end <= destination_end:
                return position
            position = run.destination + max(destination_end - run.source, 0)
    return position


def _inverted(offsets: OffsetMap, position: int, destination_end: int) -> Iterator[Segment]:
    """A segment for each span, up to `position`: they meet, as those of a flow do."""
    spans = [span for span in offsets.spans if span.destination_low < position]
    for at, span in enumerate(spans):
        end = spans[at + 1].destination_low if at + 1 < len(spans) else position
        cut = (_cut(run, destination_end) for run in span.runs)
        runs = [run for run in cut if run.records > 0]
        if span.destination_low < end:
            yield Segment(
                low=span.destination_low,
                end=end,
                destination_low=span.low,
                destination_end=runs[-1].destination_end if runs else span.low,
                runs=encode_runs(runs, span.destination_low, span.low),
            )


def _cut(run: Run, destination_end: int) -> Run:
    """The other way round, and no further than the destination goes now."""
    return Run(run.destination, run.source, min(run.records, destination_end - run.source))


def strangers(before: Progress | None, after: Begun, here: Here) -> list[tuple[int, int]]:
    """Source offsets between where the flow stood and where it starts that hold more than the marker of a
    transaction, and that its opposite did not write: someone wrote there while it was not for him to write.
    Of what was made anew meanwhile, from its beginning.
    """
    found, at = [], _stood(before, after, here)
    for segment in after.segments:
        for run in segment.span().runs:
            if run.source - at > 1:
                found.append((at, run.source))
            at = max(at, run.source_end)
    if after.progress.position - at > 1:
        found.append((at, after.progress.position))
    return found


def single_before(before: Progress | None, after: Begun, here: Here) -> int | None:
    """The one source offset between where the flow stood and the first record that its opposite wrote, where
    there is exactly one: a marker, or a record of another writer. Only the log tells which.
    """
    at = _stood(before, after, here)
    runs = (run for segment in after.segments for run in segment.span().runs)
    first = next((run for run in runs if run.source_end > at), None)
    end = first.source if first is not None else after.progress.position
    return at if end - at == 1 else None


def _stood(before: Progress | None, after: Begun, here: Here) -> int:
    same = before is not None and after.progress.source_topic_id == before.source_topic_id
    return before.position if before is not None and same else here.source_start
