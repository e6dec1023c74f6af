"""Codecs of the ledger: progress, generations, the offset map, and orphans. See docs/internals/ledger.md.

All records of a flow lie in one partition of each topic (`partition_of`), so one scan up to a high watermark
reads the flow's generation and its progress. Keys are JSON and never change; values begin with a version
byte.

Orphans are records of a source that never reached the destination. Three records describe them: progress (the
offsets behind its position, and the gaps before it), `Orphaned` (the offsets that were left when the flow had
ended) and `Replayed` (those that were copied after all).
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from runtime.contract.records import record_values
from runtime.contract.records.offset_map import OffsetMap, Span
from runtime.contract.records.record_values import RecordCodec, UnreadableValue
from runtime.contract.spec.naming import TopicPartition, is_other_topic

_T = TypeVar("_T")


class PartitionKey(NamedTuple):
    """Identifies one copied partition, by its name at the source."""

    flow: str
    topic: str
    partition: int

    @property
    def at(self) -> TopicPartition:
        """Where it is at the source."""
        return TopicPartition(self.topic, self.partition)


class ProgressKey(NamedTuple):
    """Identifies the progress of a partition."""

    of: PartitionKey


class GenerationKey(NamedTuple):
    """Identifies the generation of a flow."""

    flow: str


class SegmentKey(NamedTuple):
    """Identifies a sealed segment of a partition's offset map."""

    of: PartitionKey
    incarnation: int
    number: int


class OrphanedKey(NamedTuple):
    """Identifies an orphaned range. `low` is the first source offset of the range."""

    of: PartitionKey
    low: int


class ReplayedKey(NamedTuple):
    """Identifies a replayed range. `low` is the first source offset of the range."""

    of: PartitionKey
    low: int


LedgerKey = ProgressKey | GenerationKey | SegmentKey | OrphanedKey | ReplayedKey


class Gap(msgspec.Struct, frozen=True, array_like=True):
    """Records that a running flow gave up source offsets `low … end-1`; `why` is `lost` or `skipped`."""

    low: int
    end: int
    why: Literal["lost", "skipped"]
    at_ms: int


class BatchIdentity(msgspec.Struct, frozen=True, array_like=True):
    """Identifies the last batch at the destination: no other batch ever has the same three numbers."""

    producer_id: int
    producer_epoch: int
    base_sequence: int


class Progress(msgspec.Struct, frozen=True, array_like=True):
    """Records where a partition resumes (R1), its expected state (R4), and its offset map's end (R6).

    `position`: the next source offset. `source_epoch`: the leader epoch of the last record read before it.
    `destination_end`: the offset behind the last acknowledged record. `destination_epoch`: the leader epoch
    in which that record was written. `open_*`: the runs since the last sealed segment; they cover the source
    offsets `open_low … position-1`, the last of them ends at the source offset `open_end`. `incarnation`
    grows when one side was recreated and an operator said how to continue: older segments no longer count.
    Source offsets below `restored` are copied even where they came from the destination, which lost them.
    `map_name` stands for the topic in the keys of segments: a file has one, which outlives a renaming.
    Fields are only ever added, at the end, with a default.
    """

    generation: int
    source_topic_id: bytes
    destination_topic: str
    destination_topic_id: bytes
    position: int
    source_epoch: int
    destination_end: int
    destination_epoch: int
    open_low: int
    open_destination: int
    open_end: int
    open_runs: int = 0
    open: bytes = b""
    segments: int = 0
    incarnation: int = 0
    records: int = 0
    bytes: int = 0
    dropped: int = 0
    last_timestamp: int = -1
    written_at: int = 0
    gaps: tuple[Gap, ...] = ()
    mark: BatchIdentity | None = None
    restored: int = 0
    quarantined: int = 0
    tombstones: int = 0
    map_name: str = ""

    def map_key(self, key: PartitionKey) -> PartitionKey:
        """Returns the partition in the keys of the segments. `key` is that of the progress."""
        return key._replace(topic=self.map_name) if self.map_name else key

    def open_span(self) -> Span:
        """Returns the runs since the last sealed segment as a span."""
        return Span(self.open_low, self.position, self.open_destination, self.destination_end, self.open)


