"""R4 and R7: what can't go on stops with a named state, its neighbours go on, nothing is skipped silently."""

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from runtime.contract.records.job_status import PartitionState as State
from runtime.contract.records.job_status import PartitionStatus
from runtime.slot.slot import Slot
from tests.records import wait_for
from tests.runtime.slot.world import Driver, Side, assigned, copy_through, flow_spec, in_state, until

pytestmark = pytest.mark.integration
Fresh = Callable[[str], str]


def numbered(first: int, last: int, partition: int = 0) -> list[dict[str, object]]:
    return [{"value": b"%d" % one, "partition": partition} for one in range(first, last)]


def values(side: Side, topic: str, partition: int = 0, partitions: int = 1) -> list[int]:
    return [int(row.value or b"-1") for row in side.read(topic, partitions)[partition]]


def recreate(side: Side, topic: str) -> None:
    side.delete(topic)
    wait_for(lambda: topic not in side.admin().list_topics(timeout=60).topics)
    side.create(topic)


async def state_of(slot: Slot, state: State, topic: str) -> PartitionStatus:
    found = await until(slot, lambda one: one.topic != topic or in_state(state)(one))
    return next(one for one in found if one.topic == topic)


def test_retention_that_passed_the_position_stops_the_partition(sides: dict[str, Side], fresh: Fresh) -> None:
    topic, flow = fresh("orders"), flow_spec(fresh("flow"))
    for side in sides.values():
        side.create(topic)
    driver, partitions = Driver(sides, job=fresh("job")), assigned(flow.name, topic)
    sides["dc1"].write(topic, numbered(0, 100))
    copy_through(driver, flow, partitions)
    sides["dc1"].write(topic, numbered(100, 200))
    sides["dc1"].forget(topic, 150)

    async def copy() -> PartitionStatus:
        assignment = await driver.take_over(flow, partitions)
        async with driver.running(assignment) as slot:
            return await state_of(slot, State.DATA_LOSS, topic)

    status = asyncio.run(copy())
    assert "50 offsets, from 100 to 150" in status.why
    assert values(sides["dc2"], topic) == list(range(100))
    # The operator says how: from what is there; the ledger remembers the gap.
    copy_through(driver, flow, [replace(one, accept_loss=True) for one in partitions])
    assert values(sides["dc2"], topic) == [*range(100), *range(150, 200)]
    (progress,) = asyncio.run(driver.progress(flow.name)).values()
    assert [(gap.low, gap.end, gap.why) for gap in progress.gaps] == [(100, 150, "lost")]


@pytest.mark.parametrize("side", ["dc1", "dc2"])
def test_a_topic_that_is_recreated_while_it_is_copied_stops_and_its_neighbour_goes_on(
    sides: dict[str, Side], fresh: Fresh, side: str
) -> None:
    topic, other, flow = fresh("orders"), fresh("other"), flow_spec(fresh("flow"))
    for each in sides.values():
        each.create(topic)
        each.create(other)
    driver = Driver(sides, job=fresh("job"))
    sides["dc1"].write(topic, numbered(0, 100))

    async def copy() -> PartitionStatus:
        partitions = [*assigned(flow.name, topic), *assigned(flow.name, other)]
        assignment = await driver.take_over(flow, partitions)
        async with driver.running(assignment) as slot:
            await until(slot, lambda one: one.topic == other or one.position == 100)
            await asyncio.to_thread(recreate, sides[side], topic)
            await asyncio.to_thread(sides["dc1"].write, topic, numbered(200, 210))
            await asyncio.to_thread(sides["dc1"].write, other, numbered(0, 50))
            stopped = await state_of(slot, State.RECREATED, topic)
            await until(slot, lambda one: one.topic == topic or one.position == 50)
            return stopped

    status = asyncio.run(copy())
    assert "recreated" in status.why
    assert values(sides["dc2"], other) == list(range(50))
    assert values(sides["dc2"], topic) == (list(range(100)) if side == "dc1" else [])


async def test_a_deleted_source_topic_has_a_state_of_its_own(sides: dict[str, Side], fresh: Fresh) -> None:
    topic, flow = fresh("orders"), flow_spec(fresh("flow"))
    for each in sides.values():
        each.create(topic)
    driver = Driver(sides, job=fresh("job"))

    assignment = await driver.take_over(flow, assigned(flow.name, topic))
    async with driver.running(assignment) as slot:
        await until(slot, lambda one: one.source_end == 0)
        await asyncio.to_thread(sides["dc1"].delete, topic)
        await state_of(slot, State.SOURCE_DELETED, topic)


def test_large_records_pass_and_one_that_is_too_large_stops_its_partition(
    sides: dict[str, Side], fresh: Fresh
) -> None:
    topic, flow = fresh("large"), flow_spec(fresh("flow"))
    sides["dc1"].create(topic, 2, max_message_bytes="20000000")
    sides["dc2"].create(topic, 2, max_message_bytes="6000000")
    big, bigger, too_big = b"b" * 900_000, b"c" * 5_000_000, b"d" * 7_000_000
    rows = [{"value": value, "partition": 0} for value in (b"first", big, bigger, too_big, b"last")]
    sides["dc1"].write(topic, rows, message_max_bytes=20_000_000)
    sides["dc1"].write(topic, numbered(0, 50, partition=1))
    driver = Driver(sides, job=fresh("job"))

    async def copy() -> list[PartitionStatus]:
        partitions = assigned(flow.name, topic, 2, max_message_bytes=6_000_000)
        assignment = await driver.take_over(flow, partitions)
        async with driver.running(assignment) as slot:
            return await until(
                slot,
                lambda one: (
                    one.position == 50
                    if one.partition == 1
                    else in_state(State.RECORD_TOO_LARGE)(one) and one.position == 3
                ),
            )

    stopped = next(one for one in asyncio.run(copy()) if one.partition == 0)
    assert "offset 3" in stopped.why
    assert f"raise max.message.bytes of {topic} at the destination" in stopped.why
    assert [len(row.value or b"") for row in sides["dc2"].read(topic, 2)[0]] == [5, 900_000, 5_000_000]
    # Once the topic takes them, it goes on.
    admin = sides["dc2"].admin()
    _alter(admin, topic, "max.message.bytes", "20000000")
    copy_through(driver, flow, assigned(flow.name, topic, 2, max_message_bytes=20_000_000))
    assert sides["dc2"].read(topic, 2) == sides["dc1"].read(topic, 2)


def _alter(admin: object, topic: str, key: str, value: str) -> None:
    from confluent_kafka.admin import (
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ResourceType,
    )

    assert isinstance(admin, AdminClient)
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(60)
