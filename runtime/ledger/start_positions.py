"""The driver resolves the start positions of partitions once, and commits them before copying begins (R1)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from runtime.contract.records.advance import first_progress
from runtime.contract.records.control import AssignedPartition
from runtime.contract.records.ledger import LedgerKey, LedgerValue, PartitionKey, Progress, ProgressKey
from runtime.contract.spec.jobspec import AtOffsets, AtTimestamp, Earliest, Latest, Start
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.protocol.fetch import Isolation
from runtime.kafka.protocol.offsets import EARLIEST, LATEST, TopicPartition
from runtime.kafka.queries import offsets_of
from runtime.ledger.ledger import Ledger
from runtime.ledger.transaction_writer import LedgerWriter

_STABLE = Isolation.READ_COMMITTED
NO_NOTE: Mapping[LedgerKey, LedgerValue | None] = MappingProxyType({})


async def resolve_start(
    source: KafkaCluster, partitions: Iterable[TopicPartition], start: Start
) -> dict[TopicPartition, int]:
    """Returns the first source offset to copy of each partition. Raises WireError where one does not answer.

    `latest` is the last stable offset, so that the records of a transaction which is still open are copied
    when it commits. A timestamp after the last record means `latest`.
    """
    wanted = list(partitions)
    match start:
        case Earliest():
            return await offsets_of(source, dict.fromkeys(wanted, EARLIEST), _STABLE)
        case Latest():
            return await offsets_of(source, dict.fromkeys(wanted, LATEST), _STABLE)
        case AtTimestamp(timestamp_ms=timestamp):
            found = await offsets_of(source, dict.fromkeys(wanted, timestamp), _STABLE)
            late = [at for at, offset in found.items() if offset < 0]
            return found | await offsets_of(source, dict.fromkeys(late, LATEST), _STABLE)
        case AtOffsets(offsets=offsets):
            given = {at: offsets[at.topic][str(at.partition)] for at in wanted if names(start, at)}
            rest = [at for at in wanted if at not in given]
            return given | await offsets_of(source, dict.fromkeys(rest, EARLIEST), _STABLE)


def names(start: Start, at: TopicPartition) -> bool:
    """Returns whether the start rule names this partition; a rule without offsets names every partition."""
    return not isinstance(start, AtOffsets) or str(at.partition) in start.offsets.get(at.topic, {})


async def first_positions(
    source: KafkaCluster,
    destination: KafkaCluster,
    partitions: Sequence[AssignedPartition],
    start: Start | None,
    generation: int,
) -> dict[PartitionKey, Progress]:
    """Returns the first progress of partitions. Raises WireError.

    `start` is None for partitions that appeared later: they start at offset 0, because all their records
    are new.
    """
    at_source = {one.key: TopicPartition(one.topic, one.partition) for one in partitions}
    at_destination = {one.key: TopicPartition(one.destination_topic, one.partition) for one in partitions}
    if start is None:
        positions = dict.fromkeys(at_source.values(), 0)
    else:
        positions = await resolve_start(source, at_source.values(), start)
    ends = await offsets_of(destination, dict.fromkeys(at_destination.values(), LATEST))
    source_topics = await source.topics({at.topic for at in at_source.values()})
    mirrors = await destination.topics({at.topic for at in at_destination.values()})
    now_ms = int(time.time() * 1000)
    return {
        key: first_progress(
            generation=generation,
            source_topic_id=source_topics[at.topic].id,
            destination_topic=at_destination[key].topic,
            destination_topic_id=mirrors[at_destination[key].topic].id,
            position=positions[at],
            destination_end=ends[at_destination[key]],
            now_ms=now_ms,
        )
        for key, at in at_source.items()
    }


async def commit_first_positions(
    writer: LedgerWriter,
    ledger: Ledger,
    first: Mapping[PartitionKey, Progress],
    note: Mapping[LedgerKey, LedgerValue | None] = NO_NOTE,
) -> list[PartitionKey]:
    """Commits the first progress of partitions that have none yet, and returns these partitions.

    Existing progress is never changed: those partitions resume from it. `note` holds records that are
    committed in the same transaction. Raises WireError.
    """
    for flow in {key.flow for key in first}:
        await ledger.refresh(flow)
    new = [key for key in first if ledger.progress(key) is None]
    records: dict[LedgerKey, LedgerValue | None] = {ProgressKey(key): first[key] for key in new}
    records |= note
    if records:
        await writer.commit(records)
    return new
