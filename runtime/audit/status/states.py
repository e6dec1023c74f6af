"""Decides whether a job is up, which of its slots' reports count, and in which state each partition is. Pure.

The state of a partition is derived from the data first, then from the report of a live job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field

from runtime.audit.status.facts import ClusterFacts, LedgerFacts, TopicFacts
from runtime.contract.records.job_status import (
    FlowStats,
    FlowView,
    JobStatus,
    PartitionStatus,
    SlotReport,
    SourceEnds,
)
from runtime.contract.records.job_status import PartitionState as S
from runtime.contract.records.latency import summed
from runtime.contract.records.ledger import Generation, PartitionKey, Progress
from runtime.contract.spec.naming import is_other_topic
from runtime.contract.views.status_view import (
    DOWN,
    STALLED,
    UNKNOWN,
    JobStatusView,
    SlotStatusView,
    StandbyStatusView,
)
from runtime.kafka.protocol.offsets import TopicPartition

STALE_MS = 10_000  # heartbeats come once a second
SKEW_MS = 2_000
SILENT_MS = 15_000  # a slot reports at least every five seconds


class SlotPartitionReport(Struct, frozen=True):
    """Holds a slot's newest report of a partition. `silent_ms` is set where the slot no longer reports."""

    slot: int
    at_ms: int
    status: PartitionStatus
    silent_ms: int | None


class JobFacts(Struct, frozen=True):
    """Holds the derived state of a job.

    `partitions` and `stats` come from the slots of the driver that the heartbeat names. `ends`: where a
    paused flow's source ended, by flow. `recent`: latency counts by flow, of the records that were committed
    since the previous inspection.
    """

    seen: JobStatusView
    partitions: Mapping[PartitionKey, SlotPartitionReport]
    stats: Mapping[str, Sequence[FlowStats]]
    flows: Mapping[str, FlowView]
    recent: Mapping[str, Sequence[int]] = field(default_factory=dict)
    ends: Mapping[str, SourceEnds] = field(default_factory=dict)


def doubtful(ledger: LedgerFacts, now_ms: int, standbys: Mapping[str, int]) -> bool:
    """Returns whether a job, or a standby that is missing, seems dead by its clock alone: then it must be
    read once more.

    `standbys`: how many each job declares.
    """
    if any(status.state != "stopped" and not _fresh(status, now_ms) for status in ledger.jobs.values()):
        return True
    for job, declared in standbys.items():
        known = sum(of == job for of, _ in ledger.standbys)
        if len(_standbys(job, ledger, None, now_ms)) < min(known, declared):
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
    standbys: int = 0,
) -> JobFacts:
    """Derives a job's state from two inspections. `now` is None where the destination could not be read.

    `standbys`: how many the topology declares.
    """
    if now is None:
        why = f"{destination} does not answer: whether the job runs is not known"
        return _nothing(name, destination, UNKNOWN, why, flows)
    status = now.jobs.get(name)
    if status is None:
        return _nothing(name, destination, DOWN, f"it has never run at {destination}", flows)
    last = before.jobs.get(name) if before is not None else None
    moved = last is not None and (last.at_ms, last.driver) != (status.at_ms, status.driver)
    up, why = _up(status, moved, now_ms)
    age = now_ms - status.at_ms
    if moved and not _fresh(status, now_ms):
        age = now_ms - before_ms  # the clocks differ; the heartbeat moved between the two inspections
    reports = _reports(now, status)
    return JobFacts(
        JobStatusView(
            name=name,
            destination=destination,
            up=up,
            state=status.state if up or status.state == "stopped" else DOWN,
            why=why,
            generation=max((view.generation for view in status.flows if view.generation), default=None),
            heartbeat_ms=status.at_ms,
            heartbeat_age_ms=max(age, 0),
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
            slots=[_slot(status, view.slot, reports.get(view.slot)) for view in status.slots],
            standbys_declared=standbys,
            standbys=_standbys(name, now, before, now_ms),
        ),
        _partitions(status, reports),
        _stats(reports),
        {view.flow: view for view in status.flows},
        _recent(reports, _reports(before, status) if before is not None else {}),
        {flow: ends for (job, flow), ends in now.ends.items() if job == name},
    )


def _reports(ledger: LedgerFacts, status: JobStatus) -> dict[int, SlotReport]:
    """Returns the reports of the slots that this driver started: reports of another driver are outdated."""
    return {
        slot: report
        for (job, slot), report in ledger.reports.items()
        if job == status.job and report.driver == status.driver
    }


