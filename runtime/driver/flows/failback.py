"""Starts a failback: the flow starts at the end of its opposite flow, by the ledger of the opposite flow.

First, the records that the opposite flow has not copied from its own source are recorded as orphaned. Then
positions and maps are committed; the last of these transactions also records that the failback has started.
After a crash in between, all steps are repeated from the same facts, because the opposite flow no longer
copies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from runtime.contract.records.control import AssignedPartition
from runtime.contract.records.failback import (
    FailbackStart,
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
from runtime.contract.spec.flow import Earliest
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.route import is_reserved
from runtime.contract.spec.selection import NamePatterns
from runtime.driver.flows.start import DriverContext, FlowWaits
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import BrokerError, ErrorCode
from runtime.kafka.fetch import holds_record
from runtime.ledger.ledger import Ledger, UndecidedProgress
from runtime.ledger.offset_maps import OffsetMaps
from runtime.ledger.positions import FlowNotEnded, first_positions, leave_orphans
from runtime.slot import log

FAILBACK = "failback"
STRANGER = "written by another producer while the flow had ended"
_TRANSACTION_SIZE = 4 << 20


Records = dict[LedgerKey, LedgerValue | None]


class OppositeFlowLedger(Struct, frozen=True):
    """Holds the opposite flow's entries of the ledger at the flow's source.

    The keys are the flow's own partitions. `topics` are the opposite's own topics: the names at the flow's
    destination.
    """

    generation: Generation | None
    progress: Mapping[PartitionKey, Progress]
    maps: Mapping[PartitionKey, OffsetMap]
    topics: Mapping[PartitionKey, str]

    def has_map(self, partition: AssignedPartition) -> bool:
        """Returns whether the opposite flow has an offset map for this partition."""
        return partition.key in self.maps


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
    await shared.leadership.ensure()
    try:  # the flow's destination is the source of its opposite, whose ledger is here at the source
        await leave_orphans(opposite, shared.destination, source, FAILBACK)
    except FlowNotEnded as waits:
        raise FlowWaits(str(waits)) from waits
    theirs = await read_opposite(spec, opposite, source)
    names = NamePatterns(spec.promoted)
    promoted = [key for key in theirs.maps if key not in wanted and names.match(key.topic)]
    failing_back = [partition for partition in wanted.values() if theirs.has_map(partition)]
    failing_back += await _partitions_at_both(source, shared.destination, theirs, promoted)
    await _begin_partitions(spec, shared, source, theirs, failing_back, mine)
    done: Records = {
        ProgressKey(key): None
        for key in shared.ledger.all_progress(spec.name)
        if key in theirs.maps and key not in wanted and key not in promoted
    }
    done[GenerationKey(spec.name)] = after_failback(mine, theirs.generation)
    await _commit(shared, spec.name, done)
    log.info(
        "failback_started", key=spec.name, flow=spec.name, opposite=opposite, partitions=len(failing_back)
    )


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
    failing_back = [partition for partition in new if theirs.has_map(partition)]
    await _begin_partitions(spec, shared, source, theirs, failing_back, mine)
    return [partition for partition in new if not theirs.has_map(partition)]


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
    offset_maps: dict[PartitionKey, OffsetMap] = {}
    topics: dict[PartitionKey, str] = {}
    for theirs in maps.progress(opposite):
        state = ledger.progress(theirs)
        if isinstance(state, UndecidedProgress) or state is None or maps.sealing(theirs):
            raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS, f"where {opposite} ended")
        offsets = maps.get(theirs)
        if offsets is not None and not is_reserved(theirs.topic):
            mine = PartitionKey(spec.name, state.destination_topic, theirs.partition)
            progress[mine], offset_maps[mine], topics[mine] = state, offsets, theirs.topic
    return OppositeFlowLedger(ledger.generation(opposite), progress, offset_maps, topics)


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
    starts = await first_positions(
        source, shared.destination, partitions, Earliest(), mine.number, fresh=True
    )
    for key, first in starts.items():
        before = shared.ledger.decided_progress(key)
        begun = failback_start(before, theirs.progress[key], theirs.maps[key], first)
        ranges = foreign_offset_ranges(before, begun, first.position) if mine.life else []
        single = single_before(before, begun, first.position) if mine.life else None
        if single is not None and await holds_record(source, key.at, single):
            ranges = [(single, single + 1), *ranges]
        records |= _records(key, begun, ranges)
        size += sum(len(segment.encoded_runs()) for segment in begun.segments)
        if size > _TRANSACTION_SIZE:
            await _commit(shared, spec.name, records)
            records, size = {}, 0
    if records:
        await _commit(shared, spec.name, records)


def _records(key: PartitionKey, begun: FailbackStart, strangers: Iterable[tuple[int, int]]) -> Records:
    """Returns the ledger records of one partition.

    Records that other producers wrote at the flow's source meanwhile are recorded as orphaned, never skipped
    silently (R4).
    """
    progress = begun.progress
    records: Records = {ProgressKey(key): progress}
    for number, segment in enumerate(begun.segments, begun.number):
        records[SegmentKey(key, progress.incarnation, number)] = segment
    for low, end in strangers:
        left = Orphaned(end, progress.source_topic_id, progress.written_at, STRANGER)
        records[OrphanedKey(key, low)] = left
    return records


async def _commit(shared: DriverContext, flow: str, records: Records) -> None:
    await shared.leadership.ensure()
    await shared.leadership.commit(records)
    await shared.ledger.decided(flow)
