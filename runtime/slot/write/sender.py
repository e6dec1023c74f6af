"""The produce requests of a lane: a batch per partition in each, several in flight per broker, order kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from runtime.batch import next_sequence, stamp
from runtime.contract.records.ledger import Mark
from runtime.kafka.cluster import Cluster
from runtime.kafka.codes import ErrorCode
from runtime.kafka.connection import Connection
from runtime.kafka.errors import BrokerError, WireError
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.protocol.produce import ProducePartition, ProduceRequest, ProduceResponse
from runtime.kafka.protocol.transactions import ProducerIdentity
from runtime.slot.partition import PartitionCopy, Queued
from runtime.slot.write.errors import Phase
from runtime.slot.write.in_flight_window import REQUESTS, Flight
from runtime.slot.write.transaction import Failure, Part, Transaction

PRODUCE_TIMEOUT_MS = 10_000
ANSWER_WITHIN_S = 15.0  # less than a transaction may take: who is late aborts, and is not fenced for it


class Sent(NamedTuple):
    part: Part
    queued: Queued
    sequence: int


class Unanswered(NamedTuple):
    node: int
    size: int
    at: float
    batches: list[Sent]


class Sender:
    """`ready` are the partitions of the open transaction that have something queued, by their leader."""

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        request_bytes: int,
        wake: Callable[[], None],
        sent: Callable[[PartitionCopy], None],
    ) -> None:
        self.identity = ProducerIdentity(-1, -1)
        self.ready: dict[int, dict[PartitionCopy, None]] = {}
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._purpose = f"produce {transactional_id}"
        self._request_bytes = request_bytes
        self._wake = wake
        self._sent = sent
        self._links: dict[int, Connection] = {}
        self._since: dict[int, float] = {}
        self._flights: dict[int, Flight] = {}
        self._sequences: dict[TopicPartition, int] = {}
        self._unanswered: dict[int, Unanswered] = {}
        self._number = 0

    def begin_epoch(self, identity: ProducerIdentity) -> None:
        """Sequences start again, on a new epoch only (fencing 1)."""
        self.identity = identity
        self._sequences.clear()

    def sequence(self, at: TopicPartition, records: int) -> int:
        """The sequence for a batch of so many records; the next one follows it."""
        sequence = self._sequences.get(at, 0)
        self._sequences[at] = next_sequence(sequence, records)
        return sequence

    def offer(self, part: Part) -> None:
        self.ready.setdefault(part.leader, {})[part.copy] = None

    def has_ready(self) -> bool:
        return any(self.ready.values())

    def begin(self) -> None:
        """Before a transaction nothing is in flight, so a new connection changes no order: the old ones that
        should be used no more are left.
        """
        self.ready.clear()
        for node, link in list(self._links.items()):
            if self._cluster.kept(node, self._purpose) is not link:
                del self._links[node]

    def reaches(self, node: int) -> bool:
        link = self._links.get(node)
        return link is not None and not link.closed

    def since(self, node: int) -> float:
        """When it was connected to: a broker that was away may lead under a new epoch since."""
        return self._since[node]

    async def reach(self, node: int) -> None:
        """Connects. Raises WireError."""
        self._links[node] = await self._cluster.connection(node, self._purpose, 10.0)
        self._since[node] = asyncio.get_running_loop().time()

    async def connect(self) -> None:
        """A connection to every leader that something is ready for; raises the Failure of a transaction."""
        for node, copies in self.ready.items():
            if copies and not self.reaches(node):
                try:
                    await self.reach(node)
                except WireError as error:
                    raise Failure(Phase.PRODUCE, error) from error

    def send(self, tx: Transaction) -> None:
        """All that may go out now. Partitions take turns, a batch each."""
        for node, copies in self.ready.items():
            if not self.reaches(node) or self._throttled(link := self._links[node]):
                continue
            flight = self._flights.setdefault(node, Flight(REQUESTS * self._request_bytes))
            while copies and flight.room > 0:
                self._request(tx, node, link, flight, copies)

    def _throttled(self, link: Connection) -> bool:
        loop = asyncio.get_running_loop()
        if link.throttled_until <= loop.time():
            return False
        loop.call_at(link.throttled_until, self._wake)
        return True

    def close(self, tx: Transaction) -> None:
        """Nothing that is still in flight counts any more; its memory is given back."""
        tx.closed = True
        self.ready.clear()
        now = asyncio.get_running_loop().time()
        for one in self._unanswered.values():
            self._flights[one.node].given_up(one.size, one.at, now)
            self._links[one.node].drop()
            for sent in one.batches:
                sent.queued.held.let_go()
        self._unanswered.clear()

    def _request(
        self, tx: Transaction, node: int, link: Connection, flight: Flight, copies: dict[PartitionCopy, None]
    ) -> None:
        most = min(self._request_bytes, flight.room)
        partitions: list[ProducePartition] = []
        sent: list[Sent] = []
        size = 0
        producer, epoch = self.identity.producer_id, self.identity.epoch
        for copy in list(copies):
            part = tx.parts[copy]
            queued = copy.take()
            batch = queued.out.batch
            sequence = self.sequence(copy.at, batch.records)
            stamped = stamp(batch, producer, epoch, sequence)
            partitions.append(ProducePartition(copy.at.topic, copy.at.partition, stamped))
            sent.append(Sent(part, queued, sequence))
            part.in_flight += 1
            del copies[copy]
            if copy.queue:
                copies[copy] = None
            self._sent(copy)
            size += batch.size
            if size >= most:
                break
        tx.bytes += size
        tx.in_flight += 1
        flight.sent(size)
        number = self._number = self._number + 1
        self._unanswered[number] = Unanswered(node, size, asyncio.get_running_loop().time(), sent)
        request = ProduceRequest(self._transactional_id, PRODUCE_TIMEOUT_MS, partitions)
        answer = link.start(request, ANSWER_WITHIN_S)
        answer.add_done_callback(lambda done: self._answered(tx, number, done))

    def _answered(self, tx: Transaction, number: int, answer: asyncio.Future[ProduceResponse]) -> None:
        """Is a callback of the answer: nothing awaits it, so what it raises reaches the lane through `tx`."""
        try:
            self._acknowledge(tx, number, answer)
        except BaseException as error:
            tx.break_off(error)
            self._wake()
            raise

    def _acknowledge(self, tx: Transaction, number: int, answer: asyncio.Future[ProduceResponse]) -> None:
        error = answer.exception()
        request = self._unanswered.pop(number, None)
        if tx.closed or request is None:
            return
        flight, now = self._flights[request.node], asyncio.get_running_loop().time()
        tx.in_flight -= 1
        self._wake()
        for one in request.batches:
            one.queued.held.let_go()
        if error is not None:
            flight.given_up(request.size, request.at, now)
            if not isinstance(error, WireError):
                raise error
            tx.fail(Failure(Phase.PRODUCE, error))
            return
        response = answer.result()
        flight.answered(request.size, request.at, now, response.throttle_ms / 1000)
        self._take_in(tx, request.batches, response)

    def _mark(self, sequence: int) -> Mark:
        return Mark(self.identity.producer_id, self.identity.epoch, sequence)

    def _take_in(self, tx: Transaction, sent: list[Sent], response: ProduceResponse) -> None:
        answers = {(answer.topic, answer.partition): answer for answer in response.partitions}
        for part, queued, sequence in sent:
            at = part.copy.at
            answer = answers.get(at)
            if answer is None:
                error = BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{at}", "no answer for it")
                tx.fail(Failure(Phase.PRODUCE, error, (part.copy,)))
            elif answer.error:
                if answer.leader is not None and (topic := self._cluster.topic(at.topic)):
                    self._cluster.learn(topic.id, at.partition, answer.leader)
                where = f"{at.topic}-{at.partition}"
                error = BrokerError(answer.error, where, answer.message)
                tx.fail(Failure(Phase.PRODUCE, error, (part.copy,)))
            elif why := part.acknowledged(queued.out, queued.epoch, answer.base_offset, self._mark(sequence)):
                tx.fail(Failure(Phase.PRODUCE, None, (part.copy,), why))
            else:
                batch = queued.out.batch
                tx.runs += len(queued.out.segments)
                tx.latencies.append((batch.max_timestamp, batch.records))
