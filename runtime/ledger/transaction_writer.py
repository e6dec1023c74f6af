"""Commits batches and ledger records in transactions outside a slot, and fences older writers (R1, R3)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Protocol

from runtime.batch import Batch, StampedBatch, next_sequence, stamp
from runtime.contract.records.ledger import (
    GenerationKey,
    LedgerKey,
    LedgerValue,
    OrphanedKey,
    ProgressKey,
    ReplayedKey,
    SegmentKey,
    encode_key,
    encode_value,
    partition_of,
)
from runtime.contract.spec import naming
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.connection import Connection
from runtime.kafka.errors import (
    BrokerError,
    ConnectionFailure,
    ErrorCode,
    TimedOut,
    WireError,
)
from runtime.kafka.protocol.produce import ProducePartition, ProduceRequest, ProduceResponse
from runtime.kafka.protocol.transactions import CoordinatorKind, ProducerIdentity
from runtime.kafka.records import InternalRecord, batches_of
from runtime.kafka.timing import in_time
from runtime.kafka.transactions import (
    DEFAULT_S,
    abort_and_renew,
    abort_late,
    add_partitions,
    end_transaction,
    init_in_turn,
    init_producer_id,
)

NO_BATCHES: Mapping[TopicPartition, Sequence[Batch]] = MappingProxyType({})
# Returns the ledger records of a transaction from the base offsets of its batches, by partition.
LedgerOf = Callable[[Mapping[TopicPartition, Sequence[int]]], Mapping[LedgerKey, LedgerValue | None]]
# The bounds of what is in flight for a partition. Over a slow link all of it must be answered in time.
# Kafka's limit of five requests is for producers that send a batch again: a failed transaction is aborted.
_REQUESTS = 32
_BYTES = 4 << 20
_PURPOSE = "produce"
_PRODUCE_TIMEOUT_MS = 10_000
_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
_ANSWER_WITHIN_S = 15.0


async def send(
    cluster: KafkaCluster,
    at: TopicPartition,
    batch: StampedBatch,
    transactional_id: str | None = None,
    purpose: str = _PURPOSE,
    within: float = _ANSWER_WITHIN_S,
) -> int:
    """Sends one batch to one partition once, and returns the acknowledged base offset. Raises WireError."""
    node = await leader_of(cluster, at)
    try:
        request = _request(at, batch, transactional_id)
        return _base_offset(at, await cluster.call(node, request, purpose, within))
    except WireError:
        cluster.doubt(at.topic)
        raise


async def send_in_order(
    cluster: KafkaCluster,
    at: TopicPartition,
    batches: Iterable[StampedBatch],
    transactional_id: str | None,
    within: float,
) -> list[int]:
    """Sends each batch to one partition once, and returns the acknowledged base offsets in their order.

    A broker takes one batch of a partition in a request, so several requests are in flight, over one
    connection, which keeps their order. After a failure the broker refuses the sequences that follow it.
    Raises the WireError of the first batch that failed, once no request is in flight.
    """
    try:
        link = await cluster.connection(await leader_of(cluster, at), _PURPOSE, within)
        return await send_over(link, at, batches, transactional_id, within)
    except WireError:
        cluster.doubt(at.topic)
        raise


async def leader_of(cluster: KafkaCluster, at: TopicPartition) -> int:
    """Returns the node id of a partition's leader. Raises WireError."""
    topic = (await cluster.topics([at.topic]))[at.topic]
    partition = topic.partitions.get(at.partition)
    if topic.error is not ErrorCode.NONE or partition is None or partition.leader < 0:
        topic = (await cluster.topics([at.topic], fresh=True))[at.topic]
        partition = topic.partitions.get(at.partition)
    if partition is None or partition.leader < 0:
        raise BrokerError(topic.error or ErrorCode.LEADER_NOT_AVAILABLE, str(at))
    return partition.leader


async def send_over(
    link: Connection,
    at: TopicPartition,
    batches: Iterable[StampedBatch],
    transactional_id: str | None,
    within: float = _ANSWER_WITHIN_S,
) -> list[int]:
    """Sends the batches over a connection to the partition's leader, as `send_in_order` describes it."""
    bases: list[int] = []
    in_flight: deque[tuple[int, asyncio.Future[ProduceResponse]]] = deque()

    async def await_room(requests: int, size: int) -> None:
        """Waits until at most so many requests are in flight, and with `size` not too many bytes."""
        while len(in_flight) > requests or (
            in_flight and sum(request_bytes for request_bytes, _ in in_flight) + size > _BYTES
        ):
            bases.append(_base_offset(at, await in_flight[0][1]))
            in_flight.popleft()

    try:
        for batch in batches:
            await await_room(_REQUESTS - 1, batch.size)
            await link.ready()
            answer = link.start(_request(at, batch, transactional_id), within)
            in_flight.append((batch.size, answer))
        await await_room(0, 0)
    except WireError:
        await _answered(in_flight)
        raise
    except BaseException:  # above all a cancelled task, which must not wait for the broker
        link.drop()
        await _answered(in_flight)
        raise
    return bases


