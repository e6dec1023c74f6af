"""Closing a transaction writes its ledger records, which derive from acknowledged offsets alone (R1, R6)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from runtime.batch import stamp
from runtime.contract.records.advance import Advance, advance
from runtime.contract.records.ledger import (
    LedgerKey,
    LedgerValue,
    Progress,
    ProgressKey,
    Segment,
    SegmentKey,
    encode_key,
    encode_value,
)
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import WireError
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.transactions import add_partitions
from runtime.ledger.records import BATCH_BYTES, InternalRecord, build, chunks
from runtime.ledger.transaction_writer import send
from runtime.slot.partition import PartitionCopy, now_ms
from runtime.slot.write.errors import ErrorPhase
from runtime.slot.write.sender import ProduceSender
from runtime.slot.write.transaction import Transaction, TransactionFailure, TransactionPartition, tail_step


class LedgerPartitions(NamedTuple):
    """A ledger place names the partitions of a flow's records and the generation that writes them (R3)."""

    ledger: TopicPartition
    offset_map: TopicPartition
    generation: int


class CommitEntry(NamedTuple):
    """An entry is what a transaction commits for one partition.

    `part` is None where only the idle position moved. `step` is None where the progress is replaced as a
    whole.
    """

    copy: PartitionCopy
    progress: Progress
    segments: Sequence[Segment]
    part: TransactionPartition | None
    step: Advance | None


def entries_of(
    tx: Transaction, tails: Iterable[PartitionCopy], generation: int, moment_ms: int
) -> list[CommitEntry]:
    """Returns the ledger entries of a transaction and of the partitions that commit an idle position."""
    found: list[CommitEntry] = []
    for part in tx:
        step = part.step()
        if step.runs or step.position > part.copy.progress.position:
            moved = advance(part.copy.progress, step, generation, moment_ms)
            found.append(CommitEntry(part.copy, *moved, part, step))
    found.extend(_tail(copy, generation, moment_ms) for copy in tails)
    return found


def _tail(copy: PartitionCopy, generation: int, moment_ms: int) -> CommitEntry:
    """Returns the entry of a partition that has no batch in the transaction."""
    if copy.replacement is not None:
        return CommitEntry(copy, copy.replacement, (), None, None)
    step = tail_step(copy)
    return CommitEntry(copy, *advance(copy.progress, step, generation, moment_ms), None, step)


async def write_ledger(
    cluster: KafkaCluster,
    place: LedgerPartitions,
    sender: ProduceSender,
    transactional_id: str,
    tx: Transaction,
    entries: Sequence[CommitEntry],
) -> None:
    """Writes progress to the ledger and sealed segments to the offset map, within the transaction.

    Raises Failure.
    """
    by_place: dict[TopicPartition, list[InternalRecord]] = {place.ledger: []}
    for copy, progress, segments, _, _ in entries:
        by_place[place.ledger].append(_record(ProgressKey(copy.key), progress))
        for number, segment in enumerate(segments, start=progress.segments - len(segments)):
            key = SegmentKey(copy.key, progress.incarnation, number)
            by_place.setdefault(place.offset_map, []).append(_record(key, segment))
    missing = [at for at in by_place if at != place.ledger or not tx.joined]
    try:
        if missing:
            await add_partitions(cluster, transactional_id, sender.identity, missing)
            tx.joined = True
        for at, records in by_place.items():
            for chunk in chunks(records, BATCH_BYTES):
                batch = build(chunk, now_ms())
                identity = sender.identity
                stamped = stamp(
                    batch, identity.producer_id, identity.epoch, sender.sequence(at, batch.records)
                )
                await send(cluster, at, stamped, transactional_id, f"produce {transactional_id}")
    except WireError as error:
        raise TransactionFailure(ErrorPhase.LEDGER, error) from error


def _record(key: LedgerKey, value: LedgerValue) -> InternalRecord:
    return InternalRecord(encode_key(key), encode_value(value))
