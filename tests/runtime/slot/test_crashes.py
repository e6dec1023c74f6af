"""R1, R2, R3: killed at the worst moments, fenced, stopped and continued, the copy stays exact."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from runtime.slot.failpoints import NAMES
from runtime.slot.slot import Slot
from tests.records import wait_for
from tests.runtime.slot.slot_process import ended, slot_process
from tests.runtime.slot.workload import mixed
from tests.runtime.slot.world import FAST, Copying, Driver, Side, at_end, copy_through, copying, until

pytestmark = pytest.mark.integration
Fresh = Callable[[str], str]


@pytest.mark.parametrize("failpoint", NAMES)
def test_killed_at_a_failpoint_nothing_is_lost_or_doubled(
    sides: dict[str, Side], fresh: Fresh, tmp_path: Path, failpoint: str
) -> None:
    orders = copying(sides, fresh, 2)
    for nth in (1, 2):
        mixed(orders.source, orders.topic, 2, seed=nth, count=150)
        assignment = asyncio.run(orders.driver.take_over(orders.flow, orders.partitions))
        with slot_process(tmp_path, orders.driver.spec(), assignment, f"{failpoint}:{nth}") as process:
            mixed(orders.source, orders.topic, 2, seed=10 + nth, count=50)
            ended(process, -signal.SIGKILL)
    orders.copy_through()
    orders.assert_equal()


def test_a_slot_of_the_same_number_fences_the_one_before(
    sides: dict[str, Side], fresh: Fresh, tmp_path: Path
) -> None:
    """The same generation: resubmitted while the first, which was thought dead, is only stopped (SIGSTOP)."""
    orders = copying(sides, fresh)
    mixed(orders.source, orders.topic, count=100)
    assignment = asyncio.run(orders.driver.take_over(orders.flow, orders.partitions))
    with slot_process(tmp_path, orders.driver.spec(), assignment) as zombie:
        wait_for_records(orders, 1)
        zombie.send_signal(signal.SIGSTOP)
        mixed(orders.source, orders.topic, seed=2, count=100)
        with slot_process(tmp_path, orders.driver.spec(), assignment):
            wait_for_records(orders, len(orders.source.read(orders.topic)[0]))
            zombie.send_signal(signal.SIGCONT)
            mixed(orders.source, orders.topic, seed=3, count=100)
            assert "fenced" in ended(zombie)
            wait_for_records(orders, len(orders.source.read(orders.topic)[0]))
    orders.assert_equal()


def test_a_zombie_of_an_older_generation_writes_nothing_more(
    sides: dict[str, Side], fresh: Fresh, tmp_path: Path
) -> None:
    """Fencing 3: another job takes the flow over; the older slot is fenced, and submitted again it ends."""
    orders = copying(sides, fresh)
    mixed(orders.source, orders.topic, count=100)
    older = asyncio.run(orders.driver.take_over(orders.flow, orders.partitions))
    with slot_process(tmp_path, orders.driver.spec(), older) as zombie:
        wait_for_records(orders, 1)
        zombie.send_signal(signal.SIGSTOP)
        copy_through(Driver(sides, job=fresh("other-job")), orders.flow, orders.partitions)
        zombie.send_signal(signal.SIGCONT)
        mixed(orders.source, orders.topic, seed=2, count=100)
        assert "fenced" in ended(zombie)
    with slot_process(tmp_path, orders.driver.spec(), older) as again:
        assert "outdated" in (said := ended(again))
        assert "is 2, active; this slot's is 1" in said
    copied = orders.destination.read(orders.topic)[0]
    assert copied == orders.source.read(orders.topic)[0][: len(copied)]
    orders.copy_through()
    orders.assert_equal()


async def test_a_slot_ends_when_another_writer_moved_its_progress(
    sides: dict[str, Side], fresh: Fresh
) -> None:
    """R3, the last line: after every new epoch the ledger is read, and must say what this slot committed."""
    orders = copying(sides, fresh, 2, settings=replace(FAST, lanes=1), create=False)
    orders.source.create(orders.topic, 2)
    orders.destination.create(orders.topic, 2, cleanup_policy="compact")
    await orders.write({"key": b"k", "value": b"v", "partition": number} for number in range(2))

    assignment = await orders.driver.take_over(orders.flow, orders.partitions)
    slot = Slot(orders.driver.spec(), assignment, {})
    running = asyncio.create_task(slot.run())
    await until(slot, at_end([1, 1]))
    await orders.driver.overwrite(orders.flow.name, 0, position=0)
    # A record without a key is refused, which aborts the transaction.
    await orders.write([{"value": b"no key", "partition": 1}])
    end = await asyncio.wait_for(running, 60)
    assert end.how == "fenced"
    assert f"another writer moved the progress of {orders.flow.name}/{orders.topic}-0" in end.why


def wait_for_records(orders: Copying, count: int) -> None:
    wait_for(lambda: len(orders.destination.read(orders.topic)[0]) >= count)
