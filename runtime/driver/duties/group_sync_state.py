"""This module keeps the state of group sync between two passes, and derives its metrics."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from runtime.contract.groups import GroupPartition, Position, TranslatedOffset
from runtime.contract.records.group_records import CheckpointState as State
from runtime.metrics.snapshot import GroupSnapshot

DONE = frozenset({State.TRANSLATED, State.AHEAD, State.UNMAPPED, State.OURS})


@dataclass(slots=True)
class GroupOffsetEntry:
    """An entry holds the state of one committed offset.

    `seen_at` is when this offset was first seen at the source, in seconds of the event loop's clock.
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


@dataclass(slots=True)
class _Group:
    translated: int = 0
    clamped: int = 0
    refused: int = 0
    pending_since: float | None = None
    latency_s: float | None = None
    counts: dict[State, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupSyncCounts:
    """These are the totals over a flow's groups: offsets by state, and offsets written since the job started.

    `checkpoint_latency_s` is the time from the first sight of an offset at the source to its commit at the
    destination: the longest of the last pass that wrote any. `look_s` is the duration of the last pass.
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
