"""Syncs consumer groups: it translates the offsets committed at the source and commits the result.

One pass lists the groups and reads their offsets at the source. Then it refreshes the ledger, the offset maps
and what was written before, and translates the offsets. `group_offset_writer` commits the result.

The groups of a flow that ends are translated a last time; afterwards they continue at the destination
(`FinalGroupSync`). Offsets are read from the source where it answers; for the rest, the checkpoints hold what
groups had last been seen to commit. Nothing more arrives, so a group that was further than the copied records
continues behind the last copied record. The flow ends once no group is left that another attempt may move, or
after a minute; the reasons of those that are left are in their checkpoints.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Set

from msgspec import Struct, field
from msgspec.structs import replace

from runtime.contract.client.settings import ClientSettingsError
from runtime.contract.groups import (
    PendingTranslation,
    TranslatedOffset,
    final_position,
    own_groups,
)
from runtime.contract.records.group_records import CheckpointState as State
from runtime.contract.records.group_records import GroupPartition
from runtime.contract.spec import naming, topic_settings
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.contract.spec.route import router_of
from runtime.contract.spec.selected_topics import SelectedTopics
from runtime.driver.clusters import ensure
from runtime.driver.duties.group_offset_writer import (
    ACTIVE,
    DONE,
    NOTE,
    GroupOffsetWriter,
    GroupSyncState,
    uncommitted_notes,
)
from runtime.driver.flows.start import DriverContext
from runtime.driver.slots.channel import post
from runtime.driver.topics.mirrors import not_promoted
from runtime.groups.translation import RECREATED_THERE, ClusterRecords, GroupOffsetSides, PlacedOffset
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import WireError
from runtime.kafka.protocol.groups import CommittedOffset, DecodedOffsets
from runtime.kafka.queries import Committed, Read, committed_by, list_groups
from runtime.ledger.consumer_times import ConsumerTimeTable, LookupRetries
from runtime.ledger.records import READ_FAILURES
from runtime.metrics.snapshot import GroupSnapshot
from runtime.slot import log

Selects = Callable[[str], bool]


class DrainingTopics(Struct):
    """A DrainingTopics names the topics of a flow that are promoted on their own and still copied.

    The consumer groups of `topics` are still synced. One task at a time commits the flow's groups, under the
    lock.
    """

    topics: frozenset[str] = frozenset()
    group_sync_lock: asyncio.Lock = field(default_factory=asyncio.Lock)


_PURPOSE = "groups"
_FULL_PASS_S = 300.0
_LONG_READ_S, _LONG_READ_TIMES, _LONG_READ_MAX_S = 0.5, 10, 30.0
_DECODED_BYTES = 64 << 20  # of the responses kept from one read: enough for a million offsets
_TIMES_PER_PASS = 500  # each is a fetch at the source


def selection_of_groups(job: JobSpec, flow: FlowSpec) -> Selects:
    """Returns whether the flow syncs a group. The product's own groups are never synced."""
    selector, own_names = flow.groups.selector, own_groups(job)
    return lambda group: group not in own_names and selector.answer(group).taken


Offsets = Mapping[GroupPartition, CommittedOffset]


class CommittedOffsetsSnapshot(Struct, frozen=True):
    """Holds the committed offsets of one read, by topic.

    So a flow goes through the offsets of its own topics alone (`OffsetsByTopic`). `missing` has the reason of
    each broker whose groups are not listed, `failed` that of each group whose offsets could not be read.
    `groups` are all groups of the source, `share` its share groups, `covered` those whose offsets were read,
    or tried.
    `valid_s`: how long the snapshot is used at least, because the read took long.
    """

    cluster: KafkaCluster
    read_at: float
    groups: Collection[str] = ()
    share: Collection[str] = ()
    covered: Set[str] = frozenset()
    offsets: Mapping[str, Offsets] = field(default_factory=dict)
    missing: Mapping[str, str] = {}
    failed: Mapping[str, str] = {}
    valid_s: float = 0.0


