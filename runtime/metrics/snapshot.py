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


class ReportedPartition(Struct, frozen=True):
    """This value is a partition as it was last reported, with the slot and its attempt.

    `commits` and `aborts` are those of all slots that had it. `caught_up_ms` is when the partition was last
    known to have all records of its source, 0 if that was never seen. `first_ms` is when it was first seen.
    `incident` is the state that needs an operator, and that was counted, until the partition goes on.
    """

    status: PartitionStatus
    slot: int
    attempt: int
    at_ms: int
    commits: float
    aborts: float
    caught_up_ms: int
    first_ms: int
    incident: PartitionState | None = None


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
        self._held: dict[int, set[PartitionKey]] = {}

    def record_report(self, report: SlotReport) -> None:
        """Adds one report of a slot."""
        self.flows.update(self._flows_of(report))
        partitions = self.partitions
        for status in report.partitions:
            before = partitions.get(status.key)
            reported = self._partition_of(report, status, before)
            if reported.incident is not None and (before is None or reported.incident is not before.incident):
                self.incidents[status.flow, reported.incident] += 1
            partitions[status.key] = reported
        slot, held = report.slot, {status.key for status in report.partitions}
        for gone in self._held.get(slot, set()) - held:
            if gone in partitions and partitions[gone].slot == slot:
                self._counters[gone].close()
        self._held[slot] = held

    def retain_only(self, wanted: Collection[PartitionKey]) -> None:
        """Removes the partitions that are not copied any more."""
        if len(self.partitions) > len(wanted):
            for key in self.partitions.keys() - set(wanted):
                del self.partitions[key]
                self._counters.pop(key, None)

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
        self, report: SlotReport, status: PartitionStatus, before: ReportedPartition | None
    ) -> ReportedPartition:
        """Returns a partition with this report. A new `incident` is one that was not counted yet."""
        slot, attempt, at_ms = report.slot, report.attempt, report.at_ms
        incident = before.incident if before is not None else None
        caught_up_ms = before.caught_up_ms if before is not None else 0
        if status.state in _MOVES:
            incident = None
            if status.lag_records == 0:
                caught_up_ms = at_ms
        elif status.state.needs_someone:
            incident = status.state
        if before is not None and status.position < 0:  # the slot has not read its ledger since its start
            status = replace(status, **{name: getattr(before.status, name) for name in _TOTALS})
        counts = (status.transactions, status.aborts)
        commits, aborts = self._counters[status.key].take((slot, attempt), counts)
        first_ms = before.first_ms if before is not None else at_ms
        return ReportedPartition(
            status, slot, attempt, at_ms, commits, aborts, caught_up_ms, first_ms, incident
        )


_counts_of = attrgetter(*_COUNTED)
