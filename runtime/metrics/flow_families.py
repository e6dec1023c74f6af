"""This module makes the metric families of flows, of their partitions and of the groups that they sync.

Partitions are added up by topic when there are more than the job's spec allows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import get_args

from msgspec import Struct
from prometheus_client import Metric

from runtime.contract.records.job_status import PartitionState, SlotView
from runtime.contract.records.latency import TopicLatency, merged_by
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec.flow import FlowState
from runtime.metrics.job_families import Labels, Merge, MetricFamily, Sample, merged
from runtime.metrics.snapshot import GroupSnapshot, JobSnapshot, MetricsSnapshot, ReportedPartition

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
TOMBSTONES = MetricFamily(
    "repl_partition_filtered_tombstones_total",
    "counter",
    _LABELS,
    "Records that the flow's filter left out and that were copied as tombstones. They count as records, too.",
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
PARTITION_STATE = MetricFamily(
    "repl_partition_state",
    "gauge",
    (*_LABELS, "state"),
    "1 for the state that the partition is in; summed by topic, how many are in that state.",
)
PARTITION_FAMILIES = (
    RECORDS,
    BYTES,
    DROPPED,
    QUARANTINED,
    TOMBSTONES,
    LOST,
    COMMITTED,
    ABORTED,
    LAG,
    LAG_SECONDS,
    REPLICATED,
    LAST_RECORD,
    LAST_COMMIT,
    FOREIGN,
    PARTITION_STATE,
)


class PartitionSample(Struct, frozen=True):
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
    samples = []
    for flow in picture.flows:
        for key in flow.partitions:
            seen = page.partitions.get(key)
            samples.append(PartitionSample(key, waiting if seen is None else state_now(seen, slots), seen))
        samples += [PartitionSample(key, PartitionState.PROMOTED, None) for key in flow.promoted]
    return samples


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


def lag_seconds(sample: PartitionSample, now_ms: int) -> float | None:
    """Returns a bound of the age of the oldest record that is not copied, in seconds; None before the first
    report.

    The bound is the smaller of two: the time since the partition was caught up, and the age of the last
    copied record. It is taken at the moment of the report while the slot reports, and grows from then on when
    the slot does not.
    """
    seen = sample.seen
    if seen is None:
        return None
    status = seen.status
    fresh = sample.state is status.state and now_ms - seen.at_ms < _OLD_REPORT_MS
    if fresh and sample.state is PartitionState.CAUGHT_UP and status.lag_records == 0:
        return 0.0
    moments = [moment for moment in (seen.caught_up_ms, status.last_timestamp) if moment > 0]
    since = max(moments, default=seen.first_ms)
    return max((seen.at_ms if fresh else now_ms) - since, 0) / 1000


def _positive(value: int, scale: int = 1) -> float | None:
    """Returns a positive value divided by the scale, or None."""
    return value / scale if value > 0 else None


_Value = Callable[[ReportedPartition], float | None]
_SUMMED: tuple[tuple[MetricFamily, _Value], ...] = (
    (RECORDS, lambda report: report.status.records),
    (BYTES, lambda report: report.status.bytes),
    (DROPPED, lambda report: report.status.dropped),
    (QUARANTINED, lambda report: report.status.quarantined),
    (TOMBSTONES, lambda report: report.status.tombstones),
    (LOST, lambda report: report.status.lost),
    (COMMITTED, lambda report: report.commits),
    (ABORTED, lambda report: report.aborts),
    (LAG, lambda report: report.status.lag_records),
    (FOREIGN, lambda report: float(report.status.foreign_writes)),
)
_NEWEST: tuple[tuple[MetricFamily, _Value], ...] = (
    (LAST_RECORD, lambda report: _positive(report.status.last_timestamp, 1000)),
    (LAST_COMMIT, lambda report: _positive(report.status.last_commit_ms, 1000)),
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
        for sample in partition_states:
            number = None if sample.seen is None else value(sample.seen)
            if number is not None:
                yield labels(sample.key), float(number)

    for family, value in _SUMMED:
        yield family.of(merged(values(value), sum))
    for family, value in _NEWEST:
        yield family.of(merged(values(value), max))
    if not by_topic:
        yield REPLICATED.of(
            values(lambda report: None if report.status.position < 0 else report.status.position)
        )
    lags = ((labels(sample.key), lag_seconds(sample, now_ms)) for sample in partition_states)
    yield LAG_SECONDS.of(merged(((at, lag) for at, lag in lags if lag is not None), max))
    states = Counter((*labels(sample.key), sample.state.value) for sample in partition_states)
    yield PARTITION_STATE.of((key, float(count)) for key, count in states.items())


ACTIONS = ("topics", "partitions", "configs", "schemas", "schema_failures")
_FLOW = ("flow",)
_ALARMING = [state for state in PartitionState if state.needs_someone]

INFO = MetricFamily(
    "repl_flow_info",
    "gauge",
    ("flow", "source", "destination", "provenance", "source_cluster_id", "destination_cluster_id"),
    "Always 1; the labels tell from where to where the flow goes.",
)
FLOW_STATE = MetricFamily(
    "repl_flow_state", "gauge", ("flow", "state"), "1 for the flow's declared state, 0 for the others."
)
GENERATION = MetricFamily(
    "repl_flow_generation", "gauge", _FLOW, "The flow's generation; 0 until it is taken over."
)
SOURCE_UP = MetricFamily("repl_flow_source_up", "gauge", _FLOW, "1 while the flow's source answers.")
RPO = MetricFamily("repl_flow_rpo_seconds", "gauge", _FLOW, "The declared rpo. No series without one.")
RATE_LIMIT = MetricFamily(
    "repl_flow_rate_limit_bytes",
    "gauge",
    _FLOW,
    "The declared rate_limit, each second. No series without one.",
)
TOPICS = MetricFamily("repl_flow_topics", "gauge", _FLOW, "Topics that the flow copies.")
PARTITIONS = MetricFamily(
    "repl_flow_partitions", "gauge", ("flow", "state"), "The flow's partitions by state."
)
INCIDENTS = MetricFamily(
    "repl_flow_incidents_total",
    "counter",
    ("flow", "state"),
    "How often a partition came into a state that needs someone (data_loss, diverged, recreated, …).",
)
SYNCED = MetricFamily(
    "repl_flow_sync_actions_total",
    "counter",
    ("flow", "what"),
    "Mirror topics made (topics), grown (partitions) or with settings changed (configs) by the job, and"
    " schemas registered (schemas) before records needed them. Subjects whose schemas failed are tried again"
    " (schema_failures).",
)
NOTES = MetricFamily(
    "repl_flow_notes", "gauge", _FLOW, "What the flow could not do, as `repl status` tells it."
)
FLOW_FAMILIES = (
    INFO,
    FLOW_STATE,
    GENERATION,
    SOURCE_UP,
    RPO,
    RATE_LIMIT,
    TOPICS,
    PARTITIONS,
    INCIDENTS,
    SYNCED,
    NOTES,
)


def flow_metrics(
    picture: JobSnapshot, page: MetricsSnapshot, partition_states: Sequence[PartitionSample]
) -> Iterator[Metric]:
    """Yields the metrics of all flows."""
    flows = picture.flows
    yield INFO.of(
        (
            (
                flow.spec.name,
                flow.spec.source,
                flow.spec.destination,
                flow.spec.provenance,
                flow.view.source_cluster_id,
                flow.view.destination_cluster_id,
            ),
            1.0,
        )
        for flow in flows
    )
    yield FLOW_STATE.of(
        ((flow.spec.name, state), float(flow.spec.state == state))
        for flow in flows
        for state in get_args(FlowState)
    )
    yield GENERATION.of(((flow.spec.name,), float(flow.view.generation)) for flow in flows)
    yield SOURCE_UP.of(
        ((flow.spec.name,), float(flow.view.source_answers)) for flow in flows if flow.spec.state == "active"
    )
    yield RPO.of(
        ((flow.spec.name,), flow.spec.rpo_ms / 1000) for flow in flows if flow.spec.rpo_ms is not None
    )
    yield RATE_LIMIT.of(
        ((flow.spec.name,), float(flow.spec.rate_limit)) for flow in flows if flow.spec.rate_limit is not None
    )
    yield TOPICS.of(((flow.spec.name,), float(flow.view.topics)) for flow in flows)
    states = Counter((sample.key.flow, sample.state) for sample in partition_states)
    yield PARTITIONS.of(
        ((flow.spec.name, state.value), float(states[flow.spec.name, state]))
        for flow in flows
        for state in PartitionState
    )
    yield INCIDENTS.of(
        ((flow.spec.name, state.value), float(page.incidents.get((flow.spec.name, state), 0)))
        for flow in flows
        for state in _ALARMING
    )
    yield SYNCED.of(
        ((flow.spec.name, what), float(flow.actions.get(what, 0))) for flow in flows for what in ACTIONS
    )
    yield NOTES.of(((flow.spec.name,), float(len(flow.view.notes))) for flow in flows)


TOPIC_LATENCY = MetricFamily(
    "repl_topic_latency_seconds",
    "gauge",
    ("flow", "topic", "statistic"),
    "From a record's timestamp to its commit, over the last minute. No series while idle.",
)
TOPIC_FAMILIES = (TOPIC_LATENCY,)
_STATISTICS: Mapping[str, Callable[[TopicLatency], float]] = {
    "min": lambda latency: latency.min_ms,
    "avg": lambda latency: latency.average_ms,
    "max": lambda latency: latency.max_ms,
    "p50": lambda latency: latency.quantile(0.5),
    "p99": lambda latency: latency.quantile(0.99),
}


def topic_metrics(picture: JobSnapshot) -> Iterator[Metric]:
    """Yields the metrics of topics, added up by flow when there are more topics than `metrics_limit`."""
    running = {view.slot for view in picture.status.slots if view.state == "running"}
    stats = [
        flow for slot, report in picture.reports.items() if slot in running for flow in report.status.flows
    ]
    merged = merged_by(((slot.flow, latency.topic), latency) for slot in stats for latency in slot.latencies)
    if len(merged) > picture.spec.metrics_limit:
        merged = merged_by(((flow, ""), latency) for (flow, _), latency in merged.items())
    yield TOPIC_LATENCY.of(
        ((*key, name), value(latency) / 1000)
        for key, latency in merged.items()
        for name, value in _STATISTICS.items()
    )


_GROUP = ("flow", "group")

TRANSLATED = MetricFamily(
    "repl_group_translated_offsets_total",
    "counter",
    _GROUP,
    "Offsets written for the group at the destination.",
)
CLAMPED = MetricFamily(
    "repl_group_clamped_offsets_total",
    "counter",
    _GROUP,
    "Offsets that had to be moved to what the destination still holds.",
)
REFUSED = MetricFamily(
    "repl_group_refused_total",
    "counter",
    _GROUP,
    "How often the group was not written because it has members at the destination.",
)
PENDING = MetricFamily(
    "repl_group_pending_partitions", "gauge", _GROUP, "Partitions whose offset waits for data to be copied."
)
PENDING_SECONDS = MetricFamily(
    "repl_group_pending_seconds", "gauge", _GROUP, "How long any partition has been pending; 0 when none is."
)
LATENCY = MetricFamily(
    "repl_group_checkpoint_latency_seconds",
    "gauge",
    _GROUP,
    "From the group's commit at the source being seen to its translation at the destination, the last time.",
)
GROUP_FAMILIES = (TRANSLATED, CLAMPED, REFUSED, PENDING, PENDING_SECONDS, LATENCY)


def group_metrics(picture: JobSnapshot, now_s: float) -> Iterator[Metric]:
    """Yields the metrics of all groups, added up by flow when there are more groups than
    `metrics_limit`.
    """

    def pending_s(group: GroupSnapshot) -> float:
        return max(now_s - group.pending_since, 0.0) if group.pending_since is not None else 0.0

    by_flow = len(picture.groups) > picture.spec.metrics_limit
    values: tuple[tuple[MetricFamily, Callable[[GroupSnapshot], float | None], Merge], ...] = (
        (TRANSLATED, lambda group: group.translated, sum),
        (CLAMPED, lambda group: group.clamped, sum),
        (REFUSED, lambda group: group.refused, sum),
        (PENDING, lambda group: group.pending, sum),
        (PENDING_SECONDS, pending_s, max),
        (LATENCY, lambda group: group.latency_s, max),
    )
    for family, value, merge in values:
        samples = (
            ((group.flow, "" if by_flow else group.group), float(number))
            for group in picture.groups
            if (number := value(group)) is not None
        )
        yield family.of(merged(samples, merge))
