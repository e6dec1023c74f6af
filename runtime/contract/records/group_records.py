"""The records of group sync: checkpoints, and the times of offsets below the offset map.

`["checkpoint", flow, group, topic, partition]` → Checkpoint, in the checkpoints topic, by the topic's name at
the source: the newest translation of each group's offset, for audit and against feedback. The topic is
compacted. A flow that syncs groups in the other direction compares the offsets that it finds with these
records: an offset that this product wrote is not the group's own commit.

`["timestamp", flow, group, topic, partition]` → ConsumerTimes, in the timestamps topic: the record time at
which a group continues. The topic is compacted, and an entry that is not written again within its retention
expires. The job derives it from commits and records: no consumer needs an interceptor.
"""

import zlib
from enum import StrEnum
from functools import partial
from typing import NamedTuple

import msgspec

from runtime.contract.records import record_values
from runtime.contract.records.record_values import RecordCodec


class CheckpointState(StrEnum):
    """Lists the results of translating one offset of a group.

    `translated`: the destination has the translated offset. `ahead`: the group's offset at the destination is
    larger already. `ours`: the offset at the source was written by this product, so nothing is to be done.
    """

    TRANSLATED = "translated"
    PENDING = "pending"
    REFUSED = "refused"
    AHEAD = "ahead"
    UNMAPPED = "unmapped"
    OURS = "ours"


class GroupPartition(NamedTuple):
    """Identifies one offset of a group; for a flow, by the topic's name at the source."""

    group: str
    topic: str
    partition: int


class Checkpoint(msgspec.Struct, frozen=True, array_like=True):
    """Holds one translation: `destination` is the translated offset of `source`, -1 where it has none now.

    `written` is the offset that this flow last committed at the destination, `written_source` the source
    offset that it translates. The checkpoint is written before the commit. `before` is the previous value
    of `written`, and is the offset at the destination if the job died in between. `by_time`: the
    translation used the time of a record, not the map. `floor`: for a topic that several clusters write,
    the smallest position over the other origins, which only the source's maps contain; -1 where there is
    none. `share`: the group is a share group. Fields are only ever added, at the end, with a default.
    """

    source: int
    destination: int
    at_ms: int
    state: CheckpointState
    destination_topic: str
    clamped: bool = False
    why: str = ""
    written: int = -1
    written_source: int = -1
    written_ms: int = 0
    before: int = -1
    by_time: bool = False
    floor: int = -1
    share: bool = False

    @property
    def ours(self) -> frozenset[int]:
        """Returns the offsets that this product may have committed at the destination."""
        return frozenset(offset for offset in (self.written, self.before) if offset >= 0)


def _encode_key(kind: str, flow: str, item: GroupPartition) -> bytes:
    return msgspec.json.encode([kind, flow, *item])


def _decode_key(kind: str, key: bytes | None) -> tuple[str, GroupPartition] | None:
    """Decodes a flow and its item. Returns None for a key of a newer version: readers ignore unknown keys."""
    match record_values.key_parts(key):
        case [str(key_kind), str(flow), str(group), str(topic), int(partition)] if key_kind == kind:
            return flow, GroupPartition(group, topic, partition)
    return None


encode_checkpoint_key = partial(_encode_key, "checkpoint")
decode_checkpoint_key = partial(_decode_key, "checkpoint")
encode_times_key, decode_times_key = partial(_encode_key, "timestamp"), partial(_decode_key, "timestamp")

_checkpoint = RecordCodec[Checkpoint]("checkpoint", Checkpoint, as_msgpack=True)
encode_checkpoint, decode_checkpoint = _checkpoint.encode, _checkpoint.decode

NO_TIME = -1  # the record has no timestamp


class OffsetTimestamp(msgspec.Struct, frozen=True, array_like=True):
    """Holds a committed offset, and the time of a record at it, or of the last record before it."""

    offset: int
    timestamp: int


class ConsumerTimes(msgspec.Struct, frozen=True, array_like=True):
    """Holds the newest commits of a group in a partition, in the order of writing.

    Fields are only ever added, at the end, with a default.
    """

    moments: tuple[OffsetTimestamp, ...]
    at_ms: int

    def has(self, offset: int) -> bool:
        return any(moment.offset == offset for moment in self.moments)

    def time_of(self, offset: int) -> int | None:
        """Returns the time of this commit, or of the nearest one before it: the group then skips nothing."""
        below = [moment for moment in self.moments if moment.offset <= offset]
        return max(below, key=lambda moment: moment.offset).timestamp if below else None

    def later(self, moment: OffsetTimestamp, most: int, now_ms: int) -> "ConsumerTimes":
        """Returns the times with another commit, and at most `most` commits in all."""
        kept = [other for other in self.moments if other.offset != moment.offset]
        return ConsumerTimes((*kept, moment)[-most:], now_ms)


def partition_of(key: bytes, partitions: int) -> int:
    """Returns the partition of the timestamps topic that holds this key."""
    return zlib.crc32(key) % max(partitions, 1)


_times = RecordCodec[ConsumerTimes]("consumer timestamps", ConsumerTimes, as_msgpack=True)
encode_times, decode_times = _times.encode, _times.decode
