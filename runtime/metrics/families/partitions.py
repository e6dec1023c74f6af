"""This module makes the metrics of partitions, added up by topic when there are more than the job's spec
allows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import Metric

from runtime.contract.records.job_status import SlotView
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.records.status import PartitionState
from runtime.metrics.families.family import Labels, MetricFamily, Sample, merged
from runtime.metrics.slot_metrics import MetricsSnapshot, ReportedPartition
from runtime.metrics.snapshot import JobSnapshot

_OLD_REPORT_MS = 15_000  # a slot reports at least every five seconds
_LABELS = ("flow", "topic", "partition")

RECORDS = MetricFamily(
    "repl_partition_records_total", "counter", _LABELS, "Records copied and committed since the flow began."
)
BYTES = MetricFamily(
    "repl_partition_bytes_total", "counter", _LABELS, "Bytes copied and committed since the flow began."
)
DROPPED = MetricFamily(
    "repl_partition_dropped_records_total",
    "counter",
    _LABELS,
    "Records that do not travel: provenance or the flow's transform filtered them.",
)
QUARANTINED = MetricFamily(
    "repl_partition_quarantined_records_total",
    "counter",
    _LABELS,
    "Bad records that the flow's transform wrote to the quarantine topic.",
)
LOST = MetricFamily(
    "repl_partition_lost_offsets_total",
    "counter",
    _LABELS,
    "Source offsets that were given up because the topology or an operator said so.",
)
COMMITTED = MetricFamily(
    "repl_partition_transactions_committed_total",
    "counter",
    _LABELS,
    "Transactions with this partition that were committed. One transaction may hold many partitions.",
)
ABORTED = MetricFamily(
    "repl_partition_transactions_aborted_total",
    "counter",
    _LABELS,
    "Transactions with this partition that were aborted.",
)
LAG = MetricFamily(
    "repl_partition_lag_records",
    "gauge",
    _LABELS,
    "Source end offset (last stable) minus replicated-through offset.",
)
LAG_SECONDS = MetricFamily(
    "repl_partition_lag_seconds",
    "gauge",
    _LABELS,
    "How old what is not copied yet is at most: 0 when the partition has all that its source has.",
)
REPLICATED = MetricFamily(
    "repl_partition_replicated_offset", "gauge", _LABELS, "The source offset up to which all is committed."
)
LAST_RECORD = MetricFamily(
    "repl_partition_last_record_timestamp_seconds",
    "gauge",
    _LABELS,
    "Timestamp of the last record that was copied.",
)
LAST_COMMIT = MetricFamily(
    "repl_partition_last_commit_timestamp_seconds", "gauge", _LABELS, "When it was last committed."
)
FOREIGN = MetricFamily(
    "repl_partition_foreign_writes",
    "gauge",
    _LABELS,
    "1 when others than the flow were seen to write to the mirror.",
)
STATE = MetricFamily(
    "repl_partition_state",
    "gauge",
    (*_LABELS, "state"),
    "1 for the state that the partition is in; summed by topic, how many are in that state.",
)
FAMILIES = (
    RECORDS,
    BYTES,
    DROPPED,
    QUARANTINED,
    LOST,
    COMMITTED,
    ABORTED,
    LAG,
    LAG_SECONDS,
    REPLICATED,
    LAST_RECORD,
    LAST_COMMIT,
    FOREIGN,
    STATE,
)


@dataclass(frozen=True, slots=True)
class PartitionSample:
    """This value is a partition to copy or a promoted one, with its present state and its last report, if
    there is one.
    """

    key: PartitionKey
    state: PartitionState
    seen: ReportedPartition | None


def partition_samples(picture: JobSnapshot, page: MetricsSnapshot) -> list[PartitionSample]:
    """Returns the present state of each partition of all flows."""
    slots = {view.slot: view for view in picture.status.slots}
    waiting = _without_slot(picture.status.slots)
    found = []
    for flow in picture.flows:
        for key in flow.partitions:
            seen = page.partitions.get(key)
            found.append(PartitionSample(key, waiting if seen is None else state_now(seen, slots), seen))
        found += [PartitionSample(key, PartitionState.PROMOTED, None) for key in flow.promoted]
    return found


def state_now(seen: ReportedPartition, slots: Mapping[int, SlotView]) -> PartitionState:
    """Returns the last reported state while that attempt of the slot runs, else the state of the slot.

    A state that needs an operator is returned in any case.
    """
    slot = slots.get(seen.slot)
    if seen.status.state.needs_someone:
        return seen.status.state
    if slot is None or slot.state == "unscheduled":
        return PartitionState.UNSCHEDULED
    if slot.state == "waiting":
        return PartitionState.RETRYING
    if slot.state == "running" and slot.attempts == seen.attempt:
        return seen.status.state
    return PartitionState.STARTING


def _without_slot(slots: Iterable[SlotView]) -> PartitionState:
    states = {view.state for view in slots}
    return PartitionState.UNSCHEDULED if states == {"unscheduled"} else PartitionState.STARTING


def lag_seconds(one: PartitionSample, now_ms: int) -> float | None:
    """Returns a bound of the age of the oldest record that is not copied, in seconds; None before the first
    report.

    The bound is the smaller of two: the time since the partition was caught up, and the age of the last
    copied record. It is taken at the moment of the report while the slot reports, and grows from then on when
    the slot does not.
    """
    seen = one.seen
    if seen is None:
        return None
    status = seen.status
    fresh = one.state is status.state and now_ms - seen.at_ms < _OLD_REPORT_MS
    if fresh and one.state is PartitionState.CAUGHT_UP and status.position >= status.source_end:
        return 0.0
    known = [moment for moment in (seen.caught_up_ms, status.last_timestamp) if moment > 0]
    since = max(known, default=seen.first_ms)
    return max((seen.at_ms if fresh else now_ms) - since, 0) / 1000


def _lag(one: ReportedPartition) -> float | None:
    status = one.status
    if status.source_end < 0 or status.position < 0:
        return None
    return float(max(status.source_end - status.position, 0))


def _positive(value: int, scale: int = 1) -> float | None:
    """Returns a positive value divided by the scale, or None."""
    return value / scale if value > 0 else None


_Value = Callable[[ReportedPartition], float | None]
_SUMMED: tuple[tuple[MetricFamily, _Value], ...] = (
    (RECORDS, lambda one: one.status.records),
    (BYTES, lambda one: one.status.bytes),
    (DROPPED, lambda one: one.status.dropped),
    (QUARANTINED, lambda one: one.status.quarantined),
    (LOST, lambda one: one.status.lost),
    (COMMITTED, lambda one: one.commits),
    (ABORTED, lambda one: one.aborts),
    (LAG, _lag),
    (FOREIGN, lambda one: float(one.status.foreign_writes)),
)
_NEWEST: tuple[tuple[MetricFamily, _Value], ...] = (
    (LAST_RECORD, lambda one: _positive(one.status.last_timestamp, 1000)),
    (LAST_COMMIT, lambda one: _positive(one.status.last_commit_ms, 1000)),
)


def partition_metrics(
    partition_states: list[PartitionSample], now_ms: int, *, by_topic: bool
) -> Iterator[Metric]:
    """Yields the metrics of partitions.

    By topic, counts are added up, and the largest value stands for the rest.
    """

    def labels(key: PartitionKey) -> Labels:
        return key.flow, key.topic, "" if by_topic else str(key.partition)

    def values(value: _Value) -> Iterator[Sample]:
        for one in partition_states:
            found = None if one.seen is None else value(one.seen)
            if found is not None:
                yield labels(one.key), float(found)

    for family, value in _SUMMED:
        yield family.of(merged(values(value), sum))
    for family, value in _NEWEST:
        yield family.of(merged(values(value), max))
    if not by_topic:
        yield REPLICATED.of(values(lambda one: None if one.status.position < 0 else one.status.position))
    lags = ((labels(one.key), lag_seconds(one, now_ms)) for one in partition_states)
    yield LAG_SECONDS.of(merged(((at, lag) for at, lag in lags if lag is not None), max))
    states = Counter((*labels(one.key), one.state.value) for one in partition_states)
    yield STATE.of((key, float(count)) for key, count in states.items())