class Generation(msgspec.Struct, frozen=True, omit_defaults=True):
    """Holds the number of a flow's generation, its state and its transactional ids (R3).

    While `state` is `active`, slots of generation `number` may copy the flow, and no others.
    `transactional_ids` are all that its slots may ever use; the next generation fences every one of them.
    `restarted` is the spec's last `restart_from` that was carried out. `promoted` are the spec's patterns of
    topics that are no longer copied, whatever the state; the groups of `promoting` patterns are still to be
    moved. `begun` names the selection whose topics have their first positions, all but those that are
    `awaited`.

    `life` counts how often the flow was started again after a promotion or a failover. After a failback the
    flow starts where the flow in the opposite direction ended: `after` is the `life` of that flow, -1 where
    there was no failback. `turning` is set until the first positions of the present life are committed.
    """

    number: int
    job: str
    state: Literal["active", "paused", "promoted", "failed_over", "stopped"]
    driver: str
    transactional_ids: list[str]
    source_cluster_id: str
    destination_cluster_id: str
    written_at: int
    note: str = ""
    restarted: str = ""
    promoted: list[str] = []
    promoting: list[str] = []
    life: int = 0
    after: int = -1
    turning: bool = False
    begun: str = ""
    awaited: list[str] = []

    @property
    def ended(self) -> bool:
        """Returns whether the flow was promoted or failed over, and nothing of that is left to be done."""
        return self.state in ("promoted", "failed_over") and not self.note


class Orphaned(msgspec.Struct, frozen=True, array_like=True):
    """Records that source offsets from the key's `low` to `end-1` were not copied when the flow had ended.

    The same transaction moves its position to `end`, so that the flow never sends them later, behind newer
    values.
    """

    end: int
    source_topic_id: bytes
    at_ms: int
    why: str


class Replayed(msgspec.Struct, frozen=True, array_like=True):
    """Records that an operator had `records` records from the key's `low` to `end-1` copied after all.

    The same transaction wrote them, into the same partition of `topic` at the destination. They lie before
    `destination_end` there; it is -1 in records of releases that did not write it.
    """

    end: int
    source_topic_id: bytes
    topic: str
    records: int
    at_ms: int
    destination_end: int = -1


LedgerValue = Progress | Generation | Span | Orphaned | Replayed


class UnreadableRecord(UnreadableValue):
    """A ledger record that this version cannot read; guessing its content would break R1."""


def partition_of(flow: str, partitions: int) -> int:
    """Returns the partition of the ledger, and of the offset map, that holds a flow."""
    return zlib.crc32(flow.encode()) % partitions


_OF_PARTITION: Final[Mapping[str, Any]] = {
    "progress": ProgressKey,
    "segment": SegmentKey,
    "orphaned": OrphanedKey,
    "replayed": ReplayedKey,
}
_NAMES: Final = {kind: name for name, kind in _OF_PARTITION.items()}
_LAST_PARTITION: Final = (1 << 31) - 1


def encode_key(key: LedgerKey) -> bytes:
    if isinstance(key, GenerationKey):
        return msgspec.json.encode(["generation", key.flow])
    return msgspec.json.encode([_NAMES[type(key)], *key.of, *key[1:]])


def decode_key(key: bytes | None) -> LedgerKey:
    """Decodes a key. Raises UnreadableRecord for an unknown key."""
    match record_values.key_parts(key):
        case ["generation", str(flow)]:
            return GenerationKey(flow)
        case [str(name), str(flow), str(topic), int(partition), *numbers] if (
            name in _OF_PARTITION and 0 <= partition <= _LAST_PARTITION
        ):
            kind = _OF_PARTITION[name]
            if len(numbers) == len(kind._fields) - 1 and all(isinstance(number, int) for number in numbers):
                decoded: LedgerKey = kind(PartitionKey(flow, topic, partition), *numbers)
                return decoded
    raise UnreadableRecord(f"ledger: unknown key {key!r}")


def flow_of_key(key: bytes) -> str | None:
    """Returns the flow that a key of any kind names: an unknown key stops only its own flow (R7)."""
    match record_values.key_parts(key):
        case [_, str(flow), *_]:
            return flow
    return None


def encode_value(value: LedgerValue) -> bytes:
    encode = msgspec.json.encode if isinstance(value, Generation) else msgspec.msgpack.encode
    return record_values.VERSION + encode(value)


def _codec(kind: type[_T]) -> RecordCodec[_T]:
    return RecordCodec("ledger", kind, as_msgpack=kind is not Generation, error=UnreadableRecord)


decode_progress = _codec(Progress).decode
decode_generation = _codec(Generation).decode
decode_orphaned = _codec(Orphaned).decode
decode_replayed = _codec(Replayed).decode


_segment = RecordCodec[list[Any]]("ledger", list[Any], as_msgpack=True, error=UnreadableRecord)


def decode_segment(value: bytes) -> Span:
    """Decodes a sealed span. Raises UnreadableRecord."""
    match _segment.decode(value):
        case [int(low), int(end), int(destination_low), int(destination_end), bytes(runs), *_]:
            return Span(low, end, destination_low, destination_end, runs)
    raise UnreadableRecord("ledger: it is no segment")


