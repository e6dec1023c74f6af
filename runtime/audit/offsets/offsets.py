"""Translates a group's offsets at both sides of a flow as group sync would, with or without it.

Where the source does not answer, its offsets are those of the newest checkpoints.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from runtime.audit.ledger import (
    AuditFailure,
    ClusterAccess,
    LedgerNotFound,
    UnexpectedClusterId,
    as_audit_failure,
    ledger_of,
    open_cluster,
)
from runtime.contract.groups import GroupPartition, PendingTranslation, TranslatedOffset, UntranslatableOffset
from runtime.contract.records.group_records import Checkpoint, CheckpointKey
from runtime.contract.records.group_records import CheckpointState as State
from runtime.contract.spec.naming import is_internal
from runtime.contract.spec.route import Router
from runtime.contract.views.groups_view import BY_MAP, BY_TIME, GroupOffsetsView, GroupOffsetView
from runtime.groups.translation import Checkpoints, GroupOffsetSides, PlacedOffset
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.queries import committed_by, list_groups
from runtime.ledger.consumer_times import ConsumerTimeTable
from runtime.ledger.ledger import Ledger

Offsets = Mapping[TopicPartition, int]

WAITING = "waiting"  # translated, and not written yet
UNSYNCED = "not_synced"  # translated, and not written
ABSENT = "absent"  # nothing was committed at the source


@dataclass(frozen=True, slots=True)
class GroupOffsetsRequest:
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


@dataclass(frozen=True, slots=True)
class _Side:
    """Holds a group's state at one cluster; `why` says why it could not be read."""

    state: str = ""
    offsets: Offsets = field(default_factory=dict)
    why: str = ""


async def group_offsets(asked: GroupOffsetsRequest) -> GroupOffsetsView:
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
    listed = (await list_groups(cluster)).groups.get(group)
    read = await committed_by(cluster, [group])
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
) -> GroupOffsetsView:
    times = ConsumerTimeTable(asked.flow, source, destination) if asked.by_time else None
    sides = GroupOffsetSides(asked.flow, source, destination, times)
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
        GroupOffsetView(
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
) -> GroupOffsetView:
    committed_at_destination = at_destination.get(place.at)
    translation, clamped, exact, by, why = None, False, True, "", ""
    last = sides.last(item)
    match place.position:
        case TranslatedOffset() as at:
            translation, clamped, exact = at.offset, at.clamped, at.settled and not at.by_time
            by = BY_TIME if at.by_time else BY_MAP
            state, why = _written(at.offset, committed_at_destination, last, waiting)
        case PendingTranslation(why=reason):
            state, why = State.PENDING.value, reason
        case UntranslatableOffset(why=reason):
            state, why = State.UNMAPPED.value, reason
    if sides.is_ours(item, committed):
        state, why = State.OURS.value, "written at the source by a flow that comes from here"
    return GroupOffsetView(
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
) -> GroupOffsetsView:
    """Returns the offsets of the newest checkpoints, for a source that does not answer."""
    checkpoints = Checkpoints(destination)
    await checkpoints.refresh()
    rows = [
        _from_checkpoint(key, one, at_destination.offsets)
        for key, one in checkpoints.of_flow(asked.flow).items()
        if key.group == asked.group
    ]
    return _seen(asked, at_source, at_destination, rows)


def _from_checkpoint(key: CheckpointKey, one: Checkpoint, at_destination: Offsets) -> GroupOffsetView:
    return GroupOffsetView(
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
    asked: GroupOffsetsRequest, at_source: _Side, at_destination: _Side, rows: list[GroupOffsetView]
) -> GroupOffsetsView:
    return GroupOffsetsView(
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
