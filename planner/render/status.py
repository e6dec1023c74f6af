"""The output of `repl status`, as text and as JSON. Pure.

The text has a headline, jobs, flows, remarks, and what needs a decision.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any

import msgspec
from rich.text import Text

from planner.graph.messages import few
from planner.render.readable import count, latency, moment, octets, per_second, plural, span, sparkline
from planner.render.reports.cutovers import wave_lines
from planner.render.reports.loss import verdict_text
from planner.render.table import Cell, Column, Row, table
from runtime.contract.records.job_status import PartitionState
from runtime.contract.records.job_status import PartitionState as S
from runtime.contract.results.failover import FailoverVerdict, Verdict, verdicts
from runtime.contract.results.status import (
    DOWN,
    STALLED,
    UNKNOWN,
    FlowHealth,
    JobHealth,
    PartitionHealth,
    ReplicationStatus,
    SlotHealth,
)
from runtime.contract.spec.transform import quarantine_topic

GOOD, BUSY, WAITS, BAD, QUIET = "green", "cyan", "yellow", "bold red", "dim"
_STYLES = {
    S.CAUGHT_UP: GOOD,
    S.COPYING: BUSY,
    S.STARTING: WAITS,
    S.RETRYING: WAITS,
    S.UNSCHEDULED: WAITS,
    S.BLOCKED_AT_SOURCE: WAITS,
    S.PAUSED: QUIET,
    S.PROMOTED: QUIET,
    S.FAILED_OVER: QUIET,
    "running": GOOD,
    "stopped": QUIET,
    "stopping": WAITS,
}


READINGS = 20  # of a history


class FlowHistory:
    """The last rates and lags of a flow that were read, the newest last."""

    def __init__(self, rates: Iterable[float | None] = (), lags: Iterable[float | None] = ()) -> None:
        self.rates = deque(rates, maxlen=READINGS)
        self.lags = deque(lags, maxlen=READINGS)

    def put(self, flow: FlowHealth) -> None:
        self.rates.append(flow.records_per_s)
        self.lags.append(flow.lag_records)


JOBS = (
    Column("JOB"),
    Column("STATE"),
    Column("AT", spare=3),
    Column("SLOTS", right=True),
    Column("GENERATION", right=True, spare=4),
    Column("UPTIME", right=True, spare=5),
    Column("HEARTBEAT", right=True, spare=1),
)


def job_row(job: JobHealth) -> Row:
    """Returns a job's row."""
    up = job.up and job.started_ms is not None and job.heartbeat_ms is not None
    heartbeat = "–" if job.state == UNKNOWN else "never"
    if job.heartbeat_age_ms is not None:
        heartbeat = f"{span(job.heartbeat_age_ms)} ago"
    return (
        Cell(job.name, "bold"),
        Cell(job.state, state_style(job.state)),
        job.destination,
        f"{job.slots_running if job.up else 0}/{len(job.slots)}" if job.slots else "–",
        count(job.generation),
        span(job.heartbeat_ms - job.started_ms) if up and job.heartbeat_ms and job.started_ms else "–",
        heartbeat,
    )


FLOWS = (
    Column("FLOW"),
    Column("STATE"),
    Column("FROM → TO", spare=5),
    Column("TOPICS", right=True, spare=9),
    Column("PARTITIONS", right=True, spare=8),
    Column("LAG", right=True),
    Column("BEHIND", right=True),
    Column("RECORDS", right=True, spare=1),
    Column("BYTES", right=True, spare=6),
    Column("P50", right=True, spare=7),
    Column("P99", right=True, spare=2),
    Column("DROPPED", right=True, spare=10),
)
_TRAILS = (Column("RECORDS ▸", spare=4), Column("LAG ▸", spare=3))


def flow_columns(trails: Mapping[str, FlowHistory] | None) -> tuple[Column, ...]:
    """Returns the columns of flows, with sparklines if earlier readings are known."""
    return FLOWS if trails is None else (*FLOWS, *_TRAILS)