BEYOND = "not copied"
ORPHANED = "orphaned"


class OrphanedRange(NamedTuple):
    """Holds source offsets `low … end-1`, and why they were not copied."""

    low: int
    end: int
    why: str


class Orphans(Struct, frozen=True):
    """Holds a partition's ledger records beside its progress, by the first source offset of each range.

    Records of a topic that had the name before are left out by the topic's id.
    """

    orphaned: tuple[tuple[int, Orphaned], ...] = ()
    replayed: tuple[tuple[int, Replayed], ...] = ()

    def ranges(self, source_topic_id: bytes) -> list[OrphanedRange]:
        """Returns the orphaned ranges of the topic with this id, replayed or not, in order and joined."""
        return _disjoint(
            OrphanedRange(low, left.end, ORPHANED)
            for low, left in self.orphaned
            if not is_other_topic(left.source_topic_id, source_topic_id)
        )

    def replays(self, source_topic_id: bytes) -> list[tuple[int, Replayed]]:
        """Returns the replayed ranges of the topic with this id, in order."""
        return sorted(
            (
                (low, replay)
                for low, replay in self.replayed
                if not is_other_topic(replay.source_topic_id, source_topic_id)
            ),
            key=itemgetter(0),
        )

    def uncopied(
        self, progress: Progress | None, offsets: OffsetMap | None, source_topic_id: bytes, end: int
    ) -> list[OrphanedRange]:
        """Returns the ranges that a source with end offset `end` holds and the destination never got.

        They are in order, and each offset is in one range only. All of the source is returned where the flow
        never reached the partition.
        """
        gaps = progress.gaps if progress is not None else ()
        beyond = OrphanedRange(progress.position if progress is not None else 0, end, BEYOND)
        given_up = (OrphanedRange(gap.low, gap.end, gap.why) for gap in gaps)
        cut = _disjoint(
            OrphanedRange(left.low, min(left.end, end), left.why)
            for left in (*self.ranges(source_topic_id), *given_up, beyond)
        )
        if not cut:
            return []
        replayed = [(low, replay.end) for low, replay in self.replays(source_topic_id)]
        return _without(cut, sorted([*replayed, *_copied(offsets, cut[0].low)]))


def orphan(
    key: PartitionKey, progress: Progress, end: int, why: str, *, generation: int, now_ms: int
) -> dict[LedgerKey, LedgerValue]:
    """Returns the records that orphan the offsets from the position of an ended flow up to `end`.

    They say "orphaned from X to Y, position Y", and must be committed together. The result is empty where no
    offset is left.

    The offset map continues over the range as over everything that was decided not to be copied: an offset in
    it is that of the first record copied behind it, or the end of the copied records (R6).
    """
    if end <= progress.position:
        return {}
    moved = replace(progress, generation=generation, position=end, source_epoch=-1, written_at=now_ms)
    left = Orphaned(end, progress.source_topic_id, now_ms, why)
    return {ProgressKey(key): moved, OrphanedKey(key, progress.position): left}


def _copied(offsets: OffsetMap | None, low: int) -> list[tuple[int, int]]:
    """Returns the ranges that the present map contains as copied.

    A range that was orphaned before the flow started over does not cover offsets that were copied since.
    """
    spans = offsets.spans if offsets is not None else ()
    return [(run.source, run.source_end) for span in spans if span.end > low for run in span.runs]


def _disjoint(stretches: Iterable[OrphanedRange]) -> list[OrphanedRange]:
    """Returns the ranges in order; where two overlap, the one that begins first keeps the common offsets."""
    disjoint: list[OrphanedRange] = []
    for stretch in sorted(stretches):
        low = max(stretch.low, disjoint[-1].end) if disjoint else stretch.low
        if low >= stretch.end:
            continue
        if disjoint and disjoint[-1].end == low and disjoint[-1].why == stretch.why:
            disjoint[-1] = disjoint[-1]._replace(end=stretch.end)
        else:
            disjoint.append(stretch._replace(low=low))
    return disjoint


def _without(stretches: Sequence[OrphanedRange], taken: Sequence[tuple[int, int]]) -> list[OrphanedRange]:
    """Returns the ranges without the taken ones. Both must be in order."""
    remaining: list[OrphanedRange] = []
    for stretch in stretches:
        low = stretch.low
        for begin, behind in taken:
            if behind <= low or begin >= stretch.end:
                continue
            if low < begin:
                remaining.append(stretch._replace(low=low, end=begin))
            low = behind
        if low < stretch.end:
            remaining.append(stretch._replace(low=low))
    return remaining
