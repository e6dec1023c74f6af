"""Words for tests of the wire at real brokers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from runtime.batch import Batch, records, walk
from runtime.contract.client.settings import WireSettings, wire_settings
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.fetch import FetchedPartition
from runtime.kafka.protocol.produce import ProducedPartition, ProducePartition, ProduceRequest
from runtime.lab.cluster import LabKafkaCluster as LabCluster

T = TypeVar("T")
HERE = TopicPartition("t", 0)
NEVER_LONGER_S = 600.0
NOW = int(time.time() * 1000)  # brokers delete what is older than their retention within seconds


def run(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(asyncio.wait_for(work, NEVER_LONGER_S))


def settings_of(cluster: LabCluster, **more: str) -> WireSettings:
    client = {key: str(value) for key, value in cluster.client.items() if key != "bootstrap.servers"}
    return wire_settings(cluster.bootstrap, client | more)


def batch(*values: bytes) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
    for offset, value in enumerate(values):
        builder.append(offset, NOW, None, value, [])
    return bytes(builder.build())


async def produce(
    cluster: KafkaCluster, topic: str, partition: int, *pieces: Any, transactional_id: str | None = None
) -> ProducedPartition:
    """One batch in its pieces to the partition's leader, with its answer whatever it is."""
    known = (await cluster.topics([topic]))[topic].partitions[partition]
    request = ProduceRequest(transactional_id, 10_000, [ProducePartition(topic, partition, pieces)])
    (answered,) = (await cluster.call(known.leader, request, "produce", within=15)).partitions
    return answered


# A broker may not lead, or not know yet, what the metadata already say it leads.
NOT_YET = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
)


async def accepted(cluster: KafkaCluster, topic: str, partition: int, *pieces: Any, **more: Any) -> int:
    """The base offset."""
    while True:
        answered = await produce(cluster, topic, partition, *pieces, **more)
        if answered.error is ErrorCode.NONE:
            return answered.base_offset
        assert answered.error in NOT_YET, answered
        await cluster.topics([topic], fresh=True)


def values(answered: FetchedPartition) -> list[bytes]:
    """Of the records of all whole batches, markers left out."""
    batches = [one for one in walk(answered.records, HERE).sets if isinstance(one, Batch)]
    return [record.value or b"" for one in batches if not one.control for record in records(one, HERE)]


async def outlives(settings: WireSettings, topic: str, sessions: int) -> None:
    """Writes until the broker has seen so many sessions, each of which ends with its ticket or token."""
    async with await KafkaCluster.open(settings) as cluster:
        used: set[object] = set()
        count = 0
        while len(used) < sessions:
            assert await accepted(cluster, topic, 0, batch(b"x")) == count
            used.add(await cluster.connection(1, "produce"))
            count += 1
            await asyncio.sleep(0.05)
