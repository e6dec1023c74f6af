"""What an open transaction may still commit stays in its lane, also while its coordinator lets it wait."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from types import SimpleNamespace

import pytest

from runtime.contract.records.ledger import PartitionKey, Progress
from runtime.kafka.codes import ErrorCode
from runtime.kafka.protocol.fetch import LeaderHint
from runtime.kafka.protocol.metadata import Partition
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.protocol.produce import ProducedPartition, ProduceRequest, ProduceResponse
from runtime.kafka.protocol.transactions import (
    AddPartitionsRequest,
    AddPartitionsResponse,
    CoordinatorKind,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProducerIdentity,
)
from runtime.slot.budget import ByteBudget, ResponseMemory
from runtime.slot.errors import ErrorDecision
from runtime.slot.partition import Cursor, PartitionCopy, QueuedBatch
from runtime.slot.settings import LaneSettings
from runtime.slot.write.closing import CommitEntry, LedgerPartitions
from runtime.slot.write.lane import Lane
from runtime.slot.write.lanes import LaneSet
from runtime.slot.write.transaction import Transaction, TransactionFailure
from tests.runtime.slot.test_transaction import outgoing, partition

PLACE = LedgerPartitions(TopicPartition("ledger", 0), TopicPartition("map", 0), 1)
SETTINGS = LaneSettings(
    longest_s=1.0,
    idle_commit_s=0.0,
    transaction_bytes=1 << 20,
    transaction_timeout_ms=10_000,
    request_bytes=1 << 20,
)


class Destination:
    """Its coordinator begins ids at once, and refuses to add partitions, each time only when it is let."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.let = asyncio.Event()
        self.heard_s = 0.0
        self.links: dict[int, SimpleNamespace] = {}

    def leader(self, topic: str, number: int) -> Partition:
        return Partition(number, 1, 0, (1,), (1,))

    def heard_at(self, topic: str) -> float:
        return self.heard_s

    async def coordinator(self, kind: CoordinatorKind, key: str) -> int:
        return 1

    def forget_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        raise AssertionError("it does not move")

    async def connection(self, node: int, purpose: str, within: float) -> SimpleNamespace:
        self.links[node] = SimpleNamespace(closed=False)
        return self.links[node]

    def kept(self, node: int, purpose: str) -> SimpleNamespace | None:
        return self.links.get(node)

    async def topics(self, names: Iterable[str], fresh: bool = False) -> None:
        self.heard_s = asyncio.get_running_loop().time()

    async def call(self, node: int, request: object, purpose: str, within: float | None) -> object:
        match request:
            case InitProducerIdRequest():
                return InitProducerIdResponse(0, ErrorCode.NONE, ProducerIdentity(7, 0))
            case AddPartitionsRequest():
                self.asked.set()
                await self.let.wait()
                self.let.clear()
                return AddPartitionsResponse(0, {("orders", 0): ErrorCode.INVALID_TXN_STATE})
        raise AssertionError(request)


class Flow:
    """Whom the lane works for."""

    def committed(self, lane: Lane, tx: Transaction, entries: list[CommitEntry]) -> None: ...

    def failed(
        self, lane: Lane, failure: TransactionFailure, decision: ErrorDecision, parts: list[PartitionCopy]
    ) -> None: ...

    def rewound(self, copies: Iterable[PartitionCopy]) -> None: ...

    def on_not_ready(self, copy: PartitionCopy, why: str) -> None: ...

    def on_leader_change(self, copy: PartitionCopy) -> None: ...

    def stuck(self, lane: Lane) -> None: ...

    def freed(self, lane: Lane) -> None: ...

    def sent(self, copy: PartitionCopy) -> None: ...

    async def register(self, identity: ProducerIdentity) -> None: ...

    async def confirm(self, lane: Lane) -> None: ...

    async def decided(self, key: PartitionKey) -> Progress | None:
        raise AssertionError("nothing is ambiguous")


