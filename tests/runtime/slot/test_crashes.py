"""R1, R2, R3: killed at the worst moments, fenced, stopped and continued, the copy stays exact."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from runtime.contract.records.control import AssignedPartition
from runtime.contract.spec.jobspec import FlowSpec
from runtime.slot.failpoints import OF_SLOTS
from runtime.slot.slot import Fenced, Slot
from tests.records import wait_for
from tests.runtime.slot.slot_process import slot_process
from tests.runtime.slot.workload import mixed
from tests.runtime.slot.world import FAST, Driver, Side, assigned, at_end, copy_through, flow_spec, until

pytestmark = pytest.mark.integration
Fresh = Callable[[str], str]
_ENDS_S = 120  # a process begins with the whole of Python and its clients


@pytest.mark.parametrize("failpoint", OF_SLOTS)
def test_killed_at_a_failpoint_nothing_is_lost_or_doubled(
    sides: dict[str, Side], fresh: Fresh, tmp_path: Path, failpoint: str
) -> None:
    topic, flow = fresh("orders"), flow_spec(fresh("flow"))
    for side in sides.values():
        side.create(topic, 2)
    driver, partitions = Driver(sides, job=fresh("job")), assigned(flow.name, topic, 2)
    for nth in (1, 2):
        mixed(sides["dc1"], topic, 2, seed=nth, count=150)
        assignment = asyncio.run(driver.take_over(flow, partitions))
        with slot_process(tmp_path, driver.spec(), assignment, f"{failpoint}:{nth}") as process:
            mixed(sides["dc1"], topic, 2, seed=10 + nth, count=50)
            assert process.wait(_ENDS_S) == -signal.SIGKILL
    copy_through(driver, flow, partitions)
    assert sides["dc2"].read(topic, 2) == sides["dc1"].read(topic, 2)


def test_a_slot_of_the_same_number_fences_the_one_before(
    sides: dict[str, Side], fresh: Fresh, tmp_path: Path
) -> None:
    """The same generation: resubmitted while the first, which was thought dead, is only stopped (SIGSTOP)."""
    topic, flow = fresh("orders"), flow_spec(fresh("flow"))
    driver, partitions = _started(sides, fresh, topic, flow)
    assignment = asyncio.run(driver.take_over(flow, partitions))
    with slot_process(tmp_path, driver.spec(), assignment) as zombie:
        _wait_for_records(sides["dc2"], topic, 1)
        zombie.send_signal(signal.SIGSTOP)
        mixed(sides["dc1"], topic, seed=2, count=100)
        with slot_process(tmp_path, driver.spec(), assignment):
            _wait_for_records(sides["dc2"], topic, len(sides["dc1"].read(topic)[0]))
            zombie.send_signal(signal.SIGCONT)
            mixed(sides["dc1"], topic, seed=3, count=100)
            assert zombie.wait(_ENDS_S) == 0
            assert zombie.stdout is not None
            assert "Fenced" in zombie.stdout.read()
            _wait_for_records(sides["dc2"], topic, len(sides["dc1"].read(topic)[0]))
    assert sides["dc2"].read(topic) == sides["dc1"].read(topic)


def test_a_zombie_of_an_older_generation_writes_nothing_more(
    sides: dict[str, Side], fresh: Fresh, tmp_path: Path
) -> None:
    """Fencing 3: another job takes the flow over; the older slot is fenced, and submitted again it ends."""
    topic, flow = fresh("orders"), flow_spec(fresh("flow"))
    driver, partitions = _started(sides, fresh, topic, flow)
    older = asyncio.run(driver.take_over(flow, partitions))
    with slot_process(tmp_path, driver.spec(), older) as zombie:
        _wait_for_records(sides["dc2"], topic, 1)
        zombie.send_signal(signal.SIGSTOP)
        copy_through(Driver(sides, job=fresh("other-job")), flow, partitions)
        zombie.send_signal(signal.SIGCONT)
        mixed(sides["dc1"], topic, seed=2, count=100)
        assert zombie.wait(_ENDS_S) == 0
        assert zombie.stdout is not None
        assert "Fenced" in zombie.stdout.read()
    with slot_process(tmp_path, driver.spec(), older) as again:
        assert again.wait(_ENDS_S) == 0
        assert again.stdout is not None
        ended = again.stdout.read()
        assert "Outdated" in ended
        assert "is 2, active; this slot's is 1" in ended
    copied = sides["dc2"].read(topic)[0]
    assert copied == sides["dc1"].read(topic)[0][: len(copied)]
    copy_through(driver, flow, partitions)
    assert sides["dc2"].read(topic) == sides["dc1"].read(topic)


async def test_a_slot_ends_when_another_writer_moved_its_progress(
    sides: dict[str, Side], fresh: Fresh
) -> None:
    """R3, the last line: after every new epoch the ledger is read, and must say what this slot committed."""
    topic, flow = fresh("compacted"), flow_spec(fresh("flow"))
    sides["dc1"].create(topic, 2)
    sides["dc2"].create(topic, 2, cleanup_policy="compact")
    driver = Driver(sides, job=fresh("job"), settings=replace(FAST, lanes=1))
    sides["dc1"].write(topic, [{"key": b"k", "value": b"v", "partition": one} for one in range(2)])

    assignment = await driver.take_over(flow, assigned(flow.name, topic, 2))
    slot = Slot(driver.spec(), assignment, {})
    running = asyncio.create_task(slot.run())
    await until(slot, at_end([1, 1]))
    await driver.overwrite(flow.name, 0, position=0)
    # A record without a key is refused, which aborts the transaction.
    await asyncio.to_thread(sides["dc1"].write, topic, [{"value": b"no key", "partition": 1}])
    end = await asyncio.wait_for(running, 60)
    assert isinstance(end, Fenced)
    assert f"another writer moved the progress of {flow.name}/{topic}-0" in end.why


def _started(
    sides: dict[str, Side], fresh: Fresh, topic: str, flow: FlowSpec
) -> tuple[Driver, list[AssignedPartition]]:
    for side in sides.values():
        side.create(topic)
    mixed(sides["dc1"], topic, count=100)
    return Driver(sides, job=fresh("job")), assigned(flow.name, topic)


def _wait_for_records(side: Side, topic: str, count: int) -> None:
    wait_for(lambda: len(side.read(topic)[0]) >= count)
