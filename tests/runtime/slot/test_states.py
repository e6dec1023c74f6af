"""R4 and R7: what can't go on stops with a named state, its neighbours go on, nothing is skipped silently."""

import asyncio
from collections.abc import Callable

import pytest

from runtime.contract.records.job_status import PartitionState as State
from runtime.contract.records.job_status import PartitionStatus
from runtime.slot.slot import Slot
from tests.records import alter_topic, recreate_topic
from tests.runtime.slot.world import Copying, Side, assigned, copying, in_state, until

pytestmark = pytest.mark.integration
Fresh = Callable[[str], str]


def numbered(first: int, last: int, partition: int = 0) -> list[dict[str, object]]:
    return [{"value": b"%d" % number, "partition": partition} for number in range(first, last)]


def values(side: Side, topic: str) -> list[int]:
    return [int(row.value or b"-1") for row in side.read(topic)[0]]


async def state_of(slot: Slot, state: State, topic: str) -> PartitionStatus:
    seen = await until(slot, lambda one: one.topic != topic or in_state(state)(one))
    return next(one for one in seen if one.topic == topic)


def stopped(orders: Copying, state: State) -> PartitionStatus:
    """Copies until the partition is in the state."""

    async def copy() -> PartitionStatus:
        async with orders.running() as slot:
            return await state_of(slot, state, orders.topic)

    return asyncio.run(copy())


def test_retention_that_passed_the_position_stops_the_partition(sides: dict[str, Side], fresh: Fresh) -> None:
    orders = copying(sides, fresh)
    orders.source.write(orders.topic, numbered(0, 100))
    orders.copy_through()
    orders.source.write(orders.topic, numbered(100, 200))
    orders.source.forget(orders.topic, 150)
    assert "50 offsets, from 100 to 150" in stopped(orders, State.DATA_LOSS).why
    assert values(orders.destination, orders.topic) == list(range(100))
    # The operator says how: from what is there; the ledger remembers the gap.
    orders.copy_through(accept_loss=True)
    assert values(orders.destination, orders.topic) == [*range(100), *range(150, 200)]
    (progress,) = asyncio.run(orders.driver.progress(orders.flow.name)).values()
    assert [(gap.low, gap.end, gap.why) for gap in progress.gaps] == [(100, 150, "lost")]


@pytest.mark.parametrize("side", ["dc1", "dc2"])
async def test_a_topic_that_is_recreated_while_it_is_copied_stops_and_its_neighbour_goes_on(
    sides: dict[str, Side], fresh: Fresh, side: str
) -> None:
    orders, other = copying(sides, fresh), fresh("other")
    for each in sides.values():
        each.create(other)
    await orders.write(numbered(0, 100))
    orders.partitions.extend(assigned(orders.flow.name, other))
    async with orders.running() as slot:
        await until(slot, lambda one: one.topic == other or one.position == 100)
        await asyncio.to_thread(recreate_topic, sides[side].client, orders.topic)
        await orders.write(numbered(200, 210))
        await orders.write(numbered(0, 50), other)
        assert "recreated" in (await state_of(slot, State.RECREATED, orders.topic)).why
        await until(slot, lambda one: one.topic == orders.topic or one.position == 50)
    assert values(orders.destination, other) == list(range(50))
    assert values(orders.destination, orders.topic) == (list(range(100)) if side == "dc1" else [])


async def test_a_deleted_source_topic_has_a_state_of_its_own(sides: dict[str, Side], fresh: Fresh) -> None:
    orders = copying(sides, fresh)
    async with orders.running() as slot:
        await until(slot, lambda one: one.source_end == 0)
        await asyncio.to_thread(orders.source.delete, orders.topic)
        await state_of(slot, State.SOURCE_DELETED, orders.topic)


async def test_large_records_pass_and_one_that_is_too_large_stops_its_partition(
    sides: dict[str, Side], fresh: Fresh
) -> None:
    orders = copying(sides, fresh, 2, create=False, max_message_bytes=6_000_000)
    orders.source.create(orders.topic, 2, max_message_bytes="20000000")
    orders.destination.create(orders.topic, 2, max_message_bytes="6000000")
    sizes = (5, 900_000, 5_000_000, 7_000_000, 4)
    rows = [{"value": bytes(size), "partition": 0} for size in sizes]
    orders.source.write(orders.topic, [*rows, *numbered(0, 50, 1)], message_max_bytes=20_000_000)
    async with orders.running() as slot:
        await until(slot, lambda one: one.partition == 0 or one.position == 50)
        await until(slot, lambda one: one.partition == 1 or one.position == 3)
        seen = await until(slot, lambda one: one.partition == 1 or in_state(State.RECORD_TOO_LARGE)(one))
    (too_large,) = [one for one in seen if one.partition == 0]
    assert (too_large.position, "offset 3" in too_large.why) == (3, True)
    assert f"raise max.message.bytes of {orders.topic} at the destination" in too_large.why
    large = (await asyncio.to_thread(orders.destination.read, orders.topic, 2))[0]
    assert [len(row.value or b"") for row in large] == list(sizes[:3])
    # Once the topic takes them, it goes on.
    alter_topic(orders.destination.client, orders.topic, {"max.message.bytes": "20000000"})
    await asyncio.to_thread(orders.copy_through, max_message_bytes=20_000_000)
    await asyncio.to_thread(orders.assert_equal)