def queued(copy: PartitionCopy) -> None:
    """A batch to send."""
    copy.inspected_epoch = 0
    copy.add(QueuedBatch(outgoing(0, (10, 1)), 0, ResponseMemory(ByteBudget(1 << 20), 0)))


def tail(copy: PartitionCopy) -> None:
    """Nothing to send, but a position to tell of."""
    copy.cursor = Cursor(25, 1)


Has = Callable[[PartitionCopy], None]
Then = Callable[[Destination, LaneSet, Lane, PartitionCopy], Awaitable[None]]


async def waiting_for_its_coordinator(has: Has, then: Then) -> None:
    there, copy = Destination(), partition()
    one, other, solo = (
        Lane(there, name, PLACE, SETTINGS, Flow(), lambda _: None)  # type: ignore[arg-type]
        for name in ("one", "other", "solo")
    )
    lanes = LaneSet([one, other, solo], 2, lambda _: None)
    has(copy)
    one.take(copy)
    life = asyncio.create_task(one.run())
    try:
        await asyncio.wait_for(there.asked.wait(), 60)
        await then(there, lanes, one, copy)
    finally:
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)


@pytest.mark.parametrize("has", [queued, tail])
def test_a_partition_is_let_go_only_after_the_transaction_that_it_is_about_to_join(has: Has) -> None:
    async def then(there: Destination, lanes: LaneSet, lane: Lane, copy: PartitionCopy) -> None:
        copy.releasing = True
        free = asyncio.create_task(lane.free(copy))
        done, _ = await asyncio.wait([free], timeout=0.05)
        assert not done
        assert copy.lane is lane
        there.let.set()
        await asyncio.wait_for(free, 60)
        assert copy.lane is None

    asyncio.run(waiting_for_its_coordinator(has, then))


@pytest.mark.parametrize("has", [queued, tail])
def test_no_other_lane_takes_it_meanwhile(has: Has) -> None:
    async def then(there: Destination, lanes: LaneSet, lane: Lane, copy: PartitionCopy) -> None:
        assert copy.busy
        lanes.move_from_stuck_lane(lane)
        assert copy.lane is lane
        with pytest.raises(AssertionError, match="between transactions"):
            lanes.place(copy)

    asyncio.run(waiting_for_its_coordinator(has, then))


class Link:
    """Answers each produce request with a new leader, as soon as it is sent."""

    closed = False
    throttled_until = 0.0

    def start(self, request: ProduceRequest, within: float) -> asyncio.Future[ProduceResponse]:
        moved = ProducedPartition(
            "orders", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1, -1, leader=LeaderHint(2, 6)
        )
        answer: asyncio.Future[ProduceResponse] = asyncio.get_running_loop().create_future()
        answer.set_result(ProduceResponse(0, (moved,)))
        return answer


class Unprepared(Destination):
    """Accepts partitions and batches; what it does with an answer fails as nothing foresaw."""

    async def connection(self, node: int, purpose: str, within: float) -> Link:  # type: ignore[override]
        self.links[node] = link = Link()  # type: ignore[assignment]
        return link

    def topic(self, name: str) -> SimpleNamespace:
        raise ZeroDivisionError("a programming error")

    async def call(self, node: int, request: object, purpose: str, within: float | None) -> object:
        if isinstance(request, AddPartitionsRequest):
            return AddPartitionsResponse(0, {})
        return await super().call(node, request, purpose, within)  # an end of the transaction fails the test


def test_an_unexpected_exception_at_an_answer_ends_the_lane_before_anything_is_committed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work() -> None:
        copy = partition()
        lane = Lane(Unprepared(), "one", PLACE, SETTINGS, Flow(), lambda _: None)  # type: ignore[arg-type]
        queued(copy)
        lane.take(copy)
        await asyncio.wait_for(lane.run(), 60)

    with pytest.raises(ZeroDivisionError):
        asyncio.run(work())
    assert "a programming error" in caplog.text
