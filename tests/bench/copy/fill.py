"""Preloads a source topic: librdkafka writes a pool of batches, the wire writes them again and again."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final

import crc32c
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from runtime.batch.layout import CRC_FROM, HEADER, HEADER_SIZE, LOG_OVERHEAD, SUMMED, Batch
from runtime.batch.walk import walk
from runtime.contract.client.settings import wire_settings
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.fetch import FetchLimits, FetchSession
from runtime.kafka.protocol.fetch import FetchFrom
from runtime.kafka.protocol.produce import ProducePartition, ProduceRequest, ProduceResponse
from tests.bench.copy.workloads import PARTITIONS, Workload, values_of
from tests.records import create_topic

_POOL_RECORDS: Final = {1024: 40_000, 100: 400_000}
_TINY_POOL_RECORDS: Final = 80_000
_IN_FLIGHT: Final = 8
_CRC: Final = slice(CRC_FROM - 4, CRC_FROM)

Pool = list[list[Batch]]  # by partition


def preload(client: Mapping[str, Any], workload: Workload) -> int:
    """Fills the workload's topic; how many records it holds then."""
    create_topic(client, workload.topic, PARTITIONS, config={"retention.ms": "-1"})
    _write_pool(client, workload)
    wanted = int(workload.megabytes * 1e6) // workload.value_bytes
    return asyncio.run(multiply(str(client["bootstrap.servers"]), workload.topic, wanted))


def forget(client: Mapping[str, Any], topic: str) -> None:
    """Deletes a topic."""
    admin = AdminClient(dict(client))  # its futures need it alive
    admin.delete_topics([topic])[topic].result(30)


def _write_pool(client: Mapping[str, Any], workload: Workload) -> None:
    producer = Producer(
        {
            **client,
            "compression.type": workload.compression,
            "linger.ms": max(workload.linger_ms, 5),  # so that the pool's batches are full
            "batch.size": 131_072,
            "batch.num.messages": workload.batch_records,
            "queue.buffering.max.messages": 500_000,
        }
    )
    count = _POOL_RECORDS[workload.value_bytes] if workload.batch_records > 100 else _TINY_POOL_RECORDS
    for number, value in zip(range(count), itertools.cycle(values_of(workload)), strict=False):
        while True:
            try:
                producer.produce(workload.topic, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(60) == 0


async def read_pool(cluster: KafkaCluster, topic: str, most_bytes: int = 64 << 20) -> Pool:
    known = (await cluster.topics([topic]))[topic]
    session = FetchSession(cluster, known.partitions[0].leader, FetchLimits(max_wait_ms=300))
    pool: Pool = [[] for _ in range(PARTITIONS)]
    for partition in known.partitions:
        session.want(known.id, partition, FetchFrom(0, max_bytes=4 << 20))
    while sum(batch.size for batches in pool for batch in batches) < most_bytes:
        answers = [answered for answered in await session.fetch() if len(answered.records)]
        if not answers:
            break
        for answered in answers:
            sets = walk(answered.records, TopicPartition(topic, answered.partition)).sets
            found = [one for one in sets if isinstance(one, Batch) and not one.control]
            pool[answered.partition] += found
            session.want(known.id, answered.partition, FetchFrom(found[-1].next_offset, max_bytes=4 << 20))
    assert all(pool), "the pool is empty"
    return pool


def raw(batch: Batch, now_ms: int | None = None) -> tuple[bytes, memoryview]:
    """The batch as an application's producer sends it; with `now_ms`, all its records carry that time."""
    fields = batch._replace(base_offset=0, leader_epoch=-1)
    if now_ms is not None:
        fields = fields._replace(base_timestamp=now_ms, max_timestamp=now_ms)
    head = bytearray(HEADER.pack(*fields[:-1]))
    if now_ms is not None:
        crc = crc32c.crc32c(fields.body, crc32c.crc32c(bytes(head[CRC_FROM:HEADER_SIZE])))
        head[_CRC] = crc.to_bytes(4, "big")
    assert LOG_OVERHEAD + batch.length == HEADER_SIZE + len(batch.body)
    assert CRC_FROM + SUMMED.size == HEADER_SIZE
    return bytes(head), batch.body


async def multiply(bootstrap: str, topic: str, wanted: int) -> int:
    """Writes the batches of the topic to it again, until it has so many records; how many it has then."""
    async with await KafkaCluster.open(wire_settings(bootstrap, {})) as cluster:
        pool = await read_pool(cluster, topic)
        leader = (await cluster.topics([topic]))[topic].partitions[0].leader
        written = sum(batch.records for batches in pool for batch in batches)
        flying: deque[asyncio.Future[ProduceResponse]] = deque()
        connection = await cluster.connection(leader, "fill")
        for wave in _waves(pool):
            if written >= wanted:
                break
            written += sum(batch.records for batch in wave)
            data = [ProducePartition(topic, at, raw(batch)) for at, batch in enumerate(wave)]
            if len(flying) >= _IN_FLIGHT:
                _accepted(await flying.popleft())
            flying.append(connection.start(ProduceRequest(None, 30_000, data, acks=1)))
        while flying:
            _accepted(await flying.popleft())
        return written


def _waves(pool: Pool) -> Iterator[tuple[Batch, ...]]:
    return zip(*map(itertools.cycle, pool), strict=False)


def _accepted(response: ProduceResponse) -> None:
    for produced in response.partitions:
        assert not produced.error, produced
