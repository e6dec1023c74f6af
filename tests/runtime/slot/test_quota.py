"""Clusters that take in or give out little: it slows what is copied, and stops nothing."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace

import pytest

from runtime.contract.records.ledger import PartitionKey, ProgressKey
from runtime.contract.records.provenance import FlowProducer, encode_producer, encode_producer_key
from runtime.contract.spec import naming
from runtime.contract.spec.jobspec import FlowSpec
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.records import InternalRecord, build, plain
from runtime.lab.lab import Lab
from runtime.ledger.transaction_writer import TransactionWriter, send
from tests.fakes.partition import partition
from tests.runtime.slot.world import FAST, Driver, Side, assigned, at_end, flow_spec, until

pytestmark = [pytest.mark.integration, pytest.mark.long]
Fresh = Callable[[str], str]

BYTES_PER_S = 300_000
PARTITIONS = 8
CONSUMED_PER_S = 100_000  # brokers allow ten seconds' worth at once
LONG = "x" * 400
TIMES, MANY = 5, 500  # so often the same keys, of some 400 bytes: more than is allowed at once


def limited(lab: Lab, cluster: str, client: str, quota: str) -> None:
    config = ["--alter", "--add-config", quota, "--entity-type", "clients", "--entity-name", client]
    lab.tool(cluster, "kafka.admin.ConfigCommand", *config)


def named(side: Side, client: str) -> Side:
    return replace(side, client={**side.client, "client.id": client})


def rows(count: int, size: int) -> list[dict[str, object]]:
    value = os.urandom(size)
    return [{"value": value, "partition": number % PARTITIONS} for number in range(count)]


async def copied(driver: Driver, flow: FlowSpec, topic: str) -> None:
    assignment = await driver.take_over(flow, assigned(flow.name, topic, PARTITIONS))
    async with driver.running(assignment) as slot:
        await until(slot, at_end([100] * PARTITIONS))


def test_a_small_produce_quota_slows_a_flow_and_stops_nothing(
    lab: Lab, sides: dict[str, Side], fresh: Fresh
) -> None:
    """All of it in flight at once would take twice as long as brokers leave a transaction open."""
    topic, flow, client = fresh("orders"), flow_spec(fresh("flow")), fresh("client")
    limited(lab, "dc2", client, f"producer_byte_rate={BYTES_PER_S}")
    for side in sides.values():
        side.create(topic, PARTITIONS)
    sides["dc1"].write(topic, rows(800, 10_000), batch_size=900_000, linger_ms=50)
    driver = Driver(sides | {"dc2": named(sides["dc2"], client)}, job=fresh("job"), settings=FAST)
    asyncio.run(copied(driver, flow, topic))
    assert sides["dc2"].read(topic, PARTITIONS) == sides["dc1"].read(topic, PARTITIONS)


def test_a_small_fetch_quota_slows_a_flow_and_stops_nothing(
    lab: Lab, sides: dict[str, Side], fresh: Fresh
) -> None:
    """A fetch over it is answered with nothing: of the records, of the ledger, and of the producers at the
    source.
    """
    topic, flow, client = fresh("orders"), flow_spec(fresh("flow"), provenance="batch"), fresh("client")
    for side in sides.values():
        limited(lab, side.name, client, f"consumer_byte_rate={CONSUMED_PER_S}")
        side.create(topic, PARTITIONS)
    sides["dc1"].write(topic, rows(800, 1_000), enable_idempotence=True, batch_size=20_000)
    asyncio.run(_a_long_ledger(sides["dc2"], flow.name, fresh("writer")))
    asyncio.run(_many_producers(sides["dc1"]))
    slowed = {name: named(side, client) for name, side in sides.items()}
    driver = Driver(slowed, job=fresh("job"), settings=FAST)
    asyncio.run(copied(driver, flow, topic))
    assert sides["dc2"].read(topic, PARTITIONS) == sides["dc1"].read(topic, PARTITIONS)


async def _a_long_ledger(side: Side, flow: str, transactional_id: str) -> None:
    """Progress of another topic of the flow, again and again."""
    progress = partition().progress
    async with await side.open() as cluster:
        writer = await TransactionWriter.open(cluster, transactional_id)
        for _ in range(TIMES):
            keys = (PartitionKey(flow, LONG, number) for number in range(MANY))
            await writer.commit({ProgressKey(key): progress for key in keys})


async def _many_producers(side: Side) -> None:
    at = TopicPartition(naming.PRODUCERS, 0)
    said = encode_producer(FlowProducer("another", "dc3", LONG, flow_spec("another").rename))
    records = [InternalRecord(encode_producer_key(1 << 40 | number), said) for number in range(MANY)]
    async with await side.open() as cluster:
        for _ in range(TIMES):
            await send(cluster, at, plain(build(records, 1)))