def flow_row(flow: FlowHealth, trails: Mapping[str, FlowHistory] | None) -> Row:
    """Returns a flow's row."""
    late = flow.rpo_met is False
    row: list[Cell | str] = [
        Cell(flow.name, "bold"),
        Cell(flow.state, state_style(flow.state)),
        f"{flow.source} → {flow.destination}",
        count(len(flow.topics)),
        count(len(flow.partitions)),
        _lag(flow.lag_records, any(partition.source_end_seen_ms for partition in flow.partitions)),
        Cell(span(flow.lag_ms), BAD if late else ""),
        per_second(flow.records_per_s),
        f"{octets(flow.bytes_per_s)}/s" if flow.bytes_per_s is not None else "–",
        latency(flow.latency_p50_ms),
        latency(flow.latency_p99_ms),
        count(flow.dropped),
    ]
    if trails is not None:
        trail = trails.get(flow.name, FlowHistory())
        row += [Cell(sparkline(trail.rates), BUSY), Cell(sparkline(trail.lags), WAITS)]
    return row


def _lag(records: int | None, old: bool) -> str:
    """Returns the lag. `≥` means that the source does not answer: it had at least this much
    when last seen.
    """
    return f"{'≥' if old and records is not None else ''}{count(records)}"


TOPICS = (
    Column("TOPIC"),
    Column("FLOW"),
    Column("DESTINATION", spare=3),
    Column("STATE"),
    Column("PARTITIONS", right=True, spare=4),
    Column("LAG", right=True),
    Column("BEHIND", right=True, spare=1),
    Column("RECORDS", right=True, spare=2),
    Column("BYTES", right=True, spare=6),
    Column("P50", right=True, spare=7),
    Column("P99", right=True, spare=5),
)


def topic_rows(status: ReplicationStatus) -> Iterator[Row]:
    """Yields a row for each topic."""
    for flow in status.flows:
        for topic in flow.topics:
            yield (
                Cell(topic.topic, "bold"),
                flow.name,
                topic.destination_topic or "–",
                Cell(topic.state, state_style(topic.state)),
                count(len(topic.partitions)),
                _lag(topic.lag_records, any(each.source_end_seen_ms for each in topic.partitions)),
                span(topic.lag_ms),
                per_second(topic.records_per_s),
                f"{octets(topic.bytes_per_s)}/s" if topic.bytes_per_s is not None else "–",
                latency(topic.latency.p50_ms if topic.latency is not None else None),
                latency(topic.latency.p99_ms if topic.latency is not None else None),
            )


PARTITIONS = (
    Column("PARTITION"),
    Column("FLOW", spare=2),
    Column("STATE"),
    Column("FOR", right=True, spare=7),
    Column("SLOT", right=True, spare=8),
    Column("SOURCE", right=True, spare=4),
    Column("POSITION", right=True, spare=3),
    Column("DESTINATION", right=True, spare=6),
    Column("LAG", right=True),
    Column("BEHIND", right=True, spare=1),
    Column("COMMIT", right=True, spare=5),
)


def partition_rows(status: ReplicationStatus) -> Iterator[Row]:
    """Yields a row for each partition."""
    for flow in status.flows:
        for partition in flow.partitions:
            yield (
                Cell(f"{partition.topic}-{partition.partition}", "bold"),
                flow.name,
                Cell(
                    partition.state + (" + foreign_writes" if partition.foreign_writes else ""),
                    state_style(partition.state),
                ),
                span(status.at_ms - partition.since_ms) if partition.since_ms is not None else "–",
                count(partition.slot),
                _range(partition.source_start, partition.source_end),
                count(partition.position),
                _range(partition.destination_start, partition.destination_end),
                _lag(partition.lag_records, partition.source_end_seen_ms is not None),
                span(partition.lag_ms),
                f"{span(max(status.at_ms - partition.last_commit_ms, 0))} ago"
                if partition.last_commit_ms
                else "–",
            )


