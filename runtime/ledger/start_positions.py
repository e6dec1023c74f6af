"""Where a partition starts: resolved once, by the driver, and committed before anything is copied (R1)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from runtime.contract.records.advance import first_progress
from runtime.contract.records.ledger import LedgerKey, LedgerValue, PartitionKey, Progress, ProgressKey
from runtime.contract.spec.assignment import AssignedPartition
from runtime.contract.spec.jobspec import AtOffsets, AtTimestamp, Earliest, Latest, Start
from runtime.kafka.cluster import Cluster
from runtime.kafka.protocol.fetch import Isolation
from runtime.kafka.protocol.offsets import EARLIEST, LATEST, TopicPartition
from runtime.kafka.queries.partitions import offsets_of
from runtime.ledger.ledger import Ledger
from runtime.ledger.ledger_writer import LedgerWriter

_STABLE = Isolation.READ_COMMITTED
NO_NOTE: Mapping[LedgerKey, LedgerValue | None] = MappingProxyType({})


async def resolve_start(
    source: Cluster, partitions: Iterable[TopicPartition], start: Start
) -> dict[TopicPartition, int]:
    """The first source offset to copy of each. Raises WireError when one can't be asked.

    `latest` is the last stable offset: what an open transaction has written there and commits later is new. A
    timestamp behind the last record means latest.
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
    """Whether it speaks of this partition: offsets do so of those that they name."""
    return not isinstance(start, AtOffsets) or str(at.partition) in start.offsets.get(at.topic, {})


async def first_positions(
    source: Cluster,
    destination: Cluster,
    partitions: Sequence[AssignedPartition],
    start: Start | None,
    generation: int,
) -> dict[PartitionKey, Progress]:
    """Progress to begin with. `start` None is for what appeared later: from offset 0, nothing of it is
    old.
    """
    there = {one.key: TopicPartition(one.topic, one.partition) for one in partitions}
    here = {one.key: TopicPartition(one.destination_topic, one.partition) for one in partitions}
    if start is None:
        positions = dict.fromkeys(there.values(), 0)
    else:
        positions = await resolve_start(source, there.values(), start)
    ends = await offsets_of(destination, dict.fromkeys(here.values(), LATEST))
    source_topics = await source.topics({at.topic for at in there.values()})
    mirrors = await destination.topics({at.topic for at in here.values()})
    now_ms = int(time.time() * 1000)
    return {
        key: first_progress(
            generation=generation,
            source_topic_id=source_topics[at.topic].id,
            destination_topic=here[key].topic,
            destination_topic_id=mirrors[here[key].topic].id,
            position=positions[at],
            destination_end=ends[here[key]],
            now_ms=now_ms,
        )
        for key, at in there.items()
    }


async def commit_first_positions(
    writer: LedgerWriter,
    ledger: Ledger,
    first: Mapping[PartitionKey, Progress],
    note: Mapping[LedgerKey, LedgerValue | None] = NO_NOTE,
) -> list[PartitionKey]:
    """Commits those that have no progress yet; which ones. What has some is never touched: it resumes.
    `note` goes with them.
    """
    for flow in {key.flow for key in first}:
        await ledger.refresh(flow)
    new = [key for key in first if ledger.progress(key) is None]
    records: dict[LedgerKey, LedgerValue | None] = {ProgressKey(key): first[key] for key in new}
    records |= note
    if records:
        await writer.commit(records)
    return new
