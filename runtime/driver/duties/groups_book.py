"""What group sync remembers between two looks, and what it tells of itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from runtime.contract.groups.decisions import Item
from runtime.contract.groups.translate import At, Position
from runtime.contract.records.checkpoint import CheckpointState as State
from runtime.metrics.picture import GroupPicture

DONE = frozenset({State.TRANSLATED, State.AHEAD, State.UNMAPPED, State.OURS})


@dataclass(slots=True)
class Entry:
    """`seen_at`: when this offset was seen at the source for the first time, in seconds of the loop."""

    source: int
    seen_at: float
    position: Position | None = None
    state: State | None = None
    posted_ms: int = 0
    posted_state: State | None = None

    @property
    def settled(self) -> bool:
        """Looking again gives the same, until the group commits again."""
        moves = isinstance(self.position, At) and not self.position.settled
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
class GroupNumbers:
    """A flow's groups all together: offsets by what became of them, and what was written since the job began.

    `checkpoint_latency_s`: from the first sight of an offset at the source to its commit at the destination,
    the longest of the last look that wrote any. `look_s` is how long the last look took.
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
    look_s: float = 0.0


class Book:
    def __init__(self, flow: str) -> None:
        self._flow = flow
        self._entries: dict[Item, Entry] = {}
        self._groups: dict[str, _Group] = {}
        self._latency_s: float | None = None
        self.look_s = 0.0

    def seen(self, item: Item, source: int, now_s: float) -> Entry:
        """The entry of what a group committed; a new one when it committed something else before."""
        entry = self._entries.get(item)
        if entry is None:
            entry = self._entries[item] = Entry(source, now_s)
        elif entry.source != source:
            entry.source, entry.seen_at, entry.position, entry.state = source, now_s, None, None
        return entry

    def keep(self, items: Collection[Item]) -> None:
        """What is gone from the source is not counted any more."""
        for gone in self._entries.keys() - set(items):
            del self._entries[gone]
        for group in self._groups.keys() - {item.group for item in items}:
            del self._groups[group]

    def look_again(self) -> None:
        """At everything: the destination's side may have changed without the source's."""
        for entry in self._entries.values():
            entry.position = None
            entry.state = None

    def wrote(self, item: Item, entry: Entry, *, clamped: bool, now_s: float) -> None:
        group = self._groups.setdefault(item.group, _Group())
        group.translated += 1
        group.clamped += clamped
        group.latency_s = now_s - entry.seen_at

    def looked(self, wall_s: float, look_s: float, written: Iterable[Item]) -> None:
        """Counts, at the end of a look. `wall_s`: seconds since 1970."""
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
        self.look_s = look_s

    def pictures(self) -> list[GroupPicture]:
        return [
            GroupPicture(
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

    def numbers(self) -> GroupNumbers:
        states = [entry.state for entry in self._entries.values()]
        clamped = [entry for entry in self._entries.values() if _clamped(entry)]
        return GroupNumbers(
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
            look_s=self.look_s,
        )


def _clamped(entry: Entry) -> bool:
    return isinstance(entry.position, At) and entry.position.clamped