def _range(start: int | None, end: int | None) -> str:
    return f"{count(start)}…{count(end)}" if start is not None or end is not None else "–"


def state_style(state: str) -> str:
    """Returns the style of a state: GOOD, BUSY, WAITS, BAD or QUIET. An unlisted state is BAD."""
    return BAD if state in (DOWN, STALLED, UNKNOWN) else _STYLES.get(state, BAD)


MOST_WORRIES = 20


_SIDES = ("source", "destination")


_HELD = (PartitionState.BLOCKED_AT_SOURCE, PartitionState.UNSCHEDULED)  # for reasons outside the job


class DetailLevel(IntEnum):
    """Which rows are shown beside jobs and flows."""

    FLOWS = 0
    TOPICS = 1
    PARTITIONS = 2


FORMAT_VERSION = 1


def document(status: ReplicationStatus, failovers: Sequence[FailoverVerdict]) -> dict[str, Any]:
    """Returns the status as `--json` prints it."""
    return {
        "format_version": FORMAT_VERSION,
        **msgspec.to_builtins(status),
        "failovers": msgspec.to_builtins(failovers),
    }


def screen(
    status: ReplicationStatus,
    width: int | None = None,
    depth: DetailLevel = DetailLevel.FLOWS,
    trails: Mapping[str, FlowHistory] | None = None,
) -> Iterator[Text]:
    """Yields the lines of the screen, with a blank line between sections.

    With `trails`, as `--watch` shows it, it leads with what a failover of each cluster would lose.
    """
    if trails is not None:
        for failover in verdicts(status):
            text = verdict_text(failover, status.at_ms), verdict_style(failover.verdict)
            yield Text.assemble((f"Fail over {failover.cluster}: ", "bold"), text)
        yield Text()
    yield _headline(status)
    for cluster in status.clusters:
        if not cluster.answers:
            yield Text.assemble((f"Cluster {cluster.name} does not answer: ", BAD), cluster.why)
    yield Text()
    yield from table(JOBS, [job_row(job) for job in status.jobs], width)
    yield Text()
    yield from table(flow_columns(trails), [flow_row(flow, trails) for flow in status.flows], width)
    if status.waves:
        yield Text()
        yield Text("CUTOVERS", "dim")
        yield from wave_lines(status.waves)
    yield from _remarks(status)
    yield from _worries(status, width)
    yield from _next(status)
    if depth is DetailLevel.TOPICS:
        yield Text()
        yield from table(TOPICS, list(topic_rows(status)), width)
    elif depth is DetailLevel.PARTITIONS:
        yield Text()
        yield from table(PARTITIONS, list(partition_rows(status)), width)


_SAFETY = {
    Verdict.SAFE: GOOD,
    Verdict.WITHIN_RPO: GOOD,
    Verdict.NOT_COPYING: WAITS,
    Verdict.LOSES: WAITS,
    Verdict.ENDED: QUIET,
}


def verdict_style(verdict: Verdict) -> str:
    """Returns the style of a verdict: GOOD, WAITS or QUIET. An unlisted verdict is BAD."""
    return _SAFETY.get(verdict, BAD)


def _headline(status: ReplicationStatus) -> Text:
    """Returns everything in one line: whether an operator has to act."""
    idle = Counter(job.state for job in status.jobs if not job.up)
    worries = len(_needing(status))
    late = sum(flow.rpo_met is False for flow in status.flows)
    how = ", ".join(f"{number} {state}" for state, number in sorted(idle.items()))
    parts = [
        plural(len(status.flows), "flow"),
        f"{plural(len(status.jobs), 'job')} {f'({how})' if how else 'up'}",
    ]
    parts += (
        [f"{plural(worries, 'partition')} {'needs' if worries == 1 else 'need'} attention"] if worries else []
    )
    parts += [f"{late} beyond the RPO"] if late else []
    parts += _behind(status)
    style = BAD if idle or worries else "bold"
    return Text.assemble(
        (f"{status.topology}: {', '.join(parts)}", style), (f"  {moment(status.at_ms)}", "dim")
    )


