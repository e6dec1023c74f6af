"""A lane whose destination answers in this process: a test decides when, and with what."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import TypeVar, cast

from runtime.contract.records.ledger import PartitionKey, Progress
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import ErrorCode, WireError
from runtime.kafka.protocol.fetch import LeaderHint
from runtime.kafka.protocol.metadata import Partition
from runtime.kafka.protocol.produce import ProducedPartition, ProduceRequest, ProduceResponse
from runtime.kafka.protocol.transactions import (
    NO_IDENTITY,
    AddPartitionsRequest,
    CoordinatorKind,
    EndTransactionRequest,
    InitProducerIdRequest,
    ProducerIdentity,
)
from runtime.slot.context import LaneSettings
from runtime.slot.partition import PartitionCopy
from runtime.slot.write.events import LaneEvent
from runtime.slot.write.flow_ledger import FlowLedger
from runtime.slot.write.lane import Lane
from runtime.slot.write.lanes import LaneSet
from runtime.slot.write.sender import ProduceSender
from runtime.slot.write.transaction import Transaction

Kind = TypeVar("Kind", bound=LaneEvent)
SETTINGS = LaneSettings(
    longest_s=1.0,
    idle_commit_s=0.0,
    ahead_s=0.0,
    transaction_bytes=1 << 20,
    transaction_timeout_ms=10_000,
    request_bytes=1 << 20,
)


class Link:
    """A connection whose broker acknowledges every copied batch behind the one before it.

    While `held` is a list, it takes the requests in, and the acknowledgements wait for `release`. `requests`
    are the topics of each request; `refused` are the errors of topics, `errors` those of the next requests.
    """

    closed = False
    throttled_until = 0.0

    def __init__(self) -> None:
        self.end_offset = 100
        self.batches = 0
        self.requests: list[list[str]] = []
        self.refused: dict[str, ErrorCode] = {}
        self.errors: list[ErrorCode] = []
        self.held: list[asyncio.Future[ProduceResponse]] | None = None
        self._responses: list[ProduceResponse] = []

    def release(self) -> None:
        """Acknowledges what is held, and holds nothing any more."""
        held, self.held = self.held or [], None
        for answer, response in zip(held, self._responses, strict=True):
            answer.set_result(response)
        self._responses.clear()

    def start(self, request: ProduceRequest, within: float) -> asyncio.Future[ProduceResponse]:
        answer: asyncio.Future[ProduceResponse] = asyncio.get_running_loop().create_future()
        found = []
        self.requests.append([one.topic for one in request.partitions])
        failure = self.errors.pop() if self.errors else ErrorCode.NONE
        for one in request.partitions:
            error = failure or self.refused.get(one.topic, ErrorCode.NONE)
            moved = LeaderHint(2, 6) if error is ErrorCode.NOT_LEADER_OR_FOLLOWER else None
            base = -1 if error else self.end_offset
            found.append(ProducedPartition(one.topic, one.partition, error, base, -1, 0, leader=moved))
            if not error and one.topic != LedgerInMemory.partition.topic:
                self.end_offset += 1
                self.batches += 1
        response = ProduceResponse(0, tuple(found))
        if self.held is None:
            answer.set_result(response)
        else:
            self.held.append(answer)
            self._responses.append(response)
        return answer

    def drop(self) -> None:
        self.closed = True


class Destination:
    """A cluster of two brokers. `leader_of` is by partition number, and all have `leader_epoch`.

    `added` is set by every request to add partitions, which waits for `answer` while `hold` is True. `joins`
    are the partitions of these requests. A transaction that ends leaves a marker behind the last batch.
    `add_errors` are answers to the next additions of partitions, `add_error` to all others.
    `connecting` says how a connection to the brokers in it ends. `end_errors` are answers to the end of a
    transaction, and failures, before the first one that succeeds. `open` are the ids in a transaction.
    `decisions` are the ends that were asked for, True for a commit. `markers` are the epochs of the newest
    marker of each partition: before Kafka 3.6, its leader takes a request of that epoch.
    """

    def __init__(self) -> None:
        self.turns: defaultdict[tuple[int, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self.leader_of: dict[int, int] = {}
        self.leader_epoch = 5
        self.last_refresh = 0.0
        self.refreshes = 0
        self.connecting: dict[int, asyncio.Future[None]] = {}
        self.links: defaultdict[int, Link] = defaultdict(Link)
        self.added = asyncio.Event()
        self.joins: list[list[str]] = []
        self.hold = False
        self.answer = asyncio.Event()
        self.add_error = ErrorCode.NONE
        self.add_errors: list[ErrorCode | WireError] = []
        self.init_errors: list[ErrorCode] = []
        self.epochs: defaultdict[str, int] = defaultdict(lambda: -1)
        self.ends = 0
        self.open: set[str] = set()
        self.end_errors: list[ErrorCode | WireError] = []
        self.decisions: list[bool] = []
        self.markers: dict[tuple[str, int], int] = {}
        self._members: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)

    def leader(self, topic: str, number: int) -> Partition:
        node = self.leader_of.get(number, 1)
        return Partition(number, node, self.leader_epoch, (node,), (node,))

    def topic(self, name: str) -> SimpleNamespace | None:
        return None

    def refreshed_at(self, topic: str) -> float:
        return self.last_refresh

    def doubt(self, topic: str) -> None: ...

    async def topics(self, names: Iterable[str], fresh: bool = False) -> dict[str, SimpleNamespace]:
        if fresh:
            self.refreshes += 1
            self.last_refresh = asyncio.get_running_loop().time()
        return {
            name: SimpleNamespace(error=ErrorCode.NONE, partitions={0: self.leader(name, 0)})
            for name in names
        }

    async def coordinator(self, kind: CoordinatorKind, key: str) -> int:
        return 1

    def forget_coordinator(self, kind: CoordinatorKind, key: str) -> None: ...

    async def connection(self, node: int, purpose: str, within: float) -> Link:
        if node in self.connecting:
            await self.connecting[node]
        return self.links[node]

    def kept(self, node: int, purpose: str) -> Link | None:
        return self.links.get(node)

    async def call(self, node: int, request: object, purpose: str, within: float | None) -> object:
        match request:
            case InitProducerIdRequest():
                return self._initialised(request)
            case AddPartitionsRequest():
                self.open.add(request.transactional_id)
                self.added.set()
                self.joins.append([topic for topic, _ in request.partitions])
                if self.hold:
                    await self.answer.wait()
                    self.answer.clear()
                match self.add_errors.pop(0) if self.add_errors else self.add_error:
                    case WireError() as failure:
                        raise failure
                    case error if error:
                        return {("orders", 0): error}
                self._members[request.transactional_id].update(request.partitions)
                return {}
            case EndTransactionRequest(commit=False):
                self.decisions.append(False)
                self._end(request)
                return ErrorCode.NONE
            case EndTransactionRequest():
                self.decisions.append(True)
                self.ends += 1
                match self.end_errors and self.end_errors.pop(0):
                    case WireError() as failure:
                        raise failure
                    case ErrorCode() as code:
                        return code
                self._end(request)
                for link in self.links.values():
                    link.end_offset += 1
                return ErrorCode.NONE
        raise AssertionError(request)

    def _initialised(self, request: InitProducerIdRequest) -> ProducerIdentity | ErrorCode:
        error = self.init_errors.pop(0) if self.init_errors else ErrorCode.NONE
        name, epochs = request.transactional_id or "", self.epochs
        if request.identity != NO_IDENTITY:
            fenced = request.identity.epoch < epochs[name] or name in self.open
            error = ErrorCode.PRODUCER_FENCED if fenced else error
        if error:
            return error
        epochs[name] += 1
        return ProducerIdentity(7, epochs[name])

    def _end(self, request: EndTransactionRequest) -> None:
        """Writes a marker into each partition of the transaction."""
        name, epoch = request.transactional_id, request.identity.epoch
        self.open.discard(name)
        self.markers |= dict.fromkeys(self._members.pop(name, set()), epoch)


class LedgerInMemory:
    """A flow's ledger that holds the progress of `copies`, and what a lane writes while `takes_writes`.

    It can't be read while `unreadable` is set.
    """

    flow = "flow"
    generation = 1
    partition = TopicPartition("ledger", 0)
    topics = frozenset({"ledger", "map"})

    def __init__(self, *copies: PartitionCopy) -> None:
        self.stored: dict[PartitionKey, Progress] = {copy.key: copy.progress for copy in copies}
        self.takes_writes = True
        self.unreadable: WireError | None = None
        self.written = asyncio.Event()

    async def differences(self, expected: Mapping[PartitionCopy, Progress]) -> list[PartitionCopy]:
        await self.refresh()
        return [copy for copy, progress in expected.items() if self.stored.get(copy.key) != progress]

    async def refresh(self) -> None:
        if self.unreadable is not None:
            raise self.unreadable

    async def register(self, identity: ProducerIdentity) -> None: ...

    async def wait_for_progress(self, key: PartitionKey) -> Progress | None:
        return self.stored.get(key)

    async def write(self, tx: Transaction, sender: ProduceSender, transactional_id: str) -> None:
        tx.mark_joined()
        self.written.set()
        if self.takes_writes:
            self.stored.update((entry.copy.key, entry.progress) for entry in tx.entries)


class Emitted:
    """Collects the events of lanes; `arrived` is set by each of them."""

    def __init__(self) -> None:
        self.events: list[LaneEvent] = []
        self.arrived = asyncio.Event()

    def emit(self, event: LaneEvent) -> None:
        self.events.append(event)
        self.arrived.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self.arrived.clear()
            await self.arrived.wait()

    async def emits(self, kind: type[Kind]) -> None:
        await self.until(lambda: bool(self.of(kind)))

    def of(self, kind: type[Kind]) -> list[Kind]:
        return [event for event in self.events if isinstance(event, kind)]


def lane_of(
    destination: Destination,
    emitted: Emitted,
    ledger: LedgerInMemory | None = None,
    transactional_id: str = "lane",
    settings: LaneSettings = SETTINGS,
    solo: bool = False,
) -> Lane:
    return Lane(
        cast(KafkaCluster, destination),
        transactional_id,
        cast(FlowLedger, ledger or LedgerInMemory()),
        settings,
        emitted.emit,
        solo,
    )


def lanes_of(
    destination: Destination,
    emitted: Emitted,
    ledger: LedgerInMemory | None = None,
    settings: LaneSettings = SETTINGS,
    names: Iterable[str] = ("one", "other", "solo"),
) -> LaneSet:
    """Two home lanes, the one that retries suspect partitions, and spare ones."""
    lanes = [lane_of(destination, emitted, ledger, name, settings, solo=name == "solo") for name in names]
    return LaneSet(lanes, 2)
