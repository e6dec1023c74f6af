"""This module translates the groups of a flow that ends a last time; afterwards groups continue at the
destination.

Offsets are read from the source where it answers; for the rest, the checkpoints hold what groups had last
been seen to commit. Nothing more arrives, so a group that was further than the copied records continues
behind the last copied record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import replace

from runtime.contract.client.settings import ClientSettingsError
from runtime.contract.groups import (
    GroupPartition,
    PendingTranslation,
    final_position,
    group_selector,
    own_groups,
)
from runtime.contract.records.group_records import CheckpointState as State
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.contract.spec.route import router_of
from runtime.driver.duties.group_offset_writer import GroupOffsetWriter
from runtime.driver.duties.group_sync_state import GroupSyncState
from runtime.driver.flows.takeover import FlowContext
from runtime.groups.translation import SEALING, Checkpoints, GroupOffsetSides, PlacedOffset
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import WireError
from runtime.kafka.protocol.groups import CommittedOffset
from runtime.kafka.queries.groups import Read, committed_by, list_groups
from runtime.ledger.consumer_times import ConsumerTimeTable
from runtime.ledger.scan import TopicReplaced

_SOURCE_TIMEOUT_S = 5.0  # short, because a failover must not wait for a lost source
_BROKER_TIMEOUT_S = 2.0
_TRANSLATION_TIMEOUT_S = 10.0
_POLL_S = 0.2

Offsets = Mapping[GroupPartition, CommittedOffset]
Taken = Callable[[Iterable[str]], Collection[str]]


class FinalGroupSync:
    """A FinalGroupSync runs the last translation of a flow's groups.

    `taken` returns those of the given topics that it covers.
    """

    def __init__(self, job: JobSpec, flow: FlowSpec, shared: FlowContext, taken: Taken) -> None:
        self._flow = flow
        self._shared = shared
        self._router = router_of(job)
        self._selector = group_selector(flow.groups)
        self._own = own_groups(job)
        self._covered_topics = taken

    async def run(self) -> tuple[str, ...]:
        """Translates and commits all groups, and returns notes for operators about what failed.

        Raises WireError, after which the caller retries, and DriverFenced.
        """
        if not self._flow.groups.sync:
            return ()
        offsets, read = await self._checkpoints(), Read()
        source = await self._source(read, {item.group for item in offsets})
        offsets |= self._committed(read)
        try:
            async with asyncio.timeout(_TRANSLATION_TIMEOUT_S):
                sides, placed = await self._translate(offsets, source)
        except (WireError, ClientSettingsError, TopicReplaced, TimeoutError):
            sides, placed = await self._translate(offsets, None)
        return await self._commit(offsets, sides, placed)

    async def _source(self, read: Read, known: Set[str]) -> KafkaCluster | None:
        """Opens the source and reads its groups; returns None where no broker of it answering.

        A broker may be dead or hang: answers of the other brokers before the timeout are kept in `read`.
        """
        answering = None
        with suppress(WireError, ClientSettingsError, TimeoutError):
            async with asyncio.timeout(_SOURCE_TIMEOUT_S):
                source = await self._shared.clusters.cluster(self._flow.source)
                listed = (await list_groups(source, _BROKER_TIMEOUT_S)).groups
                answering = source
                groups = {group for group in listed if self._selects(group)}
                await committed_by(source, groups, _BROKER_TIMEOUT_S, read)
                await committed_by(source, known - groups, _BROKER_TIMEOUT_S, read)
        return answering

    async def _checkpoints(self) -> dict[GroupPartition, CommittedOffset]:
        """Returns the offsets that the source's groups were last seen to have committed. Raises WireError."""
        checkpoints = Checkpoints(self._shared.destination)
        await checkpoints.refresh()
        found = {
            GroupPartition(key.group, key.topic, key.partition): CommittedOffset(one.source)
            for key, one in checkpoints.of_flow(self._flow.name).items()
            if one.state is not State.OURS and self._selects(key.group)
        }
        return self._covered(found)

    def _committed(self, read: Read) -> dict[GroupPartition, CommittedOffset]:
        found = {
            GroupPartition(group, *at): offset
            for group, offsets in read.offsets.items()
            for at, offset in offsets.items()
        }
        return self._covered(found)

    def _covered(
        self, found: Mapping[GroupPartition, CommittedOffset]
    ) -> dict[GroupPartition, CommittedOffset]:
        taken = self._covered_topics({item.topic for item in found})
        return {item: offset for item, offset in found.items() if item.topic in taken}

    def _selects(self, group: str) -> bool:
        return group not in self._own and self._selector.answer(group).taken

    async def _translate(
        self, offsets: Offsets, source: KafkaCluster | None
    ) -> tuple[GroupOffsetSides, dict[GroupPartition, PlacedOffset]]:
        """Translates the offsets, and waits for an offset map that is being written at this moment.

        Raises WireError.
        """
        by_time = self._flow.groups.mode == "timestamp"
        times = ConsumerTimeTable(self._flow.name, source, self._shared.destination) if by_time else None
        sides = GroupOffsetSides(self._flow.name, source, self._shared.destination, times)
        while True:
            await sides.refresh(self._router, self._shared.ledger, {item.topic for item in offsets})
            news = {item: one.offset for item, one in offsets.items() if not sides.is_ours(item, one.offset)}
            placed = await sides.place(news)
            if not any(place.position == PendingTranslation(SEALING) for place in placed.values()):
                return sides, {item: _at_end(sides, item, place) for item, place in placed.items()}
            await asyncio.sleep(_POLL_S)

    async def _commit(
        self, offsets: Offsets, sides: GroupOffsetSides, placed: Mapping[GroupPartition, PlacedOffset]
    ) -> tuple[str, ...]:
        """Commits the translated offsets. It writes, so no timeout may cancel it."""
        state, notes = GroupSyncState(self._flow.name), dict[str, str]()
        await GroupOffsetWriter(
            self._flow, self._shared.leadership, sides, state, offsets, notes
        ).commit_offsets(placed)
        refused = sorted({item.group for item in placed if _state_of(state, item, offsets) is State.REFUSED})
        if refused:
            some = ", ".join(refused[:3]) + (" and more" if len(refused) > 3 else "")
            notes[some] = "left alone, a member is connected at the destination"
        return tuple(f"{what}: {why}" for what, why in notes.items())


def _at_end(sides: GroupOffsetSides, item: GroupPartition, place: PlacedOffset) -> PlacedOffset:
    """Returns the translation of an offset when nothing more arrives.

    A group that is further than the copied records continues behind the last copied record.
    """
    progress = sides.progress(item)
    if progress is None:
        return place
    shared = sides.merged(item.topic)
    position = final_position(place.position, progress.destination_end, shared=shared, floor=place.floor)
    return replace(place, position=position)


def _state_of(state: GroupSyncState, item: GroupPartition, offsets: Offsets) -> State | None:
    return state.entry(item, offsets[item].offset, 0.0).state