def _behind(status: ReplicationStatus) -> list[str]:
    records = sum(flow.lag_records or 0 for flow in status.flows)
    partitions = [partition for flow in status.flows for partition in flow.partitions]
    old = any(partition.source_end_seen_ms or partition.lag_records is None for partition in partitions)
    if not records:
        caught_up = status.flows and all(flow.lag_records == 0 for flow in status.flows)
        stopped = any(partition.needs_someone for partition in partitions)
        return ["nothing behind"] if caught_up and not old and not stopped else []
    longest = max((flow.lag_ms for flow in status.flows if flow.lag_ms is not None), default=None)
    far = f" and {span(longest)}" if longest else ""
    behind = f"{'at least ' if old else ''}{plural(records, 'record')}{far} behind"
    held = sum(
        partition.source_end - partition.source_start
        for partition in partitions
        if partition.source_end is not None and partition.source_start is not None
    )
    copied = 1 - records / held if records < held else 0.0
    return [f"{behind} ({copied:.0%} copied)" if records >= _MANY and copied < _ALMOST else behind]


_MANY, _ALMOST = 100_000, 0.95  # records behind, and share of what the sources hold: the first copy runs


def _remarks(status: ReplicationStatus) -> Iterator[Text]:
    """Yields what holds up jobs and flows, and what could not be done, each once."""
    said = {
        f"{side} {cluster.name} does not answer: {cluster.why}"
        for cluster in status.clusters
        for side in _SIDES
    }
    said |= {f"{partition.topic}-{partition.partition}: {partition.why}" for _, partition in _needing(status)}
    remarks = []
    for job in status.jobs:
        remarks += [(f"job {job.name}", job.why)] if job.why and job.state != UNKNOWN else []
        said.add(f"job {job.name}: {job.why}")
        if job.up and job.metrics_taken:
            remarks.append((f"job {job.name}", f"metrics at {job.metrics}: {job.metrics_taken} was taken"))
        remarks += [(f"job {job.name}", text) for text in _standbys(job)]
        remarks += [
            (f"slot {slot.slot} of {job.name}", _slot(slot))
            for slot in job.slots
            if job.up and (slot.why or slot.state in ("waiting", "unscheduled"))
        ]
    for flow in status.flows:
        parts = [part for part in flow.why.split("; ") if part and part not in said]
        remarks += [(f"flow {flow.name}", "; ".join(parts))] if parts else []
        notes: list[str] = []
        if seen := [
            partition.source_end_seen_ms
            for partition in flow.partitions
            if partition.source_end_seen_ms is not None
        ]:
            when = f"{span(max(status.at_ms - max(seen), 0))} ago"
            notes.append(f"the lag counts to {flow.source}'s end as last seen, {when}; there may be more")
        if foreign := sorted(
            {partition.destination_topic or "" for partition in flow.partitions if partition.foreign_writes}
        ):
            notes.append(f"others write to its mirror topics (foreign_writes): {', '.join(foreign)}")
        notes += (
            *_blocked(flow),
            *_quarantined(flow),
            *flow.notes,
        )
        remarks += [(f"flow {flow.name}", note) for note in notes]
        remarks += [(f"flow {flow.name}", f"stuck: {lane}") for lane in flow.stuck_lanes]
    if remarks:
        yield Text()
    for who, why in remarks:
        yield Text.assemble((f"{who}: ", WAITS), why)