def _recent(now: Mapping[int, SlotReport], before: Mapping[int, SlotReport]) -> dict[str, list[int]]:
    """Returns the latency counts since the previous inspection.

    A slot that was restarted in between counts from zero: all its counts are recent.
    """
    found: dict[str, list[int]] = {}
    for slot, report in now.items():
        last = before.get(slot)
        same = last is not None and last.attempt == report.attempt
        old = {one.flow: one.latency_counts for one in last.status.flows} if last and same else {}
        for one in report.status.flows:
            counts = old.get(one.flow, ())
            more = [
                count - (counts[at] if at < len(counts) else 0) for at, count in enumerate(one.latency_counts)
            ]
            if last is not None and min(more, default=0) >= 0:
                found[one.flow] = summed([found.get(one.flow, ()), more])
    return found


def _fresh(status: JobStatus, now_ms: int) -> bool:
    return -SKEW_MS <= now_ms - status.at_ms <= STALE_MS


def _up(status: JobStatus, moved: bool, now_ms: int) -> tuple[bool, str]:
    if status.state == "stopped":
        return False, "it was stopped as asked"
    if moved or _fresh(status, now_ms):
        return True, status.trouble
    age = now_ms - status.at_ms
    if age < 0:
        return False, "its heartbeat does not move (its clock is ahead of this one)"
    return False, f"its heartbeat stopped {duration(age)} ago"


def _nothing(name: str, destination: str, state: str, why: str, flows: Sequence[str]) -> JobFacts:
    seen = JobStatusView(
        name=name, destination=destination, up=False, state=state, why=why, flows=list(flows)
    )
    return JobFacts(seen, {}, {}, {})


def _slot(status: JobStatus, slot: int, report: SlotReport | None) -> SlotStatusView:
    view = next(view for view in status.slots if view.slot == slot)
    reported = report.status if report is not None else None
    return SlotStatusView(
        slot=slot,
        state=view.state,
        since_ms=view.since_ms or None,
        attempts=view.attempts,
        partitions=view.partitions,
        why=view.why,
        report_age_ms=max(status.at_ms - reported.at_ms, 0) if reported is not None else None,
        process=reported.process or None if reported is not None else None,
        host=reported.host if reported is not None else "",
        rss_bytes=reported.rss_bytes or None if reported is not None else None,
        buffered_bytes=reported.buffered_bytes if reported is not None else None,
    )


def _standbys(job: str, now: LedgerFacts, before: LedgerFacts | None, now_ms: int) -> list[StandbyStatusView]:
    """Returns the standbys that report themselves. One that went away without a word is left out."""
    last = before.standbys if before is not None else {}
    found = []
    for (of, standby), status in sorted(now.standbys.items()):
        moved = (of, standby) in last and last[of, standby].at_ms != status.at_ms
        if of == job and (moved or -SKEW_MS <= now_ms - status.at_ms <= STALE_MS):
            found.append(
                StandbyStatusView(
                    host=status.host, process=status.process, state=status.state, why=status.why
                )
            )
    return found


def _partitions(
    status: JobStatus, reports: Mapping[int, SlotReport]
) -> dict[PartitionKey, SlotPartitionReport]:
    """Returns the newest report of each partition.

    A partition that moved is in two slots' reports for a short time.
    """
    found: dict[PartitionKey, SlotPartitionReport] = {}
    for slot, report in reports.items():
        reported = report.status
        # Both times are from the job's side: this machine's clock does not matter.
        silent = status.at_ms - reported.at_ms
        for one in reported.partitions:
            key = PartitionKey(one.flow, one.topic, one.partition)
            if key not in found or found[key].at_ms < reported.at_ms:
                found[key] = SlotPartitionReport(
                    slot, reported.at_ms, one, silent if silent > SILENT_MS else None
                )
    return found


def _stats(reports: Mapping[int, SlotReport]) -> dict[str, list[FlowStats]]:
    found: dict[str, list[FlowStats]] = {}
    for report in reports.values():
        for stats in report.status.flows:
            found.setdefault(stats.flow, []).append(stats)
    return found


def duration(ms: int) -> str:
    """Formats a duration for an explanation: `35 s`, `4 min`, `3 h`, `2 d`."""
    seconds = ms // 1000
    for size, word in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {word}"
    return f"{seconds} s"


