"""Declares every metric family of a job, and makes its samples from one scrape.

Counters of slots keep what ended slots did. Partitions, topics and groups are added up where there are more
of them than the job's spec allows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, ClassVar, get_args

from msgspec import Struct
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from runtime.contract.records.job_status import (
    FlowStats,
    JobState,
    PartitionState,
    SlotReport,
    SlotState,
    SlotView,
)
from runtime.contract.records.latency import LATENCY_BOUNDS_MS, TopicLatency, merged_by
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec.flow import FlowState
from runtime.metrics.snapshot import (
    HEARTBEAT_OLD_S,
    ClusterSnapshot,
    FlowSnapshot,
    GroupSnapshot,
    JobSnapshot,
    ReportedPartition,
)

Labels = tuple[str, ...]
Sample = tuple[Labels, float]
Merge = Callable[[list[float]], float]

_OLD_REPORT_MS = 15_000  # a slot reports at least every five seconds
_ALARMING = [state for state in PartitionState if state.needs_decision]


class PartitionSample(Struct, frozen=True):
    """This value is a partition to copy or a promoted one, with its present state and its last report, if
    there is one.
    """

    key: PartitionKey
    state: PartitionState
    seen: ReportedPartition | None


class Scrape(Struct, frozen=True, dict=True):
    """Holds what one request for the metrics shows. `ticks` is monotonic, like the time of the snapshot.

    `flows`, `reported` and `incidents` are those of the SlotMetrics at this moment.
    """

    picture: JobSnapshot
    flows: Mapping[tuple[int, str], FlowStats]
    reported: Mapping[PartitionKey, ReportedPartition]
    incidents: Mapping[tuple[str, PartitionState], int]
    now_s: float
    ticks: float

    @cached_property
    def partitions(self) -> list[PartitionSample]:
        """The present state of each partition of all flows."""
        slots = {view.slot: view for view in self.picture.status.slots}
        unscheduled = {view.state for view in slots.values()} == {"unscheduled"}
        waiting = PartitionState.UNSCHEDULED if unscheduled else PartitionState.STARTING
        samples = []
        for flow in self.picture.flows:
            for key in flow.partitions:
                seen = self.reported.get(key)
                samples.append(
                    PartitionSample(key, waiting if seen is None else state_now(seen, slots), seen)
                )
            samples += [PartitionSample(key, PartitionState.PROMOTED, None) for key in flow.promoted]
        return samples

    @property
    def by_topic(self) -> bool:
        """Whether partitions are added up by topic."""
        return len(self.partitions) > self.picture.spec.metrics_limit

    @cached_property
    def running(self) -> dict[int, SlotReport]:
        """The last report of each slot that runs."""
        running = {view.slot for view in self.picture.status.slots if view.state == "running"}
        return {slot: report for slot, report in self.picture.reports.items() if slot in running}


class MetricFamily(Struct, frozen=True):
    """Makes the gauge or the counter of one name, which for a counter ends in `_total`."""

    name: str
    labels: Labels
    help: str
    samples: Callable[[Scrape], Iterable[Sample]]

    def of(self, scrape: Scrape) -> Metric:
        """Returns the metric. A series does not have a label whose value is empty."""
        family = CounterMetricFamily if self.name.endswith("_total") else GaugeMetricFamily
        metric = family(self.name, self.help, labels=self.labels)
        for labels, value in self.samples(scrape):
            metric.add_metric(labels, value)
        return metric


def merged(samples: Iterable[Sample], merge: Merge) -> Iterator[Sample]:
    """Yields one sample for all samples with equal labels."""
    by_labels: dict[Labels, list[float]] = {}
    for labels, value in samples:
        by_labels.setdefault(labels, []).append(value)
    for labels, some in by_labels.items():
        yield labels, merge(some)


def state_now(seen: ReportedPartition, slots: Mapping[int, SlotView]) -> PartitionState:
    """Returns the last reported state while that attempt of the slot runs, else the state of the slot.

    A state that needs an operator is returned in any case.
    """
    slot = slots.get(seen.slot)
    if seen.status.state.needs_decision:
        return seen.status.state
    if slot is None or slot.state == "unscheduled":
        return PartitionState.UNSCHEDULED
    if slot.state == "waiting":
        return PartitionState.RETRYING
    if slot.state == "running" and slot.attempts == seen.attempt:
        return seen.status.state
    return PartitionState.STARTING


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


def _of_states(
    name: str, labels: Labels, help_: str, kind: Any, states: Callable[[Scrape], Iterable[tuple[Labels, str]]]
) -> MetricFamily:
    """Returns a family that is 1 for the present state of each thing, and 0 for the others of its kind."""

    def samples(scrape: Scrape) -> Iterator[Sample]:
        for at, present in states(scrape):
            yield from (((*at, state), present == state) for state in get_args(kind))

    return MetricFamily(name, (*labels, "state"), help_, samples)


def _of_job(name: str, help_: str, value: Callable[[Scrape], float]) -> MetricFamily:
    return MetricFamily(name, (), help_, lambda scrape: [((), value(scrape))])


def _of_clusters(name: str, help_: str, value: Callable[[ClusterSnapshot], float]) -> MetricFamily:
    def samples(scrape: Scrape) -> Iterator[Sample]:
        yield from (((name,), value(cluster)) for name, cluster in scrape.picture.clusters.items())

    return MetricFamily(name, ("cluster",), help_, samples)


def _of_flows(name: str, help_: str, value: Callable[[FlowSnapshot], float | None]) -> MetricFamily:
    """Returns a family with a series of each flow that has a value."""

    def samples(scrape: Scrape) -> Iterator[Sample]:
        for flow in scrape.picture.flows:
            if (number := value(flow)) is not None:
                yield (flow.spec.name,), number

    return MetricFamily(name, ("flow",), help_, samples)


def _of_partitions(
    name: str, help_: str, value: Callable[[PartitionSample, int], float | None], merge: Merge | None
) -> MetricFamily:
    """Returns a family of partitions. `value` gets the time in ms. `merge` adds them up by topic, or None."""

    def samples(scrape: Scrape) -> Iterator[Sample]:
        now_ms, by_topic = int(scrape.now_s * 1000), scrape.by_topic
        each = ((sample.key, value(sample, now_ms)) for sample in scrape.partitions)
        numbers = (
            ((key.flow, key.topic, "" if by_topic else str(key.partition)), number)
            for key, number in each
            if number is not None
        )
        return merged(numbers, merge) if merge is not None else iter(() if by_topic else numbers)

    return MetricFamily(name, ("flow", "topic", "partition"), help_, samples)


def _of_reports(
    name: str, help_: str, value: Callable[[ReportedPartition], float | None], merge: Merge | None = sum
) -> MetricFamily:
    """Returns a family of the partitions that were reported."""
    return _of_partitions(
        name, help_, lambda sample, _: None if sample.seen is None else value(sample.seen), merge
    )


def _of_slots(name: str, help_: str, value: Callable[[SlotView], float]) -> MetricFamily:
    return MetricFamily(
        name,
        ("slot",),
        help_,
        lambda scrape: (((str(view.slot),), value(view)) for view in scrape.picture.status.slots),
    )


def _of_running_slots(name: str, help_: str, value: Callable[[SlotReport], float]) -> MetricFamily:
    return MetricFamily(
        name,
        ("slot",),
        help_,
        lambda scrape: (((str(slot),), value(status)) for slot, status in scrape.running.items()),
    )


def _of_slot_flows(name: str, help_: str, value: Callable[[FlowStats], float]) -> MetricFamily:
    """Returns a family of the flows of slots: a counter over all starts, or a gauge of those that run."""

    def samples(scrape: Scrape) -> Iterator[Sample]:
        if name.endswith("_total"):
            every = scrape.flows
        else:
            every = {
                (slot, stats.flow): stats for slot, status in scrape.running.items() for stats in status.flows
            }
        yield from (((str(slot), flow), value(stats)) for (slot, flow), stats in every.items())

    return MetricFamily(name, ("slot", "flow"), help_, samples)


def _of_groups(
    name: str, help_: str, value: Callable[[GroupSnapshot, float], float | None], merge: Merge = sum
) -> MetricFamily:
    """Returns a family of groups, which are added up by flow where there are too many."""

    def samples(scrape: Scrape) -> Iterator[Sample]:
        groups = scrape.picture.groups
        by_flow = len(groups) > scrape.picture.spec.metrics_limit
        each = (
            ((group.flow, "" if by_flow else group.group), value(group, scrape.now_s)) for group in groups
        )
        return merged(((labels, number) for labels, number in each if number is not None), merge)

    return MetricFamily(name, ("flow", "group"), help_, samples)


class LatencyHistogram:
    """Makes the histogram of the latencies of records."""

    name: ClassVar = "repl_slot_record_latency_seconds"
    labels: ClassVar[Labels] = ("slot", "flow")
    help: ClassVar = "From a record's timestamp at the source to its commit at the destination."

    def of(self, scrape: Scrape) -> Metric:
        """Returns the metric; its last bucket has the records that are slower than all bounds."""
        metric = HistogramMetricFamily(self.name, self.help, labels=self.labels)
        bounds = [*(repr(bound / 1000) for bound in LATENCY_BOUNDS_MS), "+Inf"]
        for (slot, flow), stats in scrape.flows.items():
            so_far, buckets = 0, []
            for bound, count in zip(bounds, stats.latency_counts, strict=True):
                so_far += count
                buckets.append((bound, so_far))
            metric.add_metric((str(slot), flow), buckets, stats.latency_sum_ms / 1000)
        return metric


def _positive(value: int) -> float | None:
    """Returns a time in seconds, or None where there is none."""
    return value / 1000 if value > 0 else None


def _up(scrape: Scrape) -> bool:
    age_s = scrape.picture.age_at(scrape.ticks)
    return scrape.picture.status.state == "running" and age_s <= HEARTBEAT_OLD_S


def _job_info(scrape: Scrape) -> Iterator[Sample]:
    status, destination = scrape.picture.status, scrape.picture.spec.destination
    names = status.job, status.topology, destination, status.application, status.master, status.host
    yield (*names, status.driver), 1


def _job_slots(scrape: Scrape) -> Iterator[Sample]:
    states = Counter(view.state for view in scrape.picture.status.slots)
    yield from (((state,), states[state]) for state in get_args(SlotState))


def _flow_info(scrape: Scrape) -> Iterator[Sample]:
    for flow in scrape.picture.flows:
        spec, view = flow.spec, flow.view
        clusters = view.source_cluster_id, view.destination_cluster_id
        yield (spec.name, spec.source, spec.destination, spec.provenance, *clusters), 1


def _flow_partitions(scrape: Scrape) -> Iterator[Sample]:
    states = Counter((sample.key.flow, sample.state) for sample in scrape.partitions)
    for flow in scrape.picture.flows:
        name = flow.spec.name
        yield from (((name, state.value), states[name, state]) for state in PartitionState)


def _flow_incidents(scrape: Scrape) -> Iterator[Sample]:
    for flow in scrape.picture.flows:
        name = flow.spec.name
        yield from (((name, state.value), scrape.incidents.get((name, state), 0)) for state in _ALARMING)


def _flow_actions(scrape: Scrape) -> Iterator[Sample]:
    for flow in scrape.picture.flows:
        kinds = ("topics", "partitions", "configs", "schemas", "schema_failures")
        yield from (((flow.spec.name, kind), flow.actions.get(kind, 0)) for kind in kinds)


_STATISTICS: Mapping[str, Callable[[TopicLatency], float]] = {
    "min": lambda latency: latency.min_ms,
    "avg": lambda latency: latency.average_ms,
    "max": lambda latency: latency.max_ms,
    "p50": lambda latency: latency.quantile(0.5),
    "p99": lambda latency: latency.quantile(0.99),
}


def _topic_latency(scrape: Scrape) -> Iterator[Sample]:
    stats = [flow for status in scrape.running.values() for flow in status.flows]
    by_topic = merged_by(
        ((slot.flow, latency.topic), latency) for slot in stats for latency in slot.latencies
    )
    if len(by_topic) > scrape.picture.spec.metrics_limit:
        by_topic = merged_by(((flow, ""), latency) for (flow, _), latency in by_topic.items())
    for key, latency in by_topic.items():
        yield from (((*key, name), value(latency) / 1000) for name, value in _STATISTICS.items())


def _partition_states(scrape: Scrape) -> Iterator[Sample]:
    by_topic = scrape.by_topic
    states = Counter(
        (*sample.key[:2], "" if by_topic else str(sample.key.partition), sample.state.value)
        for sample in scrape.partitions
    )
    yield from states.items()


def _report_ages(scrape: Scrape) -> Iterator[Sample]:
    for slot, report in scrape.picture.reports.items():
        yield (str(slot),), max(int(scrape.now_s * 1000) - report.at_ms, 0) / 1000


def _slot_lags(scrape: Scrape) -> Iterator[Sample]:
    for slot, status in scrape.running.items():
        lags: Counter[str] = Counter()
        for partition in status.partitions:
            lags[partition.flow] += partition.lag_records or 0
        yield from (((str(slot), flow), lag) for flow, lag in lags.items())


UP = _of_job("repl_job_up", "1 while the job runs and its heartbeat is fresh.", _up)
FAMILIES: tuple[MetricFamily | LatencyHistogram, ...] = (
    UP,
    MetricFamily(
        "repl_job_info",
        ("name", "topology", "destination", "application", "master", "host", "driver"),
        "Always 1; the labels tell which job this is. `driver` is another one after each start.",
        _job_info,
    ),
    _of_states(
        "repl_job_state",
        (),
        "1 for the state that the job is in, 0 for the others.",
        JobState,
        lambda scrape: [((), scrape.picture.status.state)],
    ),
    _of_job(
        "repl_job_start_time_seconds",
        "When the job was started, in seconds since 1970.",
        lambda scrape: scrape.picture.status.started_ms / 1000,
    ),
    _of_job(
        "repl_job_heartbeat_age_seconds",
        "Age of the last heartbeat that was committed; +Inf before the first one.",
        lambda scrape: scrape.picture.age_at(scrape.ticks),
    ),
    _of_job(
        "repl_job_trouble",
        "1 while the job says that something is in its way.",
        lambda scrape: bool(scrape.picture.status.trouble),
    ),
    MetricFamily("repl_job_slots", ("state",), "Slots by state.", _job_slots),
    _of_clusters(
        "repl_cluster_partitions",
        "Partitions of all topics that the job sees.",
        lambda cluster: cluster.partitions,
    ),
    _of_clusters(
        "repl_cluster_under_replicated_partitions",
        "Partitions with fewer replicas in sync than they have replicas.",
        lambda cluster: cluster.under_replicated,
    ),
    _of_clusters(
        "repl_cluster_leaderless_partitions",
        "Partitions that have no leader.",
        lambda cluster: cluster.without_leader,
    ),
    MetricFamily(
        "repl_flow_info",
        ("flow", "source", "destination", "provenance", "source_cluster_id", "destination_cluster_id"),
        "Always 1; the labels tell from where to where the flow goes.",
        _flow_info,
    ),
    _of_states(
        "repl_flow_state",
        ("flow",),
        "1 for the flow's declared state, 0 for the others.",
        FlowState,
        lambda scrape: (((flow.spec.name,), flow.spec.state) for flow in scrape.picture.flows),
    ),
    _of_flows(
        "repl_flow_generation",
        "The flow's generation; 0 until it is taken over.",
        lambda flow: flow.view.generation,
    ),
    _of_flows(
        "repl_flow_source_up",
        "1 while the flow's source answers.",
        lambda flow: flow.view.source_answers if flow.spec.state == "active" else None,
    ),
    _of_flows(
        "repl_flow_rpo_seconds",
        "The declared rpo. No series without one.",
        lambda flow: flow.spec.rpo_ms / 1000 if flow.spec.rpo_ms is not None else None,
    ),
    _of_flows(
        "repl_flow_rate_limit_bytes",
        "The declared rate_limit, each second. No series without one.",
        lambda flow: flow.spec.rate_limit,
    ),
    _of_flows("repl_flow_topics", "Topics that the flow copies.", lambda flow: flow.view.topics),
    MetricFamily(
        "repl_flow_partitions", ("flow", "state"), "The flow's partitions by state.", _flow_partitions
    ),
    MetricFamily(
        "repl_flow_incidents_total",
        ("flow", "state"),
        "How often a partition came into a state that needs someone (data_loss, diverged, recreated, …).",
        _flow_incidents,
    ),
    MetricFamily(
        "repl_flow_sync_actions_total",
        ("flow", "what"),
        "Mirror topics made (topics), grown (partitions) or with settings changed (configs) by the job, and"
        " schemas registered (schemas) before records needed them. Subjects whose schemas failed are tried"
        " again (schema_failures).",
        _flow_actions,
    ),
    _of_flows(
        "repl_flow_notes",
        "What the flow could not do, as `repl status` tells it.",
        lambda flow: len(flow.view.notes),
    ),
    MetricFamily(
        "repl_topic_latency_seconds",
        ("flow", "topic", "statistic"),
        "From a record's timestamp to its commit, over the last minute. No series while idle.",
        _topic_latency,
    ),
    _of_reports(
        "repl_partition_records_total",
        "Records copied and committed since the flow began.",
        lambda seen: seen.status.records,
    ),
    _of_reports(
        "repl_partition_bytes_total",
        "Bytes copied and committed since the flow began.",
        lambda seen: seen.status.bytes,
    ),
    _of_reports(
        "repl_partition_dropped_records_total",
        "Records that do not travel: provenance or the flow's transform filtered them.",
        lambda seen: seen.status.dropped,
    ),
    _of_reports(
        "repl_partition_quarantined_records_total",
        "Bad records that the flow's transform wrote to the quarantine topic.",
        lambda seen: seen.status.quarantined,
    ),
    _of_reports(
        "repl_partition_filtered_tombstones_total",
        "Records that the flow's filter left out and that were copied as tombstones. They count as records,"
        " too.",
        lambda seen: seen.status.tombstones,
    ),
    _of_reports(
        "repl_partition_lost_offsets_total",
        "Source offsets that were given up because the topology or an operator said so.",
        lambda seen: seen.status.lost,
    ),
    _of_reports(
        "repl_partition_transactions_committed_total",
        "Transactions with this partition that were committed. One transaction may hold many partitions.",
        lambda seen: seen.commits,
    ),
    _of_reports(
        "repl_partition_transactions_aborted_total",
        "Transactions with this partition that were aborted.",
        lambda seen: seen.aborts,
    ),
    _of_reports(
        "repl_partition_lag_records",
        "Source end offset (last stable) minus replicated-through offset.",
        lambda seen: seen.status.lag_records,
    ),
    _of_partitions(
        "repl_partition_lag_seconds",
        "How old what is not copied yet is at most: 0 when the partition has all that its source has.",
        lag_seconds,
        max,
    ),
    _of_reports(
        "repl_partition_replicated_offset",
        "The source offset up to which all is committed.",
        lambda seen: seen.status.position if seen.status.position >= 0 else None,
        None,
    ),
    _of_reports(
        "repl_partition_last_record_timestamp_seconds",
        "Timestamp of the last record that was copied.",
        lambda seen: _positive(seen.status.last_timestamp),
        max,
    ),
    _of_reports(
        "repl_partition_last_commit_timestamp_seconds",
        "When it was last committed.",
        lambda seen: _positive(seen.status.last_commit_ms),
        max,
    ),
    _of_reports(
        "repl_partition_foreign_writes",
        "1 when others than the flow were seen to write to the mirror.",
        lambda seen: seen.status.foreign_writes,
    ),
    MetricFamily(
        "repl_partition_state",
        ("flow", "topic", "partition", "state"),
        "1 for the state that the partition is in; summed by topic, how many are in that state.",
        _partition_states,
    ),
    _of_states(
        "repl_slot_state",
        ("slot",),
        "1 for the state that the slot is in, 0 for the others.",
        SlotState,
        lambda scrape: (((str(view.slot),), view.state) for view in scrape.picture.status.slots),
    ),
    _of_slots(
        "repl_slot_restarts_total",
        "How often the slot was submitted to Spark again.",
        lambda view: max(view.attempts - 1, 0),
    ),
    _of_slots("repl_slot_partitions", "Partitions that the slot is to copy.", lambda view: view.partitions),
    MetricFamily(
        "repl_slot_report_age_seconds", ("slot",), "Age of what the slot last said of itself.", _report_ages
    ),
    _of_running_slots(
        "repl_slot_resident_memory_bytes",
        "Resident memory of the slot's process.",
        lambda status: status.rss_bytes,
    ),
    _of_running_slots(
        "repl_slot_buffered_bytes",
        "What is fetched and not acknowledged yet; it is bounded.",
        lambda status: status.buffered_bytes,
    ),
    MetricFamily(
        "repl_slot_lag_records",
        ("slot", "flow"),
        "Records that the slot's partitions have not copied yet.",
        _slot_lags,
    ),
    _of_slot_flows(
        "repl_slot_records_total",
        "Records copied and committed by the slot.",
        lambda stats: stats.records,
    ),
    _of_slot_flows(
        "repl_slot_bytes_total", "Bytes copied and committed by the slot.", lambda stats: stats.bytes
    ),
    _of_slot_flows(
        "repl_slot_dropped_records_total",
        "Records that do not travel: provenance or the flow's transform filtered them.",
        lambda stats: stats.dropped,
    ),
    _of_slot_flows(
        "repl_slot_quarantined_records_total",
        "Bad records that the flow's transform wrote to the quarantine topic.",
        lambda stats: stats.quarantined,
    ),
    _of_slot_flows(
        "repl_slot_filtered_tombstones_total",
        "Records that the flow's filter left out and that were copied as tombstones. They count as records,"
        " too.",
        lambda stats: stats.tombstones,
    ),
    _of_slot_flows(
        "repl_slot_transactions_committed_total",
        "Transactions that were committed.",
        lambda stats: stats.commits,
    ),
    _of_slot_flows(
        "repl_slot_transactions_aborted_total",
        "Transactions that were aborted.",
        lambda stats: stats.aborts,
    ),
    _of_slot_flows(
        "repl_slot_throttled_seconds_total",
        "Time that rate_limit made the flow wait.",
        lambda stats: stats.throttled_ms / 1000,
    ),
    _of_slot_flows(
        "repl_slot_merged_files_total",
        "Small files that merges replaced by larger ones.",
        lambda stats: stats.merged_files,
    ),
    _of_slot_flows(
        "repl_slot_stuck_lanes",
        "Transactional ids that can't copy: they wait for a partition which can't take its marker, for their"
        " coordinator, or for the ledger.",
        lambda stats: len(stats.stuck_lanes),
    ),
    _of_slot_flows(
        "repl_slot_schemas_waiting",
        "Schemas that can't be registered at the destination now. The partitions that need one are retrying.",
        lambda stats: stats.schemas_waiting,
    ),
    LatencyHistogram(),
    _of_groups(
        "repl_group_translated_offsets_total",
        "Offsets written for the group at the destination.",
        lambda group, _: group.translated,
    ),
    _of_groups(
        "repl_group_clamped_offsets_total",
        "Offsets that had to be moved to what the destination still holds.",
        lambda group, _: group.clamped,
    ),
    _of_groups(
        "repl_group_refused_total",
        "How often the group was not written because it has members at the destination.",
        lambda group, _: group.refused,
    ),
    _of_groups(
        "repl_group_pending_partitions",
        "Partitions whose offset waits for data to be copied.",
        lambda group, _: group.pending,
    ),
    _of_groups(
        "repl_group_pending_seconds",
        "How long any partition has been pending; 0 when none is.",
        lambda group, now_s: max(now_s - (group.pending_since or now_s), 0),
        max,
    ),
    _of_groups(
        "repl_group_checkpoint_latency_seconds",
        "From the group's commit at the source being seen to its translation at the destination, the last"
        " time.",
        lambda group, _: group.latency_s,
        max,
    ),
)
