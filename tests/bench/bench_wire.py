"""How fast the wire reads, writes and copies, and what it costs.

python -m tests.bench.bench_wire [--megabytes 1000] [--rounds 3]

On a lab of its own: dc1 is filled by librdkafka, read, and copied in transactions to dc2; one process, one
loop. CPU is this process's alone and, beside it, the brokers'.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import uvloop
from confluent_kafka import Producer

from runtime.batch.layout import Batch
from runtime.batch.stamp import next_sequence, stamp
from runtime.batch.walk import walk
from runtime.contract.client.settings import wire_settings
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.fetch import FetchLimits, FetchSession
from runtime.kafka.protocol.fetch import FetchFrom
from runtime.kafka.protocol.produce import ProducePartition, ProduceRequest, ProduceResponse
from runtime.kafka.protocol.transactions import ProducerIdentity
from runtime.kafka.transactions import add_partitions, end_transaction, init_producer_id
from runtime.lab.cluster import LabClusterSpec
from runtime.lab.lab import Lab
from tests.bench.lab import Brokers, bench_lab
from tests.records import create_topic

PARTITIONS = 4
IN_FLIGHT = 5
TRANSACTION_BYTES = 64 << 20
PARTITION_BYTES = 2 << 20


@dataclass(frozen=True, slots=True)
class Load:
    name: str
    value_bytes: int
    compression: str
    share: float


LOADS = (Load("1 KB, none", 1024, "none", 1.0), Load("100 B, lz4", 100, "lz4", 0.3))


@dataclass(frozen=True, slots=True)
class Row:
    what: str
    records: int
    payload: int
    seconds: float
    cpu: float
    brokers_cpu: float

    def __str__(self) -> str:
        gigabytes = self.payload / 1e9
        return (
            f"{self.what:<24}{self.payload / 1e6 / self.seconds:>8.0f} MB/s"
            f"{self.records / self.seconds / 1e3:>9.0f} k rec/s{self.cpu / gigabytes:>8.2f} CPU-s/GB"
            f"{self.cpu / self.records * 1e6:>7.2f} CPU-s/M rec   brokers {self.brokers_cpu / gigabytes:.2f}"
        )


def fill(client: dict[str, str], topic: str, load: Load, megabytes: int) -> int:
    producer = Producer(
        {**client, "compression.type": load.compression, "linger.ms": 20, "batch.size": 131072}
        | {"queue.buffering.max.messages": 200_000}
    )
    count = int(megabytes * 1e6 * load.share / load.value_bytes)
    third = load.value_bytes // 3
    values = [os.urandom(third).hex().encode().ljust(load.value_bytes, b"x") for _ in range(16_384)]
    for number in range(count):
        while True:
            try:
                producer.produce(topic, values[number & 16_383], partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(60) == 0
    return count


async def reading(
    cluster: KafkaCluster, topic: str
) -> Callable[[], Awaitable[list[tuple[int, list[Batch]]]]]:
    known = (await cluster.topics([topic]))[topic]
    leader = known.partitions[0].leader
    session = FetchSession(cluster, leader, FetchLimits(max_bytes=PARTITIONS * PARTITION_BYTES))
    for partition in known.partitions:
        session.want(known.id, partition, FetchFrom(0, max_bytes=PARTITION_BYTES))

    async def more() -> list[tuple[int, list[Batch]]]:
        found = []
        for answered in await session.fetch():
            assert not answered.error, answered.error.name
            sets = walk(answered.records, TopicPartition(topic, answered.partition)).sets
            batches = [batch for batch in sets if isinstance(batch, Batch)]
            if batches:
                start = FetchFrom(batches[-1].next_offset, max_bytes=PARTITION_BYTES)
                session.want(known.id, answered.partition, start)
                found.append((answered.partition, batches))
        return found

    return more


async def read_all(cluster: KafkaCluster, topic: str, count: int) -> int:
    more = await reading(cluster, topic)
    payload = seen = 0
    while seen < count:
        for _, batches in await more():
            seen += sum(batch.records for batch in batches)
            payload += sum(batch.size for batch in batches)
    return payload


async def write_again(cluster: KafkaCluster, topic: str, batches: list[Batch], total: int) -> tuple[int, int]:
    """The same fetched batches, again and again: what producing alone costs."""
    writer = await Writer.open(cluster, topic)
    payload = records = 0
    while payload < total:
        for batch in batches:
            await writer.send(dict.fromkeys(range(PARTITIONS), batch))
            payload += batch.size * PARTITIONS
            records += batch.records * PARTITIONS
    await writer.commit()
    return records, payload


async def copy_all(source: KafkaCluster, target: KafkaCluster, topic: str, count: int) -> int:
    """Fetch ahead while producing; one batch of a partition in each request, several requests in flight."""
    more = await reading(source, topic)
    writer = await Writer.open(target, topic)
    payload = seen = 0
    coming = asyncio.ensure_future(more())
    while seen < count:
        found = await coming
        coming = asyncio.ensure_future(more())
        queues = {partition: deque(batches) for partition, batches in found}
        while any(queues.values()):
            wave = {partition: queue.popleft() for partition, queue in queues.items() if queue}
            await writer.send(wave)
            seen += sum(batch.records for batch in wave.values())
            payload += sum(batch.size for batch in wave.values())
    coming.cancel()
    await asyncio.gather(coming, return_exceptions=True)
    await writer.commit()
    return payload


class Writer:
    """Transactions of a fixed size."""

    def __init__(
        self,
        cluster: KafkaCluster,
        topic: str,
        leader: int,
        transactional_id: str,
        identity: ProducerIdentity,
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._leader = leader
        self._id = transactional_id
        self._identity = identity
        self._flying: deque[asyncio.Future[ProduceResponse]] = deque()
        self._sequences = dict.fromkeys(range(PARTITIONS), 0)
        self._unended = 0

    @classmethod
    async def open(cls, cluster: KafkaCluster, topic: str) -> Writer:
        known = (await cluster.topics([topic]))[topic]
        transactional_id = f"bench-{topic}"
        identity = await init_producer_id(cluster, transactional_id, 60_000)
        return cls(cluster, topic, known.partitions[0].leader, transactional_id, identity)

    async def send(self, wave: dict[int, Batch]) -> None:
        if self._unended == 0:
            partitions = [TopicPartition(self._topic, partition) for partition in range(PARTITIONS)]
            await add_partitions(self._cluster, self._id, self._identity, partitions)
        while len(self._flying) >= IN_FLIGHT:
            await self._acknowledged()
        identity, data = self._identity, []
        for partition, batch in wave.items():
            sequence = self._sequences[partition]
            stamped = stamp(batch, identity.producer_id, identity.epoch, sequence)
            self._sequences[partition] = next_sequence(sequence, batch.records)
            data.append(ProducePartition(self._topic, partition, stamped))
            self._unended += batch.size
        connection = await self._cluster.connection(self._leader, "produce")
        self._flying.append(connection.start(ProduceRequest(self._id, 30_000, data)))
        if self._unended >= TRANSACTION_BYTES:
            await self.commit()

    async def commit(self) -> None:
        while self._flying:
            await self._acknowledged()
        if self._unended:
            await end_transaction(self._cluster, self._id, self._identity, commit=True)
        self._unended = 0

    async def _acknowledged(self) -> None:
        for produced in (await self._flying.popleft()).partitions:
            assert not produced.error, produced


@contextmanager
def measured(brokers: Brokers) -> Iterator[Callable[[str, int, int], Row]]:
    before, cpu, began = brokers.cpu_s(), time.process_time(), time.perf_counter()

    def row(what: str, records: int, payload: int) -> Row:
        seconds = time.perf_counter() - began
        return Row(what, records, payload, seconds, time.process_time() - cpu, brokers.cpu_s() - before)

    yield row


async def measure(lab: Lab, brokers: Brokers, load: Load, topic: str, count: int, rounds: int) -> None:
    bootstraps = [lab.clusters[name].bootstrap for name in ("dc1", "dc2")]
    settings = [wire_settings(bootstrap, {}) for bootstrap in bootstraps]
    async with await KafkaCluster.open(settings[0]) as source, await KafkaCluster.open(settings[1]) as target:
        for _ in range(rounds):
            with measured(brokers) as row:
                payload = await read_all(source, topic, count)
                print(row(f"read   {load.name}", count, payload), flush=True)
            sample = [batches[0] for _, batches in await (await reading(source, topic))()]
            with measured(brokers) as row:
                records, written = await write_again(target, topic, sample, payload)
                print(row(f"write  {load.name}", records, written), flush=True)
            with measured(brokers) as row:
                payload = await copy_all(source, target, topic, count)
                print(row(f"copy   {load.name}", count, payload), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with bench_lab(*(LabClusterSpec(name, heap="768m") for name in ("dc1", "dc2"))) as (lab, _):
        for number, load in enumerate(LOADS):
            topic = f"wire-{number}"
            for cluster in lab.clusters.values():
                create_topic(cluster.client, topic, PARTITIONS)
            count = fill(lab.clusters["dc1"].client, topic, load, options.megabytes)
            work = measure(lab, Brokers(lab), load, topic, count, options.rounds)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(work)


if __name__ == "__main__":
    main()
