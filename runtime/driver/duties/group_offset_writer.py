"""This module writes the translated offsets of a group-sync pass: it writes checkpoints, then commits.

Offsets at the destination are read only for groups that may be written. The broker refuses a commit where a
member is connected; groups that are listed with members are not tried. A checkpoint is written before its
commit, so that a sync in the opposite direction recognises the offset as written by this product, whatever
happens in between. `GroupSyncState` keeps the outcome between two passes, and derives the metrics from it.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping

from msgspec import Struct
from msgspec.structs import replace

from runtime.contract.groups import (
    Decision,
    PendingTranslation,
    Position,
    TranslatedOffset,
    decide,
)
from runtime.contract.records import group_records
from runtime.contract.records.group_records import Checkpoint, GroupPartition
from runtime.contract.records.group_records import CheckpointState as State
from runtime.contract.spec import naming
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.naming import TopicPartition
from runtime.driver.leadership import Leadership
from runtime.driver.slots.channel import post
from runtime.groups.translation import GroupOffsetSides, PlacedOffset
from runtime.kafka.errors import ErrorCode, WireError
from runtime.kafka.protocol.groups import CommittedOffset
from runtime.kafka.queries import NO_MEMBERS, Read, commit_many, committed_by, list_groups
from runtime.kafka.records import InternalRecord
from runtime.kafka.timing import now_ms
from runtime.metrics.snapshot import GroupSnapshot

DONE = frozenset({State.TRANSLATED, State.AHEAD, State.UNMAPPED, State.OURS})


class GroupOffsetEntry(Struct):
    """An entry holds the state of one committed offset.

    `seen_at` is when this offset was first read at the source, and `posted_at` when its last checkpoint was
    written, in seconds of the event loop's clock.
    """

    source: int
    seen_at: float
    position: Position | None = None
    state: State | None = None
    posted_at: float = 0.0
    posted_state: State | None = None

    @property
    def settled(self) -> bool:
        """Whether a further pass gives the same result until the group commits again."""
        moves = isinstance(self.position, TranslatedOffset) and not self.position.settled
        return self.state in DONE and not moves


class GroupSyncState:
    """Holds the state of each committed offset and the counters of each group."""

    def __init__(self, flow: str) -> None:
        self._flow = flow
        self._entries: dict[GroupPartition, GroupOffsetEntry] = {}
        self._groups: dict[str, GroupSnapshot] = {}

    def entry(self, item: GroupPartition, source: int, now_s: float) -> GroupOffsetEntry:
        """Returns the entry of a committed offset, which is reset when the group committed another offset."""
        entry = self._entries.get(item)
        if entry is None:
            entry = self._entries[item] = GroupOffsetEntry(source, now_s)
        elif entry.source != source:
            entry.source, entry.seen_at, entry.position, entry.state = source, now_s, None, None
        return entry

    def retain_only(self, items: Collection[GroupPartition], unread: Collection[str] = ()) -> None:
        """Removes entries and groups that are gone from the source. The groups in `unread` may be there."""
        for gone in self._entries.keys() - set(items):
            if gone.group not in unread:
                del self._entries[gone]
        for group in self._groups.keys() - {item.group for item in items} - set(unread):
            del self._groups[group]

    def recheck_all(self) -> None:
        """Marks every offset for translation, because the destination may have changed without the source."""
        for entry in self._entries.values():
            entry.position = None
            entry.state = None

    def wrote(self, item: GroupPartition, entry: GroupOffsetEntry, *, clamped: bool, now_s: float) -> None:
        """Counts an offset that was committed at the destination."""
        group = self._group(item.group)
        self._groups[item.group] = replace(
            group,
            translated=group.translated + 1,
            clamped=group.clamped + clamped,
            latency_s=now_s - entry.seen_at,
        )

    def _group(self, name: str) -> GroupSnapshot:
        return self._groups.get(name) or GroupSnapshot(self._flow, name)

    def record_pass(self, wall_s: float) -> None:
        """Updates the counts at the end of a pass. `wall_s` is in seconds since 1970."""
        states: defaultdict[str, Counter[State | None]] = defaultdict(Counter)
        for item, entry in self._entries.items():
            states[item.group][entry.state] += 1
        for name, counts in states.items():
            group, pending = self._group(name), counts[State.PENDING]
            self._groups[name] = replace(
                group,
                pending=pending,
                pending_since=(group.pending_since or wall_s) if pending else None,
                refused=group.refused + (counts[State.REFUSED] > 0),
            )

    def snapshots(self) -> list[GroupSnapshot]:
        """Returns the metrics of each group."""
        return list(self._groups.values())


NOTE = "groups"
_REASONS, _NAMES = 10, 3  # in notes; each group has its reason in its checkpoints
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
_NOT_DONE = frozenset({State.PENDING, State.REFUSED, State.UNMAPPED})
_NEVER_WRITTEN = Checkpoint(-1, -1, 0, State.PENDING, "")


Uncommitted = Mapping[GroupPartition, PendingTranslation]


def uncommitted_notes(uncommitted: Uncommitted, destination: str) -> list[str]:
    """Returns a note for each reason, with the number of its groups, for the status of the flow."""
    groups: dict[str, set[str]] = {}
    for item, offset in uncommitted.items():
        groups.setdefault(offset.why, set()).add(item.group)
    by_size = sorted(groups.items(), key=lambda reason: (-len(reason[1]), reason[0]))
    return [f"{_few(names)}: not committed at {destination}: {why}" for why, names in by_size[:_REASONS]]


def _few(names: Collection[str]) -> str:
    more = f" and {len(names) - _NAMES} more groups" if len(names) > _NAMES else ""
    return ", ".join(sorted(names)[:_NAMES]) + more


class GroupOffsetWriter:
    """Writes the translated offsets of one pass to the destination."""

    def __init__(
        self,
        flow: FlowSpec,
        leadership: Leadership,
        sides: GroupOffsetSides,
        state: GroupSyncState,
        offsets: Mapping[GroupPartition, CommittedOffset],
    ) -> None:
        self._flow = flow
        self._leadership = leadership
        self._sides = sides
        self._state = state
        self._offsets = offsets

    async def commit_offsets(self, placed: Mapping[GroupPartition, PlacedOffset]) -> Uncommitted:
        """Writes offsets and checkpoints, and returns the offsets that are not committed, with the reason.

        A group that is further at the destination needs no commit. Raises WireError, DriverFenced.
        """
        if not placed:
            return {}
        active, read = await self._destination_groups(placed)
        wanted: dict[GroupPartition, Checkpoint] = {}
        unwritten: dict[GroupPartition, Checkpoint] = {}
        uncommitted: dict[GroupPartition, PendingTranslation] = {}
        for item, place in placed.items():
            committed = read.offsets.get(item.group, {}).get(place.at)
            at_destination = committed.offset if committed is not None else None
            wrote = self._sides.wrote(item.group, place.at)
            pending = place.position if isinstance(place.position, PendingTranslation) else None
            if isinstance(place.position, TranslatedOffset) and item.group in read.failed:
                why = f"what it has committed can't be read: {read.failed[item.group]}"
                pending = PendingTranslation(why, temporary=True)
                decision = Decision(State.REFUSED, place.position.offset, why=why)
            else:
                decision = self._decide(item, place, active, at_destination, wrote)
            before = at_destination if at_destination is not None and at_destination in wrote else -1
            checkpoints = wanted if decision.commits else unwritten
            checkpoints[item] = self._checkpoint(item, place, decision, self._sides.last(item), before)
            if decision.state in _NOT_DONE:
                uncommitted[item] = pending or PendingTranslation(decision.why)
        await self._post_unwritten(unwritten)
        return {**uncommitted, **(await self._write(wanted, placed) if wanted else {})}

    async def _destination_groups(
        self, placed: Mapping[GroupPartition, PlacedOffset]
    ) -> tuple[set[str], Read]:
        """Reads, of the groups that have a translated offset, which have members at the destination.

        Returns these, and what the others have committed there. Raises WireError.
        """
        groups = {
            item.group for item, place in placed.items() if isinstance(place.position, TranslatedOffset)
        }
        if not groups:
            return set(), Read()
        listed = (await list_groups(self._sides.destination)).every
        active = {group for group in groups if group in listed and listed[group].state not in NO_MEMBERS}
        share = {item.group for item in placed if self._offsets[item].of_share_group}
        return active, await committed_by(self._sides.destination, groups - active, share=share)

    def _decide(
        self,
        item: GroupPartition,
        place: PlacedOffset,
        active: Collection[str],
        at_destination: int | None,
        wrote: Collection[int],
    ) -> Decision:
        """Decides about one offset; nothing is committed of a group that has members."""
        at_source = self._offsets[item]
        # Setting a start offset forgets what was acknowledged behind it: the same one is never set again.
        last = self._sides.last(item) if not at_source.of_share_group else None
        decision = decide(place.position, now_ms(), at_source.offset, at_destination, wrote, last)
        if decision.commits and item.group in active:
            return replace(decision, state=State.REFUSED, why=ACTIVE, commits=False)
        return decision

    def _checkpoint(
        self,
        item: GroupPartition,
        place: PlacedOffset,
        decision: Decision,
        last: Checkpoint | None,
        before: int = -1,
    ) -> Checkpoint:
        """Returns the checkpoint of a decision. Where nothing is committed it keeps what `last` wrote.

        `before` is the product's own offset that a commit replaces.
        """
        at_source, at_ms = self._offsets[item], now_ms()
        checkpoint = replace(
            last or _NEVER_WRITTEN,
            source=at_source.offset,
            destination=decision.destination,
            at_ms=at_ms,
            state=decision.state,
            destination_topic=place.at.topic,
            clamped=decision.clamped,
            why=decision.why,
            by_time=isinstance(place.position, TranslatedOffset) and place.position.by_time,
            floor=place.floor if place.floor is not None else -1,
            share=at_source.of_share_group,
        )
        if not decision.commits:
            return checkpoint
        return replace(
            checkpoint,
            written=decision.destination,
            written_source=at_source.offset,
            written_ms=at_ms,
            before=before,
        )

    async def _write(
        self, wanted: Mapping[GroupPartition, Checkpoint], placed: Mapping[GroupPartition, PlacedOffset]
    ) -> Uncommitted:
        """Writes the checkpoints and commits the offsets; returns those that are not committed.

        A refused offset gets a further checkpoint. Raises WireError, DriverFenced.
        """
        # Once they are posted, another flow of the job may read them as the last ones.
        last = {item: self._sides.last(item) for item in wanted}
        await self._leadership.ensure()
        await self._post(wanted)
        by_group: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        for item, checkpoint in wanted.items():
            offset = replace(self._offsets[item], offset=checkpoint.written, leader_epoch=-1)
            by_group.setdefault(item.group, {})[placed[item].at] = offset
        await self._leadership.ensure()
        outcomes = await commit_many(self._sides.destination, by_group)
        refused: dict[GroupPartition, Checkpoint] = {}
        uncommitted: dict[GroupPartition, PendingTranslation] = {}
        for item, checkpoint in wanted.items():
            outcome = outcomes[item.group]
            if isinstance(outcome, WireError):
                # The commit may have happened: the checkpoint goes on to name it as written.
                uncommitted[item] = PendingTranslation(str(outcome), temporary=True)
                refused[item] = replace(checkpoint, state=State.REFUSED, why=str(outcome))
                continue
            code = outcome.get(placed[item].at, ErrorCode.UNKNOWN_SERVER_ERROR)
            if code is ErrorCode.NONE:
                entry = self._note_posted(item, checkpoint)
                self._state.wrote(item, entry, clamped=checkpoint.clamped, now_s=_now_s())
            else:
                why = ACTIVE if code in _ACTIVE_CODES else code.name
                uncommitted[item] = PendingTranslation(why, temporary=why != ACTIVE and code.retriable)
                decision = Decision(State.REFUSED, checkpoint.destination, checkpoint.clamped, why)
                refused[item] = self._checkpoint(item, placed[item], decision, last[item])
        await self._post_and_note(refused)
        return uncommitted

    async def _post_unwritten(self, unwritten: Mapping[GroupPartition, Checkpoint]) -> None:
        """Writes checkpoints of offsets that are not committed.

        A change of state is written at once, else a checkpoint is written at the declared interval.
        """
        every_ms = self._flow.checkpoints_every_ms
        due: dict[GroupPartition, Checkpoint] = {}
        for item, checkpoint in unwritten.items():
            entry = self._entry(item)
            entry.state = checkpoint.state
            new = entry.posted_state is not checkpoint.state or checkpoint.state is State.PENDING
            if every_ms is not None and (new or _now_s() - entry.posted_at >= every_ms / 1000):
                due[item] = checkpoint
        await self._post_and_note(due)

    async def _post_and_note(self, due: Mapping[GroupPartition, Checkpoint]) -> None:
        """Writes checkpoints and keeps their state. Raises WireError, DriverFenced."""
        if not due:
            return
        await self._leadership.ensure()
        await self._post(due)
        for item, checkpoint in due.items():
            self._note_posted(item, checkpoint)

    def _note_posted(self, item: GroupPartition, checkpoint: Checkpoint) -> GroupOffsetEntry:
        entry = self._entry(item)
        entry.state = entry.posted_state = checkpoint.state
        entry.posted_at = _now_s()
        return entry

    async def _post(self, checkpoints: Mapping[GroupPartition, Checkpoint]) -> None:
        records = [
            InternalRecord(
                group_records.encode_checkpoint_key(self._flow.name, item),
                group_records.encode_checkpoint(checkpoint),
            )
            for item, checkpoint in checkpoints.items()
        ]
        await post(self._sides.destination, naming.CHECKPOINTS, records, purpose=NOTE)

    def _entry(self, item: GroupPartition) -> GroupOffsetEntry:
        return self._state.entry(item, self._offsets[item].offset, _now_s())


def _now_s() -> float:
    return asyncio.get_running_loop().time()
