"""Decides whether a job is up, and which reports of its slots count. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field, structs

from runtime.audit.status.facts import LedgerFacts
from runtime.contract.records.job_status import (
    FlowStats,
    FlowView,
    JobStatus,
    PartitionStatus,
    SlotReport,
    SourceEnds,
    newest_partitions,
)
from runtime.contract.records.latency import summed
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.results.status import (
    DOWN,
    UNKNOWN,
    JobHealth,
    SlotHealth,
    StandbyHealth,
)

STALE_MS = 10_000  # heartbeats come once a second
SKEW_MS = 2_000


class JobReports(Struct, frozen=True):
    """Holds a job's status, and the reports that count: of the slots of the driver that the heartbeat names.

    `partitions`: the newest status of each partition, with the report that holds it. `recent`: latency counts
    by flow, of the records that were committed since the previous inspection. `ends`: where a paused flow's
    source ended, by flow.
    """

    seen: JobHealth
    partitions: Mapping[PartitionKey, tuple[SlotReport, PartitionStatus]] = field(default_factory=dict)
    stats: Mapping[str, Sequence[FlowStats]] = field(default_factory=dict)
    flows: Mapping[str, FlowView] = field(default_factory=dict)
    recent: Mapping[str, Sequence[int]] = field(default_factory=dict)
    ends: Mapping[str, SourceEnds] = field(default_factory=dict)


def doubtful(ledger: LedgerFacts, now_ms: int, standbys: Mapping[str, int]) -> bool:
    """Returns whether a job, or a standby that is missing, seems dead by its clock alone: then it must be
    read once more.

    `standbys`: how many each job declares.
    """
    reported = ledger.reported
    if any(job.state != "stopped" and not _fresh(job.at_ms, now_ms) for job in reported.jobs.values()):
        return True
    for job, declared in standbys.items():
        reporting = sum(of == job for of, _ in reported.standbys)
        if len(_standbys(job, ledger, None, now_ms)) < min(reporting, declared):
            return True
    return False


def judge(
    name: str,
    destination: str,
    now: LedgerFacts | None,
    before: LedgerFacts | None,
    now_ms: int,
    before_ms: int,
    flows: Sequence[str],
    standbys: int,
) -> JobReports:
    """Derives a job's state from two inspections. `now` is None where the destination could not be read.

    `standbys`: how many the topology declares.
    """
    status = now.reported.jobs.get(name) if now is not None else None
    if now is None or status is None:
        state, why = DOWN, f"it has never run at {destination}"
        if now is None:
            state, why = UNKNOWN, f"{destination} does not answer: whether the job runs is not known"
        elif name in now.reported.unreadable:
            _, wrong = now.reported.unreadable[name]
            state, why = UNKNOWN, f"its heartbeat can't be read, as one of another release: {wrong}"
        return JobReports(
            JobHealth(name=name, destination=destination, up=False, state=state, why=why, flows=list(flows))
        )
    last = before.reported.jobs.get(name) if before is not None else None
    moved = last is not None and (last.at_ms, last.driver) != (status.at_ms, status.driver)
    up, why = _up(status, moved, now_ms)
    age_ms = now_ms - status.at_ms
    if moved and not _fresh(status.at_ms, now_ms):
        age_ms = now_ms - before_ms  # the clocks differ; the heartbeat moved between the two inspections
    reports = now.reported.reports_of(status)
    stats: dict[str, list[FlowStats]] = {}
    for report in reports.values():
        for flow in report.flows:
            stats.setdefault(flow.flow, []).append(flow)
    return JobReports(
        JobHealth(
            name=name,
            destination=destination,
            up=up,
            state=status.state if up or status.state == "stopped" else DOWN,
            why=why,
            generation=max((flow.generation for flow in status.flows if flow.generation), default=None),
            heartbeat_ms=status.at_ms,
            heartbeat_age_ms=max(age_ms, 0),
            started_ms=status.started_ms,
            driver=status.driver,
            application=status.application,
            master=status.master,
            host=status.host,
            process=status.process or None,
            trouble=status.trouble,
            metrics=status.metrics,
            metrics_taken=status.metrics_taken,
            flows=list(flows),
            slots=_slots(status, reports),
            standbys_declared=standbys,
            standbys=_standbys(name, now, before, now_ms),
        ),
        newest_partitions(reports.values()),
        stats,
        {flow.flow: flow for flow in status.flows},
        _recent(reports, before.reported.reports_of(status) if before is not None else {}),
        {flow: ends for (job, flow), ends in now.reported.ends.items() if job == name},
    )


def _up(status: JobStatus, moved: bool, now_ms: int) -> tuple[bool, str]:
    if status.state == "stopped":
        return False, "it was stopped as asked"
    if moved or _fresh(status.at_ms, now_ms):
        return True, status.trouble
    age_ms = now_ms - status.at_ms
    if age_ms < 0:
        return False, "its heartbeat does not move (its clock is ahead of this one)"
    return False, f"its heartbeat stopped {duration(age_ms)} ago"


def _fresh(at_ms: int, now_ms: int) -> bool:
    return -SKEW_MS <= now_ms - at_ms <= STALE_MS


def _recent(now: Mapping[int, SlotReport], before: Mapping[int, SlotReport]) -> dict[str, list[int]]:
    """Returns the latency counts since the previous inspection.

    A slot that was restarted in between counts from zero: all its counts are recent.
    """
    recent: dict[str, list[int]] = {}
    for slot, report in now.items():
        last = before.get(slot)
        if last is None:
            continue
        same = last.attempt == report.attempt
        old = {flow.flow: flow.latency_counts for flow in last.flows} if same else {}
        for flow in report.flows:
            counts = old.get(flow.flow, ())
            more = [
                count - (counts[at] if at < len(counts) else 0)
                for at, count in enumerate(flow.latency_counts)
            ]
            if min(more, default=0) >= 0:
                recent[flow.flow] = summed([recent.get(flow.flow, ()), more])
    return recent


def _slots(status: JobStatus, reports: Mapping[int, SlotReport]) -> list[SlotHealth]:
    """Returns each slot as the driver sees it, with the figures of the slot's own report."""
    slots = []
    for slot in status.slots:
        report = reports.get(slot.slot)
        slots.append(
            SlotHealth(
                **structs.asdict(slot),
                report_age_ms=max(status.at_ms - report.at_ms, 0) if report is not None else None,
                process=report.process or None if report is not None else None,
                host=report.host if report is not None else "",
                rss_bytes=report.rss_bytes or None if report is not None else None,
                buffered_bytes=report.buffered_bytes if report is not None else None,
            )
        )
    return slots


def _standbys(job: str, now: LedgerFacts, before: LedgerFacts | None, now_ms: int) -> list[StandbyHealth]:
    """Returns the standbys that report themselves. One that ended without a last report is left out."""
    last = before.reported.standbys if before is not None else {}
    return [
        StandbyHealth(host=standby.host, process=standby.process, state=standby.state, why=standby.why)
        for key, standby in sorted(now.reported.standbys.items())
        if key[0] == job
        and (_fresh(standby.at_ms, now_ms) or (key in last and last[key].at_ms != standby.at_ms))
    ]


def duration(ms: int) -> str:
    """Formats a duration for an explanation: `35 s`, `4 min`, `3 h`, `2 d`."""
    seconds = min(ms, 1 << 63) // 1000  # JSON may hold more than a float can
    for size, word in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {word}"
    return f"{seconds} s"
