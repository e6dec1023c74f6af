"""Computes where a group continues at the destination, by the offset map (R6), and which offsets are written.

For a committed source offset g: the destination offset of the first copied record at or after g; where all up
to g is decided and nothing at or after it was copied, the position behind the last copied record; else the
result is pending. The result is never a wrong number.

Where both sides write one topic (an identity merge), a source offset has no exact counterpart: the records
below it came from several clusters, each with another position at the destination. `origins_of` finds those
clusters. Then the smallest position over the origins is taken: some records are read again, none is skipped.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from runtime.contract.records.group_records import Checkpoint, CheckpointState
from runtime.contract.records.offset_map import (
    EndOfOffsetMap,
    MappedOffset,
    NotYetCopied,
    OffsetMap,
    UnmappedOffset,
)
from runtime.contract.spec.jobspec import JobSpec
from runtime.contract.spec.route import CompiledRoute, Router

NOT_COPIED = "the flow has not come that far"
BELOW_THE_MAP = "below the first offset that the flow copied with a map; mode: timestamp may place it"


class SourceTopicWriter(Struct, frozen=True):
    """Describes a flow that writes a topic of our source cluster.

    `flow` writes `topic` there. `destination_flow` copies the same records to our destination; it is None
    where they come from there.
    """

    flow: str
    topic: str
    destination_flow: str | None


def origins_of(router: Router, flow: str, topic: str) -> tuple[SourceTopicWriter, ...]:
    """Returns the other flows into a topic of a flow's source: they make its offsets inexact.

    A flow counts only if its records also end in the topic in which ours end; records that our flow passes on
    are in its own map.
    """
    return tuple(_origins(router, router.routes[flow], topic))


def _origins(router: Router, mine: CompiledRoute, topic: str) -> Iterator[SourceTopicWriter]:
    source, destination = mine.route.source, mine.route.destination
    name = mine.destination_topic(topic) or ""
    for writer in _into(router, source, topic):
        older = writer.source_topic(topic)
        if older is None:
            continue
        if writer.route.source == destination:
            # After a failback, the flow's own map contains the records that its opposite copied.
            if older == name and mine.route.undoes is writer.route.undoes is None:
                yield SourceTopicWriter(writer.route.name, older, None)
            continue
        for other in _into(router, destination, name):
            if other.route.source == writer.route.source and other.source_topic(name) == older:
                yield SourceTopicWriter(writer.route.name, older, other.route.name)


def _into(router: Router, cluster: str, topic: str) -> Iterator[CompiledRoute]:
    """Yields the flows that write a topic of a cluster."""
    for name, compiled in router.routes.items():
        older = compiled.source_topic(topic) if compiled.route.destination == cluster else None
        if older is not None and router.verdict(name, older).taken:
            yield compiled


class TranslatedOffset(Struct, frozen=True):
    """Holds a position at the destination.

    `settled`: translating the same source offset later gives it again. `by_time`: found by the time of a
    record, not by the map; some records may be read again, none is skipped.
    """

    offset: int
    clamped: bool = False
    settled: bool = True
    by_time: bool = False


class PendingTranslation(Struct, frozen=True):
    """Says that an offset is not translated yet, or not committed at the destination: an obstacle remains.

    `temporary`: the obstacle passes by itself within moments, such as a leader that is being elected.
    """

    why: str
    temporary: bool = False


class UntranslatableOffset(Struct, frozen=True):
    """Says that the offset lies below the map: the flow never copied it, or did before it kept a map."""

    why: str


Position = TranslatedOffset | PendingTranslation | UntranslatableOffset


def position(offsets: OffsetMap, source: int) -> Position:
    """Translates a source offset by the map."""
    match offsets.translate(source):
        case MappedOffset(offset=offset) | EndOfOffsetMap(offset=offset):
            return TranslatedOffset(offset)
        case NotYetCopied():
            return PendingTranslation(NOT_COPIED)
        case UnmappedOffset() if offsets.trimmed:
            return TranslatedOffset(offsets.destination_low, clamped=True)
        case UnmappedOffset():
            return UntranslatableOffset(BELOW_THE_MAP)
        case other:
            assert_never(other)


def clamped(translated: Position, log_start: int) -> Position:
    """Returns the position, moved up to the destination's log start where it lies below."""
    if isinstance(translated, TranslatedOffset) and translated.offset < log_start:
        return replace(translated, offset=log_start, clamped=True)
    return translated


