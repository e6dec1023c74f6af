"""Writes the bad records of a flow with a transform to their quarantine topics, within a lane's transaction.

A transaction writes exactly those bad records that lie before the positions which it commits. So each of them
is written once, whatever aborts in between (R1, R2).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from runtime.batch import Batch, PartitionLocation, QuarantineTooLarge, stamp
from runtime.batch.selection import quarantine_batches
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import BrokerError, ErrorCode, PartitionsRefused, WireError
from runtime.kafka.protocol.metadata import TopicMetadata
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.transactions import add_partitions
from runtime.ledger.transaction_writer import send
from runtime.slot.errors import ErrorPhase
from runtime.slot.partition import PartitionCopy
from runtime.slot.write.sender import ProduceSender
from runtime.slot.write.transaction import Transaction, TransactionFailure

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
            try:
                await send(cluster, at, stamped, transactional_id, f"produce {transactional_id}")
            except WireError as error:
                raise TransactionFailure(ErrorPhase.QUARANTINE, error, (copy,)) from error


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
    where = f"the quarantine topic {at.topic}-{at.partition}"
    if topic.error is not ErrorCode.NONE:
        raise _failure(topic.error, where, copy)
    found = topic.partitions.get(number)
    if found is None or found.leader < 0:
        raise _failure(ErrorCode.LEADER_NOT_AVAILABLE, where, copy)
    if len(found.in_sync) < quarantine.min_in_sync:
        raise _failure(ErrorCode.NOT_ENOUGH_REPLICAS, where, copy)
    source = PartitionLocation(copy.key.topic, copy.key.partition)
    try:
        yield _Share(copy, at, list(quarantine_batches(records, quarantine.max_message_bytes, source)))
    except QuarantineTooLarge as error:
        raise _failure(ErrorCode.MESSAGE_TOO_LARGE, str(error), copy) from error


def _failure(code: ErrorCode, where: str, copy: PartitionCopy) -> TransactionFailure:
    return TransactionFailure(ErrorPhase.QUARANTINE, BrokerError(code, where), (copy,))
