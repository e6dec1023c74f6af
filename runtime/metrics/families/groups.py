"""This module makes the metrics of the consumer groups that flows sync."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import Metric

from runtime.metrics.families.family import Merge, MetricFamily, merged
from runtime.metrics.snapshot import GroupSnapshot, JobSnapshot

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
FAMILIES = (TRANSLATED, CLAMPED, REFUSED, PENDING, PENDING_SECONDS, LATENCY)


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
