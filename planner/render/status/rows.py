"""The rows of `repl status`: jobs, flows, topics and partitions, each with its columns. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from planner.render.status.numbers import count, latency, octets, per_second, span, sparkline
from planner.render.table import Cell, Column, Row
from runtime.contract.records.status import PartitionState as S
from runtime.contract.views.status_view import (
    DOWN,
    STALLED,
    UNKNOWN,
    FlowStatusView,
    JobStatusView,
    StatusView,
)

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


@dataclass(frozen=True, slots=True)
class FlowHistory:
    """What earlier readings showed of a flow, the newest last."""

    rates: Sequence[float | None] = ()
    lags: Sequence[float | None] = ()


JOBS = (
    Column("JOB"),
    Column("STATE"),
    Column("AT", spare=3),
    Column("SLOTS", right=True),
    Column("GENERATION", right=True, spare=4),
    Column("UPTIME", right=True, spare=5),
    Column("HEARTBEAT", right=True, spare=1),
)


def job_row(job: JobStatusView) -> Row:
    up = job.up and job.started_ms is not None and job.heartbeat_ms is not None
    return (
        Cell(job.name, "bold"),
        Cell(job.state, _style(job.state)),
        job.destination,
        f"{job.slots_running if job.up else 0}/{len(job.slots)}" if job.slots else "–",
        count(job.generation),
        span(job.heartbeat_ms - job.started_ms) if up and job.heartbeat_ms and job.started_ms else "–",
        _heartbeat(job),
    )


def _heartbeat(job: JobStatusView) -> str:
    if job.heartbeat_age_ms is not None:
        return f"{span(job.heartbeat_age_ms)} ago"
    return "–" if job.state == UNKNOWN else "never"


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


def flow_row(flow: FlowStatusView, trails: Mapping[str, FlowHistory] | None) -> Row:
    late = flow.rpo_met is False
    row: list[Cell | str] = [
        Cell(flow.name, "bold"),
        Cell(flow.state, _style(flow.state)),
        f"{flow.source} → {flow.destination}",
        count(len(flow.topics)),
        count(len(flow.partitions)),
        _lag(flow.lag_records, any(one.source_end_seen_ms for one in flow.partitions)),
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
    Column("BYTES", right=True, spare=5),
)


def topic_rows(status: StatusView) -> Iterator[Row]:
    for flow in status.flows:
        for one in flow.topics:
            yield (
                Cell(one.topic, "bold"),
                flow.name,
                one.destination_topic or "–",
                Cell(one.state, _style(one.state)),
                count(len(one.partitions)),
                _lag(one.lag_records, any(each.source_end_seen_ms for each in one.partitions)),
                span(one.lag_ms),
                per_second(one.records_per_s),
                f"{octets(one.bytes_per_s)}/s" if one.bytes_per_s is not None else "–",
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


def partition_rows(status: StatusView) -> Iterator[Row]:
    for flow in status.flows:
        for one in flow.partitions:
            yield (
                Cell(f"{one.topic}-{one.partition}", "bold"),
                flow.name,
                Cell(one.state + (" + foreign_writes" if one.foreign_writes else ""), _style(one.state)),
                span(status.at_ms - one.since_ms) if one.since_ms is not None else "–",
                count(one.slot),
                _range(one.source_start, one.source_end),
                count(one.position),
                _range(one.destination_start, one.destination_end),
                _lag(one.lag_records, one.source_end_seen_ms is not None),
                span(one.lag_ms),
                f"{span(max(status.at_ms - one.last_commit_ms, 0))} ago" if one.last_commit_ms else "–",
            )


def _range(start: int | None, end: int | None) -> str:
    return f"{count(start)}…{count(end)}" if start is not None or end is not None else "–"


def _style(state: str) -> str:
    return BAD if state in (DOWN, STALLED, UNKNOWN) else _STYLES.get(state, BAD)
