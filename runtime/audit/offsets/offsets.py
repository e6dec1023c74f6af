"""Translates a group's offsets at both sides of a flow as group sync would, with or without it.

Where the source does not answer, its offsets are those of the newest checkpoints. `rehearse` computes where a
flow's groups would continue after a failover, as the job would. Nothing is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress

from msgspec.structs import replace

from runtime.audit.ledger import (
    AuditFailure,
    FlowAccess,
    as_audit_failure,
    existing_ledger,
    open_cluster,
    open_if_answering,
)
from runtime.contract.groups import (
    PendingTranslation,
    TranslatedOffset,
    UntranslatableOffset,
    final_position,
)
from runtime.contract.records.group_records import Checkpoint, GroupPartition
from runtime.contract.records.group_records import CheckpointState as State
from runtime.contract.results.groups import (
    BY_MAP,
    BY_TIME,
    GroupLoss,
    GroupOffset,
    GroupOffsets,
    GroupTopics,
)
from runtime.contract.spec.naming import TopicPartition, is_internal
from runtime.contract.spec.selection import NamePatterns
from runtime.groups.translation import Checkpoints, ClusterRecords, GroupOffsetSides, PlacedOffset
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import WireError
from runtime.kafka.queries import NO_MEMBERS, Committed, Listed, committed_by, list_groups
from runtime.kafka.timing import in_time
from runtime.ledger.consumer_times import ConsumerTimeTable
from runtime.ledger.ledger import Ledger
from runtime.ledger.offset_maps import offset_maps_at

Offsets = Mapping[TopicPartition, int]
OffsetsByGroup = Mapping[GroupPartition, int]

WAITING = "waiting"  # translated, and not written yet
UNSYNCED = "not_synced"  # translated, and not written
ABSENT = "absent"  # nothing was committed at the source


async def group_offsets(access: FlowAccess, group: str, unsynced: str = "") -> GroupOffsets:
    """Returns a group's offsets at both sides, with their translation.

    `unsynced` says why the flow does not sync the group, where it does not.

    Raises AuditFailure where the destination can't be read, UnexpectedClusterId for either side.
    """
    async with AsyncExitStack() as stack:
        destination = await stack.enter_async_context(open_cluster(access.destination, access.within_s))
        source, why = await open_if_answering(access, stack)
        with as_audit_failure(access.destination.cluster):
            return await offsets_between(access, group, source, destination, why, unsynced)


async def offsets_between(
    access: FlowAccess,
    group: str,
    source: KafkaCluster | None,
    destination: KafkaCluster,
    why: str = "",
    unsynced: str = "",
) -> GroupOffsets:
    """Returns the offsets of a group at two open clusters. `why` says why there is no source.

    Where the source fails meanwhile, its side is that of the checkpoints. Raises AuditFailure, WireError,
    TopicReplaced and UnreadableRecord of the destination.
    """
    ledger = (await existing_ledger(destination, access.destination.cluster)).ledger
    state_here, at_destination = await _read(destination, access.destination.cluster, group)
    state_there, rows = "", None
    records = ClusterRecords(destination)
    if source is not None:
        try:
            reading = _read(source, access.source.cluster, group)
            state_there, there = await in_time(reading, access.within_s, f"reading {group}")
            offsets = {
                GroupPartition(group, *at): offset
                for at, offset in there.items()
                if access.destination_topic(at.topic) is not None
            }
            sides = await _sides(access, ClusterRecords(source), records, ledger, offsets)
            waiting = UNSYNCED if unsynced else WAITING
            rows = await _translated(access, sides, offsets, at_destination, waiting)
        except AuditFailure as failure:
            why = failure.why
        except WireError as error:  # where the destination fails, what follows raises its error
            why = str(error)
    if rows is None:
        rows = [
            _from_checkpoint(key, checkpoint, at_destination)
            for key, checkpoint in (await _checkpoints(access, records)).items()
            if key.group == group
        ]
    return GroupOffsets(
        flow=access.flow,
        group=group,
        source_cluster=access.source.cluster,
        destination_cluster=access.destination.cluster,
        source_answers=not why,
        source_why=why,
        synced=not unsynced,
        unsynced=unsynced,
        state_there=state_there if not why else "",
        state_here=state_here,
        partitions=sorted(rows, key=lambda row: (row.topic, row.partition)),
    )


async def _read(cluster: KafkaCluster, name: str, group: str) -> tuple[str, Offsets]:
    """Returns the state of a group and its offsets. Raises AuditFailure, WireError."""
    listed = await list_groups(cluster)
    read = await committed_by(cluster, [group], share=listed.share)
    if group in read.failed:
        why = f"the offsets of {group} can't be read: {read.failed[group]}"
        raise AuditFailure(name, why, "run this again")
    listed_group = listed.every.get(group)
    offsets = {at: committed.offset for at, committed in read.offsets.get(group, {}).items()}
    return listed_group.state if listed_group is not None else "", offsets


async def _sides(
    access: FlowAccess,
    source: ClusterRecords | None,
    destination: ClusterRecords,
    ledger: Ledger,
    offsets: OffsetsByGroup,
) -> GroupOffsetSides:
    """Returns both sides of the topics of these offsets, from which offsets are translated."""
    times = None
    if access.by_time:
        at_source = source.cluster if source is not None else None
        times = ConsumerTimeTable(access.flow, at_source, destination.cluster)
    sides = GroupOffsetSides(access.flow, access.router, ledger, source, destination, times)
    await sides.refresh({item.topic for item in offsets})
    return sides


async def _translated(
    access: FlowAccess,
    sides: GroupOffsetSides,
    offsets: OffsetsByGroup,
    at_destination: Offsets,
    waiting: str,
) -> list[GroupOffset]:
    placed = await sides.place(offsets)
    rows = [
        _row(sides, item, offsets[item], place, at_destination, waiting) for item, place in placed.items()
    ]
    translated = {(row.destination_topic, row.partition) for row in rows}
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
        for at, offset in at_destination.items()
        if at not in translated and (topic := _source_topic(access, at.topic)) is not None
    ]
    return rows


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
                and sides.translator.only_markers_between(
                    item, committed, committed_at_destination, at.offset
                )
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


def _from_checkpoint(item: GroupPartition, checkpoint: Checkpoint, at_destination: Offsets) -> GroupOffset:
    return GroupOffset(
        topic=item.topic,
        partition=item.partition,
        destination_topic=checkpoint.destination_topic,
        source=checkpoint.source,
        translation=checkpoint.destination if checkpoint.destination >= 0 else None,
        committed=at_destination.get(TopicPartition(checkpoint.destination_topic, item.partition)),
        state=checkpoint.state.value,
        clamped=checkpoint.clamped,
        exact=not checkpoint.by_time and checkpoint.floor < 0,
        by=(BY_TIME if checkpoint.by_time else BY_MAP) if checkpoint.destination >= 0 else "",
        why=checkpoint.why,
        as_of_ms=checkpoint.at_ms,
    )


def _source_topic(access: FlowAccess, name: str) -> str | None:
    topic = access.router.routes[access.flow].source_topic(name)
    if topic is None or is_internal(topic) or access.destination_topic(topic) != name:
        return None
    return topic


async def rehearse(accesses: Sequence[FlowAccess]) -> list[GroupLoss]:
    """Returns the loss of each group of each flow. Every pair of clusters is opened once, all at once.

    Raises AuditFailure where a destination can't be read, UnexpectedClusterId for any cluster.
    """
    pairs: dict[tuple[str, str], list[FlowAccess]] = {}
    for access in accesses:
        pairs.setdefault((access.source.cluster, access.destination.cluster), []).append(access)
    listed = await asyncio.gather(*map(_rehearse_pair, pairs.values()))
    losses = {flow: of_flow for of_flows in listed for flow, of_flow in of_flows.items()}
    return [loss for access in accesses for loss in losses.get(access.flow, ())]


async def _rehearse_pair(accesses: Sequence[FlowAccess]) -> dict[str, list[GroupLoss]]:
    """Returns the losses by flow, of flows between the same two clusters."""
    access = accesses[0]
    async with AsyncExitStack() as stack:
        destination = await stack.enter_async_context(open_cluster(access.destination, access.within_s))
        with as_audit_failure(access.destination.cluster):
            opened = await offset_maps_at(destination, fresh=True)
        if opened is None:
            return {}
        source, _ = await open_if_answering(access, stack)
        with as_audit_failure(access.destination.cluster):
            return await losses_between(accesses, source, destination, opened.ledger)


class _RehearsedCluster:
    """Holds what flows of a rehearsal share of an open cluster: its records and its groups, listed once."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self.cluster = cluster
        self.records = ClusterRecords(cluster)
        self._listed: Listed | None = None

    async def groups(self) -> Listed:
        """Returns the groups of the cluster. Raises WireError."""
        if self._listed is None:
            self._listed = await list_groups(self.cluster)
        return self._listed


