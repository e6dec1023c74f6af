"""Computes where a flow's groups would continue after a failover, as the job would, and writes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass

from msgspec.structs import replace

from runtime.audit.ledger import (
    AuditFailure,
    ClusterAccess,
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
from runtime.contract.records.group_records import CheckpointState
from runtime.contract.spec.route import Router
from runtime.contract.spec.selection import NamePatterns
from runtime.contract.views.loss_view import GroupLoss, GroupTopics
from runtime.groups.translation import Checkpoints, GroupOffsetSides, PlacedOffset
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.queries import NO_MEMBERS, Committed, committed_by, list_groups
from runtime.ledger.consumer_times import ConsumerTimeTable
from runtime.ledger.ledger import Ledger

Offsets = Mapping[GroupPartition, int]


@dataclass(frozen=True, slots=True)
class RehearsalRequest:
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
        source = await _source(asked, stack)
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


async def _source(asked: RehearsalRequest, stack: AsyncExitStack) -> KafkaCluster | None:
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
                listed = (await list_groups(source)).groups
                read = await committed_by(source, [group for group in listed if asked.selects(group)])
    except (AuditFailure, TimeoutError):
        return None
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
    offsets: Offsets,
) -> list[GroupLoss]:
    times = ConsumerTimeTable(asked.flow, source, destination) if asked.by_time else None
    sides = GroupOffsetSides(asked.flow, source, destination, times)
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
    listed = (await list_groups(destination)).groups
    read = await committed_by(destination, groups)
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


def _topics(asked: RehearsalRequest, offsets: Offsets) -> dict[str, list[str]]:
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