def _request(at: TopicPartition, batch: StampedBatch, transactional_id: str | None) -> ProduceRequest:
    part = ProducePartition(at.topic, at.partition, batch)
    return ProduceRequest(transactional_id, _PRODUCE_TIMEOUT_MS, [part])


async def _answered(in_flight: Iterable[tuple[int, asyncio.Future[ProduceResponse]]]) -> None:
    await asyncio.gather(*(answer for _, answer in in_flight), return_exceptions=True)


def _base_offset(at: TopicPartition, response: ProduceResponse) -> int:
    (answer,) = response.partitions
    if answer.error is not ErrorCode.NONE:
        raise BrokerError(answer.error, str(at), answer.message)
    return answer.base_offset


def is_fenced(error: WireError) -> bool:
    """Returns whether another process holds the transactional id, or the transaction took too long."""
    return isinstance(error, BrokerError) and error.code in _FENCED


def may_succeed_later(error: WireError) -> bool:
    """Returns whether another attempt may succeed. A writer that was fenced must not fence its successor."""
    if isinstance(error, BrokerError):
        return error.code.retriable and not is_fenced(error)
    return isinstance(error, ConnectionFailure)


class LedgerWriter(Protocol):
    """A LedgerWriter commits ledger records in one transaction; None is a tombstone. Raises WireError."""

    async def commit(self, records: Mapping[LedgerKey, LedgerValue | None]) -> None: ...