async def losses_between(
    accesses: Sequence[FlowAccess], source: KafkaCluster | None, destination: KafkaCluster, ledger: Ledger
) -> dict[str, list[GroupLoss]]:
    """Returns by flow the loss of each group, of flows between two open clusters.

    Where the source fails meanwhile, the groups' offsets are those of the checkpoints. Raises AuditFailure
    and WireError of the destination.
    """
    at_source = _RehearsedCluster(source) if source is not None else None
    at_destination = _RehearsedCluster(destination)
    return {
        access.flow: await _losses_of_flow(access, at_source, at_destination, ledger) for access in accesses
    }


async def _losses_of_flow(
    access: FlowAccess, source: _RehearsedCluster | None, destination: _RehearsedCluster, ledger: Ledger
) -> list[GroupLoss]:
    offsets = {
        item: checkpoint.source
        for item, checkpoint in (await _checkpoints(access, destination.records)).items()
        if checkpoint.state is not State.OURS and _is_synced(access, item.group, item.topic)
    }
    if source is not None:
        at_source = await _committed_at_source(access, source)
        if at_source is not None:
            # A failure of the destination is raised by what follows.
            with suppress(AuditFailure), as_audit_failure(access.source.cluster):
                return await _losses(access, source, destination, ledger, {**offsets, **at_source})
    return await _losses(access, None, destination, ledger, offsets)


