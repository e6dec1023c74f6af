"""An assignment changes while a slot runs: what stays is not disturbed, what leaves is let go cleanly."""

import asyncio
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
from tests.runtime.slot.world import Driver, Side, assigned, at_end, flow_spec, in_state, until

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
