"""`foreign_writes` on real brokers: never for the flow's own records and markers, always for another's."""

import asyncio
from collections.abc import Callable

import pytest

from tests.records import PATIENCE_S
from tests.runtime.slot.world import Driver, Side, assigned, at_end, flow_spec, until

pytestmark = pytest.mark.integration
Fresh = Callable[[str], str]


def spread(records: int, partitions: int) -> list[dict[str, object]]:
    return [{"value": b"%d" % one * 1_000, "partition": one % partitions} for one in range(records)]


def transactional(side: Side, topic: str) -> None:
    producer = side.producer(transactional_id=f"other-{topic}")
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, b"-1", partition=0)
    producer.commit_transaction(PATIENCE_S)


def aborted(side: Side, topic: str) -> None:
    """Readers never see it, and it is written by another all the same."""
    producer = side.producer(transactional_id=f"other-{topic}")
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, b"-1", partition=0)
    producer.flush(PATIENCE_S)
    producer.abort_transaction(PATIENCE_S)


def single(side: Side, topic: str) -> None:
    side.write(topic, [{"value": b"-1", "partition": 0}])


@pytest.mark.parametrize("foreign", [single, transactional, aborted])
async def test_another_writer_is_seen_while_the_flow_copies(
    foreign: Callable[[Side, str], None], sides: dict[str, Side], fresh: Fresh
) -> None:
    topic, flow = fresh("orders"), flow_spec(fresh("flow"))
    for side in sides.values():
        side.create(topic)
    driver = Driver(sides, job=fresh("job"))

    assignment = await driver.take_over(flow, assigned(flow.name, topic))
    async with driver.running(assignment) as slot:
        for step in (1, 2, 3):
            await asyncio.to_thread(sides["dc1"].write, topic, spread(10, 1))
            (status,) = await until(slot, at_end([10 * step]))
            assert not status.foreign_writes
        await asyncio.to_thread(foreign, sides["dc2"], topic)
        await asyncio.to_thread(sides["dc1"].write, topic, spread(1, 1))
        await until(slot, lambda one: one.foreign_writes and one.position == 31)