async def subscriptions(accesses: Sequence[FlowAccess]) -> list[GroupTopics]:
    """Returns by flow and group the topics at the destination that replace its topics at the source, by the
    checkpoints, and why a group was not moved. Every destination is opened and read once.

    Raises AuditFailure where a destination can't be read.
    """
    destinations = {access.destination.cluster: access for access in accesses}
    read = await asyncio.gather(*map(_read_checkpoints, destinations.values()))
    checkpoints = dict(zip(destinations, read, strict=True))
    return [
        group
        for access in accesses
        for group in _subscriptions(access, checkpoints[access.destination.cluster].of_flow(access.flow))
    ]


async def _read_checkpoints(access: FlowAccess) -> Checkpoints:
    """Returns all checkpoints of a flow's destination."""
    async with open_cluster(access.destination, access.within_s) as destination:
        checkpoints = Checkpoints(destination)
        await checkpoints.refresh()
        return checkpoints


def _subscriptions(
    access: FlowAccess, checkpoints: Mapping[GroupPartition, Checkpoint]
) -> Iterator[GroupTopics]:
    by_group: dict[str, list[Checkpoint]] = {}
    for key, checkpoint in sorted(checkpoints.items()):
        if _is_synced(access, key.group, key.topic):
            by_group.setdefault(key.group, []).append(checkpoint)
    for group, some in sorted(by_group.items()):
        yield _subscription(access, group, some)


_NOT_MOVED = frozenset({State.PENDING, State.REFUSED, State.UNMAPPED})


