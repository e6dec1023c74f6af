"""This module makes the metrics of the job itself and of the clusters that it reaches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import get_args

from prometheus_client import Metric

from runtime.contract.records.job_status import JobState, SlotState
from runtime.metrics.families.family import MetricFamily
from runtime.metrics.snapshot import HEARTBEAT_OLD_S, JobSnapshot, heartbeat_age_s

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
    yield STATE.of(((one,), float(status.state == one)) for one in get_args(JobState))
    yield STARTED.of([((), status.started_ms / 1000)])
    yield HEARTBEAT.of([((), age)])
    yield TROUBLE.of([((), float(bool(status.trouble)))])
    states = Counter(view.state for view in status.slots)
    yield SLOTS.of(((one,), float(states[one])) for one in get_args(SlotState))


def cluster_metrics(picture: JobSnapshot) -> Iterator[Metric]:
    """Yields the metrics of the clusters that the job lists."""
    clusters = picture.clusters.items()
    yield PARTITIONS.of(((name,), float(one.partitions)) for name, one in clusters)
    yield UNDER_REPLICATED.of(((name,), float(one.under_replicated)) for name, one in clusters)
    yield WITHOUT_LEADER.of(((name,), float(one.without_leader)) for name, one in clusters)