class TransactionWriter:
    """Owns one transactional id and commits one transaction at a time under it.

    A transaction adds its partitions, sends its batches, and ends. Opening the writer fences every older
    holder of the id. After a transaction that failed or was cancelled, the next one first aborts what is open
    and raises the epoch of the identity (fencing 1). The coordinator refuses that to all but the newest
    holder (KIP-360), so a writer that was replaced never becomes valid again.
    """

    def __init__(
        self,
        cluster: KafkaCluster,
        transactional_id: str,
        identity: ProducerIdentity,
        transaction_timeout_ms: int,
        failpoint: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._identity = identity
        self._transaction_timeout_ms = transaction_timeout_ms
        self._failpoint = failpoint
        self._sequences: dict[TopicPartition, int] = {}
        self._lock = asyncio.Lock()
        self._unfinished = False
        self._late: set[TopicPartition] = set()  # a broker may still read a request for them

    @classmethod
    async def open(
        cls,
        cluster: KafkaCluster,
        transactional_id: str,
        transaction_timeout_ms: int = 30_000,
        failpoint: Callable[[str], None] = lambda _name: None,
    ) -> TransactionWriter:
        """Initialises the transactional id and returns its writer. Raises WireError.

        `failpoint` is called with the name of each step that a test may interrupt.
        """
        identity = await init_producer_id(cluster, transactional_id, transaction_timeout_ms)
        return cls(cluster, transactional_id, identity, transaction_timeout_ms, failpoint)

    @property
    def producer_id(self) -> int:
        """The producer id that writes the batches."""
        return self._identity.producer_id

    async def commit(
        self,
        records: Mapping[LedgerKey, LedgerValue | None] | LedgerOf,
        batches: Mapping[TopicPartition, Sequence[Batch]] = NO_BATCHES,
        *,
        within: float = DEFAULT_S,
    ) -> None:
        """Commits batches and ledger records in one transaction: all of them, or none (R1).

        Ledger records that depend on where the batches were written are a function of the base offsets.
        `within` holds for each request.

        A WireError leaves open whether the transaction was committed: only the ledger tells (fencing 5).
        PRODUCER_FENCED and INVALID_PRODUCER_EPOCH mean that another process holds the id: a caller that gets
        them must not act any more (R10).
        """
        async with self._lock:
            await self._abort_unfinished(within)
            ledger_batches = {} if callable(records) else await self._ledger_batches(records)
            self._unfinished = True  # until the end is answered: the waiting task may be cancelled meanwhile
            await self._add([*(at for at, some in batches.items() if some), *ledger_batches], within)
            bases = await self._send(batches, within)
            self._failpoint("before_ledger")
            if callable(records):
                ledger_batches = await self._ledger_batches(records(bases))
                await self._add(ledger_batches, within)
            await self._send(ledger_batches, within)
            self._failpoint("after_ledger")
            await end_transaction(
                self._cluster, self._transactional_id, self._identity, commit=True, within=within
            )
            self._failpoint("after_end")
            self._unfinished = False

    async def _add(self, partitions: Iterable[TopicPartition], within: float) -> None:
        wanted = list(dict.fromkeys(partitions))
        if wanted:
            await add_partitions(self._cluster, self._transactional_id, self._identity, wanted, within)

    async def _send(
        self, batches: Mapping[TopicPartition, Sequence[Batch]], within: float
    ) -> dict[TopicPartition, list[int]]:
        """Sends the batches in order, each with the next sequence number of its partition.

        Returns the acknowledged base offsets, in the order of the batches.
        """
        limit = min(within, _ANSWER_WITHIN_S)
        bases: dict[TopicPartition, list[int]] = {}
        for at, some in batches.items():
            self._late.add(at)
            stamped = self._stamped(at, some)
            bases[at] = await send_in_order(self._cluster, at, stamped, self._transactional_id, limit)
            self._late.discard(at)
        return bases

    def _stamped(self, at: TopicPartition, batches: Sequence[Batch]) -> Iterator[StampedBatch]:
        for batch in batches:
            sequence = self._sequences.get(at, 0)
            self._sequences[at] = next_sequence(sequence, batch.records)
            yield stamp(batch, self._identity.producer_id, self._identity.epoch, sequence)

    async def _ledger_batches(
        self, records: Mapping[LedgerKey, LedgerValue | None]
    ) -> dict[TopicPartition, list[Batch]]:
        """Returns the encoded records in batches, by the partition that each belongs to."""
        if not records:
            return {}
        topics = await self._cluster.topics([naming.LEDGER, naming.OFFSET_MAP])
        placed: dict[TopicPartition, list[InternalRecord]] = {}
        for key, value in records.items():
            topic, flow = _topic_and_flow(key)
            at = TopicPartition(topic, partition_of(flow, len(topics[topic].partitions)))
            encoded = encode_value(value) if value is not None else None
            placed.setdefault(at, []).append(InternalRecord(encode_key(key), encoded))
        return {at: batches_of(some) for at, some in placed.items()}

    async def _abort_unfinished(self, within: float) -> None:
        """Aborts the transaction that failed before, and begins its sequences anew on a new epoch."""
        if not self._unfinished:
            return
        await self._renew(within)
        if self._late:
            by = self._cluster, self._transactional_id, self._identity
            await abort_late(*by, self._late, within, add_within=within)
            await self._renew(within)
        self._unfinished = False

    async def _renew(self, within: float) -> None:
        """Aborts what is open, and takes a new epoch. Raises WireError."""
        self._identity = await abort_and_renew(
            self._cluster,
            self._transactional_id,
            self._transaction_timeout_ms,
            self._identity,
            min(within, _ANSWER_WITHIN_S),
        )
        self._sequences.clear()


def _topic_and_flow(key: LedgerKey) -> tuple[str, str]:
    """Returns the topic of a key, and the flow that decides its partition."""
    match key:
        case GenerationKey(flow):
            return naming.LEDGER, flow
        case ProgressKey(of) | OrphanedKey(of) | ReplayedKey(of):
            return naming.LEDGER, of.flow
        case SegmentKey(of):
            return naming.OFFSET_MAP, of.flow


_NO_MARKER = (
    "its transaction is decided, and a partition of it can't take the marker: it has no leader, or too few"
    " in-sync replicas. kafka-transactions.sh describe --transactional-id names the partitions"
)


async def fence(
    cluster: KafkaCluster,
    transactional_ids: Iterable[str],
    within: float = 10.0,
    transaction_timeout_ms: int = 30_000,
) -> dict[str, str]:
    """Initialises every id, which aborts the open transactions of older slots and fences them (R3).

    Returns the ids that are not fenced, with the reason: their transaction is decided, but a partition can't
    take the marker now, or their coordinator did not answer. Such an id must be fenced again later, and the
    partitions of its slot must not be assigned before.
    All calls share a few connections to each coordinator, because a job fences thousands of ids at its start,
    and writes with none of them. Raises WireError.
    """
    ids = list(transactional_ids)

    async def initialise(transactional_id: str) -> str:
        """Returns why it is not fenced, or an empty text."""
        try:
            await init_in_turn(cluster, transactional_id, transaction_timeout_ms, within)
        except BrokerError as error:
            if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                raise
            return _NO_MARKER
        except (TimedOut, ConnectionFailure) as error:
            return f"its coordinator does not answer: {error}"
        return ""

    with suppress(WireError):  # an id whose coordinator is still unknown looks for it again
        await in_time(
            cluster.coordinators(CoordinatorKind.TRANSACTION, ids), within, "looking for coordinators"
        )
    reasons = await asyncio.gather(*(initialise(transactional_id) for transactional_id in ids))
    return {transactional_id: why for transactional_id, why in zip(ids, reasons, strict=True) if why}
