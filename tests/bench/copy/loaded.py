"""Latency at a high rate: whole batches are written with the time of sending, and read by their headers.

A client that looks at single records would need more of the machine than what it measures.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Self

from runtime.batch.layout import Batch
from runtime.batch.walk import walk
from runtime.contract.client.settings import wire_settings
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.connection import Connection
from runtime.kafka.fetch import FetchLimits, FetchSession
from runtime.kafka.protocol.fetch import FetchFrom
from runtime.kafka.protocol.produce import ProducePartition, ProduceRequest
from tests.bench.copy.fill import Pool, raw, read_pool
from tests.bench.copy.latency import Latency, summary
from tests.bench.copy.processes import Running
from tests.bench.copy.run import Run, Side
from tests.bench.copy.throughput import ends_of, first_record
from tests.bench.copy.workloads import PARTITIONS
from tests.records import create_topic

_TICK_S = 0.01


def at_rate(side: Side, run: Run, pool_topic: str, rate: float, warm_s: float, window_s: float) -> Latency:
    create_topic({"bootstrap.servers": run.source}, run.topic, PARTITIONS)
    running = side.start(run)
    try:
        return asyncio.run(_measured(side, run, running, pool_topic, rate, warm_s, window_s))
    finally:
        running.stop()


async def _measured(
    side: Side, run: Run, running: Running, pool_topic: str, rate: float, warm_s: float, window_s: float
) -> Latency:
    settings = [wire_settings(bootstrap, {}) for bootstrap in (run.source, run.destination)]
    async with await KafkaCluster.open(settings[0]) as source, await KafkaCluster.open(settings[1]) as there:
        pool = await read_pool(source, pool_topic, 16 << 20)
        load = await _Load.open(source, run.topic, pool)
        await load.write()
        with ends_of(run.destination, running.topic) as ends:
            await asyncio.to_thread(first_record, running, ends)
        writing = asyncio.create_task(load.at_rate(rate))
        try:
            cpu: list[float] = []
            took = await _read(there, running, warm_s, window_s, cpu)
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
    return summary(side.name, run, took, window_s, cpu[-1] - cpu[0], running.rss_mb())


class _Load:
    """What a producer writes. It begins once the side copies, so that no backlog of its start is measured."""

    def __init__(self, connection: Connection, topic: str, pool: Pool) -> None:
        self._connection, self._topic = connection, topic
        self._waves = _forever(pool)
        self._answer: asyncio.Future[object] | None = None

    @classmethod
    async def open(cls, cluster: KafkaCluster, topic: str, pool: Pool) -> Self:
        leader = (await cluster.topics([topic]))[topic].partitions[0].leader
        return cls(await cluster.connection(leader, "load"), topic, pool)

    async def write(self) -> int:
        """Sends one batch for each partition; returns how many records they had."""
        wave, now_ms = next(self._waves), int(time.time() * 1000)
        data = [ProducePartition(self._topic, at, raw(batch, now_ms)) for at, batch in enumerate(wave)]
        if self._answer is not None:
            await self._answer  # one in flight is enough here, and keeps the order
        self._answer = self._connection.start(ProduceRequest(None, 30_000, data, acks=1))
        return sum(batch.records for batch in wave)

    async def at_rate(self, rate: float) -> None:
        began, written = time.monotonic(), 0
        while True:
            while written < (time.monotonic() - began) * rate:
                written += await self.write()
            await asyncio.sleep(_TICK_S)


def _forever(pool: Pool) -> Iterator[tuple[Batch, ...]]:
    while True:
        yield from zip(*pool, strict=False)


async def _read(
    cluster: KafkaCluster, running: Running, warm_s: float, window_s: float, cpu: list[float]
) -> list[tuple[float, int]]:
    """(milliseconds, records) of each batch that arrived in the window: its newest record's time counts."""
    known = (await cluster.topics([running.topic], fresh=True))[running.topic]
    session = FetchSession(cluster, known.partitions[0].leader, FetchLimits(max_bytes=16 << 20))
    for partition in known.partitions:
        session.want(known.id, partition, FetchFrom(0, max_bytes=4 << 20))
    began = time.monotonic() + warm_s
    took: list[tuple[float, int]] = []
    while (moment := time.monotonic()) < began + window_s:
        if not cpu and moment >= began:
            cpu.append(running.cpu_s())
        running.require_alive()
        for answered in await session.fetch():
            now = time.time() * 1000
            found = walk(answered.records, TopicPartition(running.topic, answered.partition)).sets
            batches = [one for one in found if isinstance(one, Batch)]
            if batches:
                start = FetchFrom(batches[-1].next_offset, max_bytes=4 << 20)
                session.want(known.id, answered.partition, start)
            if cpu:
                took += [(now - one.max_timestamp, one.records) for one in batches if not one.control]
    cpu.append(running.cpu_s())
    return took
