"""Topics promoted on their own, through the lives of several drivers, on real brokers and without a slot."""

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from runtime.contract.records.ledger import GenerationKey
from runtime.contract.spec.flow import GroupsSpec
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.rename import Template
from runtime.contract.spec.selection import SelectionSpec
from tests.records import PATIENCE_S
from tests.runtime.driver.groups_world import commit, committed, driving
from tests.runtime.driver.lives import life
from tests.runtime.slot.world import Driver, Side, assigned, copy_through, flow_spec

pytestmark = pytest.mark.integration
Fresh = Callable[[str], str]


def flow_of(fresh: Fresh, base: str) -> FlowSpec:
    groups = GroupsSpec(include=(f"{base}.*",))
    flow = flow_spec(fresh("flow"), rename=Template(text="copy.{topic}"), groups=groups)
    topics = SelectionSpec(include=(f"{base}.*",))
    return replace(flow, topics=topics, promoted=(rf"{base}\.pay.*",), heartbeats_every_ms=None)


async def test_each_driver_does_what_the_one_before_left(sides: dict[str, Side], fresh: Fresh) -> None:
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
    await asyncio.to_thread(copy_through, Driver(sides, "dc2", fresh("job")), flow, partitions)
    commit(sides["dc1"], group, {(pay, 0): 6})
    sides["dc1"].write(pay, [{"value": b"more"}] * 3)

    async with life(sides, flow) as driver:
        await driver.said("3 records of the topics to promote are left to copy")
        await driver.assigned(orders, pay)
        assert list(driver.work.view().promoted) == []

    async with driving(sides, flow, (), "flows") as (_, shared):  # it dies before the groups have moved
        await shared.ledger.refresh(flow.name)
        last = shared.ledger.generation(flow.name)
        assert last is not None
        await shared.leadership.commit({GenerationKey(flow.name): replace(last, promoting=flow.promoted)})
    async with life(sides, flow) as driver:
        await driver.assigned(orders)
        assert tuple(driver.work.view().promoted) == flow.promoted
        assert {key.topic for key in driver.work.promoted} == {pay}
    assert committed(sides["dc2"], group) == {(f"copy.{pay}", 0): 6}

    commit(sides["dc1"], group, {(pay, 0): 9})
    sides["dc1"].create(f"{base}.pay-later")
    async with life(sides, flow) as driver:
        await driver.assigned(orders)
    assert committed(sides["dc2"], group) == {(f"copy.{pay}", 0): 6}
    assert f"copy.{base}.pay-later" not in sides["dc2"].admin().list_topics(timeout=PATIENCE_S).topics
