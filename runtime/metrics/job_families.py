"""This module declares a metric family, and makes the families of the job, of its clusters and of its slots.

A family has a name, a kind, labels and a help text. Counters of slots keep what ended slots did.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, get_args

from msgspec import Struct
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from runtime.contract.records.job_status import JobState, SlotState
from runtime.contract.records.latency import LATENCY_BOUNDS_MS
from runtime.metrics.snapshot import (
    HEARTBEAT_OLD_S,
    FlowCounts,
    JobSnapshot,
    MetricsSnapshot,
    heartbeat_age_s,
)

Kind = Literal["counter", "gauge", "histogram"]
Labels = tuple[str, ...]
Sample = tuple[Labels, float]
Merge = Callable[[list[float]], float]


class MetricFamily(Struct, frozen=True):
    """A MetricFamily makes the metric of one name from samples.

    The name of a counter includes `_total`. The name of a histogram is the part before `_bucket`, `_sum` and
    `_count`.
    """

    name: str
    kind: Kind
    labels: Labels
    help: str

    def of(self, samples: Iterable[Sample]) -> Metric:
        """Returns a counter or a gauge. A series does not have a label whose value is empty."""
        family = CounterMetricFamily if self.kind == "counter" else GaugeMetricFamily
        metric = family(self.name, self.help, labels=self.labels)
        for labels, value in samples:
            metric.add_metric(labels, value)
        return metric

    def of_counts(
        self, bounds: Sequence[float], counted: Iterable[tuple[Labels, Sequence[float], float]]
    ) -> Metric:
        """Returns a histogram from counts by bound, one more count for the rest, and the sum of each
        series.
        """
        metric = HistogramMetricFamily(self.name, self.help, labels=self.labels)
        for labels, counts, total in counted:
            metric.add_metric(labels, _cumulative(bounds, counts), total)
        return metric


def merged(samples: Iterable[Sample], merge: Merge) -> Iterator[Sample]:
    """Yields one sample for all samples with equal labels."""
    by_labels: dict[Labels, list[float]] = {}
    for labels, value in samples:
        by_labels.setdefault(labels, []).append(value)
    for labels, some in by_labels.items():
        yield labels, merge(some)


def _cumulative(bounds: Sequence[float], counts: Sequence[float]) -> list[tuple[str, float]]:
    """Returns cumulative buckets from counts by bound."""
    so_far = 0.0
    buckets = []
    for bound, count in zip([*map(repr, bounds), "+Inf"], counts, strict=True):
        so_far += count
        buckets.append((bound, so_far))
    return buckets


UP = MetricFamily("repl_job_up", "gauge", (), "1 while the job runs and its heartbeat is fresh.")
INFO = MetricFamily(
    "repl_job_info",
    "gauge",
    ("name", "topology", "destination", "application", "master", "host", "driver"),
    "Always 1; the labels tell which job this is. `driver` is another one after each start.",
)
STATE = MetricFamily(
    "repl_job_state", "gauge", ("state",), "1 for the state that the job is in, 0 for the others."
)
STARTED = MetricFamily(
    "repl_job_start_time_seconds", "gauge", (), "When the job was started, in seconds since 1970."
)
HEARTBEAT = MetricFamily(
    "repl_job_heartbeat_age_seconds",
    "gauge",
    (),
    "Age of the last heartbeat that was committed; +Inf before the first one.",
)
TROUBLE = MetricFamily("repl_job_trouble", "gauge", (), "1 while the job says that something is in its way.")
SLOTS = MetricFamily("repl_job_slots", "gauge", ("state",), "Slots by state.")
PARTITIONS = MetricFamily(
    "repl_cluster_partitions", "gauge", ("cluster",), "Partitions of all topics that the job sees."
)
UNDER_REPLICATED = MetricFamily(
    "repl_cluster_under_replicated_partitions",
    "gauge",
    ("cluster",),
    "Partitions with fewer replicas in sync than they have replicas.",
)
WITHOUT_LEADER = MetricFamily(
    "repl_cluster_leaderless_partitions", "gauge", ("cluster",), "Partitions that have no leader."
)
FAMILIES = (
    UP,
    INFO,
    STATE,
    STARTED,
    HEARTBEAT,
    TROUBLE,
    SLOTS,
    PARTITIONS,
    UNDER_REPLICATED,
    WITHOUT_LEADER,
)


def job_metrics(picture: JobSnapshot, now: float) -> Iterator[Metric]:
    """Yields the metrics of the job. `now` is monotonic, like the snapshot's time."""
    status, age = picture.status, heartbeat_age_s(picture, now)
    up = status.state == "running" and age <= HEARTBEAT_OLD_S
    yield UP.of([((), float(up))])
    yield INFO.of(
        [
            (
                (
                    status.job,
                    status.topology,
                    picture.spec.destination,
                    status.application,
                    status.master,
                    status.host,
                    status.driver,
                ),
                1.0,
            )
        ]
    )
    yield STATE.of(((state,), float(status.state == state)) for state in get_args(JobState))
    yield STARTED.of([((), status.started_ms / 1000)])
    yield HEARTBEAT.of([((), age)])
    yield TROUBLE.of([((), float(bool(status.trouble)))])
    states = Counter(view.state for view in status.slots)
    yield SLOTS.of(((state,), float(states[state])) for state in get_args(SlotState))