def _subscription(access: FlowAccess, group: str, checkpoints: Sequence[Checkpoint]) -> GroupTopics:
    kept = [checkpoint.why for checkpoint in checkpoints if checkpoint.state in _NOT_MOVED]
    return GroupTopics(
        flow=access.flow,
        group=group,
        cluster=access.destination.cluster,
        topics=sorted({checkpoint.destination_topic for checkpoint in checkpoints}),
        kept=len(kept),
        why=kept[0] if kept else "",
    )


async def _checkpoints(
    access: FlowAccess, destination: ClusterRecords
) -> Mapping[GroupPartition, Checkpoint]:
    await destination.checkpoints.refresh()
    return destination.checkpoints.of_flow(access.flow)


async def _committed_at_source(
    access: FlowAccess, source: _RehearsedCluster
) -> dict[GroupPartition, int] | None:
    """Returns the offsets that groups committed at the source; None where it does not answer."""
    try:
        with as_audit_failure(access.source.cluster):
            async with asyncio.timeout(access.source.within(access.within_s)):
                return await committed_offsets(access, source.cluster, await source.groups())
    except (AuditFailure, TimeoutError):
        return None


async def committed_offsets(
    access: FlowAccess, source: KafkaCluster, listed: Listed
) -> dict[GroupPartition, int]:
    """Returns the offsets at the source of the listed groups, of those and the topics that the flow syncs.

    Raises WireError.
    """
    names = [group for group in listed.every if access.selects(group)]
    read = await committed_by(source, names, share=listed.share)
    return {
        GroupPartition(group, *at): offset.offset
        for group, committed in read.offsets.items()
        for at, offset in committed.items()
        if _is_synced(access, group, at.topic)
    }


def _is_synced(access: FlowAccess, group: str, topic: str) -> bool:
    return access.selects(group) and access.destination_topic(topic) is not None


async def _losses(
    access: FlowAccess,
    source: _RehearsedCluster | None,
    destination: _RehearsedCluster,
    ledger: Ledger,
    offsets: OffsetsByGroup,
) -> list[GroupLoss]:
    records = source.records if source is not None else None
    sides = await _sides(access, records, destination.records, ledger, offsets)
    generation = ledger.generation(access.flow)
    promoted = NamePatterns(generation.promoted if generation is not None else ())
    offsets = {
        item: offset
        for item, offset in offsets.items()
        if not promoted.match(item.topic) and not sides.is_ours(item, offset)
    }
    placed = await sides.place(offsets)
    topics: dict[str, set[str]] = {}
    for item in offsets:
        if (name := access.destination_topic(item.topic)) is not None:
            topics.setdefault(item.group, set()).add(name)
    groups = sorted({item.group for item in offsets})
    listed = await destination.groups()
    read = await committed_by(destination.cluster, groups, share=listed.share)
    losses: dict[str, GroupLoss] = {}
    for item, place in placed.items():
        before = losses.get(item.group) or GroupLoss(
            flow=access.flow, group=item.group, topics=sorted(topics[item.group])
        )
        listed_group = listed.every.get(item.group)
        if item.group in read.failed:
            why = f"its offsets at {access.destination.cluster} can't be read: {read.failed[item.group]}"
            losses[item.group] = replace(before, kept=before.kept + 1, why=why)
        elif listed_group is not None and listed_group.state not in NO_MEMBERS:
            why = f"a member is connected at {access.destination.cluster}"
            losses[item.group] = replace(before, kept=before.kept + 1, why=why)
        else:
            at_destination = read.offsets.get(item.group, {})
            losses[item.group] = _with(before, sides, item, place, offsets[item], at_destination)
    return [losses[group] for group in groups]


def _with(
    before: GroupLoss,
    sides: GroupOffsetSides,
    item: GroupPartition,
    place: PlacedOffset,
    committed: int,
    at_destination: Committed,
) -> GroupLoss:
    progress = sides.translator.progress(item.topic, item.partition)
    end = progress.destination_end if progress is not None else 0
    shared = sides.translator.merged(item.topic)
    position = final_position(place.position, end, shared=shared, floor=place.floor)
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
