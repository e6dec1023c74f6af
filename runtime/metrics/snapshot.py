"""Defines what the metrics show of a job: its snapshot, and the reports of its slots added up.

`SlotMetrics` adds up the counters of a slot over all its starts. `unready` says why a job is not ready.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from operator import attrgetter

from msgspec import Struct, field
from msgspec.structs import replace

from runtime.contract.records.job_status import (
    FlowStats,
    FlowView,
    JobStatus,
    PartitionState,
    PartitionStatus,
    SlotReport,
    changed_partitions,
)
from runtime.contract.records.latency import LATENCY_BOUNDS_MS
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec.jobspec import FlowSpec, JobSpec

HEARTBEAT_OLD_S = 10.0


class FlowSnapshot(Struct, frozen=True):
    """This value is the snapshot of a flow.

    `partitions` are to be copied now, and `promoted` ones never again. `actions` counts the changes of mirror
    topics and of schemas by kind.
    """

    spec: FlowSpec
    view: FlowView
    partitions: Collection[PartitionKey]
    actions: Mapping[str, int] = field(default_factory=dict)
    promoted: Collection[PartitionKey] = ()


class ClusterSnapshot(Struct, frozen=True):
    """These counts cover all topics of a cluster that the job may describe."""

    partitions: int
    under_replicated: int
    without_leader: int


class GroupSnapshot(Struct, frozen=True):
    """This value is the snapshot of a consumer group that a flow syncs. Its counters start with the driver.

    `pending` partitions wait for their data, and `refused` ones until the group has no member at the
    destination. `latency_s` is the time from the first sight of the group's commit at the source to the
    commit at the destination, as last seen; None before the first.
    """

    flow: str
    group: str
    translated: int = 0
    clamped: int = 0
    refused: int = 0
    pending: int = 0
    pending_since: float | None = None
    latency_s: float | None = None


class JobSnapshot(Struct, frozen=True):
    """This value is the snapshot of a job.

    `made_at` is monotonic. `heartbeat_age_s` is the age at that time; it is infinite before the first
    heartbeat.
    """

    spec: JobSpec
    status: JobStatus
    made_at: float
    heartbeat_age_s: float
    reports: Mapping[int, SlotReport]
    flows: Sequence[FlowSnapshot]
    clusters: Mapping[str, ClusterSnapshot]
    groups: Sequence[GroupSnapshot] = ()

    def age_at(self, now: float) -> float:
        """Returns the heartbeat's age at `now`, by the clock of `made_at`.

        It grows even when the driver takes no more snapshots.
        """
        return self.heartbeat_age_s + max(now - self.made_at, 0.0)


def unready(picture: JobSnapshot | None, now: float) -> list[str]:
    """Returns the reasons why the job is not ready; none when the heartbeat is fresh and every active flow
    has running slots.
    """
    if picture is None:
        return ["the job is starting"]
    problems = []
    age = picture.age_at(now)
    status = picture.status
    if age > HEARTBEAT_OLD_S:
        problem = "no heartbeat yet" if age == float("inf") else f"the last heartbeat is {age:.0f} s old"
        problems.append(f"{problem}: {status.trouble}" if status.trouble else problem)
    if status.state != "running":
        problems.append(f"the job is {status.state}")
    if problems:
        return problems
    running = {view.slot: view.attempts for view in status.slots if view.state == "running"}
    held = {
        partition.key
        for slot, report in picture.reports.items()
        if running.get(slot) == report.attempt
        for partition in report.partitions
    }
    return [why for flow in picture.flows if (why := _waiting_reason(flow, held))]


def _waiting_reason(flow: FlowSnapshot, held: set[PartitionKey]) -> str:
    if flow.spec.state != "active":
        return ""
    name = f"flow {flow.spec.name}"
    if flow.view.generation == 0:
        return f"{name} is not taken over yet{_reason(flow.view)}"
    if not flow.partitions and flow.view.why:
        return f"{name} has nothing to copy yet{_reason(flow.view)}"
    without = sum(key not in held for key in flow.partitions)
    if without:
        return f"{name}: {without} of {len(flow.partitions)} partitions have no running slot"
    return ""


def _reason(view: FlowView) -> str:
    return f": {view.why}" if view.why else ""


_MOVES = frozenset({PartitionState.COPYING, PartitionState.CAUGHT_UP})


# The counts of a flow in a slot; those of its histogram follow them.
_COUNTED = (
    "records",
    "bytes",
    "dropped",
    "commits",
    "aborts",
    "throttled_ms",
    "quarantined",
    "tombstones",
    "merged_files",
    "latency_sum_ms",
)
_TOTALS = ("records", "bytes", "dropped", "quarantined", "tombstones", "lost")


class CumulativeCounter(Struct):
    """A CumulativeCounter adds up counters over all starts; what an ended start had counted is kept."""

    life: Hashable = None
    ended: Sequence[float] = ()
    now: Sequence[float] = ()

    def take(self, life: Hashable, counts: Sequence[float]) -> Sequence[float]:
        """Sets the counts of the present start, and returns the sums over all starts.

        A new start, or a count that shrank, closes the one before.
        """
        if life != self.life or any(new < old for new, old in zip(counts, self.now, strict=False)):
            self.close()
        self.life = life
        self.now = counts
        return (
            [ended + more for ended, more in zip(self.ended, counts, strict=True)] if self.ended else counts
        )

    def close(self) -> None:
        """Ends the present start; its counts are kept, and the next counts start at zero."""
        self.ended = self.take(self.life, self.now) if self.now else self.ended
        self.now = ()


class ReportingSlot(Struct):
    """An attempt of a slot, and when it last reported its partitions."""

    slot: int
    attempt: int
    at_ms: int


class ReportedPartition(Struct, frozen=True):
    """This value is a partition as it was last reported, with the attempt of the slot that reported it.

    `commits` and `aborts` are those of all slots that had it. `was_caught_up_ms` is the last time, by
    earlier reports, at which the partition had all records of its source; 0 if there was none. `first_ms` is
    when it was first seen. `incident` is the state that needs an operator, and that was counted, until the
    partition goes on.
    """

    status: PartitionStatus
    reporting: ReportingSlot
    commits: float
    aborts: float
    was_caught_up_ms: int
    first_ms: int
    incident: PartitionState | None = None

    @property
    def slot(self) -> int:
        """The slot that reported it last."""
        return self.reporting.slot

    @property
    def attempt(self) -> int:
        """The attempt of that slot."""
        return self.reporting.attempt

    @property
    def at_ms(self) -> int:
        """When it was last reported."""
        return self.reporting.at_ms

    @property
    def caught_up_ms(self) -> int:
        """When the partition was last known to have all records of its source, 0 if that was never seen."""
        caught_up = self.status.state in _MOVES and self.status.lag_records == 0
        return self.at_ms if caught_up else self.was_caught_up_ms


class SlotMetrics:
    """A SlotMetrics collects the slots' reports.

    The driver's event loop changes its mappings, and a reader in another thread takes a copy of each. Python
    makes such a copy in one step. `flows` has what each slot did for each flow since the driver started, over
    all starts of the slot. `incidents` counts how often partitions of a flow entered a state that needs an
    operator.
    """

    def __init__(self) -> None:
        self.flows: dict[tuple[int, str], FlowStats] = {}
        self.partitions: dict[PartitionKey, ReportedPartition] = {}
        self.incidents: Counter[tuple[str, PartitionState]] = Counter()
        self._counters: defaultdict[Hashable, CumulativeCounter] = defaultdict(CumulativeCounter)
        self._reporting: dict[int, ReportingSlot] = {}
        self._reports: dict[int, SlotReport] = {}
        self._held: dict[int, set[PartitionKey]] = {}

    def record_report(self, report: SlotReport) -> None:
        """Adds one report of a slot.

        A partition whose status is the same object as in the report before is not looked at again: its values
        move with the time of the report (`ReportingSlot`).
        """
        self.flows.update(self._flows_of(report))
        slot, before = report.slot, self._reports.get(report.slot)
        reporting = self._reporting.get(slot)
        if reporting is None or reporting.attempt != report.attempt:
            reporting, before = ReportingSlot(slot, report.attempt, report.at_ms), None
            self._reporting[slot] = reporting
        changed = {status.key: status for status in changed_partitions(report, before)}
        for key, status in changed.items():
            self._record(key, status, reporting, report.at_ms)
        held = self._held.setdefault(slot, set())
        if len(report.partitions) != len(held) or not changed.keys() <= held:
            reported = {status.key for status in report.partitions}
            self._let_go(held - reported, reporting)
            self._held[slot] = reported
        reporting.at_ms = report.at_ms  # last: `_record` needs the time of the report before
        self._reports[slot] = report

    def _record(
        self, key: PartitionKey, status: PartitionStatus, reporting: ReportingSlot, at_ms: int
    ) -> None:
        """Records a partition, and counts a new incident of it."""
        before = self.partitions.get(key)
        reported = self._partition_of(key, status, reporting, at_ms, before)
        if reported.incident is not None and (before is None or reported.incident is not before.incident):
            self.incidents[status.flow, reported.incident] += 1
        self.partitions[key] = reported

    def _let_go(self, keys: Collection[PartitionKey], reporting: ReportingSlot) -> None:
        """Ends the counts of partitions that a slot reports no more, and keeps when it last reported them."""
        last = replace(reporting)
        for key in keys:
            partition = self.partitions.get(key)
            if partition is not None and partition.slot == reporting.slot:
                self._counters[key].close()
                if partition.reporting is reporting:
                    self.partitions[key] = replace(partition, reporting=last)

    def retain_only(self, wanted: Collection[PartitionKey]) -> None:
        """Removes all partitions except these. The caller checks first whether there may be any."""
        for key in self.partitions.keys() - set(wanted):
            del self.partitions[key]
            self._counters.pop(key, None)
        self._reports.clear()  # one that is copied again is recorded again

    def _flows_of(self, report: SlotReport) -> dict[tuple[int, str], FlowStats]:
        slot, sums = report.slot, {}
        reported = {stats.flow: stats for stats in report.flows}
        for of, flow in self.flows:
            if of == slot and flow not in reported:
                self._counters[of, flow].close()
        for flow, stats in reported.items():
            latencies = stats.latency_counts or [0] * (len(LATENCY_BOUNDS_MS) + 1)
            counts = (*_counts_of(stats), *latencies)
            totals = self._counters[slot, flow].take(report.attempt, counts)
            sums[slot, flow] = replace(
                FlowStats(flow),
                **dict(zip(_COUNTED, totals, strict=False)),
                latency_counts=totals[len(_COUNTED) :],
            )
        return sums

    def _partition_of(
        self,
        key: PartitionKey,
        status: PartitionStatus,
        reporting: ReportingSlot,
        at_ms: int,
        before: ReportedPartition | None,
    ) -> ReportedPartition:
        """Returns a partition with this status. A new `incident` is one that was not counted yet."""
        incident = before.incident if before is not None else None
        if status.state in _MOVES:
            incident = None
        elif status.state.needs_decision:
            incident = status.state
        if before is not None and status.position < 0:  # the slot has not read its ledger since its start
            status = replace(status, **{name: getattr(before.status, name) for name in _TOTALS})
        counts = (status.transactions, status.aborts)
        commits, aborts = self._counters[key].take((reporting.slot, reporting.attempt), counts)
        caught_up_ms = before.caught_up_ms if before is not None else 0
        first_ms = before.first_ms if before is not None else at_ms
        return ReportedPartition(status, reporting, commits, aborts, caught_up_ms, first_ms, incident)


_counts_of = attrgetter(*_COUNTED)
