"""Translates a group's offsets at both sides of a flow as group sync would, with or without it.

Where the source does not answer, its offsets are those of the newest checkpoints. `rehearse` computes where a
flow's groups would continue after a failover, as the job would. Nothing is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack

from msgspec import Struct, field
from msgspec.structs import replace

from runtime.audit.ledger import (
    AuditFailure,
    ClusterAccess,
    LedgerNotFound,
    UnexpectedClusterId,
    as_audit_failure,
    ledger_of,
    open_cluster,
)
from runtime.contract.groups import (
    GroupPartition,
    PendingTranslation,
    TranslatedOffset,
    UntranslatableOffset,
    final_position,
)
from runtime.contract.records.group_records import Checkpoint, CheckpointKey, CheckpointState
from runtime.contract.records.group_records import CheckpointState as State
from runtime.contract.results.groups import (
    BY_MAP,
    BY_TIME,
    GroupLoss,
    GroupOffset,
    GroupOffsets,
    GroupTopics,
)
from runtime.contract.spec.naming import is_internal
from runtime.contract.spec.route import Router
from runtime.contract.spec.selection import NamePatterns
from runtime.groups.translation import Checkpoints, ClusterRecords, GroupOffsetSides, PlacedOffset
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.queries import NO_MEMBERS, Committed, committed_by, list_groups
from runtime.ledger.consumer_times import ConsumerTimeTable
from runtime.ledger.ledger import Ledger

Offsets = Mapping[TopicPartition, int]

WAITING = "waiting"  # translated, and not written yet
UNSYNCED = "not_synced"  # translated, and not written
ABSENT = "absent"  # nothing was committed at the source


class GroupOffsetsRequest(Struct, frozen=True):
    """Describes a request for a group's offsets.

    `unsynced`: why the flow does not sync the group, where it does not.
    """

    flow: str
    group: str
    unsynced: str
    router: Router
    source: ClusterAccess
    destination: ClusterAccess
    by_time: bool = False
    within_s: float = 10.0


class _Side(Struct, frozen=True):
    """Holds a group's state at one cluster; `why` says why it could not be read."""

    state: str = ""
    offsets: Offsets = field(default_factory=dict)
    why: str = ""


async def group_offsets(asked: GroupOffsetsRequest) -> GroupOffsets:
    """Returns a group's offsets at both sides, with their translation.

    Raises AuditFailure where the destination can't be read, UnexpectedClusterId for either side.
    """
    async with AsyncExitStack() as stack:
        destination = await stack.enter_async_context(open_cluster(asked.destination, asked.within_s))
        opened = await ledger_of(destination)
        if opened is None:
            raise LedgerNotFound(asked.destination.name)
        source, why = await _source(asked, stack)
        at_source = _Side(why=why)
        if source is not None:
            at_source = await _read_source(source, asked)
        with as_audit_failure(asked.destination.name):
            at_destination = await _read(destination, asked.group)
            if source is not None and not at_source.why:
                return await _translated(asked, source, destination, opened.ledger, at_source, at_destination)
            return await _from_checkpoints(asked, destination, at_source, at_destination)


async def _source(asked: GroupOffsetsRequest, stack: AsyncExitStack) -> tuple[KafkaCluster | None, str]:
    try:
        return await stack.enter_async_context(open_cluster(asked.source, asked.within_s)), ""
    except UnexpectedClusterId:
        raise
    except AuditFailure as failure:
        return None, failure.why


async def _read_source(source: KafkaCluster, asked: GroupOffsetsRequest) -> _Side:
    try:
        with as_audit_failure(asked.source.name):
            return await asyncio.wait_for(_read(source, asked.group), asked.within_s)
    except AuditFailure as failure:
        return _Side(why=failure.why)
    except TimeoutError:
        return _Side(why=f"no answer in {asked.within_s:g} s")


async def _read(cluster: KafkaCluster, group: str) -> _Side:
    found = await list_groups(cluster)
    listed = found.every.get(group)
    read = await committed_by(cluster, [group], share=found.share)
    if group in read.failed:
        return _Side(why=read.failed[group])
    offsets = {at: one.offset for at, one in read.offsets.get(group, {}).items()}
    return _Side(listed.state if listed is not None else "", offsets)


