"""Where a flow starts over and where it does not (R1), through several drivers, without a slot."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
from msgspec.structs import replace

from runtime.contract.records.ledger import PartitionKey, Progress
from runtime.contract.spec.flow import AtOffsets
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.selection import SelectionSpec
from runtime.driver.flows.copiers import copier_of
from runtime.driver.flows.flow import DriverFlow
from runtime.driver.flows.start import DriverContext
from tests.runtime.driver.groups_world import driving
from tests.runtime.slot.world import Driver, Side, assigned, copy_through, flow_spec
from tests.waiting import until

pytestmark = pytest.mark.integration
Fresh = Callable[[str], str]
Holds = Callable[[DriverFlow, DriverContext], bool]


def flow_of(fresh: Fresh, base: str) -> FlowSpec:
    flow = flow_spec(fresh("flow"), follow_every_ms=100, heartbeats_every_ms=None)
    return replace(flow, topics=SelectionSpec(include=(f"{base}.*",)))


def filled(side: Side, topic: str, partitions: int = 1) -> None:
    side.create(topic, partitions)
    side.write(topic, [{"value": b"x", "partition": one % partitions} for one in range(10 * partitions)])


async def life(sides: Mapping[str, Side], flow: FlowSpec, holds: Holds) -> dict[PartitionKey, Progress]:
    """What the ledger knows when a driver dies, as soon as it holds."""
    async with driving(sides, flow, (), "over") as (spec, shared):
        work = DriverFlow(flow, spec, shared, copier_of)
        running = asyncio.create_task(work.run())
        await until(lambda: running.done() or (work.partitions and holds(work, shared)))
        assert not running.done(), running
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await shared.ledger.refresh(flow.name)
        return shared.ledger.all_progress(flow.name)


def positions(progress: Mapping[PartitionKey, Progress]) -> dict[tuple[str, int], int]:
    return {(key.topic, key.partition): one.position for key, one in progress.items()}


def restarted(work: DriverFlow, shared: DriverContext) -> bool:
    found = shared.ledger.generation(work.name)
    return found is not None and bool(found.restarted) == (work.spec.restart_from is not None)


def test_only_what_offsets_name_starts_over_and_again_when_it_is_written_again(
    sides: dict[str, Side], fresh: Fresh
) -> None:
    topic = fresh("orders")
    flow = flow_of(fresh, topic)
    filled(sides["dc1"], topic, 2)
    sides["dc2"].create(topic, 2)
    copy_through(Driver(sides, "dc2", fresh("job")), flow, assigned(flow.name, topic, 2))
    named, other = PartitionKey(flow.name, topic, 0), PartitionKey(flow.name, topic, 1)
    over = replace(flow, restart_from=AtOffsets(offsets={topic: {0: 3}}))

    first = asyncio.run(life(sides, over, restarted))
    assert positions(first) == {(topic, 0): 3, (topic, 1): 10}
    carried_out = asyncio.run(life(sides, over, restarted))
    asyncio.run(life(sides, flow, restarted))
    again = asyncio.run(life(sides, over, restarted))

    lives = [one[named].incarnation for one in (first, carried_out, again)]
    assert lives == [lives[0], lives[0], lives[0] + 1]
    assert again[other] == first[other]
