"""An assignment changes while a slot runs: what stays is not disturbed, what leaves is let go cleanly."""

import asyncio
import dataclasses
import socket
import time
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from runtime.contract.records.control import Assignment
from runtime.contract.records.job_status import PartitionState as State
from runtime.slot.slot import Slot
from tests.records import PATIENCE_S
from tests.runtime.slot.workload import mixed
from tests.runtime.slot.world import Driver, Side, assigned, at_end, copying, flow_spec, in_state, until

pytestmark = pytest.mark.integration
Fresh = Callable[[str], str]


async def in_force(slot: Slot, version: int, within_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + within_s
    while slot.status().assignment < version:
        assert time.monotonic() < deadline, slot.status()
        await asyncio.sleep(0.02)


async def test_partitions_move_between_slots_while_records_come(sides: dict[str, Side], fresh: Fresh) -> None:
    orders = copying(sides, fresh, 4)
    mixed(orders.source, orders.topic, 4, seed=1, count=200)
    whole = await orders.driver.take_over(orders.flow, orders.partitions, slots=2)
    held = [orders.partitions[:2], orders.partitions[2:]]
    first, second = (replace(whole, partitions=each) for each in held)
    async with orders.driver.running(first, 0) as one, orders.driver.running(second, 1) as two:
        for version, index in enumerate((0, 2, 1, 0, 3, 2), start=2):
            writing = asyncio.create_task(
                asyncio.to_thread(mixed, orders.source, orders.topic, 4, seed=version, count=60)
            )
            moved = orders.partitions[index]
            leaves, enters = (0, 1) if moved in held[0] else (1, 0)
            held[leaves] = [each for each in held[leaves] if each != moved]
            held[enters] = [*held[enters], moved]
            for number in (leaves, enters):  # the one that lets go comes first
                (one, two)[number].assign(Assignment(version, whole.flows, held[number]))
                await in_force((one, two)[number], version)
            await writing
        ends = [end for _, end in orders.source.ends(orders.topic, 4)]
        await until(one, at_end(ends))
        await until(two, at_end(ends))
    orders.assert_equal()


async def test_a_flow_whose_source_does_not_answer_delays_no_other_flow(
    sides: dict[str, Side], fresh: Fresh
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody_accepts:
        away = {"dead": "127.0.0.1:9", "silent": f"127.0.0.1:{nobody_accepts.getsockname()[1]}"}
        unreachable = {
            name: Side(name, at, {**sides["dc1"].client, "bootstrap.servers": at})
            for name, at in away.items()
        }
        orders = copying(sides, fresh)
        orders = dataclasses.replace(orders, driver=Driver({**sides, **unreachable}, job=fresh("job")))
        assignment = await orders.driver.take_over(orders.flow, orders.partitions)
        given = assignment.flows[orders.flow.name]
        others = {name: replace(given, spec=flow_spec(fresh(name), source=name)) for name in away}
        flows = assignment.flows | {one.spec.name: one for one in others.values()}
        partitions = [one for other in others.values() for one in assigned(other.spec.name, "anything")]
        dead = others["dead"].spec.name
        everything = replace(assignment, flows=flows, partitions=[*orders.partitions, *partitions])
        async with orders.driver.running(everything) as slot:
            await orders.write([{"value": b"1"}])
            await until(slot, lambda one: one.flow != orders.flow.name or one.position == 1)
            await until(slot, lambda one: one.flow != dead or in_state(State.RETRYING)(one))
