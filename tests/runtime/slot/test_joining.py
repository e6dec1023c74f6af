"""Who may join a transaction, and who waits for a leader that is not connected yet."""

import asyncio
from collections.abc import Iterable

import pytest

from runtime.kafka.errors import Disconnected
from runtime.kafka.protocol.metadata import Partition
from runtime.slot.budget import ByteBudget, ResponseMemory
from runtime.slot.partition import PartitionCopy, QueuedBatch
from runtime.slot.write.joining import JoiningPartitions
from tests.runtime.slot.test_transaction import outgoing, partition

NEAR, FAR = 1, 2
EPOCH = 5


class Around:
    """A cluster, a sender and a flow in one: `far` says how connecting to FAR ends."""

    def __init__(self) -> None:
        self.leads = FAR
        self.far: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.connected = {NEAR}
        self.since_s = self.heard_s = 0.0
        self.asked = 0
        self.led: list[PartitionCopy] = []
        self.unfits: list[PartitionCopy] = []
        self.woken = asyncio.Event()

    def leader(self, topic: str, number: int) -> Partition:
        return Partition(number, self.leads, EPOCH, (self.leads,), (self.leads,))

    def is_connected(self, node: int) -> bool:
        return node in self.connected

    async def connect_to(self, node: int) -> None:
        await self.far
        self.connected.add(node)

    def connected_at(self, node: int) -> float:
        return self.since_s

    def heard_at(self, topic: str) -> float:
        return self.heard_s

    async def topics(self, names: Iterable[str], fresh: bool) -> None:
        assert (set(names), fresh) == ({"orders"}, True)
        self.asked += 1
        self.heard_s = self.since_s

    def on_leader_change(self, copy: PartitionCopy) -> None:
        self.led.append(copy)

    def on_not_ready(self, copy: PartitionCopy, why: str) -> None:
        copy.rewind()
        self.unfits.append(copy)
        self.woken.set()


def made() -> tuple[Around, JoiningPartitions]:
    around = Around()
    return around, JoiningPartitions(around, around, around, around.woken.set)  # type: ignore[arg-type]


def with_a_batch(numbers: Iterable[int]) -> list[PartitionCopy]:
    copies = [partition(number) for number in numbers]
    for copy in copies:
        copy.inspected_epoch = EPOCH
        copy.add(QueuedBatch(outgoing(0, (10, 1)), 0, ResponseMemory(ByteBudget(1 << 20), 0)))
    return copies


def test_it_joins_once_its_leader_is_connected() -> None:
    async def work() -> None:
        around, joining = made()
        (copy,) = with_a_batch([0])
        joining.offer(copy)
        joining.offer(copy)
        assert not joining
        assert joining.take(alone=False) == []
        around.far.set_result(None)
        await asyncio.wait_for(around.woken.wait(), 60)
        (part,) = joining.take(alone=False)
        assert (part.copy, part.leader) == (copy, FAR)

    asyncio.run(work())


def test_what_a_new_leader_leads_is_looked_at_before_it_joins() -> None:
    async def work() -> None:
        around, joining = made()
        around.leads = NEAR
        (copy,) = with_a_batch([0])
        copy.inspected_epoch = EPOCH - 1
        joining.offer(copy)
        assert (joining.take(alone=False), around.led) == ([], [copy])
        copy.inspected_epoch = EPOCH
        joining.offer(copy)
        assert len(joining.take(alone=False)) == 1

    asyncio.run(work())


def test_a_leader_that_was_away_is_asked_for_its_epoch_again() -> None:
    async def work() -> None:
        around, joining = made()
        around.leads = NEAR
        around.since_s = 1.0  # connected to after the topic was heard of
        (copy,) = with_a_batch([0])
        joining.offer(copy)
        await asyncio.wait_for(around.woken.wait(), 60)
        assert around.asked == 1
        assert len(joining.take(alone=False)) == 1

    asyncio.run(work())


def test_who_cannot_reach_its_leader_backs_off() -> None:
    async def work() -> None:
        around, joining = made()
        gone, copy = with_a_batch([0, 1])
        for each in (gone, copy):
            joining.offer(each)
        joining.leave(gone)
        around.far.set_exception(Disconnected("broker 2", "refused", sent=False))
        await asyncio.wait_for(around.woken.wait(), 60)
        assert around.unfits == [copy]
        assert not joining

    asyncio.run(work())


@pytest.mark.parametrize("closing", [False, True])
def test_who_is_in_a_transaction_meanwhile_is_left_there(closing: bool) -> None:
    """The leader moved, and the partition joined; or its tail is being committed."""

    async def work() -> None:
        around, joining = made()
        first, copy = with_a_batch([0, 1])
        for each in (first, copy):
            joining.offer(each)
        if closing:
            copy.closing = True
        else:
            around.leads = NEAR
            joining.offer(copy)
            (copy.part,) = joining.take(alone=False)
        around.far.set_exception(Disconnected("broker 2", "refused", sent=False))
        await asyncio.wait_for(around.woken.wait(), 60)
        assert around.unfits == [first]
        assert copy.queue

    asyncio.run(work())