class OffsetsByTopic:
    """Holds the committed offsets of groups in `topics`, from one read to the next.

    The mapping of a topic is the same object until one of its offsets changes, and `topics` is the same
    object until any offset changes. None of them is ever changed, so a flow sees without comparing offsets
    that its groups are idle.
    """

    def __init__(self) -> None:
        self.topics: Mapping[str, Offsets] = {}
        self._by_group: dict[str, Committed] = {}

    def update(self, groups: Mapping[str, Committed], *, gone: Collection[str] = ()) -> None:
        """Takes the newest offsets of groups, and drops the groups that are gone."""
        before, moved = self._by_group, set(gone)
        for group, committed in groups.items():
            older = before.get(group)
            if older is not committed and older != committed:
                moved.add(group)
        touched = {at.topic for of in (before, groups) for group in moved & of.keys() for at in of[group]}
        self._by_group = {**before, **groups}
        for group in gone:
            self._by_group.pop(group, None)
        if not touched:
            return
        changed: dict[str, dict[GroupPartition, CommittedOffset]] = {
            topic: {
                item: offset for item, offset in self.topics.get(topic, {}).items() if item.group not in moved
            }
            for topic in touched
        }
        for group in moved & groups.keys():
            for at, offset in groups[group].items():
                changed[at.topic][GroupPartition(group, *at)] = offset
        news = {topic: offsets for topic, offsets in changed.items() if offsets != self.topics.get(topic, {})}
        topics = {**self.topics, **news}
        self.topics = {topic: offsets for topic, offsets in topics.items() if offsets}

    def update_all(self, groups: Mapping[str, Committed]) -> None:
        """Takes the offsets of all groups; any other group is gone."""
        self.update(groups, gone=self._by_group.keys() - groups.keys())


class CommittedOffsetsReader:
    """Reads the groups of all flows at one source.

    Concurrent callers share one read. `selected` finds the topics of each flow among those with offsets.

    Each read covers the groups of every flow that has called before and not left. For a flow that calls for
    the first time, only groups that no other flow selects are read and added. Responses that a coordinator
    repeats are not decoded again.
    """

    def __init__(self) -> None:
        self.selected = SelectedTopics()
        self._offsets = OffsetsByTopic()
        self._decoded = DecodedOffsets(_DECODED_BYTES)
        self._selects: dict[str, Selects] = {}
        self._selected: dict[str, bool] = {}  # whether any flow selects a group
        self._newest: CommittedOffsetsSnapshot | None = None
        self._reading = asyncio.Lock()

    def leave(self, flow: str, selects: Selects) -> None:
        """Stops reading groups for the flow, unless a newer version of it has called since."""
        if self._selects.get(flow) == selects:
            del self._selects[flow]
            self._selected.clear()

    async def read(
        self, cluster: KafkaCluster, flow: str, selects: Selects, at_most_s: float
    ) -> CommittedOffsetsSnapshot:
        """Returns offsets of all groups that the flow selects, at most `at_most_s` seconds old.

        Where a read takes longer than half a second, its offsets are used for ten times as long as it took,
        at most 30 s: they would be read all the time otherwise. Raises WireError.
        """
        async with self._reading:
            newest, now_s = self._newest, asyncio.get_running_loop().time()
            if (
                newest is None
                or newest.cluster is not cluster
                or now_s - newest.read_at > max(at_most_s, newest.valid_s)
            ):
                self._add(flow, selects)
                newest = await self._read(cluster, now_s)
            elif self._selects.get(flow) != selects:
                missing = [group for group in newest.groups if group not in newest.covered and selects(group)]
                newest = await self._added(newest, missing) if missing else newest
                self._add(flow, selects)
            self._newest = newest
            return newest

    def _add(self, flow: str, selects: Selects) -> None:
        """Reads groups for the flow from now on."""
        if self._selects.get(flow) != selects:
            self._selects[flow] = selects
            self._selected.clear()

    def _is_selected(self, group: str) -> bool:
        """Returns whether any flow selects the group. The flows of a job are asked once for each group."""
        selected = self._selected.get(group)
        if selected is None:
            selected = self._selected[group] = any(select(group) for select in self._selects.values())
        return selected

    async def _read(self, cluster: KafkaCluster, now_s: float) -> CommittedOffsetsSnapshot:
        listed = await list_groups(cluster)
        groups = tuple(listed.every)
        names = sorted(filter(self._is_selected, groups))
        self._selected = {name: self._selected[name] for name in groups}  # without those that are gone
        empty = CommittedOffsetsSnapshot(cluster, now_s, groups, tuple(listed.share), missing=listed.unlisted)
        self._decoded.keep_for(frozenset(names))
        read = await committed_by(cluster, names, share=empty.share, decoded=self._decoded)
        self._offsets.update_all(read.offsets)
        took_s = asyncio.get_running_loop().time() - now_s
        valid_s = min(_LONG_READ_TIMES * took_s, _LONG_READ_MAX_S) if took_s > _LONG_READ_S else 0.0
        return replace(self._with(empty, names, read), valid_s=valid_s)

    async def _added(
        self, snapshot: CommittedOffsetsSnapshot, groups: Collection[str]
    ) -> CommittedOffsetsSnapshot:
        """Returns the snapshot with the offsets of more groups. Raises WireError."""
        read = await committed_by(snapshot.cluster, groups, share=snapshot.share)
        self._offsets.update(read.offsets)
        return self._with(snapshot, groups, read)

    def _with(
        self, snapshot: CommittedOffsetsSnapshot, groups: Collection[str], read: Read
    ) -> CommittedOffsetsSnapshot:
        """Returns the snapshot with what was read of these groups."""
        return replace(
            snapshot,
            covered=snapshot.covered | set(groups),
            offsets=self._offsets.topics,
            failed={**snapshot.failed, **read.failed},
        )