STALLED_MS = 30_000
_COPIES = (S.COPYING, S.CAUGHT_UP)


class PartitionStateDetail(NamedTuple):
    """Holds a partition's state, since when it has it, and why."""

    state: str
    since_ms: int | None = None
    why: str = ""

    @property
    def needs_someone(self) -> bool:
        return self.state in (DOWN, STALLED) or self.state in _NEEDS_SOMEONE


_NEEDS_SOMEONE = frozenset(str(state) for state in S if state.needs_someone)


class PartitionFacts(Struct, frozen=True):
    """Holds all facts about a partition. None is an unknown value."""

    flow: str
    source_topic: TopicPartition
    destination_topic: TopicPartition | None
    source: ClusterFacts
    destination: ClusterFacts
    destination_read: bool
    progress: Progress | None
    generation: Generation | None
    promoted: bool
    job: JobFacts
    report: SlotPartitionReport | None
    lag_records: int | None
    lag_ms: int | None
    now_ms: int
    every_ms: int = 0  # a flow into files commits only so often


def state_of(facts: PartitionFacts) -> PartitionStateDetail:
    """Returns the state of a partition."""
    if not facts.destination_read:
        return PartitionStateDetail(UNKNOWN, None, f"{facts.destination.name} does not answer")
    ended = _ended(facts)
    if ended is not None:
        return ended
    found = _stopped_by_finding(facts)
    if found is not None:
        return found
    if facts.generation is not None and facts.generation.state == "paused":
        return PartitionStateDetail(S.PAUSED, facts.generation.written_at, facts.generation.note)
    if not facts.job.seen.up:
        return _down(facts)
    return _state_of_report(facts)


def _ended(facts: PartitionFacts) -> PartitionStateDetail | None:
    """Returns the state of a partition that is no longer copied on purpose: then no other fact matters."""
    if facts.promoted:
        return PartitionStateDetail(S.PROMOTED, None, "promoted on its own")
    generation = facts.generation
    if generation is not None and generation.state in ("promoted", "failed_over"):
        return PartitionStateDetail(generation.state, generation.written_at, generation.note)
    return None


def _stopped_by_finding(facts: PartitionFacts) -> PartitionStateDetail | None:
    """Returns the state in which both sides show that the partition must stop, whatever its job says.

    The partition continues only when the topology or an operator says how (R4).
    """
    finding = _finding(facts)
    if finding is None:
        return None
    state, why = finding
    reported = facts.report.status if facts.report is not None else None
    if reported is not None and reported.state == state:
        return PartitionStateDetail(state, reported.since_ms or None, reported.why or why)
    return PartitionStateDetail(state, None, why)


def _finding(facts: PartitionFacts) -> tuple[S, str] | None:
    progress, source, destination = facts.progress, facts.source, facts.destination
    if progress is None:
        return None
    if source.topics is not None:
        source_topic = source.topics.get(facts.source_topic.topic)
        if source_topic is None or facts.source_topic.partition >= source_topic.partitions:
            return S.SOURCE_DELETED, f"{facts.source_topic.topic} is gone from {source.name}"
        if _other(source_topic, progress.source_topic_id):
            return S.RECREATED, f"{facts.source_topic.topic} at {source.name} was deleted and made again"
    if destination.topics is not None:
        name = progress.destination_topic
        mirror = destination.topics.get(name)
        if mirror is None:
            return S.RECREATED, f"{name} is gone from {destination.name}"
        if _other(mirror, progress.destination_topic_id):
            return S.RECREATED, f"{name} at {destination.name} was deleted and made again"
    return _cut(facts, progress)


def _other(topic: TopicFacts, known: bytes) -> bool:
    return is_other_topic(known, topic.id)


def _cut(facts: PartitionFacts, progress: Progress) -> tuple[S, str] | None:
    start = facts.source.starts.get(facts.source_topic)
    if start is not None and progress.position < start:
        lost = f"offsets {progress.position} to {start - 1}"
        return S.DATA_LOSS, f"{lost} are gone from {facts.source.name} and were not copied"
    high = facts.source.highs.get(facts.source_topic)
    if high is not None and progress.position > high:
        return S.DIVERGED, f"{facts.source.name} ends at {high}, {progress.position} was copied already"
    end = (
        facts.destination.highs.get(facts.destination_topic) if facts.destination_topic is not None else None
    )
    if end is not None and end < progress.destination_end:
        return S.DIVERGED, (
            f"{facts.destination.name} ends at {end}, {progress.destination_end} was written already"
        )
    return None


