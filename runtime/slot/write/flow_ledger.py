"""Writes the records of one flow at the destination, beside the copied ones, within a lane's transaction.

They are the ledger, the offset map, the producer directory, and the bad records of a flow with a transform,
which go to its quarantine topics. A transaction writes exactly those bad records that lie before the
positions which it commits. So each of them is written once, whatever aborts in between (R1, R2).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from runtime.batch import Batch, QuarantineTooLarge, stamp
from runtime.batch.selection import quarantine_batches
from runtime.contract.records.ledger import (
    LedgerKey,
    LedgerValue,
    PartitionKey,
    Progress,
    ProgressKey,
    SegmentKey,
    encode_key,
    encode_value,
    partition_of,
)
from runtime.contract.records.provenance import FlowProducer
from runtime.contract.spec import naming
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import BrokerError, ErrorCode, PartitionsRefused, WireError
from runtime.kafka.protocol.metadata import TopicMetadata
from runtime.kafka.protocol.transactions import ProducerIdentity
from runtime.kafka.records import InternalRecord, batches_of
from runtime.kafka.transactions import add_partitions
from runtime.ledger.ledger import Ledger, UndecidedProgress, register
from runtime.ledger.transaction_writer import send
from runtime.slot import log
from runtime.slot.errors import ErrorPhase
from runtime.slot.partition import PartitionCopy, with_topic_ids
from runtime.slot.write.sender import ProduceSender
from runtime.slot.write.transaction import CommitEntry, Transaction, TransactionFailure

_ADD_S = 3.0


class _Share(NamedTuple):
    """The batches of one partition for its quarantine."""

    copy: PartitionCopy
    at: TopicPartition
    batches: list[Batch]


async def write_quarantined(
    cluster: KafkaCluster, tx: Transaction, sender: ProduceSender, transactional_id: str
) -> None:
    """Adds the quarantine's partitions to the transaction, and writes the bad records that it passes.

    A failure blames the partitions whose records can't be written: others are retried without them (R7).
    Raises TransactionFailure.
    """
    passing = [entry for entry in tx.entries if entry.step is not None and entry.step.quarantined]
    if not passing:
        return
    topics = await _topics(cluster, [entry.copy for entry in passing])
    try:
        shares = [
            share for entry in passing for share in _shares(entry.copy, entry.progress.position, topics)
        ]
    except TransactionFailure:
        for name in topics:
            cluster.doubt(name)
        raise
    identity = sender.identity
    wanted = list(dict.fromkeys(share.at for share in shares))
    try:
        await add_partitions(cluster, transactional_id, identity, wanted, within=_ADD_S)
    except WireError as error:
        refused = error.partitions if isinstance(error, PartitionsRefused) else frozenset(wanted)
        blamed = tuple(share.copy for share in shares if share.at in refused)
        raise TransactionFailure(ErrorPhase.QUARANTINE, error, blamed) from error
    for copy, at, batches in shares:
        for batch in batches:
            sequence = sender.sequence(at, batch.records)
            stamped = stamp(batch, identity.producer_id, identity.epoch, sequence)
            sender.late.add(at)  # until it is answered: the lane's time limit may cancel this task meanwhile
            try:
                await send(cluster, at, stamped, transactional_id, f"produce {transactional_id}")
            except WireError as error:
                raise TransactionFailure(ErrorPhase.QUARANTINE, error, (copy,)) from error
            sender.late.discard(at)


async def _topics(cluster: KafkaCluster, copies: list[PartitionCopy]) -> dict[str, TopicMetadata]:
    """Returns the metadata of the quarantine topics. Raises TransactionFailure."""
    names = {copy.assigned.quarantine.topic for copy in copies if copy.assigned.quarantine is not None}
    try:
        return await cluster.topics(names)
    except WireError as error:
        raise TransactionFailure(ErrorPhase.QUARANTINE, error) from error


def _shares(copy: PartitionCopy, position: int, topics: dict[str, TopicMetadata]) -> Iterator[_Share]:
    """Yields what a partition writes up to a position. Raises TransactionFailure.

    A partition without a leader or enough replicas is not added to the transaction: it could not take the
    marker, and the transactional id would wait for it (fencing 4).
    """
    records, quarantine = copy.quarantined_before(position), copy.assigned.quarantine
    if not records or quarantine is None:
        return
    topic = topics[quarantine.topic]
    number = copy.key.partition % max(len(topic.partitions), 1)
    at = TopicPartition(quarantine.topic, number)
    where = f"the quarantine topic {at}"
    if topic.error is not ErrorCode.NONE:
        raise _failure(topic.error, where, copy)
    partition = topic.partitions.get(number)
    if partition is None or partition.leader < 0:
        raise _failure(ErrorCode.LEADER_NOT_AVAILABLE, where, copy)
    if len(partition.in_sync) < quarantine.min_in_sync:
        raise _failure(ErrorCode.NOT_ENOUGH_REPLICAS, where, copy)
    source = copy.key.at
    try:
        yield _Share(copy, at, list(quarantine_batches(records, quarantine.max_message_bytes, source)))
    except QuarantineTooLarge as error:
        raise _failure(ErrorCode.MESSAGE_TOO_LARGE, str(error), copy) from error


def _failure(code: ErrorCode, where: str, copy: PartitionCopy) -> TransactionFailure:
    return TransactionFailure(ErrorPhase.QUARANTINE, BrokerError(code, where), (copy,))


_DECIDED_PAUSE_S = 0.02


class Superseded(Exception):
    """The ledger holds another generation of the flow, so this slot must not write for it (R3)."""


class FlowLedger:
    """A flow's ledger reads progress for the flow, and writes it within the transactions of the flow's lanes.

    `partition` holds the flow's progress. `generation` is the one under which this slot may write (R3).
    """

    def __init__(
        self,
        flow: str,
        generation: int,
        producer: FlowProducer,
        ledger: Ledger,
        cluster: KafkaCluster,
        map_partitions: int,
    ) -> None:
        self.generation = generation
        self.partition = TopicPartition(naming.LEDGER, ledger.partition(flow))
        self._offset_map = TopicPartition(naming.OFFSET_MAP, partition_of(flow, map_partitions))
        self.flow = flow
        self._producer = producer
        self._ledger = ledger
        self._cluster = cluster

    @property
    def topics(self) -> set[str]:
        """The internal topics that transactions of the flow write to."""
        return {self.partition.topic, self._offset_map.topic}

    async def await_decided(self) -> None:
        """Waits until no open transaction has written the generation, then checks it.

        Raises Superseded, WireError, and READ_FAILURES for a generation that can't be read.
        """
        await self._ledger.decided(self.flow)
        self._check_generation()

    async def refresh(self) -> None:
        """Reads the ledger up to its end. Raises Superseded, WireError, READ_FAILURES."""
        await self._ledger.refresh(self.flow)
        self._check_generation()

    def progress(self, key: PartitionKey) -> Progress | UndecidedProgress | None:
        """Returns the progress that was read last, undecided if an open transaction has written it."""
        return self._ledger.progress(key)

    async def wait_for_progress(self, key: PartitionKey) -> Progress | None:
        """Returns the committed progress, once no open transaction has written to it."""
        while True:
            try:
                await self._ledger.refresh(self.flow)
            except WireError as error:
                log.info("ledger_retry", key=self.flow, flow=self.flow, error=str(error), decision="retry")
            else:
                progress = self._ledger.progress(key)
                if not isinstance(progress, UndecidedProgress):
                    return progress
            await asyncio.sleep(_DECIDED_PAUSE_S)

    async def differences(self, expected: Mapping[PartitionCopy, Progress]) -> list[PartitionCopy]:
        """Returns the partitions whose progress in the ledger is not the expected one.

        Topic ids that Kafka gave since the last commit are no difference: the next commit writes them.
        Progress that an open transaction has written is waited for: the slot's last one, in another lane, may
        be open. Raises Superseded, WireError, READ_FAILURES.
        """
        await self.refresh()
        stored = {copy: self.progress(copy.key) for copy in expected}
        for copy, progress in stored.items():
            if isinstance(progress, UndecidedProgress):
                stored[copy] = await self.wait_for_progress(copy.key)
        return [copy for copy, progress in expected.items() if not _is_same(stored[copy], progress)]

    async def register(self, identity: ProducerIdentity) -> None:
        """Writes the producer id to the producer directory, before its first data (batch provenance)."""
        await register(self._cluster, identity.producer_id, self._producer)

    async def write(self, tx: Transaction, sender: ProduceSender, transactional_id: str) -> None:
        """Writes the transaction's progress to the ledger, and its sealed segments to the offset map.

        They join the last data requests that are not sent yet. The bad records that the transaction passes
        are written before. Raises TransactionFailure.
        """
        await write_quarantined(self._cluster, tx, sender, transactional_id)
        records = self._records(tx.entries)
        missing = [at for at in records if at != self.partition or not tx.joined]
        try:
            if missing:
                identity = sender.identity
                await add_partitions(self._cluster, transactional_id, identity, missing, within=_ADD_S)
                tx.mark_joined()
            for at, values in records.items():
                for batch in batches_of(values):
                    await sender.add_ledger_records(tx, at, batch)
        except WireError as error:
            raise TransactionFailure(ErrorPhase.LEDGER, error) from error

    def _records(self, entries: Sequence[CommitEntry]) -> dict[TopicPartition, list[InternalRecord]]:
        """Returns the records of the entries, by the partition that they are written to."""
        records: dict[TopicPartition, list[InternalRecord]] = {self.partition: []}
        for entry in entries:
            key, progress, segments = entry.copy.key, entry.progress, entry.segments
            records[self.partition].append(_record(ProgressKey(key), progress))
            for number, segment in enumerate(segments, start=progress.segments - len(segments)):
                record = _record(SegmentKey(key, progress.incarnation, number), segment)
                records.setdefault(self._offset_map, []).append(record)
        return records

    def _check_generation(self) -> None:
        """Raises Superseded where the ledger's generation is not this slot's, or is not active."""
        generation = self._ledger.generation(self.flow)
        if generation is None or generation.number != self.generation or generation.state != "active":
            described = f"{generation.number}, {generation.state}" if generation else "none"
            raise Superseded(
                f"the ledger's generation of {self.flow} is {described}; this slot's is {self.generation}"
            )


def _is_same(stored: Progress | UndecidedProgress | None, expected: Progress) -> bool:
    """Returns whether the ledger's progress is the expected one, but for topic ids that it lacks."""
    if not isinstance(stored, Progress):
        return False
    return with_topic_ids(stored, expected.source_topic_id, expected.destination_topic_id) == expected


def _record(key: LedgerKey, value: LedgerValue) -> InternalRecord:
    return InternalRecord(encode_key(key), encode_value(value))
