"""This module writes the translated offsets of a group-sync pass: it writes checkpoints, then commits.

Offsets at the destination are read only for groups that may be written. The broker refuses a commit where a
member is connected; groups that are listed with members are not tried. A checkpoint is written before its
commit, so that a sync in the opposite direction recognises the offset as written by this product, whatever
happens in between. `GroupSyncState` keeps the outcome between two passes, and derives the metrics from it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from runtime.contract.groups import (
    CommitDecision,
    GroupOffsetState,
    GroupPartition,
    NoCommitDecision,
    Position,
    TranslatedOffset,
    decide,
)
from runtime.contract.records import group_records
from runtime.contract.records.group_records import Checkpoint, GroupKey
from runtime.contract.records.group_records import CheckpointState as State
from runtime.contract.spec import naming
from runtime.contract.spec.jobspec import FlowSpec
from runtime.driver.leadership import Leadership
from runtime.driver.slots.channel import post
from runtime.groups.translation import GroupOffsetSides, PlacedOffset
from runtime.kafka.errors import ErrorCode, WireError
from runtime.kafka.protocol.groups import CommittedOffset
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.queries import NO_MEMBERS, Committed, Outcome, commit_many, committed_by, list_groups
from runtime.kafka.records import InternalRecord
from runtime.metrics.snapshot import GroupSnapshot

DONE = frozenset({State.TRANSLATED, State.AHEAD, State.UNMAPPED, State.OURS})


class GroupOffsetEntry(Struct):
    """An entry holds the state of one committed offset.

    `seen_at` is when this offset was first read at the source, in seconds of the event loop's clock.
    """

    source: int
    seen_at: float
    position: Position | None = None
    state: State | None = None
    posted_ms: int = 0
    posted_state: State | None = None

    @property
    def settled(self) -> bool:
        """Whether a further pass gives the same result until the group commits again."""
        moves = isinstance(self.position, TranslatedOffset) and not self.position.settled
        return self.state in DONE and not moves


class _Group(Struct):
    translated: int = 0
    clamped: int = 0
    refused: int = 0
    pending_since: float | None = None
    latency_s: float | None = None
    counts: dict[State, int] = field(default_factory=dict)


class GroupSyncCounts(Struct, frozen=True):
    """These are the totals over a flow's groups: offsets by state, and offsets written since the job started.

    `checkpoint_latency_s` is the time from the first read of an offset at the source to its commit at the
    destination: the longest of the last pass that committed any. `look_s` is the duration of the last pass.
    """

    flow: str
    groups: int = 0
    offsets: int = 0
    translated: int = 0
    pending: int = 0
    refused: int = 0
    ahead: int = 0
    unmapped: int = 0
    clamped: int = 0
    written: int = 0
    checkpoint_latency_s: float | None = None
    pass_s: float = 0.0


class GroupSyncState:
    """A GroupSyncState holds the state of each committed offset and the counters of each group."""

    def __init__(self, flow: str) -> None:
        self._flow = flow
        self._entries: dict[GroupPartition, GroupOffsetEntry] = {}
        self._groups: dict[str, _Group] = {}
        self._latency_s: float | None = None
        self.pass_s = 0.0

    def entry(self, item: GroupPartition, source: int, now_s: float) -> GroupOffsetEntry:
        """Returns the entry of a committed offset, which is reset when the group committed another offset."""
        entry = self._entries.get(item)
        if entry is None:
            entry = self._entries[item] = GroupOffsetEntry(source, now_s)
        elif entry.source != source:
            entry.source, entry.seen_at, entry.position, entry.state = source, now_s, None, None
        return entry

    def retain_only(self, items: Collection[GroupPartition]) -> None:
        """Removes entries and groups that are gone from the source."""
        for gone in self._entries.keys() - set(items):
            del self._entries[gone]
        for group in self._groups.keys() - {item.group for item in items}:
            del self._groups[group]

    def recheck_all(self) -> None:
        """Marks every offset for translation, because the destination may have changed without the source."""
        for entry in self._entries.values():
            entry.position = None
            entry.state = None

    def wrote(self, item: GroupPartition, entry: GroupOffsetEntry, *, clamped: bool, now_s: float) -> None:
        """Counts an offset that was committed at the destination."""
        group = self._groups.setdefault(item.group, _Group())
        group.translated += 1
        group.clamped += clamped
        group.latency_s = now_s - entry.seen_at

    def record_pass(self, wall_s: float, look_s: float, written: Iterable[GroupPartition]) -> None:
        """Updates the counts at the end of a pass. `wall_s` is in seconds since 1970."""
        for group in self._groups.values():
            group.counts = {}
        for item, entry in self._entries.items():
            counts = self._groups.setdefault(item.group, _Group()).counts
            if entry.state is not None:
                counts[entry.state] = counts.get(entry.state, 0) + 1
        for group in self._groups.values():
            waits = State.PENDING in group.counts
            group.pending_since = (group.pending_since or wall_s) if waits else None
            group.refused += State.REFUSED in group.counts
        latencies = [self._groups[item.group].latency_s or 0.0 for item in written]
        self._latency_s = max(latencies, default=self._latency_s)
        self.pass_s = look_s

    def snapshots(self) -> list[GroupSnapshot]:
        """Returns the metrics of each group."""
        return [
            GroupSnapshot(
                flow=self._flow,
                group=name,
                translated=group.translated,
                clamped=group.clamped,
                refused=group.refused,
                pending=group.counts.get(State.PENDING, 0),
                pending_since=group.pending_since,
                latency_s=group.latency_s,
            )
            for name, group in self._groups.items()
        ]

    def counts(self) -> GroupSyncCounts:
        """Returns the totals over all groups."""
        states = [entry.state for entry in self._entries.values()]
        clamped = [entry for entry in self._entries.values() if _clamped(entry)]
        return GroupSyncCounts(
            flow=self._flow,
            groups=len(self._groups),
            offsets=len(states),
            translated=states.count(State.TRANSLATED),
            pending=states.count(State.PENDING),
            refused=states.count(State.REFUSED),
            ahead=states.count(State.AHEAD),
            unmapped=states.count(State.UNMAPPED),
            clamped=len(clamped),
            written=sum(group.translated for group in self._groups.values()),
            checkpoint_latency_s=self._latency_s,
            pass_s=self.pass_s,
        )


def _clamped(entry: GroupOffsetEntry) -> bool:
    return isinstance(entry.position, TranslatedOffset) and entry.position.clamped


NOTE = "groups"
ACTIVE = "a member of the group is connected at the destination"
_ACTIVE_CODES = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.NON_EMPTY_GROUP,
    }
)


class PendingOffsetCommit(Struct, frozen=True):
    """This value is one offset to write. `last_checkpoint` is the checkpoint before it."""

    item: GroupPartition
    place: PlacedOffset
    write: CommitDecision
    checkpoint: Checkpoint
    last_checkpoint: Checkpoint | None


class DestinationGroups(Struct, frozen=True):
    """This value is the state of groups at the destination.

    It names the groups with members, the offsets that the others have committed, and the groups whose state
    is unknown, with the reason.
    """

    active: frozenset[str] = frozenset()
    offsets: Mapping[str, Committed] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)


class GroupOffsetWriter:
    """A GroupOffsetWriter object writes the translated offsets of one pass to the destination."""

    def __init__(
        self,
        flow: FlowSpec,
        leadership: Leadership,
        sides: GroupOffsetSides,
        state: GroupSyncState,
        offsets: Mapping[GroupPartition, CommittedOffset],
        notes: dict[str, str],
    ) -> None:
        self._flow = flow
        self._leadership = leadership
        self._sides = sides
        self._state = state
        self._offsets = offsets
        self._notes = notes

    async def commit_offsets(self, placed: Mapping[GroupPartition, PlacedOffset]) -> list[GroupPartition]:
        """Writes offsets and checkpoints, and returns the items that were written.

        Raises WireError, DriverFenced.
        """
        if not placed:
            return []
        standing = await self._destination_groups(placed)
        wanted: list[PendingOffsetCommit] = []
        kept: dict[GroupPartition, Checkpoint] = {}
        for item, place in placed.items():
            decided = self._decide(item, place, standing)
            if isinstance(decided, PendingOffsetCommit):
                wanted.append(decided)
            else:
                kept[item] = decided
        await self._post_unwritten(kept)
        return await self._write(wanted) if wanted else []

    async def _destination_groups(self, placed: Mapping[GroupPartition, PlacedOffset]) -> DestinationGroups:
        """Reads the state of those groups at the destination that have a translated offset.

        Raises WireError.
        """
        groups = {
            item.group for item, place in placed.items() if isinstance(place.position, TranslatedOffset)
        }
        if not groups:
            return DestinationGroups()
        found = await list_groups(self._sides.destination)
        listed = found.every
        active = {group for group in groups if group in listed and listed[group].state not in NO_MEMBERS}
        share = {item.group for item in placed if self._offsets[item].of_share_group}
        read = await committed_by(self._sides.destination, groups - active, share=share)
        if read.failed:
            group, why = next(iter(read.failed.items()))
            self._notes[NOTE] = f"offsets of {group} can't be read at {self._flow.destination}: {why}"
        return DestinationGroups(frozenset(active), read.offsets, read.failed)

    def _decide(
        self, item: GroupPartition, place: PlacedOffset, standing: DestinationGroups
    ) -> PendingOffsetCommit | Checkpoint:
        """Returns the offset to write, or the checkpoint of an offset that must not be written now."""
        last = self._sides.last(item)
        at_source = self._offsets[item]
        if isinstance(place.position, TranslatedOffset) and item.group in standing.unknown:
            # An offset must not be written while the group's state at the destination is unknown.
            return _unwritten(
                last, place, at_source, NoCommitDecision(State.PENDING, why=standing.unknown[item.group])
            )
        committed = standing.offsets.get(item.group, {})
        at_destination = committed[place.at].offset if place.at in committed else None
        wrote = self._sides.wrote(item.group, place.at)
        # Setting a start offset forgets what was acknowledged behind it: the same one is never set again.
        before = last if not at_source.of_share_group else None
        seen = GroupOffsetState(at_source.offset, at_destination, wrote, before)
        decision = decide(place.position, seen, _now_ms())
        if isinstance(decision, NoCommitDecision):
            return _unwritten(last, place, at_source, decision)
        if item.group in standing.active:
            return _unwritten(last, place, at_source, _refusal(decision, ACTIVE))
        now_ms = _now_ms()
        checkpoint = Checkpoint(
            source=at_source.offset,
            destination=decision.offset,
            at_ms=now_ms,
            state=State.TRANSLATED,
            destination_topic=place.at.topic,
            clamped=decision.clamped,
            written=decision.offset,
            written_source=at_source.offset,
            written_ms=now_ms,
            before=at_destination if at_destination is not None and at_destination in wrote else -1,
            by_time=_by_time(place),
            floor=_floor(place),
            share=at_source.of_share_group,
        )
        return PendingOffsetCommit(item, place, decision, checkpoint, last)

    async def _write(self, wanted: list[PendingOffsetCommit]) -> list[GroupPartition]:
        """Writes the checkpoints, commits the offsets, and returns the items that were committed.

        Raises WireError, DriverFenced.

        A refused offset gets a further checkpoint.
        """
        await self._leadership.ensure()
        await self._post({one.item: one.checkpoint for one in wanted})
        by_group: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        for one in wanted:
            offset = replace(self._offsets[one.item], offset=one.write.offset, leader_epoch=-1)
            by_group.setdefault(one.item.group, {})[one.place.at] = offset
        await self._leadership.ensure()
        outcomes = await commit_many(self._sides.destination, by_group)
        refused: dict[GroupPartition, Checkpoint] = {}
        done = []
        for one in wanted:
            code = self._error_code(outcomes[one.item.group], one)
            if code is ErrorCode.NONE:
                self._note_written(one)
                done.append(one.item)
            elif code is not None:
                why = ACTIVE if code in _ACTIVE_CODES else code.name
                refused[one.item] = _unwritten(
                    one.last_checkpoint, one.place, self._offsets[one.item], _refusal(one.write, why)
                )
        await self._post_and_note(refused)
        return done

    def _error_code(self, outcome: Outcome, one: PendingOffsetCommit) -> ErrorCode | None:
        """Returns the error code of one commit, or None without a response.

        Without a response, the commit may have happened.

        The next pass finds out; until then the checkpoint stays as it was written.
        """
        where = f"{one.item.group} can't be written at {self._flow.destination}"
        if isinstance(outcome, WireError):
            self._notes[NOTE] = f"{where}: {outcome}"
            self._entry(one.item).state = None
            return None
        code = outcome.get(one.place.at, ErrorCode.UNKNOWN_SERVER_ERROR)
        if code and code not in _ACTIVE_CODES:
            self._notes[NOTE] = f"{where}: {code.name}"
        return code

    def _note_written(self, one: PendingOffsetCommit) -> None:
        entry = self._entry(one.item)
        entry.state = entry.posted_state = State.TRANSLATED
        entry.posted_ms = one.checkpoint.at_ms
        self._state.wrote(one.item, entry, clamped=one.write.clamped, now_s=_now_s())

    async def _post_unwritten(self, kept: Mapping[GroupPartition, Checkpoint]) -> None:
        """Writes checkpoints of offsets that are not committed.

        A change of state is written at once, else a checkpoint is written at the declared interval.
        """
        every_ms = self._flow.checkpoints_every_ms
        due: dict[GroupPartition, Checkpoint] = {}
        for item, one in kept.items():
            entry = self._entry(item)
            entry.state = one.state
            new = entry.posted_state is not one.state or one.state is State.PENDING
            if every_ms is not None and (new or one.at_ms - entry.posted_ms >= every_ms):
                due[item] = one
        await self._post_and_note(due)

    async def _post_and_note(self, due: Mapping[GroupPartition, Checkpoint]) -> None:
        """Writes checkpoints and keeps their state. Raises WireError, DriverFenced."""
        if not due:
            return
        await self._leadership.ensure()
        await self._post(due)
        for item, one in due.items():
            entry = self._entry(item)
            entry.state = entry.posted_state = one.state
            entry.posted_ms = one.at_ms

    async def _post(self, checkpoints: Mapping[GroupPartition, Checkpoint]) -> None:
        records = [
            InternalRecord(
                group_records.encode_checkpoint_key(GroupKey(self._flow.name, *item)),
                group_records.encode_checkpoint(one),
            )
            for item, one in checkpoints.items()
        ]
        await post(self._sides.destination, naming.CHECKPOINTS, records, purpose=NOTE)

    def _entry(self, item: GroupPartition) -> GroupOffsetEntry:
        return self._state.entry(item, self._offsets[item].offset, _now_s())


def _refusal(write: CommitDecision, why: str) -> NoCommitDecision:
    return NoCommitDecision(State.REFUSED, write.offset, write.clamped, why)


def _unwritten(
    last: Checkpoint | None, place: PlacedOffset, at_source: CommittedOffset, keep: NoCommitDecision
) -> Checkpoint:
    """Returns the checkpoint of an offset that is not written now; it keeps what was written before."""
    return Checkpoint(
        source=at_source.offset,
        destination=keep.destination,
        at_ms=_now_ms(),
        state=keep.state,
        destination_topic=place.at.topic,
        clamped=keep.clamped,
        why=keep.why,
        written=last.written if last is not None else -1,
        written_source=last.written_source if last is not None else -1,
        written_ms=last.written_ms if last is not None else 0,
        before=last.before if last is not None else -1,
        by_time=_by_time(place),
        floor=_floor(place),
        share=at_source.of_share_group,
    )


def _by_time(place: PlacedOffset) -> bool:
    return isinstance(place.position, TranslatedOffset) and place.position.by_time


def _floor(place: PlacedOffset) -> int:
    return place.floor if place.floor is not None else -1


def _now_ms() -> int:
    return int(time.time() * 1000)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
