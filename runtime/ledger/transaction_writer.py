"""Writes ledger records outside a slot, such as generations and first positions, and fences old slots."""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Self

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
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.codes import ErrorCode
from runtime.kafka.errors import BrokerError, ConnectionFailure, TimedOut, WireError
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.protocol.produce import ProducePartition, ProduceRequest
from runtime.kafka.protocol.transactions import ProducerIdentity
from runtime.kafka.transactions import add_partitions, end_transaction, init_producer_id
from runtime.ledger.records import InternalRecord, build, chunks

BATCH_BYTES = 512 << 10
_PRODUCE_TIMEOUT_MS = 10_000
_ANSWER_WITHIN_S = 15.0


async def send(
    cluster: KafkaCluster,
    at: TopicPartition,
    batch: StampedBatch,
    transactional_id: str | None = None,
    purpose: str = "produce",
) -> int:
    """Sends one batch to one partition once, and returns the acknowledged base offset. Raises WireError."""
    topic = (await cluster.topics([at.topic]))[at.topic]
    found = topic.partitions.get(at.partition)
    if topic.error is not ErrorCode.NONE or found is None or found.leader < 0:
        topic = (await cluster.topics([at.topic], fresh=True))[at.topic]
        found = topic.partitions.get(at.partition)
    if found is None or found.leader < 0:
        raise BrokerError(topic.error or ErrorCode.LEADER_NOT_AVAILABLE, f"{at.topic}-{at.partition}")
    part = ProducePartition(at.topic, at.partition, batch)
    request = ProduceRequest(transactional_id, _PRODUCE_TIMEOUT_MS, [part])
    try:
        (answer,) = (await cluster.call(found.leader, request, purpose, _ANSWER_WITHIN_S)).partitions
        if answer.error is not ErrorCode.NONE:
            raise BrokerError(answer.error, f"{at.topic}-{at.partition}", answer.message)
    except WireError:
        cluster.doubt(at.topic)
        raise
    return answer.base_offset


class LedgerWriter:
    """A ledger writer owns one transactional id and commits ledger records under it.

    Opening it fences every older holder of the id.
    """

    def __init__(self, cluster: KafkaCluster, transactional_id: str, identity: ProducerIdentity) -> None:
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._identity = identity
        self._sequences: dict[TopicPartition, int] = {}
        self._writing = asyncio.Lock()

    @classmethod
    async def open(
        cls, cluster: KafkaCluster, transactional_id: str, transaction_timeout_ms: int = 30_000
    ) -> Self:
        """Initialises the transactional id and returns its writer. Raises WireError."""
        identity = await init_producer_id(cluster, transactional_id, transaction_timeout_ms)
        return cls(cluster, transactional_id, identity)

    async def commit(self, records: Mapping[LedgerKey, LedgerValue | None]) -> None:
        """Writes records in one transaction; None is a tombstone.

        Raises WireError; the writer must then be opened again. Codes 47 and 90 mean that another driver
        holds the id: a caller that gets them must not act any more (R10).
        """
        async with self._writing:
            by_partition = await self._placed(records)
            await add_partitions(self._cluster, self._transactional_id, self._identity, list(by_partition))
            await self._put(by_partition)
            await end_transaction(self._cluster, self._transactional_id, self._identity, commit=True)

    async def _put(self, by_partition: Mapping[TopicPartition, Sequence[InternalRecord]]) -> None:
        for at, group in by_partition.items():
            for chunk in chunks(group, BATCH_BYTES):
                await self._send(at, chunk)

    async def _send(self, at: TopicPartition, records: Sequence[InternalRecord]) -> None:
        await self._send_batch(at, build(records, int(time.time() * 1000)))

    async def _send_batch(self, at: TopicPartition, batch: Batch) -> None:
        sequence = self._sequences.get(at, 0)
        stamped = stamp(batch, self._identity.producer_id, self._identity.epoch, sequence)
        self._sequences[at] = next_sequence(sequence, batch.records)
        await send(self._cluster, at, stamped, self._transactional_id)

    async def _placed(
        self, records: Mapping[LedgerKey, LedgerValue | None]
    ) -> dict[TopicPartition, list[InternalRecord]]:
        """Returns the encoded records by the partition that each belongs to."""
        topics = await self._cluster.topics([naming.LEDGER, naming.OFFSET_MAP])
        placed: dict[TopicPartition, list[InternalRecord]] = {}
        for key, value in records.items():
            topic, flow = _topic_and_flow(key)
            at = TopicPartition(topic, partition_of(flow, len(topics[topic].partitions)))
            encoded = encode_value(value) if value is not None else None
            placed.setdefault(at, []).append(InternalRecord(encode_key(key), encoded))
        return placed


def _topic_and_flow(key: LedgerKey) -> tuple[str, str]:
    """Returns the topic of a key, and the flow that decides its partition."""
    match key:
        case GenerationKey(flow):
            return naming.LEDGER, flow
        case ProgressKey(of) | OrphanedKey(of) | ReplayedKey(of):
            return naming.LEDGER, of.flow
        case SegmentKey(of):
            return naming.OFFSET_MAP, of.flow


async def fence(
    cluster: KafkaCluster,
    transactional_ids: Iterable[str],
    within: float = 10.0,
    transaction_timeout_ms: int = 30_000,
) -> list[str]:
    """Initialises every id, which aborts the open transactions of older slots and fences them (R3).

    Returns the ids that are stuck: their transaction is decided, but a partition can't take the marker now.
    Such an id must be fenced again later, and the partitions of its slot must not be assigned before.
    Raises WireError.
    """

    async def one(transactional_id: str) -> str | None:
        """Initialises one id; returns it where it is stuck."""
        try:
            await init_producer_id(cluster, transactional_id, transaction_timeout_ms, within=within)
        except BrokerError as error:
            if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                raise
            return transactional_id
        except (TimedOut, ConnectionFailure):
            return transactional_id
        return None

    stuck = await asyncio.gather(*(one(transactional_id) for transactional_id in transactional_ids))
    return [transactional_id for transactional_id in stuck if transactional_id is not None]