class GroupSync:
    """Runs passes until cancelled.

    Failures are noted in `notes` and retried, and never stop the flow.
    """

    def __init__(
        self,
        job: JobSpec,
        flow: FlowSpec,
        shared: DriverContext,
        reader: CommittedOffsetsReader,
        notes: dict[str, str],
        draining: DrainingTopics | None = None,
    ) -> None:
        self.notes = notes
        self._job = job
        self._flow = flow
        self._shared = shared
        self._reader = reader
        self._draining = draining or DrainingTopics()
        self._router = router_of(job)
        self._selects = selection_of_groups(job, flow)
        self._state = GroupSyncState(flow.name)
        self._sides: GroupOffsetSides | None = None
        self._full_pass_at = 0.0
        self._by_topic: dict[str, Offsets] = {}
        self._offsets: Offsets = {}
        self._retained: Offsets | None = None  # offsets that the state was cut down to
        self._settled: Offsets | None = None  # offsets of which none needs an action until one changes

    def inherit(self, before: GroupSync) -> None:
        """Continues the counts of an older version of the same flow, and inspects every offset again."""
        self._state = before._state
        self._state.recheck_all()

    def snapshots(self) -> list[GroupSnapshot]:
        """Returns the metrics of each group."""
        return self._state.snapshots()

    async def run(self) -> None:
        """Runs passes at the declared interval until cancelled. Raises DriverFenced."""
        if not self._flow.groups.sync:
            return
        try:
            while True:
                await self._run_pass()
                await asyncio.sleep(self._flow.groups.every_ms / 1000)
        finally:
            self._reader.leave(self._flow.name, self._selects)

    async def _run_pass(self) -> None:
        """Runs one pass and notes its failure.

        While topics are promoted on their own, it waits for their last sync.
        """
        try:
            async with self._draining.group_sync_lock:
                await self.sync_once()
        except (WireError, ClientSettingsError) as error:
            self.notes[NOTE] = str(error)
        except READ_FAILURES as error:
            self.notes[NOTE] = str(error)
            self._sides = None

    async def sync_once(self) -> None:
        """Runs one pass over all groups.

        Raises WireError, ClientSettingsError, READ_FAILURES, DriverFenced.
        """
        began = _now_s()
        self.notes.pop(NOTE, None)
        sides = await self._open_sides()
        await self._read(sides)
        if began - self._full_pass_at > _FULL_PASS_S:
            self._full_pass_at = began
            self._state.recheck_all()
            self._settled = None
        if self._offsets is self._settled:
            return
        waiting = [
            item
            for item, committed in self._offsets.items()
            if not self._state.entry(item, committed.offset, began).settled
        ]
        if waiting or sides.times is not None:
            await self._translate(sides, waiting)
        else:
            self._settled = self._offsets
        self._state.record_pass(time.time())

    async def _translate(self, sides: GroupOffsetSides, waiting: Collection[GroupPartition]) -> None:
        """Translates these offsets, and writes those that changed.

        Raises WireError, ClientSettingsError, READ_FAILURES, DriverFenced.
        """
        await sides.refresh({item.topic for item in waiting})
        unsettled = self._without_ours(sides, waiting)
        await self._store_times(sides)
        placed = await sides.place({item: self._offsets[item].offset for item in unsettled})
        to_write = [item for item in unsettled if self._needs_action(item, placed[item])]
        writer = GroupOffsetWriter(self._flow, self._shared.leadership, sides, self._state, self._offsets)
        uncommitted = await writer.commit_offsets({item: placed[item] for item in to_write})
        failed = {
            item: offset
            for item, offset in uncommitted.items()
            if isinstance(placed[item].position, TranslatedOffset) and offset.why != ACTIVE
        }
        if failed:
            self.notes[NOTE] = "; ".join(uncommitted_notes(failed, self._flow.destination))

    async def _open_sides(self) -> GroupOffsetSides:
        source = await self._shared.clusters.cluster(self._flow.source)
        if self._sides is None or self._sides.source is not source:
            records = self._shared.records
            self._sides = GroupOffsetSides(
                self._flow.name,
                self._router,
                self._shared.ledger,
                records.of(self._flow.source, source),
                records.of(self._flow.destination, self._shared.destination),
                await self._open_times(source),
            )
        return self._sides

    async def _open_times(self, source: KafkaCluster) -> ConsumerTimeTable | None:
        if self._flow.groups.mode != "timestamp":
            return None
        shared, kept = self._shared, self._job.internal.timestamps
        topic = topic_settings.timestamps(self._job.internal)
        await ensure(shared.clusters, self._flow.destination, [topic], self._job)
        return ConsumerTimeTable(
            self._flow.name,
            source,
            shared.destination,
            kept.max_per_partition,
            LookupRetries(kept.retry_ms, kept.expiry_ms),
        )

    async def _store_times(self, sides: GroupOffsetSides) -> None:
        """Reads a bounded number of consumer timestamps in one pass, and stores those that are not yet.

        Raises WireError, DriverFenced.
        """
        times, destination = sides.times, self._shared.destination
        if times is None:
            return
        committed = {item: committed_offset.offset for item, committed_offset in self._offsets.items()}
        await times.read_from_source(committed, _TIMES_PER_PASS)
        topic = (await destination.topics([naming.TIMESTAMPS]))[naming.TIMESTAMPS]
        if unstored := times.unsaved_records(len(topic.partitions)):
            await self._shared.leadership.ensure()
            for partition, records in unstored.items():
                await post(destination, naming.TIMESTAMPS, records, _PURPOSE, partition)
            times.mark_saved()

    async def _read(self, sides: GroupOffsetSides) -> None:
        """Reads what the selected groups committed on the flow's topics. Raises WireError."""
        assert sides.source is not None
        fresh_s = self._flow.groups.every_ms / 2000
        read = await self._reader.read(sides.source, self._flow.name, self._selects, fresh_s)
        unread = {**read.missing, **read.failed}
        if unread:
            what, why = next(iter(unread.items()))
            self.notes[NOTE] = f"{len(unread)} could not be read at {self._flow.source}, as {what}: {why}"
        names = self._reader.selected.of(self._router, self._flow.name, self._flow.source, read.offsets)
        taken = not_promoted(self._flow, names, self._draining.topics)
        by_topic = {topic: read.offsets[topic] for topic in taken}
        same = by_topic.keys() == self._by_topic.keys()
        if not same or any(offsets is not self._by_topic[topic] for topic, offsets in by_topic.items()):
            selects = functools.cache(self._selects)
            self._by_topic = by_topic
            self._offsets = {
                item: offset
                for offsets in by_topic.values()
                for item, offset in offsets.items()
                if selects(item.group)
            }
        if not read.missing and (read.failed or self._retained is not self._offsets):
            self._state.retain_only(self._offsets, read.failed)
            if sides.times is not None:
                sides.times.retain_lookups(self._offsets, read.failed)
        self._retained = self._offsets if not unread else None

    def _without_ours(
        self, sides: GroupOffsetSides, waiting: Iterable[GroupPartition]
    ) -> list[GroupPartition]:
        """Returns the offsets to translate, without those that another flow of this product wrote."""
        unsettled = []
        for item in waiting:
            if sides.is_ours(item, self._offsets[item].offset):
                self._state.entry(item, self._offsets[item].offset, _now_s()).state = State.OURS
            else:
                unsettled.append(item)
        return unsettled

    def _needs_action(self, item: GroupPartition, placed: PlacedOffset) -> bool:
        """Returns whether the offset needs an action that the last pass did not take."""
        entry = self._state.entry(item, self._offsets[item].offset, _now_s())
        before, entry.position = entry.position, placed.position
        waits = isinstance(placed.position, PendingTranslation) and entry.state is State.PENDING
        return before != placed.position or not (waits or entry.state in DONE)


