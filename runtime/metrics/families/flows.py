"""This module makes the metrics of whole flows and of the consumer groups that they sync."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import get_args

from prometheus_client import Metric

from runtime.contract.records.job_status import PartitionState
from runtime.contract.spec.jobspec import State
from runtime.metrics.families.family import Merge, MetricFamily, merged
from runtime.metrics.families.partitions import PartitionSample
from runtime.metrics.slot_metrics import MetricsSnapshot
from runtime.metrics.snapshot import GroupSnapshot, JobSnapshot

ACTIONS = ("topics", "partitions", "configs")
_FLOW = ("flow",)
_ALARMING = [state for state in PartitionState if state.needs_someone]

INFO = MetricFamily(
    "repl_flow_info",
    "gauge",
    ("flow", "source", "destination", "provenance", "source_cluster_id", "destination_cluster_id"),
    "Always 1; the labels tell from where to where the flow goes.",
)
STATE = MetricFamily(
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
    "Mirror topics made (topics), grown (partitions) or with settings changed (configs) by the job.",
)
NOTES = MetricFamily(
    "repl_flow_notes", "gauge", _FLOW, "What the flow could not do, as `repl status` tells it."
)
FAMILIES = (
    INFO,
    STATE,
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
    yield STATE.of(
        ((flow.spec.name, state), float(flow.spec.state == state))
        for flow in flows
        for state in get_args(State)
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
    states = Counter((one.key.flow, one.state) for one in partition_states)
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
    `metrics_partitions`.
    """

    def pending_s(one: GroupSnapshot) -> float:
        return max(now_s - one.pending_since, 0.0) if one.pending_since is not None else 0.0

    by_flow = len(picture.groups) > picture.spec.metrics_partitions
    values: tuple[tuple[MetricFamily, Callable[[GroupSnapshot], float | None], Merge], ...] = (
        (TRANSLATED, lambda one: one.translated, sum),
        (CLAMPED, lambda one: one.clamped, sum),
        (REFUSED, lambda one: one.refused, sum),
        (PENDING, lambda one: one.pending, sum),
        (PENDING_SECONDS, pending_s, max),
        (LATENCY, lambda one: one.latency_s, max),
    )
    for family, value, merge in values:
        samples = (
            ((one.flow, "" if by_flow else one.group), float(found))
            for one in picture.groups
            if (found := value(one)) is not None
        )
        yield family.of(merged(samples, merge))
