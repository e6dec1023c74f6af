"""Flows of one source share its connection; the sources are those that the slot was started with."""

import asyncio

import pytest

from runtime.contract.client.settings import WireSettings
from runtime.contract.spec.cluster import ClusterSpec
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import Disconnected
from runtime.slot.flow_run import SourceClusters

DC1 = ClusterSpec(bootstrap="dc1:1", client={"sasl.username": "u", "sasl.password": {"env": "DC1"}})
DC3 = ClusterSpec(bootstrap="dc3:1")


class Opened(KafkaCluster):
    """Nobody connects to anything."""

    def __init__(self, spec: ClusterSpec) -> None:
        super().__init__(WireSettings(((spec.bootstrap, 9),)))
        self.closed = False

    async def close(self) -> None:
        self.closed = True


class Door:
    """Opens when it is told to, and remembers what for."""

    def __init__(self) -> None:
        self.made: list[Opened] = []
        self.asked: list[ClusterSpec] = []
        self.refuses = False

    async def __call__(self, name: str, spec: ClusterSpec) -> KafkaCluster:
        self.asked.append(spec)
        await asyncio.sleep(0)
        if self.refuses:
            raise Disconnected(name, "refused", sent=False)
        self.made.append(Opened(spec))
        return self.made[-1]

    @property
    def closed(self) -> list[bool]:
        return [one.closed for one in self.made]


def given() -> tuple[Door, SourceClusters]:
    door = Door()
    return door, SourceClusters(door, {"dc1": DC1, "dc3": DC3})


async def test_flows_that_come_at_once_share_what_the_first_one_opens() -> None:
    door, sources = given()
    one, other = await asyncio.gather(sources.take("dc1"), sources.take("dc1"))
    assert one is other
    assert door.asked == [DC1]


async def test_the_last_flow_closes_a_source_and_the_next_one_opens_it_again() -> None:
    door, sources = given()
    one, other = [await sources.take("dc1") for _ in range(2)]
    await sources.leave(one)
    assert door.closed == [False]
    await sources.leave(other)
    assert door.closed == [True]
    assert (await sources.take("dc1")).cluster is door.made[1]
    assert door.closed == [True, False]


async def test_what_could_not_be_opened_is_tried_again() -> None:
    door, sources = given()
    door.refuses = True
    with pytest.raises(Disconnected):
        await sources.take("dc1")
    door.refuses = False
    source = await sources.take("dc1")
    await sources.leave(source)
    assert (len(door.asked), door.closed) == (2, [True])


async def test_at_the_end_all_are_closed() -> None:
    door, sources = given()
    for name in ("dc1", "dc3"):
        await sources.take(name)
    await sources.close()
    assert door.closed == [True, True]
