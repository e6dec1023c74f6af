"""The timestamps topic holds the record time at which a group continues, for offsets below the offset map.

`["timestamp", flow, group, topic, partition]` → ConsumerTimes, by the topic's name at the source. The topic
is compacted, and an entry that is not written again within its retention expires. The job derives it from
commits and records: no consumer needs an interceptor.
"""

import zlib
from typing import NamedTuple

import msgspec

from runtime.contract.records import record_values
from runtime.contract.records.record_values import UnreadableValue

_VERSION = b"\x01"
NO_TIME = -1  # the record has no timestamp


class TimesKey(NamedTuple):
    """Identifies the record times of one group in one partition, by the topic's name at the source."""

    flow: str
    group: str
    topic: str
    partition: int


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
        kept = [one for one in self.moments if one.offset != moment.offset]
        return ConsumerTimes((*kept, moment)[-most:], now_ms)


class UnreadableTimes(UnreadableValue):
    """The record has a version or a form that this runtime can't read."""


def partition_of(key: TimesKey, partitions: int) -> int:
    """Returns the partition of the timestamps topic that holds this key."""
    return zlib.crc32(encode_key(key)) % max(partitions, 1)


def encode_key(key: TimesKey) -> bytes:
    return msgspec.json.encode(["timestamp", *key])


def decode_key(key: bytes | None) -> TimesKey | None:
    """Decodes a key. Returns None for a key of a newer version: readers ignore unknown keys."""
    match record_values.key_parts(key):
        case ["timestamp", str(flow), str(group), str(topic), int(partition)]:
            return TimesKey(flow, group, topic, partition)
    return None


def encode(times: ConsumerTimes) -> bytes:
    return _VERSION + msgspec.msgpack.encode(times)


_decoder = msgspec.msgpack.Decoder(ConsumerTimes)


def decode(value: bytes) -> ConsumerTimes:
    if value[:1] != _VERSION:
        found = value[:1].hex() or "none"
        raise UnreadableTimes(f"consumer timestamps of version {found}, this runtime reads 01")
    try:
        return record_values.decode(_decoder, value[1:])
    except UnreadableValue as error:
        raise UnreadableTimes(f"consumer timestamps: {error}") from error
