"""`foreign_writes` on real brokers: never for the flow's own records and markers, always for another's."""

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from runtime.contract.records.job_status import PartitionStatus
from tests.records import PATIENCE_S
from tests.runtime.slot.world import FAST, Driver, Side, assigned, at_end, flow_spec, until

pytestmark = pytest.mark.integration
Fresh = Callable[[str], str]


SMALL = replace(FAST, transaction_bytes=256 << 10)


def spread(records: int, partitions: int) -> list[dict[str, object]]:
    return [{"value": b"%d" % one * 1_000, "partition": one % partitions} for one in range(records)]


def test_many_partitions_in_one_flow_raise_no_false_alarm(sides: dict[str, Side], fresh: Fresh) -> None:
    """More partitions join a transaction than it has room for: some get its marker and no record."""
    topics, partitions, records = [fresh("many") for _ in range(4)], 50, 1_000
    flow = flow_spec(fresh("flow"))
    for side in sides.values():
        for topic in topics:
            side.create(topic, partitions)
    driver = Driver(sides, job=fresh("job"), settings=SMALL)
    wanted = [one for topic in topics for one in assigned(flow.name, topic, partitions)]

    async def copy() -> list[PartitionStatus]:
        assignment = await driver.take_over(flow, wanted)
        async with driver.running(assignment) as slot:
            for topic in topics * 2:
                await asyncio.to_thread(sides["dc1"].write, topic, spread(records, partitions))
            return await until(slot, lambda one: one.position >= 2 * records // partitions)

    found = asyncio.run(copy())
    assert [one for one in found if one.foreign_writes] == []


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


def test_after_a_restart_only_what_another_wrote_meanwhile_is_foreign(
    sides: dict[str, Side], fresh: Fresh
) -> None:
    """The first batch of a slot comes behind the markers and aborted records of the slot before."""
    quiet, written, flow = fresh("quiet"), fresh("written"), flow_spec(fresh("flow"))
    for side in sides.values():
        side.create(quiet)
        side.create(written)
    driver = Driver(sides, job=fresh("job"))
    wanted = [*assigned(flow.name, quiet), *assigned(flow.name, written)]

    def write() -> None:
        for topic in (quiet, written):
            sides["dc1"].write(topic, spread(10, 1))

    async def copy(due: int, flagged: set[str]) -> None:
        assignment = await driver.take_over(flow, wanted)
        async with driver.running(assignment) as slot:
            found = await until(
                slot, lambda one: one.position >= due and one.foreign_writes is (one.topic in flagged)
            )
            assert {one.topic for one in found if one.foreign_writes} == flagged

    write()
    asyncio.run(copy(10, set()))
    write()
    single(sides["dc2"], written)
    asyncio.run(copy(20, {written}))
    write()
    asyncio.run(copy(30, set()))
