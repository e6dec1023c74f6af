"""Starts a failback: the flow starts at the end of its opposite flow, by the ledger of the opposite flow.

First, the records that the opposite flow has not copied from its own source are recorded as orphaned. Then
positions and maps are committed; the last of these transactions also records that the failback has started.
After a crash in between, all steps are repeated from the same facts, because the opposite flow no longer
copies.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from runtime.contract.records.control import AssignedPartition
from runtime.contract.records.failback import (
    FailbackStart,
    PartitionBounds,
    after_failback,
    can_complete_failback,
    failback_start,
    foreign_offset_ranges,
    is_restarting,
    single_before,
)
from runtime.contract.records.ledger import (
    Generation,
    GenerationKey,
    LedgerKey,
    LedgerValue,
    Orphaned,
    OrphanedKey,
    PartitionKey,
    Progress,
    ProgressKey,
    SegmentKey,
)
from runtime.contract.records.offset_map import OffsetMap
from runtime.contract.spec import naming
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.route import is_reserved
from runtime.contract.spec.selection import NamePatterns
from runtime.driver.flows.start import DriverContext, FlowWaits
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import BrokerError, ErrorCode
from runtime.kafka.fetch import holds_record
from runtime.kafka.protocol.offsets import EARLIEST, LATEST, TopicPartition
from runtime.kafka.queries import offsets_of
from runtime.ledger.ledger import Ledger, UndecidedProgress
from runtime.ledger.offset_maps import OffsetMaps
from runtime.ledger.positions import FlowNotEnded, OrphanMarks, leave_orphans
from runtime.slot import log

FAILBACK = "failback"
STRANGER = "written by another producer while the flow had ended"
_TRANSACTION_SIZE = 4 << 20


async def orphan_before(flow: str, source: str, destination: str, shared: DriverContext) -> OrphanMarks:
    """Records the uncopied records of `flow` as orphaned and returns the marks.

    `flow` is the original flow, with its own source and destination; its ledger is at `destination`, where
    the failback starts. Raises FlowNotEnded, WireError, after which the caller retries, and DriverFenced.
    """
    old_primary = await shared.clusters.cluster(source)
    ledger_cluster = await shared.clusters.cluster(destination)
    await shared.leadership.ensure()
    return await leave_orphans(flow, old_primary, ledger_cluster, FAILBACK)


Records = dict[LedgerKey, LedgerValue | None]


class OppositeFlowLedger(Struct, frozen=True):
    """An OppositeFlowLedger holds the opposite flow's entries of the ledger at the flow's source.

    The keys are the flow's own partitions. `topics` are the opposite's own topics: the names at the flow's
    destination.
    """

    generation: Generation | None
    progress: Mapping[PartitionKey, Progress]
    maps: Mapping[PartitionKey, OffsetMap]
    topics: Mapping[PartitionKey, str]

    def has_map(self, one: AssignedPartition) -> bool:
        """Returns whether the opposite flow has an offset map for this partition."""
        return one.key in self.maps


async def start_failback(
    spec: FlowSpec,
    opposite: str | None,
    shared: DriverContext,
    source: KafkaCluster,
    wanted: Mapping[PartitionKey, AssignedPartition],
) -> None:
    """Prepares a failback before any partition is assigned under this generation.

    Raises WireError; the caller then retries.
    """
    mine = shared.ledger.generation(spec.name)
    if mine is None or not mine.turning:
        return
    if opposite is None or is_restarting(spec, mine):
        await _commit(shared, spec.name, {GenerationKey(spec.name): after_failback(mine, None)})
        return
    theirs = await read_opposite(spec, opposite, source)
    if theirs.generation is None:
        if mine.life:  # a flow that had ended; a source that just came back may not know its topics yet
            raise FlowWaits(
                f"{spec.source} has no ledger of its opposite flow {opposite}, at whose end it continues:"
                f" nothing is copied. If that ledger is lost, or {opposite} never ran, write a new"
                " restart_from"
            )
        await _commit(shared, spec.name, {GenerationKey(spec.name): after_failback(mine, None)})
        return
    if not can_complete_failback(mine, theirs.generation):
        raise FlowWaits(f"its opposite flow {opposite} is {_opposite_state(theirs.generation)}")
    try:
        await orphan_before(opposite, spec.destination, spec.source, shared)
    except FlowNotEnded as waits:
        raise FlowWaits(str(waits)) from waits
    theirs = await read_opposite(spec, opposite, source)
    names = NamePatterns(spec.promoted)
    promoted = [key for key in theirs.maps if key not in wanted and names.match(key.topic)]
    known = [one for one in wanted.values() if theirs.has_map(one)]
    known += await _partitions_at_both(source, shared.destination, theirs, promoted)
    await _begin_partitions(spec, shared, source, theirs, known, mine)
    done: Records = {
        ProgressKey(key): None
        for key in shared.ledger.all_progress(spec.name)
        if key in theirs.maps and key not in wanted and key not in promoted
    }
    done[GenerationKey(spec.name)] = after_failback(mine, theirs.generation)
    await _commit(shared, spec.name, done)
    log.info("failback_started", key=spec.name, flow=spec.name, opposite=opposite, partitions=len(known))


async def begin_new_partitions(
    spec: FlowSpec,
    opposite: str | None,
    shared: DriverContext,
    source: KafkaCluster,
    new: list[AssignedPartition],
) -> list[AssignedPartition]:
    """Starts partitions that could not be copied yet when the failback began.

    Returns those partitions that the opposite flow never had. Raises WireError.
    """
    mine = shared.ledger.generation(spec.name)
    if opposite is None or mine is None or mine.after < 0 or not new:
        return new
    theirs = await read_opposite(spec, opposite, source)
    known = [one for one in new if theirs.has_map(one)]
    await _begin_partitions(spec, shared, source, theirs, known, mine)
    return [one for one in new if not theirs.has_map(one)]


async def read_opposite(spec: FlowSpec, opposite: str, source: KafkaCluster) -> OppositeFlowLedger:
    """Reads what the ledger at the flow's source states about the flow in the other direction.

    A transaction that has just marked orphans may give partitions their first progress: until its marker is
    written, such a partition would look as if the opposite flow never had it. Raises WireError.
    """
    if (await source.topics([naming.LEDGER]))[naming.LEDGER].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return OppositeFlowLedger(None, {}, {}, {})
    ledger = await Ledger.open(source)
    await ledger.decided(opposite)
    maps = OffsetMaps(source, ledger)
    await maps.refresh(opposite)
    progress: dict[PartitionKey, Progress] = {}
    found: dict[PartitionKey, OffsetMap] = {}
    topics: dict[PartitionKey, str] = {}
    for theirs in maps.progress(opposite):
        state = ledger.progress(theirs)
        if isinstance(state, UndecidedProgress) or state is None or maps.sealing(theirs):
            raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS, f"where {opposite} ended")
        offsets = maps.get(theirs)
        if offsets is not None and not is_reserved(theirs.topic):
            mine = PartitionKey(spec.name, state.destination_topic, theirs.partition)
            progress[mine], found[mine], topics[mine] = state, offsets, theirs.topic
    return OppositeFlowLedger(ledger.generation(opposite), progress, found, topics)


async def _partitions_at_both(
    source: KafkaCluster,
    destination: KafkaCluster,
    theirs: OppositeFlowLedger,
    keys: Collection[PartitionKey],
) -> list[AssignedPartition]:
    """Returns those partitions of separately promoted topics that exist at both sides.

    These partitions are not copied, but the ledger keeps the positions of their records that were copied
    back. A partition that is missing at one side keeps its state.
    """
    at_source = await source.topics({key.topic for key in keys}, fresh=True)
    at_destination = await destination.topics({theirs.topics[key] for key in keys}, fresh=True)
    return [
        AssignedPartition(*key, destination_topic=theirs.topics[key])
        for key in keys
        if key.partition in at_source[key.topic].partitions
        and key.partition in at_destination[theirs.topics[key]].partitions
    ]


def _opposite_state(opposite: Generation) -> str:
    if opposite.ended:
        return f"{opposite.state}, but has not run since this flow ended"
    return opposite.state + (f": {opposite.note}" if opposite.note else "")


async def _begin_partitions(
    spec: FlowSpec,
    shared: DriverContext,
    source: KafkaCluster,
    theirs: OppositeFlowLedger,
    partitions: list[AssignedPartition],
    mine: Generation,
) -> None:
    """Commits positions and maps in as many transactions as needed.

    Each partition is complete within one transaction.
    """
    records: Records = {}
    size = 0
    now_ms = int(time.time() * 1000)
    for one, sides in (await _sides(source, shared.destination, partitions)).items():
        before = shared.ledger.progress(one.key)
        if isinstance(before, UndecidedProgress):
            raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS, f"where {one.key.at} stands")
        begun = failback_start(
            before,
            theirs.progress[one.key],
            theirs.maps[one.key],
            sides,
            generation=mine.number,
            now_ms=now_ms,
        )
        ranges = foreign_offset_ranges(before, begun, sides) if mine.life else []
        single = single_before(before, begun, sides) if mine.life else None
        if single is not None and await holds_record(source, one.key.at, single):
            ranges = [(single, single + 1), *ranges]
        records |= _records(one.key, begun, ranges, now_ms)
        size += sum(len(segment.encoded_runs()) for segment in begun.segments)
        if size > _TRANSACTION_SIZE:
            await _commit(shared, spec.name, records)
            records, size = {}, 0
    if records:
        await _commit(shared, spec.name, records)


def _records(
    key: PartitionKey, begun: FailbackStart, strangers: Iterable[tuple[int, int]], now_ms: int
) -> Records:
    """Returns the ledger records of one partition.

    Records that other producers wrote at the flow's source meanwhile are recorded as orphaned, never skipped
    silently (R4).
    """
    progress = begun.progress
    records: Records = {ProgressKey(key): progress}
    for number, segment in enumerate(begun.segments, begun.first):
        records[SegmentKey(key, progress.incarnation, number)] = segment
    for low, end in strangers:
        records[OrphanedKey(key, low)] = Orphaned(end, progress.source_topic_id, now_ms, STRANGER)
    return records


async def _sides(
    source: KafkaCluster, destination: KafkaCluster, partitions: Iterable[AssignedPartition]
) -> dict[AssignedPartition, PartitionBounds]:
    """Returns the topic ids and the offset bounds of each partition at both clusters. Raises WireError."""
    listed = list(partitions)
    at_source = {one: TopicPartition(one.topic, one.partition) for one in listed}
    at_destination = {one: TopicPartition(one.destination_topic, one.partition) for one in listed}
    starts = await offsets_of(source, dict.fromkeys(at_source.values(), EARLIEST))
    ends = await offsets_of(destination, dict.fromkeys(at_destination.values(), LATEST))
    source_topics = await source.topics({one.topic for one in listed}, fresh=True)
    mirrors = await destination.topics({one.destination_topic for one in listed}, fresh=True)
    return {
        one: PartitionBounds(
            source_topic_id=source_topics[one.topic].id,
            source_start=starts[at_source[one]],
            destination_topic=one.destination_topic,
            destination_topic_id=mirrors[one.destination_topic].id,
            destination_end=ends[at_destination[one]],
        )
        for one in listed
    }


async def _commit(shared: DriverContext, flow: str, records: Records) -> None:
    await shared.leadership.ensure()
    await shared.leadership.commit(records)
    await shared.ledger.decided(flow)