def _now_s() -> float:
    return asyncio.get_running_loop().time()


_SOURCE_TIMEOUT_S = 5.0  # short, because a failover must not wait for a lost source
_BROKER_TIMEOUT_S = 2.0
_TRANSLATION_TIMEOUT_S = 10.0
_PATIENCE_S = 45.0  # an apply waits for 60 s for news of the flow
_POLL_S, _MAX_POLL_S = 0.2, 2.0

Taken = Callable[[Iterable[str]], Collection[str]]
Translation = tuple[GroupOffsetSides, Mapping[GroupPartition, PlacedOffset]]


class FinalGroupSync:
    """Translates the groups of a flow once more, when it, or some of its topics, ended.

    `taken` returns those of the given topics that it covers. Once the flow has ended, nothing else moves the
    groups. So an offset whose broker does not answer, or refuses for now, is tried again for `patience_s`,
    and `waits` is called with the reason. An attempt leaves out the groups that were moved before, because
    they may commit at the destination already.

    A promotion needs what groups committed at the source, and reads that with the same patience. A failover
    asks the source once, for seconds.
    """

    def __init__(
        self,
        job: JobSpec,
        flow: FlowSpec,
        shared: DriverContext,
        taken: Taken,
        waits: Callable[[str], None],
        patience_s: float = _PATIENCE_S,
    ) -> None:
        # With `checkpoints: off`, too, the checkpoints keep why a group was not moved.
        self._flow = replace(flow, checkpoints_every_ms=flow.checkpoints_every_ms or 0)
        self._shared = shared
        self._router = router_of(job)
        self._selects = selection_of_groups(job, flow)
        self._covered_topics = taken
        self._waits = waits
        self._patience_s = patience_s
        self._notes: list[str] = []

    async def run(self) -> tuple[str, ...]:
        """Translates and commits all groups, and returns notes for operators about what failed.

        Raises WireError and READ_FAILURES, after which the caller retries, and DriverFenced.
        """
        if not self._flow.groups.sync:
            return ()
        self._notes = []
        checkpoints = await self._checkpoints()
        source, committed = await self._read_source(checkpoints)
        began, pause_s = _now_s(), _POLL_S
        state, uncommitted = GroupSyncState(self._flow.name), dict[GroupPartition, PendingTranslation]()
        left: Offsets = {**checkpoints, **committed}
        while left:
            if _now_s() - began > _TRANSLATION_TIMEOUT_S:
                source = None
            offsets, (sides, placed) = await self._translate_last(left, checkpoints, source)
            writer = GroupOffsetWriter(self._flow, self._shared.leadership, sides, state, offsets)
            for item in left:
                uncommitted.pop(item, None)
            uncommitted |= await writer.commit_offsets(placed)
            left = {item: offsets[item] for item, offset in uncommitted.items() if offset.temporary}
            if _now_s() - began > self._patience_s:
                break
            if left:
                self._waits("; ".join(uncommitted_notes(uncommitted, self._flow.destination)))
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _MAX_POLL_S)
        self._notes += uncommitted_notes(uncommitted, self._flow.destination)
        if self._notes:
            notes = "; ".join(self._notes)
            log.warning("groups_not_moved", key=self._flow.name, flow=self._flow.name, error=notes)
        return tuple(self._notes)

    async def _read_source(self, checkpoints: Offsets) -> tuple[KafkaCluster | None, Offsets]:
        """Returns the source and what groups committed there; None if none of its brokers answers.

        A broker may be dead or hang: answers of the other brokers before the deadline are kept.
        """
        is_lost = self._flow.state == "failed_over"
        until = _now_s() + (_SOURCE_TIMEOUT_S if is_lost else self._patience_s)
        within_s = _BROKER_TIMEOUT_S if is_lost else _TRANSLATION_TIMEOUT_S
        is_share = {item.group: offset.of_share_group for item, offset in checkpoints.items()}
        answering, read, pause_s = None, Read(), _POLL_S
        while True:
            try:
                async with asyncio.timeout_at(until):
                    source = await self._shared.clusters.cluster(self._flow.source)
                    listed = await list_groups(source, within_s)
                    answering = source
                    groups = {group for group in listed.every if self._selects(group)}
                    share = {*listed.share, *(group for group in is_share.keys() - groups if is_share[group])}
                    for some in (groups, is_share.keys() - groups):
                        unread = some - read.offsets.keys()
                        await committed_by(source, unread, within_s, read, share=share)
                    missing = listed.unlisted | read.failed
            except TimeoutError:
                missing = read.failed or {self._flow.source: "no answer in time"}
            except (WireError, ClientSettingsError) as error:
                missing = {self._flow.source: str(error)}
            if not missing:
                break
            what, why = next(iter(missing.items()))
            problem = f"what groups committed at {self._flow.source} can't be read: {what}: {why}"
            if is_lost or _now_s() + pause_s > until:
                if answering is not None or not is_lost:
                    self._notes.append(f"{problem}. The groups continue where they were seen last")
                break
            self._waits(problem)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _MAX_POLL_S)
        return answering, self._committed(read)

    async def _checkpoints(self) -> dict[GroupPartition, CommittedOffset]:
        """Returns the offsets that the source's groups were last seen to have committed.

        Raises WireError, READ_FAILURES.
        """
        checkpoints = self._records_of_destination().checkpoints
        await checkpoints.refresh()
        offsets = {
            item: CommittedOffset(checkpoint.source, of_share_group=checkpoint.share)
            for item, checkpoint in checkpoints.of_flow(self._flow.name).items()
            if checkpoint.state is not State.OURS and self._selects(item.group)
        }
        return self._covered(offsets)

    def _records_of_destination(self) -> ClusterRecords:
        return self._shared.records.of(self._flow.destination, self._shared.destination)

    def _committed(self, read: Read) -> dict[GroupPartition, CommittedOffset]:
        committed = {
            GroupPartition(group, *at): offset
            for group, offsets in read.offsets.items()
            for at, offset in offsets.items()
        }
        return self._covered(committed)

    def _covered(
        self, offsets: Mapping[GroupPartition, CommittedOffset]
    ) -> dict[GroupPartition, CommittedOffset]:
        taken = self._covered_topics({item.topic for item in offsets})
        return {item: offset for item, offset in offsets.items() if item.topic in taken}

    async def _translate_last(
        self, offsets: Offsets, checkpoints: Offsets, source: KafkaCluster | None
    ) -> tuple[Offsets, Translation]:
        """Translates by both sides, or by the destination alone if the source can't be read in time.

        Returns the offsets that were translated, too. Of a topic that is not the copied one any more at the
        source, the checkpoints count: a commit there is a position in another log.
        Raises WireError, READ_FAILURES of the destination.
        """
        if source is None:
            return offsets, await self._translate(offsets, None)
        try:
            async with asyncio.timeout(_TRANSLATION_TIMEOUT_S):
                sides, placed = await self._translate(offsets, source)
        except (WireError, ClientSettingsError, TimeoutError, *READ_FAILURES):
            return offsets, await self._translate(offsets, None)
        recreated = [item for item, place in placed.items() if place.position == RECREATED_THERE]
        from_checkpoints = {item: checkpoints[item] for item in recreated if item in checkpoints}
        if from_checkpoints:
            _, by_checkpoint = await self._translate(from_checkpoints, None)
            offsets, placed = {**offsets, **from_checkpoints}, {**placed, **by_checkpoint}
        return offsets, (sides, placed)

    async def _translate(self, offsets: Offsets, source: KafkaCluster | None) -> Translation:
        """Translates the offsets by the destination, and by the source if there is one.

        Raises WireError, READ_FAILURES.
        """
        by_time = self._flow.groups.mode == "timestamp"
        times = ConsumerTimeTable(self._flow.name, source, self._shared.destination) if by_time else None
        at_source = self._shared.records.of(self._flow.source, source) if source is not None else None
        at_destination = self._records_of_destination()
        sides = GroupOffsetSides(
            self._flow.name, self._router, self._shared.ledger, at_source, at_destination, times
        )
        await sides.refresh({item.topic for item in offsets})
        news = {
            item: offset.offset for item, offset in offsets.items() if not sides.is_ours(item, offset.offset)
        }
        placed = await sides.place(news)
        return sides, {item: _at_end(sides, item, place) for item, place in placed.items()}


def _at_end(sides: GroupOffsetSides, item: GroupPartition, place: PlacedOffset) -> PlacedOffset:
    """Returns the translation of an offset when nothing more arrives.

    A group that is further than the copied records continues behind the last copied record.
    """
    progress = sides.translator.progress(item.topic, item.partition)
    if progress is None:
        return place
    shared = sides.translator.merged(item.topic)
    position = final_position(place.position, progress.destination_end, shared=shared, floor=place.floor)
    return replace(place, position=position)