def _standbys(job: JobHealth) -> Iterator[str]:
    """Yields where a job with standbys runs, what each standby does, and how many are missing."""
    if not (job.standbys_declared or job.standbys):
        return
    if job.up:
        yield f"it runs as pid {job.process} on {job.host}"
    for standby in job.standbys:
        yield (
            f"standby on {standby.host} (pid {standby.process}): {_STANDBY.get(standby.state, standby.state)}"
            + (f": {standby.why}" if standby.why else "")
        )
    ready = sum(standby.state in ("watching", "taking_over") for standby in job.standbys)
    if ready < job.standbys_declared and job.state != UNKNOWN:
        declared = plural(job.standbys_declared, "standby")
        yield f"{ready} of {declared} ready: run repl standby {job.name} on another machine"


_STANDBY = {
    "watching": "watches",
    "taking_over": "is starting the job",
    "running": "the job runs on its machine",
    "failed": "cannot take the job over",
}


def _quarantined(flow: FlowHealth) -> Iterator[str]:
    """Yields how many bad records of each topic lie in its quarantine topic."""
    for topic in flow.topics:
        count = sum(partition.quarantined for partition in topic.partitions)
        if count and topic.destination_topic is not None:
            where = quarantine_topic(topic.destination_topic)
            yield f"{plural(count, 'bad record')} of {topic.topic} went to {where} at {flow.destination}"


def _blocked(flow: FlowHealth) -> list[str]:
    """Returns one partition for each transaction that blocks readers, with the command that ends it."""
    first: dict[int, PartitionHealth] = {}
    for partition in flow.partitions:
        if partition.blocked_by is not None:
            first.setdefault(partition.blocked_by.producer_id, partition)
    texts = (f"{partition.topic}-{partition.partition}: {partition.why}" for partition in first.values())
    return [words for words in texts if words not in flow.why][:MOST_WORRIES]


def _slot(slot: SlotHealth) -> str:
    if slot.state == "running":
        return f"it runs again; its last attempt: {slot.why}"
    return f"{slot.state}: {slot.why}" if slot.why else slot.state


def _worries(status: ReplicationStatus, width: int | None) -> Iterator[Text]:
    """Yields the partitions that need a decision; many are counted."""
    needing = _needing(status)
    if not needing:
        return
    yield Text()
    rows = [
        (
            Cell(f"{partition.topic}-{partition.partition}", "bold"),
            flow,
            Cell(partition.state, BAD),
            span(status.at_ms - partition.since_ms) if partition.since_ms is not None else "–",
            partition.why,
        )
        for flow, partition in needing[:MOST_WORRIES]
    ]
    yield from table(_WORRIES, rows, width)
    if len(needing) > MOST_WORRIES:
        yield Text(f"… and {len(needing) - MOST_WORRIES:,} more: repl status --all", "dim")


def _next(status: ReplicationStatus) -> Iterator[Text]:
    """Yields each next step once, on its own line: a narrow terminal cuts no command."""
    waits: dict[str, dict[str, None]] = {}
    for flow in status.flows:
        for partition in flow.partitions:
            if partition.next and (partition.needs_someone or partition.state in _HELD):
                down = partition.state == DOWN
                name = f"job {flow.job}" if down else f"{partition.topic}-{partition.partition}"
                waits.setdefault(partition.next, {})[f"{name} ({partition.state})"] = None
    if waits:
        yield Text()
    for step, names in waits.items():
        yield Text(f"Next for {few(list(names))}:")
        yield Text(f"  {step}", "bold")


_WORRIES = (
    Column("NEEDS ATTENTION"),
    Column("FLOW", spare=1),
    Column("STATE"),
    Column("FOR", right=True),
    Column("WHY"),
)


def _needing(status: ReplicationStatus) -> list[tuple[str, PartitionHealth]]:
    """Returns the partitions that need a decision, without those whose job is down or unreadable.

    The state of the job is shown once instead.
    """
    return [
        (flow.name, partition)
        for flow in status.flows
        for partition in flow.partitions
        if partition.needs_someone and partition.state not in (DOWN, UNKNOWN)
    ]
