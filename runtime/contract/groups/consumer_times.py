"""The timestamps topic: the time of the record that a group goes on with, for offsets that have no map.

`["timestamp", flow, group, topic, partition]` → ConsumerTimes, by the topic's name at the source. The topic
is compacted, and what was not said again within its retention is forgotten. Derived by the job from commits
and records: no consumer needs an interceptor.
"""

import zlib
from typing import NamedTuple

import msgspec

from runtime.contract.records import record_values
from runtime.contract.records.record_values import UnreadableValue

_VERSION = b"\x01"
NO_TIME = -1  # the record has no timestamp


class TimesKey(NamedTuple):
    flow: str
    group: str
    topic: str
    partition: int


class Moment(msgspec.Struct, frozen=True, array_like=True):
    """A committed offset, and a time at which a record of it, or the last one before it, was written."""

    offset: int
    timestamp: int


class ConsumerTimes(msgspec.Struct, frozen=True, array_like=True):
    """The newest commits, the newest last. Fields are only ever added, at the end, with a default."""

    moments: tuple[Moment, ...]
    at_ms: int

    def has(self, offset: int) -> bool:
        return any(moment.offset == offset for moment in self.moments)

    def time_of(self, offset: int) -> int | None:
        """Of this commit, or of the nearest one before it: whoever goes on there skips nothing."""
        below = [moment for moment in self.moments if moment.offset <= offset]
        return max(below, key=lambda moment: moment.offset).timestamp if below else None

    def later(self, moment: Moment, most: int, now_ms: int) -> "ConsumerTimes":
        """With another commit, and no more than so many in all."""
        kept = [one for one in self.moments if one.offset != moment.offset]
        return ConsumerTimes((*kept, moment)[-most:], now_ms)


class UnreadableTimes(UnreadableValue):
    """Of a version that this one does not know."""


def partition_of(key: TimesKey, partitions: int) -> int:
    return zlib.crc32(encode_key(key)) % max(partitions, 1)


def encode_key(key: TimesKey) -> bytes:
    return msgspec.json.encode(["timestamp", *key])


def decode_key(key: bytes | None) -> TimesKey | None:
    """None for a key of a newer version: a reader ignores what it does not know."""
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