async def _translated(
    asked: GroupOffsetsRequest,
    source: KafkaCluster,
    destination: KafkaCluster,
    ledger: Ledger,
    at_source: _Side,
    at_destination: _Side,
) -> GroupOffsets:
    times = ConsumerTimeTable(asked.flow, source, destination) if asked.by_time else None
    sides = GroupOffsetSides(asked.flow, ClusterRecords(source), ClusterRecords(destination), times)
    offsets = {
        GroupPartition(asked.group, *at): offset
        for at, offset in at_source.offsets.items()
        if asked.router.destination_topic(asked.flow, at.topic) is not None
    }
    await sides.refresh(asked.router, ledger, {item.topic for item in offsets})
    placed = await sides.place(offsets)
    waiting = UNSYNCED if asked.unsynced else WAITING
    rows = [
        _row(sides, item, offsets[item], place, at_destination.offsets, waiting)
        for item, place in placed.items()
    ]
    known = {(row.destination_topic, row.partition) for row in rows}
    rows += [
        GroupOffset(
            topic=topic,
            partition=at.partition,
            destination_topic=at.topic,
            source=None,
            translation=None,
            committed=offset,
            state=ABSENT,
        )
        for at, offset in at_destination.offsets.items()
        if at not in known and (topic := _source_topic(asked, at.topic)) is not None
    ]
    return _seen(asked, at_source, at_destination, rows)


def _row(
    sides: GroupOffsetSides,
    item: GroupPartition,
    committed: int,
    place: PlacedOffset,
    at_destination: Offsets,
    waiting: str,
) -> GroupOffset:
    committed_at_destination = at_destination.get(place.at)
    translation, clamped, exact, by, why = None, False, True, "", ""
    last = sides.last(item)
    match place.position:
        case TranslatedOffset() as at:
            translation, clamped, exact = at.offset, at.clamped, at.settled and not at.by_time
            by = BY_TIME if at.by_time else BY_MAP
            if (
                committed_at_destination is not None
                and not (at.clamped or at.by_time)
                and sides.only_markers_between(item, committed, committed_at_destination, at.offset)
            ):
                state = State.TRANSLATED.value
            else:
                state, why = _written(at.offset, committed_at_destination, last, waiting)
        case PendingTranslation(why=reason):
            state, why = State.PENDING.value, reason
        case UntranslatableOffset(why=reason):
            state, why = State.UNMAPPED.value, reason
    if sides.is_ours(item, committed):
        state, why = State.OURS.value, "written at the source by a flow that comes from here"
    return GroupOffset(
        topic=item.topic,
        partition=item.partition,
        destination_topic=place.at.topic,
        source=committed,
        translation=translation,
        committed=committed_at_destination,
        state=state,
        clamped=clamped,
        exact=exact,
        by=by,
        why=why,
    )


def _written(
    translation: int, committed_at_destination: int | None, last: Checkpoint | None, waiting: str
) -> tuple[str, str]:
    if committed_at_destination == translation:
        return State.TRANSLATED.value, ""
    if last is not None and last.state is State.REFUSED:
        return State.REFUSED.value, last.why
    if committed_at_destination is not None and committed_at_destination > translation:
        return State.AHEAD.value, "it stands further at the destination"
    return waiting, ""


async def _from_checkpoints(
    asked: GroupOffsetsRequest, destination: KafkaCluster, at_source: _Side, at_destination: _Side
) -> GroupOffsets:
    """Returns the offsets of the newest checkpoints, for a source that does not answer."""
    checkpoints = Checkpoints(destination)
    await checkpoints.refresh()
    rows = [
        _from_checkpoint(key, one, at_destination.offsets)
        for key, one in checkpoints.of_flow(asked.flow).items()
        if key.group == asked.group
    ]
    return _seen(asked, at_source, at_destination, rows)


def _from_checkpoint(key: CheckpointKey, one: Checkpoint, at_destination: Offsets) -> GroupOffset:
    return GroupOffset(
        topic=key.topic,
        partition=key.partition,
        destination_topic=one.destination_topic,
        source=one.source,
        translation=one.destination if one.destination >= 0 else None,
        committed=at_destination.get(TopicPartition(one.destination_topic, key.partition)),
        state=one.state.value,
        clamped=one.clamped,
        exact=not one.by_time and one.floor < 0,
        by=(BY_TIME if one.by_time else BY_MAP) if one.destination >= 0 else "",
        why=one.why,
        as_of_ms=one.at_ms,
    )


