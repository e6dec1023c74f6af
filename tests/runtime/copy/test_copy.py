"""The slot copies: everything a read_committed reader sees at the source, once, in order, byte for byte
(R2).
"""

import asyncio
from collections.abc import Callable

import pytest

from runtime.lab.lab import Lab
from tests.runtime.copy.world import Driver, Side, assigned, at_end, flow_spec, until

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def sides(lab: Lab) -> dict[str, Side]:
    made = {name: Side(name, one.bootstrap, one.client) for name, one in lab.clusters.items()}
    for side in made.values():
        side.create_internal()
    return made


def test_records_arrive_once_in_order_unchanged(sides: dict[str, Side], fresh: Callable[[str], str]) -> None:
    topic, flow = fresh("orders"), flow_spec(fresh("flow"))
    for side in sides.values():
        side.create(topic, 3)
    sides["dc1"].write(
        topic,
        (
            {
                "key": b"k%d" % one,
                "value": b"v%d" % one,
                "partition": one % 3,
                "timestamp": 1_700_000_000_000 + one,
            }
            for one in range(3_000)
        ),
    )

    async def copy() -> None:
        driver = Driver(sides, job=fresh("job"))
        partitions = assigned(flow.name, topic, 3)
        assignment = await driver.take_over(flow, partitions)
        ends = [end for _, end in sides["dc1"].ends(topic, 3)]
        async with driver.running(assignment) as slot:
            await until(slot, at_end(ends))

    asyncio.run(copy())
    assert sides["dc2"].read(topic, 3) == sides["dc1"].read(topic, 3)
