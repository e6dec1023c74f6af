"""Clusters that take in or give out little: it slows what is copied, and stops nothing."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace

import pytest

from runtime.contract.spec.jobspec import FlowSpec
from runtime.lab.lab import Lab
from tests.labs import run_tool
from tests.runtime.slot.world import FAST, Driver, Side, assigned, at_end, flow_spec, until

pytestmark = [pytest.mark.integration, pytest.mark.long]
Fresh = Callable[[str], str]

BYTES_PER_S = 300_000
PARTITIONS = 8
TIMES, MANY = 5, 500  # so often the same keys, of some 400 bytes: more than is allowed at once


def limited(lab: Lab, cluster: str, client: str, quota: str) -> None:
    config = ["--alter", "--add-config", quota, "--entity-type", "clients", "--entity-name", client]
    run_tool(lab, cluster, "kafka.admin.ConfigCommand", *config)


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
