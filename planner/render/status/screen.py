"""The screen of `repl status`: first a headline, then jobs, flows, remarks and what needs a
decision. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from enum import IntEnum

from rich.text import Text

from planner.graph.messages import few
from planner.render.status.numbers import moment, plural, span
from planner.render.status.rows import (
    BAD,
    JOBS,
    PARTITIONS,
    TOPICS,
    WAITS,
    FlowHistory,
    flow_columns,
    flow_row,
    job_row,
    partition_rows,
    topic_rows,
)
from planner.render.table import Cell, Column, table
from runtime.contract.records.status import PartitionState
from runtime.contract.views.status_view import (
    DOWN,
    UNKNOWN,
    FlowStatusView,
    PartitionStatusView,
    SlotStatusView,
    StatusView,
)

MOST_WORRIES = 20
_SIDES = ("source", "destination")
_HELD = (PartitionState.BLOCKED_AT_SOURCE, PartitionState.UNSCHEDULED)  # for reasons outside the job


class DetailLevel(IntEnum):
    """Which rows are shown beside jobs and flows."""

    FLOWS = 0
    TOPICS = 1
    PARTITIONS = 2


def screen(
    status: StatusView,
    width: int | None = None,
    depth: DetailLevel = DetailLevel.FLOWS,
    trails: Mapping[str, FlowHistory] | None = None,
) -> Iterator[Text]:
    """Yields the lines of the screen, with a blank line between sections."""
    yield _headline(status)
    for one in status.clusters:
        if not one.answers:
            yield Text.assemble((f"Cluster {one.name} does not answer: ", BAD), one.why)
    yield Text()
    yield from table(JOBS, [job_row(one) for one in status.jobs], width)
    yield Text()
    yield from table(flow_columns(trails), [flow_row(one, trails) for one in status.flows], width)
    yield from _remarks(status)
    yield from _worries(status, width)
    yield from _next(status)
    if depth is DetailLevel.TOPICS:
        yield Text()
        yield from table(TOPICS, list(topic_rows(status)), width)
    elif depth is DetailLevel.PARTITIONS:
        yield Text()
        yield from table(PARTITIONS, list(partition_rows(status)), width)


def _headline(status: StatusView) -> Text:
    """Returns everything in one line: whether an operator has to act."""
    idle = Counter(one.state for one in status.jobs if not one.up)
    worries = len(_needing(status))
    late = sum(one.rpo_met is False for one in status.flows)
    how = ", ".join(f"{number} {state}" for state, number in sorted(idle.items()))
    parts = [
        plural(len(status.flows), "flow"),
        f"{plural(len(status.jobs), 'job')} {f'({how})' if how else 'up'}",
    ]
    parts += [f"{plural(worries, 'partition')} to look at"] if worries else []
    parts += [f"{late} beyond the RPO"] if late else []
    parts += _behind(status)
    style = BAD if idle or worries else "bold"
    return Text.assemble(
        (f"{status.topology}: {', '.join(parts)}", style), (f"  {moment(status.at_ms)}", "dim")
    )


def _behind(status: StatusView) -> list[str]:
    records = sum(one.lag_records or 0 for one in status.flows)
    partitions = [one for flow in status.flows for one in flow.partitions]
    old = any(one.source_end_seen_ms or one.lag_records is None for one in partitions)
    if not records:
        known = status.flows and all(one.lag_records == 0 for one in status.flows)
        stopped = any(one.needs_someone for one in partitions)
        return ["nothing behind"] if known and not old and not stopped else []
    longest = max((one.lag_ms for one in status.flows if one.lag_ms is not None), default=None)
    far = f" and {span(longest)}" if longest else ""
    return [f"{'at least ' if old else ''}{plural(records, 'record')}{far} behind"]


def _remarks(status: StatusView) -> Iterator[Text]:
    """Yields what holds up jobs and flows, and what could not be done, each once."""
    said = {f"{side} {one.name} does not answer: {one.why}" for one in status.clusters for side in _SIDES}
    said |= {f"{one.topic}-{one.partition}: {one.why}" for _, one in _needing(status)}
    remarks = []
    for job in status.jobs:
        remarks += [(f"job {job.name}", job.why)] if job.why and job.state != UNKNOWN else []
        said.add(f"job {job.name}: {job.why}")
        remarks += [
            (f"slot {slot.slot} of {job.name}", _slot(slot))
            for slot in job.slots
            if job.up and (slot.why or slot.state in ("waiting", "unscheduled"))
        ]
    for flow in status.flows:
        parts = [one for one in flow.why.split("; ") if one and one not in said]
        remarks += [(f"flow {flow.name}", "; ".join(parts))] if parts else []
        notes = (*_old_end(flow, status.at_ms), *_foreign(flow), *_blocked(flow), *flow.notes)
        remarks += [(f"flow {flow.name}", note) for note in notes]
        remarks += [(f"flow {flow.name}", f"stuck: {lane}") for lane in flow.stuck_lanes]
    if remarks:
        yield Text()
    for who, why in remarks:
        yield Text.assemble((f"{who}: ", WAITS), why)


def _old_end(flow: FlowStatusView, now_ms: int) -> list[str]:
    """Returns how long ago the end of a source was seen that does not answer now."""
    seen = [one.source_end_seen_ms for one in flow.partitions if one.source_end_seen_ms is not None]
    if not seen:
        return []
    when = span(max(now_ms - max(seen), 0))
    return [f"the lag counts to {flow.source}'s end as last seen, {when} ago; there may be more"]


def _foreign(flow: FlowStatusView) -> list[str]:
    topics = sorted({one.destination_topic or "" for one in flow.partitions if one.foreign_writes})
    return [f"others write to its mirror topics (foreign_writes): {', '.join(topics)}"] if topics else []


def _blocked(flow: FlowStatusView) -> list[str]:
    """Returns one partition for each transaction that blocks readers, with the command that ends it."""
    first: dict[int, PartitionStatusView] = {}
    for one in flow.partitions:
        if one.blocked_by is not None:
            first.setdefault(one.blocked_by.producer_id, one)
    told = (f"{one.topic}-{one.partition}: {one.why}" for one in first.values())
    return [words for words in told if words not in flow.why][:MOST_WORRIES]


def _slot(slot: SlotStatusView) -> str:
    if slot.state == "running":
        return f"it runs again; its last attempt: {slot.why}"
    return f"{slot.state}: {slot.why}" if slot.why else slot.state


def _worries(status: StatusView, width: int | None) -> Iterator[Text]:
    """Yields the partitions that need a decision; many are counted."""
    found = _needing(status)
    if not found:
        return
    yield Text()
    rows = [
        (
            Cell(f"{one.topic}-{one.partition}", "bold"),
            flow,
            Cell(one.state, BAD),
            span(status.at_ms - one.since_ms) if one.since_ms is not None else "–",
            one.why,
        )
        for flow, one in found[:MOST_WORRIES]
    ]
    yield from table(_WORRIES, rows, width)
    if len(found) > MOST_WORRIES:
        yield Text(f"… and {len(found) - MOST_WORRIES:,} more: repl status --all", "dim")


def _next(status: StatusView) -> Iterator[Text]:
    """Yields each next step once, on its own line: a narrow terminal cuts no command."""
    waits: dict[str, dict[str, None]] = {}
    for flow in status.flows:
        for one in flow.partitions:
            if one.next and (one.needs_someone or one.state in _HELD):
                down = one.state == DOWN
                name = f"job {flow.job}" if down else f"{one.topic}-{one.partition}"
                waits.setdefault(one.next, {})[f"{name} ({one.state})"] = None
    if waits:
        yield Text()
    for step, names in waits.items():
        yield Text(f"Next for {few(list(names))}:")
        yield Text(f"  {step}", "bold")


_WORRIES = (
    Column("LOOK AT"),
    Column("FLOW", spare=1),
    Column("STATE"),
    Column("FOR", right=True),
    Column("WHY"),
)


def _needing(status: StatusView) -> list[tuple[str, PartitionStatusView]]:
    """Returns the partitions that need a decision, without those whose job is down or unreadable.

    The state of the job is shown once instead.
    """
    return [
        (flow.name, one)
        for flow in status.flows
        for one in flow.partitions
        if one.needs_someone and one.state not in (DOWN, UNKNOWN)
    ]
