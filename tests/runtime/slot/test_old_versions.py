"""R4 where topics have no ids (Kafka before 2.8): what tells of a recreated topic, and the first ids."""

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from runtime.contract.records.job_status import PartitionState as State
from runtime.contract.spec.naming import is_from_kafka
from runtime.lab.lab import Lab
from tests.conftest import MakeLab
from tests.labs import spec
from tests.records import coordinators_ready, recreate_topic
from tests.runtime.conftest import sides_of
from tests.runtime.slot.test_states import numbered, stopped, values
from tests.runtime.slot.world import Side, copying, until

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
    orders = copying(sides, fresh)
    if epoch_rises:
        restart(lab)
    orders.source.write(orders.topic, numbered(0, 100))
    orders.copy_through()
    recreate_topic(orders.source.client, orders.topic)
    orders.source.write(orders.topic, numbered(200, 200 + written))
    assert stopped(orders, State.RECREATED).why
    assert values(orders.destination, orders.topic) == list(range(100))

    async def accept_loss() -> None:
        """Its old position may be behind the end of the new log: only the records tell that they came."""
        accepting = [replace(one, accept_loss=True) for one in orders.partitions]
        assignment = await orders.driver.take_over(orders.flow, accepting)
        async with orders.driver.running(assignment) as slot:
            await until(slot, lambda status: status.records == 100 + written)

    asyncio.run(accept_loss())
    expected = [*range(100), *range(200, 200 + written)]
    assert values(orders.destination, orders.topic) == expected


def test_an_upgrade_gives_topics_their_first_ids(lab: Lab, sides: dict[str, Side], fresh: Fresh) -> None:
    orders = copying(sides, fresh)
    for first, version in ((0, None), (100, "3.4.1")):
        if version is not None:
            restart(lab, version)
        orders.source.write(orders.topic, numbered(first, first + 100))
        orders.copy_through()
        (progress,) = asyncio.run(orders.driver.progress(orders.flow.name)).values()
        assert is_from_kafka(progress.source_topic_id) == (version is not None)
    assert values(orders.destination, orders.topic) == list(range(200))
    recreate_topic(orders.source.client, orders.topic)
    orders.source.write(orders.topic, numbered(300, 700))
    assert "was recreated" in stopped(orders, State.RECREATED).why