def cluster_metrics(picture: JobSnapshot) -> Iterator[Metric]:
    """Yields the metrics of the clusters that the job lists."""
    clusters = picture.clusters.items()
    yield PARTITIONS.of(((name,), float(cluster.partitions)) for name, cluster in clusters)
    yield UNDER_REPLICATED.of(((name,), float(cluster.under_replicated)) for name, cluster in clusters)
    yield WITHOUT_LEADER.of(((name,), float(cluster.without_leader)) for name, cluster in clusters)


_BOUNDS_S = [bound / 1000 for bound in LATENCY_BOUNDS_MS]
_SLOT, _BOTH = ("slot",), ("slot", "flow")

SLOT_STATE = MetricFamily(
    "repl_slot_state", "gauge", ("slot", "state"), "1 for the state that the slot is in, 0 for the others."
)
RESTARTS = MetricFamily(
    "repl_slot_restarts_total", "counter", _SLOT, "How often the slot was submitted to Spark again."
)
SLOT_PARTITIONS = MetricFamily("repl_slot_partitions", "gauge", _SLOT, "Partitions that the slot is to copy.")
REPORT = MetricFamily(
    "repl_slot_report_age_seconds", "gauge", _SLOT, "Age of what the slot last said of itself."
)
RSS = MetricFamily(
    "repl_slot_resident_memory_bytes", "gauge", _SLOT, "Resident memory of the slot's process."
)
BUFFERED = MetricFamily(
    "repl_slot_buffered_bytes", "gauge", _SLOT, "What is fetched and not acknowledged yet; it is bounded."
)
LAG = MetricFamily(
    "repl_slot_lag_records", "gauge", _BOTH, "Records that the slot's partitions have not copied yet."
)
RECORDS = MetricFamily(
    "repl_slot_records_total", "counter", _BOTH, "Records copied and committed by the slot."
)
BYTES = MetricFamily("repl_slot_bytes_total", "counter", _BOTH, "Bytes copied and committed by the slot.")
DROPPED = MetricFamily(
    "repl_slot_dropped_records_total",
    "counter",
    _BOTH,
    "Records that do not travel: provenance or the flow's transform filtered them.",
)
QUARANTINED = MetricFamily(
    "repl_slot_quarantined_records_total",
    "counter",
    _BOTH,
    "Bad records that the flow's transform wrote to the quarantine topic.",
)
TOMBSTONES = MetricFamily(
    "repl_slot_filtered_tombstones_total",
    "counter",
    _BOTH,
    "Records that the flow's filter left out and that were copied as tombstones. They count as records, too.",
)
COMMITTED = MetricFamily(
    "repl_slot_transactions_committed_total", "counter", _BOTH, "Transactions that were committed."
)
ABORTED = MetricFamily(
    "repl_slot_transactions_aborted_total", "counter", _BOTH, "Transactions that were aborted."
)
THROTTLED = MetricFamily(
    "repl_slot_throttled_seconds_total", "counter", _BOTH, "Time that rate_limit made the flow wait."
)
MERGED_FILES = MetricFamily(
    "repl_slot_merged_files_total", "counter", _BOTH, "Small files that merges replaced by larger ones."
)
STUCK = MetricFamily(
    "repl_slot_stuck_lanes",
    "gauge",
    _BOTH,
    "Transactional ids that wait for a partition which can't take its marker.",
)
SCHEMAS_WAITING = MetricFamily(
    "repl_slot_schemas_waiting",
    "gauge",
    _BOTH,
    "Schemas that can't be registered at the destination now. The partitions that need one are retrying.",
)
LATENCY = MetricFamily(
    "repl_slot_record_latency_seconds",
    "histogram",
    _BOTH,
    "From a record's timestamp at the source to its commit at the destination.",
)
SLOT_FAMILIES = (
    SLOT_STATE,
    RESTARTS,
    SLOT_PARTITIONS,
    REPORT,
    RSS,
    BUFFERED,
    LAG,
    RECORDS,
    BYTES,
    DROPPED,
    QUARANTINED,
    TOMBSTONES,
    COMMITTED,
    ABORTED,
    THROTTLED,
    MERGED_FILES,
    STUCK,
    SCHEMAS_WAITING,
    LATENCY,
)
_COUNTED: tuple[tuple[MetricFamily, Callable[[FlowCounts], float]], ...] = (
    (RECORDS, lambda counts: counts.records),
    (BYTES, lambda counts: counts.bytes),
    (DROPPED, lambda counts: counts.dropped),
    (QUARANTINED, lambda counts: counts.quarantined),
    (TOMBSTONES, lambda counts: counts.tombstones),
    (COMMITTED, lambda counts: counts.commits),
    (ABORTED, lambda counts: counts.aborts),
    (THROTTLED, lambda counts: counts.throttled_ms / 1000),
    (MERGED_FILES, lambda counts: counts.merged_files),
)


