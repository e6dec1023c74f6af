"""Collects the slots' reports, and adds up their counters over all starts of a slot."""

from __future__ import annotations

import threading
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from runtime.contract.records.job_status import SlotReport
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.records.status import LATENCY_BOUNDS_MS, FlowStats, PartitionState, PartitionStatus

_MOVES = frozenset({PartitionState.COPYING, PartitionState.CAUGHT_UP})


@dataclass(slots=True)
class CumulativeCounter:
    """A CumulativeCounter adds up counters over all starts; what an ended start had counted is kept."""

    life: Hashable = None
    ended: list[float] = field(default_factory=list)
    now: Sequence[float] = ()

    def take(self, life: Hashable, counts: Sequence[float]) -> None:
        """Sets the counts of the present start.

        A new start, or a count that shrank, closes the one before.
        """
        if life != self.life or any(new < old for new, old in zip(counts, self.now, strict=False)):
            self.close()
        self.life = life
        self.now = counts

    def close(self) -> None:
        """Ends the present start; its counts are kept, and the next counts start at zero."""
        self.ended = self.total()
        self.now = ()

    def total(self) -> list[float]:
        """Returns the sums over all starts."""
        if not self.now:
            return self.ended
        return [one + more for one, more in zip(self.ended or [0.0] * len(self.now), self.now, strict=True)]


@dataclass(frozen=True, slots=True)
class FlowCounts:
    """These counters are what one slot did for one flow since the driver started, over all starts of the
    slot.
    """

    records: float
    bytes: float
    dropped: float
    commits: float
    aborts: float
    throttled_ms: float
    quarantined: float
    latency_sum_ms: float
    latency_counts: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ReportedPartition:
    """This value is a partition as it was last reported, with the slot and its attempt.

    `caught_up_ms` is when the partition was last known to have all records of its source, 0 if that was never
    seen. `first_ms` is when it was first seen.
    """

    status: PartitionStatus
    slot: int
    attempt: int
    at_ms: int
    commits: float
    aborts: float
    caught_up_ms: int
    first_ms: int


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """A MetricsSnapshot is the content of a book at one moment.

    `incidents` counts how often partitions of a flow entered a state that needs an operator.
    """

    flows: Mapping[tuple[int, str], FlowCounts]
    partitions: Mapping[PartitionKey, ReportedPartition]
    incidents: Mapping[tuple[str, PartitionState], int]


@dataclass(slots=True)
class _PartitionEntry:
    """This entry holds the newest report of one partition and its counters."""

    status: PartitionStatus
    first_ms: int
    slot: int = 0
    attempt: int = 0
    at_ms: int = 0
    counts: CumulativeCounter = field(default_factory=CumulativeCounter)
    caught_up_ms: int = 0
    incident: PartitionState | None = None

    def seen(self) -> ReportedPartition:
        commits, aborts = self.counts.total()
        return ReportedPartition(
            self.status,
            self.slot,
            self.attempt,
            self.at_ms,
            commits,
            aborts,
            self.caught_up_ms,
            self.first_ms,
        )


class SlotMetrics:
    """A SlotMetrics collects the slots' reports.

    The driver's event loop writes it, and any thread may read it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flows: dict[tuple[int, str], CumulativeCounter] = {}
        self._partitions: dict[PartitionKey, _PartitionEntry] = {}
        self._held: dict[int, set[PartitionKey]] = {}
        self._incidents: dict[tuple[str, PartitionState], int] = {}

    def record_report(self, report: SlotReport) -> None:
        """Adds one report of a slot."""
        with self._lock:
            self._take_flows(report)
            held = {self._take_partition(report, one) for one in report.status.partitions}
            slot = report.status.slot
            for gone in self._held.get(slot, set()) - held:
                partition = self._partitions.get(gone)
                if partition is not None and partition.slot == slot:
                    partition.counts.close()
            self._held[slot] = held

    def retain_only(self, wanted: Collection[PartitionKey]) -> None:
        """Removes the partitions that are not copied any more."""
        with self._lock:
            if len(self._partitions) > len(wanted):
                for key in self._partitions.keys() - set(wanted):
                    del self._partitions[key]

    def snapshot(self) -> MetricsSnapshot:
        """Returns the content at this moment."""
        with self._lock:
            return MetricsSnapshot(
                {key: _flow_counts(tally) for key, tally in self._flows.items()},
                {key: partition.seen() for key, partition in self._partitions.items()},
                dict(self._incidents),
            )

    def _take_flows(self, report: SlotReport) -> None:
        slot = report.status.slot
        reported = {stats.flow: stats for stats in report.status.flows}
        for (of, flow), tally in self._flows.items():
            if of == slot and flow not in reported:
                tally.close()
        for flow, stats in reported.items():
            self._flows.setdefault((slot, flow), CumulativeCounter()).take(report.attempt, _counts(stats))

    def _take_partition(self, report: SlotReport, status: PartitionStatus) -> PartitionKey:
        key = PartitionKey(status.flow, status.topic, status.partition)
        at_ms = report.status.at_ms
        entry = self._partitions.get(key)
        if entry is None:
            entry = self._partitions[key] = _PartitionEntry(status, at_ms)
        entry.status = _with_totals(status, entry.status)
        entry.slot, entry.attempt = report.status.slot, report.attempt
        entry.at_ms = at_ms
        entry.counts.take((entry.slot, entry.attempt), (status.transactions, status.aborts))
        if status.state in _MOVES:
            entry.incident = None
            if status.position >= status.source_end >= 0:
                entry.caught_up_ms = at_ms
        elif status.state.needs_someone and status.state is not entry.incident:
            entry.incident = status.state
            counted = self._incidents.get((status.flow, status.state), 0)
            self._incidents[status.flow, status.state] = counted + 1
        return key


def _with_totals(status: PartitionStatus, before: PartitionStatus) -> PartitionStatus:
    """Returns the status with the totals from before, if the slot has not read its ledger since its start."""
    if status.position >= 0:
        return status
    return replace(
        status,
        records=before.records,
        bytes=before.bytes,
        dropped=before.dropped,
        quarantined=before.quarantined,
        lost=before.lost,
    )


def _counts(stats: FlowStats) -> tuple[float, ...]:
    latency = stats.latency_counts or [0] * (len(LATENCY_BOUNDS_MS) + 1)
    return (
        stats.records,
        stats.bytes,
        stats.dropped,
        stats.commits,
        stats.aborts,
        stats.throttled_ms,
        stats.quarantined,
        stats.latency_sum_ms,
        *latency,
    )


def _flow_counts(tally: CumulativeCounter) -> FlowCounts:
    records, size, dropped, commits, aborts, throttled_ms, quarantined, *latency = tally.total()
    return FlowCounts(
        records, size, dropped, commits, aborts, throttled_ms, quarantined, latency[0], tuple(latency[1:])
    )
