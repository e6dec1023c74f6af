"""The sender of a lane sends produce requests within a window and takes in their acknowledgements.

A request holds one batch per partition. Several requests are in flight per broker, and their order is kept.
The last request to each broker is held until the lane knows whether the transaction ends with it: then the
ledger records travel in the same request, so that a record waits for one answer less.

The in-flight window bounds how many bytes of a lane may be unacknowledged at a broker. Behind a slow link, or
once a quota delays responses, the bytes in flight must still be acknowledged within their transaction. So the
window starts small. It grows with every response that is in time, and doubles while responses come quickly.
When responses come late, it shrinks to what the broker acknowledged within two seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable

from msgspec import Struct, field

from runtime.batch import Batch, next_sequence, stamp
from runtime.contract.records.ledger import BatchIdentity
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.connection import Connection
from runtime.kafka.errors import BrokerError, ErrorCode, Unsupported, WireError
from runtime.kafka.protocol.produce import (
    ProducedPartition,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
)
from runtime.kafka.protocol.transactions import NO_IDENTITY, ProducerIdentity
from runtime.kafka.transactions import abort_and_renew, init_in_turn, init_producer_id
from runtime.ledger.transaction_writer import leader_of
from runtime.slot.errors import ErrorPhase
from runtime.slot.partition import PartitionCopy, QueuedBatch
from runtime.slot.write.timer import WakeTimer
from runtime.slot.write.transaction import (
    SentBatch,
    Transaction,
    TransactionFailure,
    TransactionPartition,
)

REQUESTS = 4
_INITIAL = 256 << 10
_MIN = 64 << 10
_QUICK_S = 0.5
_SLOW_S = 2.0


class InFlightWindow:
    """A window owns the limit and the count of bytes and requests in flight at one broker."""

    def __init__(self, most: int) -> None:
        self.limit = min(_INITIAL, most)
        self._most = most
        self._requests = 0
        self._bytes = 0
        self._slowed_at = 0.0

    @property
    def room(self) -> int:
        """The room is the number of bytes that may be sent now.

        A request holds at least one batch, however large that is.
        """
        return self.limit - self._bytes if self._requests < REQUESTS else 0

    def sent(self, size: int) -> None:
        """Counts a request of `size` bytes as in flight."""
        self._requests += 1
        self._bytes += size

    def answered(self, size: int, sent_at: float, now: float, throttle_s: float = 0.0) -> None:
        """Counts a response and adapts the limit to the time it took.

        `throttle_s` is how long the broker reads no further request, because of a quota.
        """
        took = now - sent_at + throttle_s
        if took > _SLOW_S:
            self._shrink(sent_at, now, took)
        elif 2 * self._bytes >= self.limit:  # A window that is not used gives no measurement.
            self.limit = min(self.limit + (size if took < _QUICK_S else size // 4), self._most)
        self._remove(size)

    def given_up(self, size: int, sent_at: float, now: float) -> None:
        """Counts a request as no longer in flight, although it has no response."""
        if now - sent_at > _SLOW_S:
            self._shrink(sent_at, now, now - sent_at)
        self._remove(size)

    def _shrink(self, sent_at: float, now: float, took: float) -> None:
        if sent_at >= self._slowed_at:  # Requests that were in flight together shrink the window once.
            self.limit = max(min(self.limit, int(self._bytes * _SLOW_S / took)), _MIN)
            self._slowed_at = now

    def _remove(self, size: int) -> None:
        self._requests -= 1
        self._bytes -= size


PRODUCE_TIMEOUT_MS = 10_000
# Shorter than the transaction timeout: a late response makes the lane abort, before the broker fences it.
ANSWER_WITHIN_S = 15.0


class InFlightRequest(Struct, eq=False):
    """A produce request that has no response yet.

    `at` is when it was made, `size` counts the bytes of `batches`. `ledger` are the partitions of the
    product's own records in it: the ledger's, or the offset map's. `partitions` is all that it sends.
    """

    node: int
    size: int
    at: float
    batches: list[SentBatch] = field(default_factory=list)
    ledger: list[TopicPartition] = field(default_factory=list)
    partitions: list[ProducePartition] = field(default_factory=list)


class ProduceSender:
    """A sender owns the produce connections, in-flight windows and sequences of one transactional id.

    `wake` is called when a response has arrived, or when a broker's quota allows requests again.
    `ready` holds the partitions of the open transaction that have a batch queued, by their leader's node id.
    A request that is made but not sent is the last one to its broker; `flush` sends it. `late` are the
    partitions of requests that got no response: a broker may still read them, under an older epoch.
    """

    def __init__(
        self,
        cluster: KafkaCluster,
        transactional_id: str,
        request_bytes: int,
        wake: Callable[[], None],
    ) -> None:
        self.identity = NO_IDENTITY
        self.ready: dict[int, dict[PartitionCopy, None]] = {}
        self.late: set[TopicPartition] = set()
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._purpose = f"produce {transactional_id}"
        self._request_bytes = request_bytes
        self._wake = wake
        self._links: dict[int, Connection] = {}
        self._connection_times: dict[int, float] = {}
        self._windows: dict[int, InFlightWindow] = {}
        self._sequences: dict[TopicPartition, int] = {}
        self._unanswered: dict[InFlightRequest, None] = {}
        self._unsent: dict[int, InFlightRequest] = {}
        self._unthrottled: dict[int, WakeTimer] = {}

    async def next_identity(
        self, transaction_timeout_ms: int, within: float, *, in_turn: bool
    ) -> ProducerIdentity:
        """Returns the first identity, which fences all other holders of the id, or this holder's next one.

        What is open under this holder's identity is aborted.
        A holder that another process has fenced gets no next one, so it never becomes valid again (R3).
        Brokers before Kafka 2.5 can't tell the two apart. Raises WireError.
        """
        cluster, name, timeout_ms = self._cluster, self._transactional_id, transaction_timeout_ms
        if self.identity != NO_IDENTITY:
            with contextlib.suppress(Unsupported):
                if in_turn:
                    return await init_in_turn(cluster, name, timeout_ms, within, self.identity)
                return await abort_and_renew(cluster, name, timeout_ms, self.identity, within)
        init = init_in_turn if in_turn else init_producer_id
        return await init(cluster, name, timeout_ms, within)

    def begin_epoch(self, identity: ProducerIdentity) -> None:
        """Takes a new producer id and epoch; sequences restart at 0, on a new epoch only (fencing 1)."""
        self.identity = identity
        self._sequences.clear()

    def sequence(self, at: TopicPartition, records: int) -> int:
        """Returns the sequence for a batch of `records` records, and advances it by that count."""
        sequence = self._sequences.get(at, 0)
        self._sequences[at] = next_sequence(sequence, records)
        return sequence

    def offer(self, part: TransactionPartition) -> None:
        """Marks a partition as having a batch to send."""
        self.ready.setdefault(part.leader, {})[part.copy] = None

    def has_ready(self) -> bool:
        """Returns whether any partition has a batch to send."""
        return any(self.ready.values())

    def begin(self) -> None:
        """Prepares for a transaction by dropping the connections that should not be used any more.

        Before a transaction nothing is in flight, so a new connection can't change the order of batches.
        """
        self.ready.clear()
        for node, link in list(self._links.items()):
            if self._cluster.kept(node, self._purpose) is not link:
                del self._links[node]

    def is_connected(self, node: int) -> bool:
        """Returns whether an open connection to the broker exists."""
        link = self._links.get(node)
        return link is not None and not link.closed

    def connected_at(self, node: int) -> float:
        """Returns when the broker was connected to, by the event loop's clock.

        A broker that was unavailable before may lead its partitions under a new epoch since then.
        """
        return self._connection_times[node]

    async def connect_to(self, node: int) -> None:
        """Connects to a broker. Raises WireError."""
        self._links[node] = await self._cluster.connection(node, self._purpose, 10.0)
        self._connection_times[node] = asyncio.get_running_loop().time()

    async def connect_ready(self) -> None:
        """Connects to every leader that has a batch ready. Raises TransactionFailure."""
        for node, copies in self.ready.items():
            if copies and not self.is_connected(node):
                try:
                    await self.connect_to(node)
                except WireError as error:
                    raise TransactionFailure(ErrorPhase.PRODUCE, error, tuple(copies)) from error

    def make_requests(self, tx: Transaction) -> list[PartitionCopy]:
        """Puts batches into requests, as the in-flight windows and quotas allow; returns their partitions.

        The last request to each broker waits for `flush`; those before it are sent at once. Partitions take
        turns, a batch each.
        """
        taken: list[PartitionCopy] = []
        for node, copies in self.ready.items():
            if not self.is_connected(node) or self._throttled(node):
                continue
            while copies and (room := self._window(node).room) > 0:
                taken.extend(self._take_batches(tx, node, copies, min(self._request_bytes, room)))
        return taken

    async def add_ledger_records(self, tx: Transaction, at: TopicPartition, batch: Batch) -> None:
        """Adds a batch of the product's own records to the last request to its leader, or to a new one.

        A broker takes one batch of a partition in a request. Raises WireError if the leader can't be reached.
        """
        node = await leader_of(self._cluster, at)
        if not self.is_connected(node):
            await self.connect_to(node)
        request = self._unsent.get(node)
        if request is None or at in request.ledger:
            request = self._begin_request(tx, node, 0)
        self._stamp(request, at, batch)
        request.ledger.append(at)

    def flush(self, tx: Transaction) -> None:
        """Sends the requests that are made but not sent."""
        for node in list(self._unsent):
            self._send(tx, self._unsent.pop(node))

    def _throttled(self, node: int) -> bool:
        """Returns whether the broker's quota holds requests back; the lane wakes when that time is over."""
        until = self._links[node].throttled_until
        if until <= asyncio.get_running_loop().time():
            return False
        if node not in self._unthrottled:
            self._unthrottled[node] = WakeTimer(self._wake)
        self._unthrottled[node].set(until)
        return True

    def unacknowledged(self) -> tuple[PartitionCopy, ...]:
        """Returns the partitions that have batches in flight."""
        return _copies_of(self._unanswered)

    def close(self, tx: Transaction) -> None:
        """Gives up on the requests that have no response: it is ignored, and their memory is released."""
        self.ready.clear()
        self._unsent.clear()
        now = asyncio.get_running_loop().time()
        for request in self._unanswered:
            self._add_late(request)
            self._windows[request.node].given_up(request.size, request.at, now)
            self._links[request.node].drop()
            for sent in request.batches:
                sent.queued.held.release_memory()
        self._unanswered.clear()

    def _add_late(self, request: InFlightRequest) -> None:
        self.late.update(TopicPartition(part.topic, part.partition) for part in request.partitions)

    def _window(self, node: int) -> InFlightWindow:
        return self._windows.setdefault(node, InFlightWindow(REQUESTS * self._request_bytes))

    def _take_batches(
        self, tx: Transaction, node: int, copies: dict[PartitionCopy, None], most: int
    ) -> list[PartitionCopy]:
        """Makes one request with at most one batch of each partition; returns these partitions."""
        taken: list[tuple[PartitionCopy, QueuedBatch]] = []
        size = 0
        for copy in list(copies):
            queued = copy.take()
            taken.append((copy, queued))
            del copies[copy]
            if copy.queue:
                copies[copy] = None
            size += queued.out.batch.size
            if size >= most:
                break
        request = self._begin_request(tx, node, size)
        for copy, queued in taken:
            mark = self._stamp(request, copy.at, queued.out.batch)
            request.batches.append(tx.batch_sent(tx.parts[copy], queued, mark))
        return [copy for copy, _ in taken]

    def _begin_request(self, tx: Transaction, node: int, size: int) -> InFlightRequest:
        """Returns a new request to a broker, for batches of this size; the one before it is sent."""
        if before := self._unsent.pop(node, None):
            self._send(tx, before)
        now = asyncio.get_running_loop().time()
        tx.sent(size, now)
        self._window(node).sent(size)
        request = self._unsent[node] = InFlightRequest(node, size, now)
        self._unanswered[request] = None
        return request

    def _stamp(self, request: InFlightRequest, at: TopicPartition, batch: Batch) -> BatchIdentity:
        """Adds a batch to a request, with the producer's identity and the next sequence."""
        producer, epoch = self.identity.producer_id, self.identity.epoch
        sequence = self.sequence(at, batch.records)
        stamped = stamp(batch, producer, epoch, sequence)
        request.partitions.append(ProducePartition(at.topic, at.partition, stamped))
        return BatchIdentity(producer, epoch, sequence)

    def _send(self, tx: Transaction, request: InFlightRequest) -> None:
        wire = ProduceRequest(self._transactional_id, PRODUCE_TIMEOUT_MS, request.partitions)
        answer = self._links[request.node].start(wire, ANSWER_WITHIN_S)
        answer.add_done_callback(lambda done: self._on_response(tx, request, done))

    def _on_response(
        self, tx: Transaction, request: InFlightRequest, answer: asyncio.Future[ProduceResponse]
    ) -> None:
        """Handles a response as a callback of its future.

        No task awaits this callback, so the lane learns of an exception through `tx`.
        """
        try:
            self._handle_response(tx, request, answer)
        except BaseException as error:
            tx.fail_unexpected(error)
            self._wake()
            raise

    def _handle_response(
        self, tx: Transaction, request: InFlightRequest, answer: asyncio.Future[ProduceResponse]
    ) -> None:
        """Releases the memory of a request and records its result in the transaction."""
        error = answer.exception()
        if request not in self._unanswered:  # The transaction failed before.
            return
        del self._unanswered[request]
        window, now = self._windows[request.node], asyncio.get_running_loop().time()
        tx.answered()
        self._wake()
        for sent in request.batches:
            sent.queued.held.release_memory()
        if error is not None:
            self._add_late(request)
            window.given_up(request.size, request.at, now)
            if not isinstance(error, WireError):
                raise error
            # The connection is closed, so its other requests fail as well.
            failed = [request, *(other for other in self._unanswered if other.node == request.node)]
            tx.fail(TransactionFailure(ErrorPhase.PRODUCE, error, _copies_of(failed)))
            return
        response = answer.result()
        window.answered(request.size, request.at, now, response.throttle_ms / 1000)
        self._record_acknowledgements(tx, request, response)

    def _record_acknowledgements(
        self, tx: Transaction, request: InFlightRequest, response: ProduceResponse
    ) -> None:
        """Records for each batch its base offset, or the failure that its partition's response means."""
        answers = {(answer.topic, answer.partition): answer for answer in response.partitions}
        for sent in request.batches:
            copy = sent.part.copy
            answer = answers.get(copy.at)
            if (error := self._error(copy.at, answer)) is not None:
                tx.fail(TransactionFailure(ErrorPhase.PRODUCE, error, (copy,)))
            elif answer is not None:
                tx.acknowledged(sent, answer.base_offset)
        for at in request.ledger:
            if (error := self._error(at, answers.get(at))) is not None:
                self._cluster.doubt(at.topic)
                tx.fail(TransactionFailure(ErrorPhase.LEDGER, error))

    def _error(self, at: TopicPartition, answer: ProducedPartition | None) -> BrokerError | None:
        """Returns the error of a partition's response, and takes the new leader that it may name."""
        if answer is None:
            return BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, str(at), "no answer for it")
        if not answer.error:
            return None
        if answer.leader is not None and (topic := self._cluster.topic(at.topic)):
            self._cluster.learn(topic.id, at.partition, answer.leader)
        return BrokerError(answer.error, str(at), answer.message)


def _copies_of(requests: Iterable[InFlightRequest]) -> tuple[PartitionCopy, ...]:
    """Returns the partitions of which the requests hold batches."""
    return tuple(dict.fromkeys(sent.part.copy for request in requests for sent in request.batches))