def _source_topic(asked: GroupOffsetsRequest, name: str) -> str | None:
    topic = asked.router.routes[asked.flow].source_topic(name)
    if topic is None or is_internal(topic) or asked.router.destination_topic(asked.flow, topic) != name:
        return None
    return topic


def _seen(
    asked: GroupOffsetsRequest, at_source: _Side, at_destination: _Side, rows: list[GroupOffset]
) -> GroupOffsets:
    return GroupOffsets(
        flow=asked.flow,
        group=asked.group,
        source_cluster=asked.source.name,
        destination_cluster=asked.destination.name,
        source_answers=not at_source.why,
        source_why=at_source.why,
        synced=not asked.unsynced,
        unsynced=asked.unsynced,
        state_there=at_source.state,
        state_here=at_destination.state,
        partitions=sorted(rows, key=lambda row: (row.topic, row.partition)),
    )


OffsetsByGroup = Mapping[GroupPartition, int]


class RehearsalRequest(Struct, frozen=True):
    """Describes a rehearsal.

    `selects`: the groups that the flow syncs; `by_time`: offsets below the map are translated by record time.
    """

    flow: str
    router: Router
    source: ClusterAccess
    destination: ClusterAccess
    selects: Callable[[str], bool]
    by_time: bool = False
    within_s: float = 3.0


async def rehearse(asked: RehearsalRequest) -> list[GroupLoss]:
    """Returns the loss of each group.

    Raises AuditFailure where the destination can't be read, UnexpectedClusterId for either.
    """
    async with AsyncExitStack() as stack:
        destination = await stack.enter_async_context(open_cluster(asked.destination, asked.within_s))
        with as_audit_failure(asked.destination.name):
            opened = await ledger_of(destination)
            if opened is None:
                return []
            offsets = await _checkpoints(asked, destination)
        source = await _answering_source(asked, stack)
        at_source = await _committed_at_source(asked, source)
        if at_source is None:
            source = None
        with as_audit_failure(asked.destination.name):
            return await _losses(asked, source, destination, opened.ledger, {**offsets, **(at_source or {})})


async def subscriptions(asked: RehearsalRequest) -> list[GroupTopics]:
    """Returns by group the topics at the destination that replace its topics at the source, by the
    checkpoints.

    Raises AuditFailure where the destination can't be read.
    """
    async with open_cluster(asked.destination, asked.within_s) as destination:
        with as_audit_failure(asked.destination.name):
            checkpoints = Checkpoints(destination)
            await checkpoints.refresh()
    topics: dict[str, set[str]] = {}
    for key, one in checkpoints.of_flow(asked.flow).items():
        if _is_synced(asked, key.group, key.topic):
            topics.setdefault(key.group, set()).add(one.destination_topic)
    cluster = asked.destination.name
    return [
        GroupTopics(flow=asked.flow, group=group, cluster=cluster, topics=sorted(names))
        for group, names in sorted(topics.items())
    ]


async def _answering_source(asked: RehearsalRequest, stack: AsyncExitStack) -> KafkaCluster | None:
    try:
        return await stack.enter_async_context(open_cluster(asked.source, asked.within_s))
    except UnexpectedClusterId:
        raise
    except AuditFailure:
        return None


async def _checkpoints(asked: RehearsalRequest, destination: KafkaCluster) -> dict[GroupPartition, int]:
    checkpoints = Checkpoints(destination)
    await checkpoints.refresh()
    return {
        GroupPartition(key.group, key.topic, key.partition): one.source
        for key, one in checkpoints.of_flow(asked.flow).items()
        if one.state is not CheckpointState.OURS and _is_synced(asked, key.group, key.topic)
    }


