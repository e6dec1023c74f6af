"""An assignment changes while a slot runs: what stays is not disturbed, what leaves is let go cleanly."""

import asyncio
import socket
import time
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from runtime.contract.records.control import Assignment
from runtime.contract.records.job_status import PartitionState as State
from runtime.slot.slot import Slot, Stopped
from tests.records import PATIENCE_S
from tests.runtime.slot.workload import mixed
from tests.runtime.slot.world import FAST, Driver, Side, assigned, at_end, flow_spec, in_state, until

pytestmark = pytest.mark.integration
Fresh = Callable[[str], str]


async def in_force(slot: Slot, version: int, within_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + within_s
    while slot.status().assignment < version:
        assert time.monotonic() < deadline, slot.status()
        await asyncio.sleep(0.02)


async def test_partitions_move_between_slots_while_records_come(sides: dict[str, Side], fresh: Fresh) -> None:
    topic, flow = fresh("orders"), flow_spec(fresh("flow"))
    for side in sides.values():
        side.create(topic, 4)
    driver = Driver(sides, job=fresh("job"))
    mixed(sides["dc1"], topic, 4, seed=1, count=200)

    partitions = assigned(flow.name, topic, 4)
    whole = await driver.take_over(flow, partitions, slots=2)
    held = [partitions[:2], partitions[2:]]
    first, second = (replace(whole, partitions=each) for each in held)
    async with driver.running(first, 0) as one, driver.running(second, 1) as two:
        for version, index in enumerate((0, 2, 1, 0, 3, 2), start=2):
            writing = asyncio.create_task(
                asyncio.to_thread(mixed, sides["dc1"], topic, 4, seed=version, count=60)
            )
            moved = partitions[index]
            source = 0 if moved in held[0] else 1
            held[source] = [each for each in held[source] if each != moved]
            held[1 - source] = [*held[1 - source], moved]
            for slot, each in sorted(
                zip((one, two), held, strict=True), key=lambda pair: moved in pair[1]
            ):  # the one that lets go comes first
                slot.assign(Assignment(version, whole.flows, each))
                await in_force(slot, version)
            await writing
        ends = [end for _, end in sides["dc1"].ends(topic, 4)]
        await until(one, at_end(ends))
        await until(two, at_end(ends))
    assert sides["dc2"].read(topic, 4) == sides["dc1"].read(topic, 4)


async def test_flows_come_and_go_without_disturbing_each_other(sides: dict[str, Side], fresh: Fresh) -> None:
    first, second = flow_spec(fresh("first")), flow_spec(fresh("second"))
    topics = {first.name: fresh("a"), second.name: fresh("b")}
    for side in sides.values():
        for topic in topics.values():
            side.create(topic)
    driver = Driver(sides, job=fresh("job"))

    one = await driver.take_over(first, assigned(first.name, topics[first.name]))
    async with driver.running(one) as slot:
        sides["dc1"].write(topics[first.name], [{"value": b"1"}])
        await until(slot, at_end([1]))
        two = await driver.take_over(second, assigned(second.name, topics[second.name]))
        both = Assignment(two.version, one.flows | two.flows, one.partitions + two.partitions)
        slot.assign(both)
        sides["dc1"].write(topics[second.name], [{"value": b"2"}])
        await until(slot, at_end([1]))
        assert [flow.aborts for flow in slot.status().flows] == [0, 0]
        slot.assign(replace(one, version=both.version + 1))
        await in_force(slot, both.version + 1)
        sides["dc1"].write(topics[first.name], [{"value": b"3"}])
        await until(slot, at_end([2]))
        assert [one.flow for one in slot.status().partitions] == [first.name]


async def test_an_idle_partition_that_is_assigned_again_is_caught_up_again(
    sides: dict[str, Side], fresh: Fresh
) -> None:
    """The broker says nothing new of it: the slot has to ask as if for the first time."""
    topic, flow = fresh("orders"), flow_spec(fresh("flow"))
    for side in sides.values():
        side.create(topic, 2)
    sides["dc1"].write(topic, [{"value": b"x", "partition": 0}])
    driver, partitions = Driver(sides, job=fresh("job")), assigned(flow.name, topic, 2)

    given = await driver.take_over(flow, partitions)
    async with driver.running(given) as slot:
        for version in range(2, 5):
            await until(slot, in_state(State.CAUGHT_UP))
            larger = [replace(one, max_message_bytes=version << 20) for one in partitions]
            slot.assign(replace(given, version=version, partitions=larger))
            await in_force(slot, version)
        await until(slot, in_state(State.CAUGHT_UP))


def test_a_flow_whose_source_does_not_answer_delays_no_other_flow(
    sides: dict[str, Side], fresh: Fresh
) -> None:
    topic, flow = fresh("orders"), flow_spec(fresh("flow"))
    for side in sides.values():
        side.create(topic)
    others = [flow_spec(fresh(name), source=name) for name in ("dead", "silent")]

    async def copy(driver: Driver) -> None:
        assignment = await driver.take_over(flow, assigned(flow.name, topic))
        given = assignment.flows[flow.name]
        also = {one.name: replace(given, spec=one) for one in others}
        partitions = [one for other in others for one in assigned(other.name, "anything")]
        dead, _ = also
        everything = Assignment(
            assignment.version, assignment.flows | also, assignment.partitions + partitions
        )
        async with driver.running(everything) as slot:
            await asyncio.to_thread(sides["dc1"].write, topic, [{"value": b"1"}])
            await until(slot, lambda one: one.flow != flow.name or one.position == 1)
            await until(slot, lambda one: one.flow != dead or in_state(State.RETRYING)(one))

    with socket.create_server(("127.0.0.1", 0)) as nobody_accepts:
        silent = f"127.0.0.1:{nobody_accepts.getsockname()[1]}"
        away = {"dead": "127.0.0.1:9", "silent": silent}
        unreachable = {name: replace_side(sides["dc1"], name, at) for name, at in away.items()}
        asyncio.run(copy(Driver({**sides, **unreachable}, job=fresh("job"))))


def replace_side(side: Side, name: str, bootstrap: str) -> Side:
    return Side(name, bootstrap, {**side.client, "bootstrap.servers": bootstrap})


def test_a_stopped_slot_has_ended_its_transactions(sides: dict[str, Side], fresh: Fresh) -> None:
    topic, flow = fresh("orders"), flow_spec(fresh("flow"))
    for side in sides.values():
        side.create(topic)
    mixed(sides["dc1"], topic, count=300)
    # One that was left open would stay open for longer than anybody waits here.
    driver = Driver(sides, job=fresh("job"), settings=replace(FAST, transaction_timeout_ms=600_000))

    async def copy() -> None:
        assignment = await driver.take_over(flow, assigned(flow.name, topic))
        slot = Slot(driver.spec(), assignment, {})
        running = asyncio.create_task(slot.run())
        await until(slot, lambda one: one.position > 0)
        slot.stop()
        assert await asyncio.wait_for(running, PATIENCE_S) == Stopped()

    asyncio.run(copy())
    (progress,) = asyncio.run(driver.progress(flow.name)).values()
    ((_, committed),) = sides["dc2"].ends(topic)
    assert committed >= progress.destination_end > 0


async def test_an_idle_position_is_committed_without_a_marker_at_the_destination(
    sides: dict[str, Side], fresh: Fresh
) -> None:
    """Before a promote: what lies behind the last record held nothing to copy, and the ledger says so."""
    topic, flow = fresh("orders"), flow_spec(fresh("flow"))
    for side in sides.values():
        side.create(topic)
    producer = sides["dc1"].producer(transactional_id=fresh("app"))
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"aborted")
    producer.flush(60)
    producer.abort_transaction(60)
    driver = Driver(sides, job=fresh("job"))

    assignment = await driver.take_over(flow, assigned(flow.name, topic))
    async with driver.running(assignment) as slot:
        await until(slot, at_end([2]))
    assert sides["dc2"].ends(topic) == [(0, 0)]  # no marker: it never joined a transaction
