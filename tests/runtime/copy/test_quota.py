"""A destination that takes in little: what is in flight shrinks to what a transaction has time for."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace

import pytest

from runtime.lab.lab import Lab
from tests.runtime.copy.world import FAST, Driver, Side, assigned, at_end, flow_spec, until

pytestmark = pytest.mark.integration
Fresh = Callable[[str], str]

BYTES_PER_S = 300_000
PARTITIONS = 8


def test_a_quota_far_below_what_is_there_to_copy_slows_it_and_stops_nothing(
    lab: Lab, sides: dict[str, Side], fresh: Fresh
) -> None:
    """All of it in flight at once would take twice as long as brokers leave a transaction open."""
    topic, flow, client = fresh("orders"), flow_spec(fresh("flow")), fresh("client")
    quota = ["--alter", "--add-config", f"producer_byte_rate={BYTES_PER_S}"]
    lab.tool("dc2", "kafka.admin.ConfigCommand", *quota, "--entity-type", "clients", "--entity-name", client)
    for side in sides.values():
        side.create(topic, PARTITIONS)
    value = os.urandom(10_000)
    rows = ({"value": value, "partition": number % PARTITIONS} for number in range(800))
    sides["dc1"].write(topic, rows, batch_size=900_000, linger_ms=50)
    slowed = sides | {"dc2": replace(sides["dc2"], client={**sides["dc2"].client, "client.id": client})}
    driver = Driver(slowed, job=fresh("job"), settings=FAST)

    async def copied() -> None:
        assignment = await driver.take_over(flow, assigned(flow.name, topic, PARTITIONS))
        async with driver.running(assignment) as slot:
            await until(slot, at_end([100] * PARTITIONS))

    asyncio.run(copied())
    assert sides["dc2"].read(topic, PARTITIONS) == sides["dc1"].read(topic, PARTITIONS)