async def _committed_at_source(
    asked: RehearsalRequest, source: KafkaCluster | None
) -> dict[GroupPartition, int] | None:
    """Returns the offsets that groups committed at the source; None where it does not answer."""
    if source is None:
        return None
    try:
        with as_audit_failure(asked.source.name):
            async with asyncio.timeout(asked.source.within(asked.within_s)):
                return await committed_offsets(asked, source)
    except (AuditFailure, TimeoutError):
        return None


async def committed_offsets(asked: RehearsalRequest, source: KafkaCluster) -> dict[GroupPartition, int]:
    """Returns the offsets at the source of the groups and topics that the flow syncs. Raises WireError."""
    listed = await list_groups(source)
    names = [group for group in listed.every if asked.selects(group)]
    read = await committed_by(source, names, share=listed.share)
    return {
        GroupPartition(group, *at): one.offset
        for group, found in read.offsets.items()
        for at, one in found.items()
        if _is_synced(asked, group, at.topic)
    }


def _is_synced(asked: RehearsalRequest, group: str, topic: str) -> bool:
    return asked.selects(group) and asked.router.destination_topic(asked.flow, topic) is not None


async def _losses(
    asked: RehearsalRequest,
    source: KafkaCluster | None,
    destination: KafkaCluster,
    ledger: Ledger,
    offsets: OffsetsByGroup,
) -> list[GroupLoss]:
    times = ConsumerTimeTable(asked.flow, source, destination) if asked.by_time else None
    at_source = ClusterRecords(source) if source is not None else None
    sides = GroupOffsetSides(asked.flow, at_source, ClusterRecords(destination), times)
    await sides.refresh(asked.router, ledger, {item.topic for item in offsets})
    generation = ledger.generation(asked.flow)
    promoted = NamePatterns(generation.promoted if generation is not None else ())
    offsets = {
        item: offset
        for item, offset in offsets.items()
        if not promoted.match(item.topic) and not sides.is_ours(item, offset)
    }
    placed = await sides.place(offsets)
    topics = _topics(asked, offsets)
    groups = sorted({item.group for item in offsets})
    known = await list_groups(destination)
    listed = known.every
    read = await committed_by(destination, groups, share=known.share)
    found: dict[str, GroupLoss] = {}
    for item, place in placed.items():
        before = found.get(item.group) or GroupLoss(
            flow=asked.flow, group=item.group, topics=topics[item.group]
        )
        listed_group = listed.get(item.group)
        if listed_group is not None and listed_group.state not in NO_MEMBERS:
            why = f"a member is connected at {asked.destination.name}"
            found[item.group] = replace(before, kept=before.kept + 1, why=why)
        else:
            at_destination = read.offsets.get(item.group, {})
            found[item.group] = _with(before, sides, item, place, offsets[item], at_destination)
    return [found[group] for group in groups]


def _topics(asked: RehearsalRequest, offsets: OffsetsByGroup) -> dict[str, list[str]]:
    """Returns the topics that each group subscribes to at the destination."""
    found: dict[str, set[str]] = {}
    for item in offsets:
        destination_topic = asked.router.destination_topic(asked.flow, item.topic)
        if destination_topic is not None:
            found.setdefault(item.group, set()).add(destination_topic)
    return {group: sorted(names) for group, names in found.items()}


def _with(
    before: GroupLoss,
    sides: GroupOffsetSides,
    item: GroupPartition,
    place: PlacedOffset,
    committed: int,
    at_destination: Committed,
) -> GroupLoss:
    progress = sides.progress(item)
    end = progress.destination_end if progress is not None else 0
    position = final_position(place.position, end, shared=sides.merged(item.topic), floor=place.floor)
    match position:
        case TranslatedOffset(offset=offset) if (
            place.at in at_destination and at_destination[place.at].offset > offset
        ):
            return replace(before, kept=before.kept + 1, why="it stands further at the destination already")
        case TranslatedOffset() if position != place.position and progress is not None:
            more = max(committed - progress.position, 0)
            return replace(before, lost=before.lost + 1, records_lost=before.records_lost + more)
        case TranslatedOffset(settled=False) | TranslatedOffset(by_time=True):
            return replace(before, again=before.again + 1)
        case TranslatedOffset():
            return replace(before, exact=before.exact + 1)
        case PendingTranslation(why=why) | UntranslatableOffset(why=why):
            return replace(before, kept=before.kept + 1, why=why)
