"""This module answers Prometheus' scrapes from the newest snapshot and book, without counting a value
twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from prometheus_client import Metric
from prometheus_client.registry import Collector

from runtime.metrics.families import flows, groups, job, partitions, slots
from runtime.metrics.slot_metrics import SlotMetrics
from runtime.metrics.snapshot import JobSnapshot

FAMILIES = (*job.FAMILIES, *flows.FAMILIES, *partitions.FAMILIES, *slots.FAMILIES, *groups.FAMILIES)


class JobCollector(Collector):
    """A JobCollector collects the metrics of one job; the endpoint's threads call it.

    `picture` returns the newest snapshot, or None before the first one.
    """

    def __init__(
        self,
        picture: Callable[[], JobSnapshot | None],
        book: SlotMetrics,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._picture = picture
        self._book = book
        self._clock = clock
        self._ticks = ticks

    def collect(self) -> Iterator[Metric]:
        """Yields all metrics; before the first snapshot it yields only that the job is not up."""
        picture = self._picture()
        if picture is None:
            yield job.UP.of([((), 0.0)])
            return
        page = self._book.snapshot()
        now_s = self._clock()
        now_ms = int(now_s * 1000)
        partition_states = partitions.partition_samples(picture, page)
        by_topic = len(partition_states) > picture.spec.metrics_partitions
        yield from job.job_metrics(picture, self._ticks())
        yield from job.cluster_metrics(picture)
        yield from flows.flow_metrics(picture, page, partition_states)
        yield from partitions.partition_metrics(partition_states, now_ms, by_topic=by_topic)
        yield from slots.slot_metrics(picture, page, now_ms)
        yield from groups.group_metrics(picture, now_s)
