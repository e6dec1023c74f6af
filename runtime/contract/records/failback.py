"""A failback reverses the direction of copying: a flow begins at the end of its opposite flow.

Two flows are opposites where one is the `reverse_of` the other; only one of them runs at a time. The end of
the records that one copied is the exact offset where the native records of its destination begin, so the
other starts there (R1). Its offset map begins with that of its opposite, inverted: a record that came from
there is still the same record (R6). So groups continue at the exact record, however often the direction
changes.

Generations record the order in which the two ran: `life` counts how often a flow came back, `after` is the
life of its opposite by whose end it began. So an older end is never taken for the newest. This module is
pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from msgspec import json
from msgspec.structs import replace

from runtime.contract.records.advance import start_again
from runtime.contract.records.ledger import Generation, Progress
from runtime.contract.records.offset_map import (
    OffsetMap,
    Run,
    Span,
    destination_end_of,
    encode_runs,
    invert_runs,
)
from runtime.contract.spec.flow import FlowSettings
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.contract.spec.naming import is_other_topic

_RUNNING = ("active", "paused")


def opposite_of(job: JobSpec, flow: FlowSpec) -> str | None:
    """Returns the flow that copies in the opposite direction, or None."""
    if flow.reverse_of is not None:
        return flow.reverse_of
    return next((route.name for route in job.routes if route.reverse_of == flow.name), None)


def with_life_of(before: Generation | None, record: Generation) -> Generation:
    """Returns the new generation with the lives of the previous one.

    A flow that had ended begins another life.
    """
    if before is None:
        return replace(record, turning=record.state in _RUNNING)
    back = before.ended and not before.turning and record.state in _RUNNING
    return replace(
        record,
        life=before.life + 1 if back else before.life,
        after=before.after,
        turning=before.turning or back,
    )


def is_restarting(flow: FlowSettings, generation: Generation) -> bool:
    """Returns whether the flow asks for a restart that has not been done yet."""
    return flow.restart_from is not None and generation.restarted != restart_request(flow)


def restart_request(flow: FlowSettings) -> str:
    """Returns what the generation records once a restart is done, so that no later driver repeats it."""
    return json.encode(flow.restart_from).decode() if flow.restart_from is not None else ""


def can_complete_failback(mine: Generation, opposite: Generation) -> bool:
    """Returns whether the opposite ended after it had begun at the end of this flow's previous life."""
    return opposite.ended and opposite.after == mine.life - 1


def can_start_failback(ended: Generation, opposite: Generation) -> bool:
    """Returns the same as `can_complete_failback`, for a flow whose failback has not begun.

    A life that ended before its positions were committed does not count.
    """
    begun = ended.life - 1 if ended.turning else ended.life
    return opposite.ended and opposite.after == begun


def handed_over(ended: Generation, opposite: Generation) -> bool:
    """Returns whether the opposite began at this flow's end.

    Then later records of this flow's source are no longer to be copied.
    """
    return ended.ended and opposite.after == ended.life and not opposite.turning


def after_failback(mine: Generation, opposite: Generation | None) -> Generation:
    """Returns the generation of a flow whose positions were taken from its opposite's end."""
    return replace(mine, turning=False, after=opposite.life if opposite is not None else mine.after)


class FailbackStart(NamedTuple):
    """Holds a partition's progress at its start, and the inverted segments of its map.

    `segments` are numbered from `number` on, in the incarnation of `progress`.
    """

    progress: Progress
    number: int
    segments: list[Span]


def failback_start(
    before: Progress | None, opposite: Progress, offsets: OffsetMap, first: Progress
) -> FailbackStart:
    """Returns where a partition starts, by the progress and the offset map of its opposite.

    `first` is its progress if it were copied for the first time, from the source's log start. Where a side
    was recreated since, nothing that was copied is left on it: all records of the source are copied. Where
    the destination lost its end, the lost records are copied back, although they came from the destination.
    """
    position, segments = first.position, list[Span]()
    source_id, destination_id = opposite.destination_topic_id, opposite.source_topic_id
    same_source = not is_other_topic(source_id, first.source_topic_id)
    if same_source and not is_other_topic(destination_id, first.destination_topic_id):
        position = _position(opposite, offsets, first.destination_end)
        segments = list(_inverted(offsets, position, first.destination_end))
    started = start_again(before, replace(first, position=position, open_low=position, open_end=position))
    number = started.segments
    restored = opposite.destination_end if same_source else 0
    progress = replace(started, segments=number + len(segments), restored=restored)
    return FailbackStart(progress, number, segments)


def _position(opposite: Progress, offsets: OffsetMap, destination_end: int) -> int:
    """Returns the offset behind the opposite's last record, or of its first one that the destination lost."""
    position = opposite.destination_end
    for span in reversed(offsets.spans):
        for run in reversed(span.runs):
            if run.source_end <= destination_end:
                return position
            position = run.destination + max(destination_end - run.source, 0)
    return position


def _inverted(offsets: OffsetMap, position: int, destination_end: int) -> Iterator[Span]:
    """Yields an inverted segment for each span, up to `position`; the segments are contiguous."""
    spans = [span for span in offsets.spans if span.destination_low < position]
    for at, span in enumerate(spans):
        end = spans[at + 1].destination_low if at + 1 < len(spans) else position
        if span.destination_low < end:
            runs = _inverted_runs(span, destination_end)
            yield Span(span.destination_low, end, span.low, destination_end_of(runs, span.low), runs)


def _inverted_runs(span: Span, destination_end: int) -> bytes:
    """Returns the encoded, inverted runs of a span, cut at the present end of the destination."""
    if span.end <= destination_end:
        return invert_runs(span.encoded_runs())
    cut = (_cut(run, destination_end) for run in span.runs)
    return encode_runs((run for run in cut if run.records > 0), span.destination_low, span.low)


def _cut(run: Run, destination_end: int) -> Run:
    """Returns the inverted run, cut at the present end of the destination."""
    return Run(run.destination, run.source, min(run.records, destination_end - run.source))


def foreign_offset_ranges(
    before: Progress | None, after: FailbackStart, log_start: int
) -> list[tuple[int, int]]:
    """Returns the ranges of source offsets that another producer wrote while only the opposite was to write.

    A range lies between the flow's old position and its start, was not written by its opposite, and is longer
    than the marker of a transaction. For a topic that was recreated meanwhile, the ranges begin at its
    `log_start`.
    """
    ranges, at = [], _old_position(before, after, log_start)
    for segment in after.segments:
        for run in segment.runs if segment.end > at else ():
            if run.source - at > 1:
                ranges.append((at, run.source))
            at = max(at, run.source_end)
    if after.progress.position - at > 1:
        ranges.append((at, after.progress.position))
    return ranges


def single_before(before: Progress | None, after: FailbackStart, log_start: int) -> int | None:
    """Returns the source offset between the old position and the opposite's first record, if it is only one.

    It is a marker, or a record of another writer. Only the log shows which.
    """
    at = _old_position(before, after, log_start)
    runs = (run for segment in after.segments if segment.end > at for run in segment.runs)
    first = next((run for run in runs if run.source_end > at), None)
    end = first.source if first is not None else after.progress.position
    return at if end - at == 1 else None


def _old_position(before: Progress | None, after: FailbackStart, log_start: int) -> int:
    same = before is not None and not is_other_topic(before.source_topic_id, after.progress.source_topic_id)
    return before.position if before is not None and same else log_start
