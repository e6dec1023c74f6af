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
from tests.runtime.slot.world import FAST, Side, at_end, copying, until

pytestmark = pytest.mark.integration

Fresh = Callable[[str], str]
_MENDED_S = 180  # brokers come back and elect leaders meanwhile


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


async def test_an_undecided_end_delays_its_own_partitions_only(own_lab: MakeLab, fresh: Fresh) -> None:
    """Its answer is lost, and its marker can't be written: the neighbours of its lane go on in another."""
    with doors_before(own_lab) as (lab, sides, doors):
        keeper, victim = doors
        settings = struct_replace(FAST, lanes=1, spare_lanes=2)  # neighbours share transactions
        orders = copying(sides, fresh, 2, settings=settings, create=False)
        orders.source.create(orders.topic, 2)
        place(orders.destination, orders.topic, [[keeper], [victim]])
        assignment = await orders.driver.take_over(orders.flow, orders.partitions)
        orders.driver.sides = {**sides, "dc2": replace(sides["dc2"], bootstrap=doors[keeper].address)}
        async with orders.driver.running(assignment) as slot:
            await orders.write([{"value": b"x", "partition": 0}] * 100)
            await until(slot, at_end([100, 0]), _MENDED_S)
            doors[keeper].lose_answer(first=lambda: lab.kill(f"dc2:{victim}"))
            await orders.write([{"value": b"x", "partition": 1}] * 100)
            await asyncio.to_thread(doors[keeper].await_lost)
            await orders.write([{"value": b"x", "partition": 0}] * 100)
            seen = await until(slot, lambda one: one.partition == 1 or one.position == 200, _MENDED_S)
            assert [status.position for status in seen] == [200, 0]
            assert slot.status().flows[0].stuck_lanes
            await by_hand(lab.start, f"dc2:{victim}")
            await until(slot, at_end([200, 100]), _MENDED_S)
            # Kafka 4.4 left the marker out: the slot writes it, once it has seen the new leader.
            await asyncio.to_thread(orders.assert_equal)
