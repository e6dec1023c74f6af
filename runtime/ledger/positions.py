"""Commits positions that no transaction of a lane commits: where a flow starts, and what it leaves behind.

The driver resolves the start positions of partitions once, and commits them before copying begins (R1). For a
flow that has ended, the records that the source still holds are marked as orphaned: the ledger then holds
"orphaned from X to Y, position Y".
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from runtime.contract.records.advance import first_progress
from runtime.contract.records.control import AssignedPartition
from runtime.contract.records.ledger import (
    Generation,
    GenerationKey,
    LedgerKey,
    LedgerValue,
    PartitionKey,
    Progress,
    ProgressKey,
    orphan,
)
from runtime.contract.spec.flow import AtOffsets, AtTimestamp, Earliest, Latest, Start
from runtime.contract.spec.naming import TopicPartition, is_other_topic
from runtime.contract.spec.route import is_reserved
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import TimedOut
from runtime.kafka.protocol.fetch import Isolation
from runtime.kafka.protocol.offsets import EARLIEST, LATEST
from runtime.kafka.queries import offsets_of
from runtime.kafka.timing import now_ms
from runtime.ledger.ledger import Ledger
from runtime.ledger.transaction_writer import LedgerWriter, TransactionWriter, fence

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
            offsets_at_time = await offsets_of(source, dict.fromkeys(wanted, timestamp), _STABLE)
            late = [at for at, offset in offsets_at_time.items() if offset < 0]
            return offsets_at_time | await offsets_of(source, dict.fromkeys(late, LATEST), _STABLE)
        case AtOffsets(offsets=offsets):
            given = {at: offsets[at.topic][at.partition] for at in wanted if names(start, at)}
            rest = [at for at in wanted if at not in given]
            return given | await offsets_of(source, dict.fromkeys(rest, EARLIEST), _STABLE)


def names(start: Start, at: TopicPartition) -> bool:
    """Returns whether the start rule names this partition; a rule without offsets names every partition."""
    return not isinstance(start, AtOffsets) or at.partition in start.offsets.get(at.topic, {})


async def first_positions(
    source: KafkaCluster,
    destination: KafkaCluster,
    partitions: Sequence[AssignedPartition],
    start: Start | None,
    generation: int,
    *,
    fresh: bool = False,
) -> dict[PartitionKey, Progress]:
    """Returns the first progress of partitions. Raises WireError.

    `start` is None for partitions that appeared later: they start at offset 0, because all their records
    are new. With `fresh`, the ids of the topics are requested and not those that are known already.
    """
    at_source = {
        partition.key: TopicPartition(partition.topic, partition.partition) for partition in partitions
    }
    at_destination = {
        partition.key: TopicPartition(partition.destination_topic, partition.partition)
        for partition in partitions
    }
    if start is None:
        positions = dict.fromkeys(at_source.values(), 0)
    else:
        positions = await resolve_start(source, at_source.values(), start)
    ends = await offsets_of(destination, dict.fromkeys(at_destination.values(), LATEST))
    source_topics = await source.topics({at.topic for at in at_source.values()}, fresh=fresh)
    mirrors = await destination.topics({at.topic for at in at_destination.values()}, fresh=fresh)
    at_ms = now_ms()
    return {
        key: first_progress(
            generation=generation,
            source_topic_id=source_topics[at.topic].id,
            destination_topic=at_destination[key].topic,
            destination_topic_id=mirrors[at_destination[key].topic].id,
            position=positions[at],
            destination_end=ends[at_destination[key]],
            now_ms=at_ms,
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


_WITHIN_S = 60.0


class FlowNotEnded(Exception):
    """The flow may still copy, or has not ended completely, so no record of it is orphaned yet."""


def orphans_transactional_id(flow: str) -> str:
    """Returns the transactional id that marks orphans of a flow."""
    return f"repl.orphans.{flow}"


async def leave_orphans(
    flow: str,
    source: KafkaCluster,
    destination: KafkaCluster,
    why: str,
    partitions: Sequence[AssignedPartition] | None = None,
) -> None:
    """Marks the source's records beyond the flow's positions as orphaned, and moves the positions there.

    It marks all partitions that the flow has copied, or only `partitions`, in one transaction. So the leader
    of each of them must answer. A repeated call marks the records that came since. Where the flow has never
    copied a given partition, all its records are orphaned. What the destination holds of it came from other
    producers, so its progress ends at the log's start there: a failback begins behind it.

    The order is that of a driver that takes a flow over (fencing 3). A generation record with this writer's
    id is written, every earlier id is fenced, and only then progress is read. A process that takes the flow
    over meanwhile fences this writer. An open transaction of the source is orphaned with the rest: whether
    it commits or not, it is older than the records that the other side wrote. Raises FlowNotEnded, WireError,
    UnreadableRecord.
    """
    ledger = await Ledger.open(destination)
    writer = await TransactionWriter.open(destination, orphans_transactional_id(flow))
    mine = await _take_over(flow, ledger, writer, destination)
    copied = {
        key: progress for key, progress in ledger.all_progress(flow).items() if not is_reserved(key.topic)
    }
    if partitions is not None:
        new = [part for part in partitions if part.key not in copied]
        copied = {part.key: copied[part.key] for part in partitions if part.key in copied}
        copied |= await _never_copied(source, destination, new, mine.number)
    ends = await _ends(source, copied)
    marks: dict[LedgerKey, LedgerValue | None] = {}
    at_ms = now_ms()
    for key, end in ends.items():
        marks |= orphan(key, copied[key], end, why, generation=mine.number, now_ms=at_ms)
    await writer.commit({**marks, GenerationKey(flow): mine})


async def _never_copied(
    source: KafkaCluster, destination: KafkaCluster, partitions: Sequence[AssignedPartition], generation: int
) -> dict[PartitionKey, Progress]:
    """Returns progress that claims no record of the destination. Raises WireError."""
    at = {
        partition.key: TopicPartition(partition.destination_topic, partition.partition)
        for partition in partitions
    }
    starts = await offsets_of(destination, dict.fromkeys(at.values(), EARLIEST))
    first = await first_positions(source, destination, partitions, None, generation)
    return {key: replace(progress, destination_end=starts[at[key]]) for key, progress in first.items()}


async def _take_over(
    flow: str, ledger: Ledger, writer: TransactionWriter, destination: KafkaCluster
) -> Generation:
    """Takes the flow over: no other process writes its progress any more, and `ledger` has all of it.

    Raises FlowNotEnded, WireError.
    """
    transactional_id = orphans_transactional_id(flow)
    await ledger.decided(flow, _WITHIN_S)
    before = _require_ended(flow, ledger.generation(flow))
    older = [other_id for other_id in before.transactional_ids if other_id != transactional_id]
    taken = replace(
        before,
        number=before.number + 1,
        transactional_ids=[transactional_id, *older],
        written_at=now_ms(),
    )
    await writer.commit({GenerationKey(flow): taken})
    await _fence(destination, older)
    await ledger.decided(flow, _WITHIN_S)
    now = ledger.generation(flow)
    if now != taken:
        raise FlowNotEnded(f"{flow} was taken over by {now.job if now is not None else 'nobody'} meanwhile")
    return replace(taken, transactional_ids=[transactional_id])


def _require_ended(flow: str, generation: Generation | None) -> Generation:
    """Returns the flow's generation; raises FlowNotEnded where it has not ended."""
    if generation is None:
        raise FlowNotEnded(f"{flow} never ran")
    if not generation.ended:
        raise FlowNotEnded(
            f"{flow} is {generation.state}" + (f": {generation.note}" if generation.note else "")
        )
    return generation


async def _fence(destination: KafkaCluster, ids: Sequence[str]) -> None:
    """Fences ids until none of them can write any more. Raises TimedOut."""
    stuck: Mapping[str, str] = dict.fromkeys(ids, "its coordinator does not answer")
    try:
        async with asyncio.timeout(_WITHIN_S):
            while stuck:
                stuck = await fence(destination, stuck)
    except TimeoutError:
        transactional_id, why = next(iter(stuck.items()))
        raise TimedOut(transactional_id, f"it is not fenced: {why}", sent=True) from None


async def _ends(source: KafkaCluster, progress: Mapping[PartitionKey, Progress]) -> dict[PartitionKey, int]:
    """Returns the source's log ends, for topics that are still the ones that were copied."""
    topics = await source.topics({key.topic for key in progress}, fresh=True)
    same = {
        key.at: key
        for key, state in progress.items()
        if not topics[key.topic].error and not is_other_topic(state.source_topic_id, topics[key.topic].id)
    }
    ends = await offsets_of(source, dict.fromkeys(same, LATEST), within=_WITHIN_S)
    return {same[at]: end for at, end in ends.items()}
