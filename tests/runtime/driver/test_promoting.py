"""Topics promoted on their own, through the lives of several drivers, on real brokers and without a slot."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
from msgspec.structs import replace

from runtime.contract.records.ledger import Generation, GenerationKey
from runtime.contract.spec.flow import GroupsSpec
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.rename import Template
from runtime.contract.spec.selection import SelectionSpec
from runtime.driver.flows.copiers import copier_of
from runtime.driver.flows.flow import DriverFlow
from runtime.driver.flows.start import DriverContext
from tests.records import PATIENCE_S
from tests.runtime.driver.groups_world import commit, committed, driving
from tests.runtime.slot.world import Driver, Side, assigned, copy_through, flow_spec
from tests.waiting import until

pytestmark = pytest.mark.integration
Fresh = Callable[[str], str]


def flow_of(fresh: Fresh, base: str) -> FlowSpec:
    groups = GroupsSpec(include=(f"{base}.*",))
    flow = flow_spec(fresh("flow"), rename=Template(text="copy.{topic}"), groups=groups)
    topics = SelectionSpec(include=(f"{base}.*",))
    return replace(flow, topics=topics, promoted=(rf"{base}\.pay.*",), heartbeats_every_ms=None)


async def life(sides: Mapping[str, Side], flow: FlowSpec, holds: Callable[[DriverFlow], bool]) -> DriverFlow:
    """A driver that dies as soon as it holds."""
    async with driving(sides, flow, (), "promoting") as (spec, shared):
        work = DriverFlow(flow, spec, shared, copier_of)
        running = asyncio.create_task(work.run())
        await until(lambda: running.done() or holds(work))
        assert not running.done(), running
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return work


async def generation(shared: DriverContext, flow: str) -> Generation:
    await shared.ledger.refresh(flow)
    found = shared.ledger.generation(flow)
    assert found is not None
    return found


async def died_before_the_groups(sides: Mapping[str, Side], flow: FlowSpec) -> None:
    async with driving(sides, flow, (), "promoting") as (_, shared):
        last = await generation(shared, flow.name)
        await shared.leadership.commit({GenerationKey(flow.name): replace(last, promoting=flow.promoted)})


def topics_of(work: DriverFlow) -> set[str]:
    return {key.topic for key in work.partitions}


def test_each_driver_does_what_the_one_before_left(sides: dict[str, Side], fresh: Fresh) -> None:
    base = fresh("shop")
    orders, pay, group = f"{base}.orders", f"{base}.pay", f"{base}-billing"
    flow = flow_of(fresh, base)
    for topic in (orders, pay):
        sides["dc1"].create(topic)
        sides["dc2"].create(f"copy.{topic}")
        sides["dc1"].write(topic, [{"value": b"%d" % one} for one in range(10)])
    partitions = [
        one
        for topic in (orders, pay)
        for one in assigned(flow.name, topic, destination_topic=f"copy.{topic}")
    ]
    copy_through(Driver(sides, "dc2", fresh("job")), flow, partitions)
    commit(sides["dc1"], group, {(pay, 0): 6})
    sides["dc1"].write(pay, [{"value": b"more"}] * 3)

    work = asyncio.run(life(sides, flow, lambda work: work.view().why != ""))
    assert work.view().why == "3 records of the topics to promote are left to copy"
    assert topics_of(work) == {orders, pay}
    assert list(work.view().promoted) == []

    asyncio.run(died_before_the_groups(sides, flow))
    work = asyncio.run(life(sides, flow, lambda work: bool(work.partitions)))
    assert topics_of(work) == {orders}
    assert tuple(work.view().promoted) == flow.promoted
    assert {key.topic for key in work.promoted} == {pay}
    assert committed(sides["dc2"], group) == {(f"copy.{pay}", 0): 6}

    commit(sides["dc1"], group, {(pay, 0): 9})
    sides["dc1"].create(f"{base}.pay-later")
    work = asyncio.run(life(sides, flow, lambda work: bool(work.partitions)))
    assert topics_of(work) == {orders}
    assert committed(sides["dc2"], group) == {(f"copy.{pay}", 0): 6}
    assert f"copy.{base}.pay-later" not in sides["dc2"].admin().list_topics(timeout=PATIENCE_S).topics
