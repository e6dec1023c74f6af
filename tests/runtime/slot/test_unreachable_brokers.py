"""R7: what one broker of the destination holds up, and what it does not."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from msgspec.structs import replace as struct_replace

from runtime.lab.cluster import Listener
from runtime.lab.lab import Lab
from tests.conftest import MakeLab
from tests.labs import spec
from tests.runtime.conftest import sides_of
from tests.runtime.slot.brokers import all_but_data_on, by_hand, place
from tests.runtime.slot.lossy_proxy import LosesEnds, losing_ends
from tests.runtime.slot.world import FAST, Driver, Side, assigned, at_end, flow_spec, until

pytestmark = pytest.mark.integration

Fresh = Callable[[str], str]
_MENDED_S = 180  # brokers come back and elect leaders meanwhile
_ONE_LANE = struct_replace(FAST, lanes=1, spare_lanes=1)  # one home lane: neighbours share transactions


@contextmanager
def doors_before(own_lab: MakeLab) -> Iterator[tuple[Lab, dict[str, Side], dict[int, LosesEnds]]]:
    """A door before each broker of dc2. All but the data lies on the first of them."""
    with losing_ends() as one, losing_ends() as two:
        doors = {1: one, 2: two}
        listener = Listener("DOOR", {node: door.address for node, door in doors.items()})
        lab = own_lab(spec("dc1"), replace(spec("dc2", brokers=2), listeners=(listener,)))
        there = lab.clusters["dc2"]
        for node, door in doors.items():
            door.there = there.listener("DOOR")[node]
        all_but_data_on(Side("dc2", there.bootstrap, there.client), 1)
        yield lab, sides_of(lab), doors


@pytest.mark.long
def test_an_unreachable_broker_delays_its_own_partitions_only(own_lab: MakeLab, fresh: Fresh) -> None:
    """R7: the cluster is well, only the slot can't come to one of its brokers: a listener, a firewall."""
    with doors_before(own_lab) as (_, sides, doors):
        near, far = doors
        really = doors[far].there
        flow, job, topic = flow_spec(fresh("flow")), fresh("job"), fresh("orders")
        sides["dc1"].create(topic, 2)
        place(sides["dc2"], topic, [[near], [far]])

        async def copy() -> None:
            through = replace(sides["dc2"], bootstrap=doors[near].address)
            outside, inside = (
                Driver({**sides, "dc2": way}, job=job, settings=_ONE_LANE) for way in (sides["dc2"], through)
            )
            assignment = await outside.take_over(flow, assigned(flow.name, topic, 2))
            async with inside.running(assignment) as slot:
                for count, far_end in ((100, 100), (200, 100), (300, 100), (400, 400)):
                    if count == 200:
                        doors[far].shut()
                    if count == 400:
                        doors[far].there = really
                    rows = [{"value": b"%d" % number, "partition": number % 2} for number in range(200)]
                    await asyncio.to_thread(sides["dc1"].write, topic, rows)
                    seen = await until(slot, at_end([count, far_end]), _MENDED_S)
                    assert [status.position for status in seen] == [count, far_end]
                assert slot.status().flows[0].aborts <= 2

        asyncio.run(copy())
    assert sides["dc2"].read(topic, 2) == sides["dc1"].read(topic, 2)


def test_an_undecided_end_delays_its_own_partitions_only(own_lab: MakeLab, fresh: Fresh) -> None:
    """Its answer is lost, and its marker can't be written: the neighbours of its lane go on in another."""
    with doors_before(own_lab) as (lab, sides, doors):
        keeper, victim = doors
        flow, topic = flow_spec(fresh("flow")), fresh("orders")
        sides["dc1"].create(topic, 2)
        place(sides["dc2"], topic, [[keeper], [victim]])

        async def write(partition: int, count: int) -> None:
            rows = [{"value": b"x", "partition": partition}] * count
            await asyncio.to_thread(sides["dc1"].write, topic, rows)

        async def copy() -> None:
            through = replace(sides["dc2"], bootstrap=doors[keeper].address)
            driver = Driver(sides, job=fresh("job"), settings=struct_replace(_ONE_LANE, spare_lanes=2))
            assignment = await driver.take_over(flow, assigned(flow.name, topic, 2))
            driver.sides = {**sides, "dc2": through}
            async with driver.running(assignment) as slot:
                await write(0, 100)
                await until(slot, at_end([100, 0]), _MENDED_S)
                doors[keeper].lose("answer", first=lambda: lab.kill(f"dc2:{victim}"))
                await write(1, 100)
                await asyncio.to_thread(doors[keeper].await_lost)
                await write(0, 100)
                seen = await until(slot, lambda one: one.partition == 1 or one.position == 200, _MENDED_S)
                assert [status.position for status in seen] == [200, 0]
                assert slot.status().flows[0].stuck_lanes
                await by_hand(lab.start, f"dc2:{victim}")
                await until(slot, at_end([200, 100]), _MENDED_S)
                # Kafka 4.4 left the marker out: the slot writes it, once it has seen the new leader.
                there, here = [await asyncio.to_thread(sides[name].read, topic, 2) for name in ("dc2", "dc1")]
                assert there == here

        asyncio.run(copy())