def _down(facts: PartitionFacts) -> PartitionStateDetail:
    job, reported = facts.job.seen, facts.report.status if facts.report is not None else None
    why = f"job {job.name}: {job.why}"
    if reported is not None and reported.state.needs_someone:
        why += f"; before that {reported.state}: {reported.why}"
    return PartitionStateDetail(DOWN, job.heartbeat_ms, why)


def _state_of_report(facts: PartitionFacts) -> PartitionStateDetail:
    report = facts.report
    if report is None:
        return _state_without_report(facts)
    reported = report.status
    if report.silent_ms is not None:
        slot = next((one for one in facts.job.seen.slots if one.slot == report.slot), None)
        why = f"slot {report.slot} has said nothing for {duration(report.silent_ms)}"
        if slot is not None and slot.state == S.UNSCHEDULED:
            return PartitionStateDetail(S.UNSCHEDULED, slot.since_ms, slot.why or why)
        return PartitionStateDetail(S.RETRYING, report.at_ms, why)
    if reported.state is S.CAUGHT_UP and not facts.source.answers:
        why = f"{facts.source.name} does not answer; the job says {reported.state}, but there may be more"
        return PartitionStateDetail(UNKNOWN, None, why)
    if reported.state not in _COPIES or facts.lag_records is None:
        return PartitionStateDetail(reported.state, reported.since_ms or None, reported.why)
    if facts.lag_records == 0:
        return PartitionStateDetail(
            S.CAUGHT_UP, _since(reported.state is S.CAUGHT_UP, reported.since_ms, report.at_ms), reported.why
        )
    idle_ms = facts.now_ms - (facts.progress.written_at if facts.progress is not None else reported.since_ms)
    longest_ms = STALLED_MS + 2 * facts.every_ms
    if idle_ms > longest_ms and (facts.lag_ms or 0) > longest_ms:
        why = f"the job says {reported.state}, but nothing was committed for {duration(idle_ms)}"
        return PartitionStateDetail(STALLED, facts.now_ms - idle_ms, why)
    return PartitionStateDetail(
        S.COPYING, _since(reported.state is S.COPYING, reported.since_ms, report.at_ms), reported.why
    )


def _since(same: bool, since_ms: int, otherwise_ms: int) -> int | None:
    return (since_ms if same else otherwise_ms) or None


def _state_without_report(facts: PartitionFacts) -> PartitionStateDetail:
    """Returns the state of a partition whose job runs, but of which no slot has reported anything."""
    view = facts.job.flows.get(facts.flow)
    if view is None:
        return PartitionStateDetail(DOWN, None, f"job {facts.job.seen.name} runs without this flow")
    if view.why:
        return PartitionStateDetail(S.RETRYING, None, view.why)
    slots = facts.job.seen.slots
    if slots and not any(slot.state == "running" for slot in slots):
        state = S.UNSCHEDULED if slots[0].state == S.UNSCHEDULED else S.STARTING
        return PartitionStateDetail(state, slots[0].since_ms, slots[0].why)
    return PartitionStateDetail(S.STARTING, None, "no slot has it yet")


def files_seen(
    flow: str, endpoint: str, job: JobFacts, progress: Mapping[PartitionKey, Progress]
) -> ClusterFacts:
    """Returns the files that a flow reads, as its job last reported them: a file is a topic of bytes.

    While no job reads them, they are those that the ledger knows.
    """
    view = job.flows.get(flow)
    reports = {
        TopicPartition(key.topic, key.partition): report.status
        for key, report in job.partitions.items()
        if key.flow == flow
    }
    ids = {TopicPartition(key.topic, key.partition): one.source_topic_id for key, one in progress.items()}
    up = job.seen.up and view is not None
    return ClusterFacts(
        name=endpoint,
        answers=up and view is not None and not view.why,
        why=view.why if up and view is not None else f"job {job.seen.name} does not report it",
        topics={at.topic: TopicFacts(ids.get(at, b""), at.partition + 1) for at in reports or ids},
        starts=dict.fromkeys(reports, 0),
        ends={at: one.source_end for at, one in reports.items()},
    )
