"""What Prometheus is told when it asks: made from the newest picture and book, nothing counted twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from prometheus_client import Metric
from prometheus_client.registry import Collector

from runtime.metrics.book import Book
from runtime.metrics.families import flows, groups, job, partitions, slots
from runtime.metrics.picture import Picture

FAMILIES = (*job.FAMILIES, *flows.FAMILIES, *partitions.FAMILIES, *slots.FAMILIES, *groups.FAMILIES)


class JobCollector(Collector):
    """`picture` gives the newest one, None before there is any. Called by the endpoint's threads."""

    def __init__(
        self,
        picture: Callable[[], Picture | None],
        book: Book,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._picture = picture
        self._book = book
        self._clock = clock
        self._ticks = ticks

    def collect(self) -> Iterator[Metric]:
        picture = self._picture()
        if picture is None:
            yield job.UP.of([((), 0.0)])
            return
        page = self._book.page()
        now_s = self._clock()
        now_ms = int(now_s * 1000)
        told = partitions.partitions_told(picture, page)
        by_topic = len(told) > picture.spec.metrics_partitions
        yield from job.job_metrics(picture, self._ticks())
        yield from job.cluster_metrics(picture)
        yield from flows.flow_metrics(picture, page, told)
        yield from partitions.partition_metrics(told, now_ms, by_topic=by_topic)
        yield from slots.slot_metrics(picture, page, now_ms)
        yield from groups.group_metrics(picture, now_s)
