"""R4 where topics have no ids (Kafka before 2.8): what tells of a recreated topic, and the first ids."""

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from runtime.contract.records.job_status import PartitionState as State
from runtime.contract.records.job_status import PartitionStatus
from runtime.contract.spec.naming import is_from_kafka, name_id
from runtime.lab.lab import Lab
from tests.conftest import MakeLab
from tests.labs import spec
from tests.records import coordinators_ready, recreate_topic
from tests.runtime.conftest import sides_of
from tests.runtime.slot.test_states import numbered, state_of, values
from tests.runtime.slot.world import Driver, Side, assigned, copy_through, flow_spec, until

pytestmark = [pytest.mark.integration, pytest.mark.versions, pytest.mark.long]
Fresh = Callable[[str], str]


@pytest.fixture
def lab(own_lab: MakeLab) -> Lab:
    return own_lab(spec("dc1", version="2.5.1", brokers=2), spec("dc2"))


@pytest.fixture
def sides(lab: Lab) -> dict[str, Side]:
    return sides_of(lab)


def restart(lab: Lab, version: str | None = None) -> None:
    """A new leader epoch begins in every partition: the other broker sees that its leader is gone."""
    for broker in ("dc1:1", "dc1:2"):
        lab.stop(broker)
        lab.start(broker, version=version)
    coordinators_ready(lab.clusters["dc1"].client)


@pytest.mark.parametrize(
    ("epoch_rises", "written"),
    [
        (False, 50),  # the new log ends before the position
        (True, 400),  # the leader epoch begins again
    ],
)
def test_a_recreated_topic_is_told_by_its_epoch_and_its_end(
    lab: Lab, sides: dict[str, Side], fresh: Fresh, epoch_rises: bool, written: int
) -> None:
    topic, flow = fresh("orders"), flow_spec(fresh("flow"))
    for side in sides.values():
        side.create(topic)
    if epoch_rises:
        restart(lab)
    driver, partitions = Driver(sides, job=fresh("job")), assigned(flow.name, topic)
    sides["dc1"].write(topic, numbered(0, 100))
    copy_through(driver, flow, partitions)
    recreate_topic(sides["dc1"].client, topic)
    sides["dc1"].write(topic, numbered(200, 200 + written))

    async def copy() -> PartitionStatus:
        assignment = await driver.take_over(flow, partitions)
        async with driver.running(assignment) as slot:
            return await state_of(slot, State.RECREATED, topic)

    assert asyncio.run(copy()).why
    assert values(sides["dc2"], topic) == list(range(100))

    async def go_on() -> None:
        accepting = [replace(one, accept_loss=True) for one in partitions]
        assignment = await driver.take_over(flow, accepting)
        async with driver.running(assignment) as slot:
            await until(slot, lambda one: one.records == 100 + written)

    asyncio.run(go_on())
    expected = [*range(100), *range(200, 200 + written)]
    assert values(sides["dc2"], topic) == expected


def test_an_upgrade_gives_topics_their_first_ids(lab: Lab, sides: dict[str, Side], fresh: Fresh) -> None:
    topic, flow = fresh("orders"), flow_spec(fresh("flow"))
    for side in sides.values():
        side.create(topic)
    driver, partitions = Driver(sides, job=fresh("job")), assigned(flow.name, topic)
    sides["dc1"].write(topic, numbered(0, 100))
    copy_through(driver, flow, partitions)
    (progress,) = asyncio.run(driver.progress(flow.name)).values()
    assert progress.source_topic_id == name_id(topic)

    restart(lab, "3.4.1")
    sides["dc1"].write(topic, numbered(100, 200))
    copy_through(driver, flow, partitions)
    assert values(sides["dc2"], topic) == list(range(200))
    (progress,) = asyncio.run(driver.progress(flow.name)).values()
    assert is_from_kafka(progress.source_topic_id)

    recreate_topic(sides["dc1"].client, topic)
    sides["dc1"].write(topic, numbered(300, 700))

    async def copy() -> PartitionStatus:
        assignment = await driver.take_over(flow, partitions)
        async with driver.running(assignment) as slot:
            return await state_of(slot, State.RECREATED, topic)

    assert "was recreated" in asyncio.run(copy()).why