def earliest_unread_offset(brought: OffsetMap | None, committed: int) -> int:
    """Returns the first offset, at the cluster of origin, that the group may not have read yet.

    `brought` is the map of another flow that copies records into the group's topic. `committed` is the
    group's offset in that topic. Records that were copied lately and are not in the map yet count as not
    read. A `brought` of None means that the flow has copied nothing yet.
    """
    if brought is None:
        return 0
    match brought.origin(committed):
        case MappedOffset(offset=offset):
            return offset
        case EndOfOffsetMap() | NotYetCopied():
            return brought.end
        case UnmappedOffset():
            return brought.low
        case other:
            assert_never(other)


def earliest_reachable_offset(offsets: OffsetMap | None, source: int) -> int:
    """Returns the smallest destination offset where a record from `source` on is, or can still arrive."""
    if offsets is None:
        return 0
    match offsets.translate(source):
        case MappedOffset(offset=offset) | EndOfOffsetMap(offset=offset):
            return offset
        case NotYetCopied():
            return offsets.destination_end
        case UnmappedOffset():
            return offsets.destination_low
        case other:
            assert_never(other)


def final_position(
    translated: Position, destination_end: int, *, shared: bool, floor: int | None
) -> Position:
    """Returns the final position when no more records arrive.

    A group that was ahead of the flow continues behind the last copied record. In a topic that both sides
    write (`shared`) it does not go beyond `floor`, the smallest position over the other origins; where that
    is not known, the position stays pending.
    """
    if translated != PendingTranslation(NOT_COPIED):
        return translated
    if not shared:
        return TranslatedOffset(destination_end)
    return merged(TranslatedOffset(destination_end), [floor]) if floor is not None else translated


def by_time(offset: int | None, first_mapped: int) -> TranslatedOffset:
    """Returns the position of an offset below the map, by record time.

    `offset`: the first record at the destination that is as late as the group's next one, None where there is
    none. `first_mapped` is where the flow's own copies begin; all of them are behind the group, so it is the
    latest offset to continue at.
    """
    return TranslatedOffset(min(offset, first_mapped) if offset is not None else first_mapped, by_time=True)


def merged(translated: Position, others: Iterable[int]) -> Position:
    """Returns the smallest position over the origins.

    It may grow while the other flows copy, so it is not settled.
    """
    if not isinstance(translated, TranslatedOffset):
        return translated
    offset = min((translated.offset, *others))
    return replace(translated, offset=offset, settled=False)


_DAY_MS = 24 * 60 * 60 * 1000


def own_groups(spec: JobSpec) -> frozenset[str]:
    """Returns the groups that only show how far a flow is (R9): no consumer uses them, no flow syncs them."""
    named = {flow.origin_commits.group for flow in spec.flows if flow.origin_commits is not None}
    return frozenset(named | {f"repl.{route.name}" for route in spec.routes})


class Decision(Struct, frozen=True):
    """Says what becomes of a group's offset, as its checkpoint tells it.

    With `commits`, the offset `destination` is committed; else nothing is written, and `why` says why.
    """

    state: CheckpointState
    destination: int = -1
    clamped: bool = False
    why: str = ""
    commits: bool = False


def decide(
    translated: Position,
    now_ms: int,
    source: int,
    destination: int | None,
    wrote: Collection[int] = (),
    last: Checkpoint | None = None,
) -> Decision:
    """Decides whether to commit a translated offset at the destination.

    `source` and `destination` are what the group has committed at both sides; `wrote` are the offsets that
    this product may have committed at the destination, and `last` is the previous checkpoint.

    A commit moves forward only. It moves back only where the group was rewound at the source and the offset
    at the destination is still the product's own.
    """
    match translated:
        case PendingTranslation(why=why):
            return Decision(CheckpointState.PENDING, why=why)
        case UntranslatableOffset(why=why):
            return Decision(CheckpointState.UNMAPPED, why=why)
        case TranslatedOffset(offset=offset, clamped=clamped):
            commit = Decision(CheckpointState.TRANSLATED, offset, clamped, commits=True)
            if destination == offset:  # brokers expire the offsets of idle groups after days
                ours = last is not None and last.written == offset
                may_expire = last is not None and now_ms - last.written_ms > _DAY_MS
                return replace(commit, commits=ours and may_expire)
            if destination is None or destination < offset:
                return commit
            rewound = last is not None and 0 <= source < last.written_source
            if destination in wrote and rewound:
                return commit
            return Decision(CheckpointState.AHEAD, offset, clamped, f"it stands at {destination} already")
        case other:
            assert_never(other)


def is_ours(committed: int, written_by_others: Iterable[Checkpoint]) -> bool:
    """Returns whether flows in the other direction wrote the offset that is committed at a flow's source."""
    return any(committed in checkpoint.ours for checkpoint in written_by_others)