def slot_metrics(picture: JobSnapshot, page: MetricsSnapshot, now_ms: int) -> Iterator[Metric]:
    """Yields the metrics of all slots."""
    views, reports = picture.status.slots, picture.reports
    yield SLOT_STATE.of(
        ((str(view.slot), state), float(view.state == state))
        for view in views
        for state in get_args(SlotState)
    )
    yield RESTARTS.of(((str(view.slot),), float(max(view.attempts - 1, 0))) for view in views)
    yield SLOT_PARTITIONS.of(((str(view.slot),), float(view.partitions)) for view in views)
    statuses = [(str(slot), report.status) for slot, report in reports.items()]
    yield REPORT.of(((slot,), max(now_ms - status.at_ms, 0) / 1000) for slot, status in statuses)
    running = {str(view.slot) for view in views if view.state == "running"}
    yield RSS.of(((slot,), float(status.rss_bytes)) for slot, status in statuses if slot in running)
    yield BUFFERED.of(((slot,), float(status.buffered_bytes)) for slot, status in statuses if slot in running)
    yield LAG.of(_lags(picture))
    totals = [
        ((slot, stats.flow), stats) for slot, status in statuses if slot in running for stats in status.flows
    ]
    yield STUCK.of((labels, float(len(stats.stuck_lanes))) for labels, stats in totals)
    yield SCHEMAS_WAITING.of((labels, float(stats.schemas_waiting)) for labels, stats in totals)
    for family, count in _COUNTED:
        yield family.of((_labels(key), count(counts)) for key, counts in page.flows.items())
    yield LATENCY.of_counts(
        _BOUNDS_S,
        (
            (_labels(key), counts.latency_counts, counts.latency_sum_ms / 1000)
            for key, counts in page.flows.items()
        ),
    )


def _labels(key: tuple[int, str]) -> Labels:
    slot, flow = key
    return str(slot), flow


def _lags(picture: JobSnapshot) -> Iterator[Sample]:
    running = {view.slot for view in picture.status.slots if view.state == "running"}
    for slot, report in picture.reports.items():
        if slot not in running:
            continue
        lags: Counter[str] = Counter()
        for partition in report.status.partitions:
            lags[partition.flow] += partition.lag_records or 0
        for flow, lag in lags.items():
            yield (str(slot), flow), float(lag)
