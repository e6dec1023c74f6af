"""This module describes record batch v2 as it is on the wire: a header read at once, a body never copied."""

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
UNSUMMED: Final = struct.Struct(">qiibI")  # up to the checksum
SUMMED: Final = struct.Struct(">hiqqqhii")  # from the attributes on, as the body behind it
HEADER_SIZE: Final = HEADER.size  # 61
LOG_OVERHEAD: Final = 12  # the base offset and the length field itself, which the length does not count
CRC_FROM: Final = UNSUMMED.size
MAGIC_AT: Final = 16
MAGIC: Final = 2

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

NO_PRODUCER: Final = -1
NO_TIMESTAMP: Final = -1
MAX_INT32: Final = 0x7FFFFFFF


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class Batch(NamedTuple):
    """Holds the header's fields in their order on the wire, then a view of the records.

    The body is a view into the fetch response, which therefore stays in memory as long as any of its batches
    (R8).
    """

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int  # how many
    body: memoryview

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def size(self) -> int:
        """Returns the bytes of the whole batch, as the brokers' limits count them."""
        return LOG_OVERHEAD + self.length

    @property
    def codec(self) -> Codec:
        return Codec(self.attributes & CODEC_MASK)

    @property
    def log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def first_timestamp(self) -> int | None:
        """Returns the first record's timestamp as the header has it, or None where only the record has it.

        Where the log cleaner saw a tombstone or a marker in the batch, `base_timestamp` is the delete
        horizon, the time when these may go (KIP-534). A copy of the batch has it without the attribute.
        """
        if self.log_append_time:
            return self.max_timestamp
        if self.attributes & DELETE_HORIZON or self.base_timestamp > self.max_timestamp:
            return None
        return self.base_timestamp

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def whole(self) -> bool:
        """Returns whether the offset deltas are 0, 1, … records - 1, without a hole that compaction left."""
        return self.records == self.last_offset_delta + 1


class LegacySet(NamedTuple):
    """Holds neighbouring messages of format v0 or v1 with verified checksums.

    `convert` makes batches of them.
    """

    base_offset: int  # the stored offset of the first message; for a compressed one, that of its last record
    last_offset: int
    messages: memoryview

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1

    @property
    def size(self) -> int:
        return len(self.messages)


RecordSet = Batch | LegacySet


def epoch_before(sets: Sequence[RecordSet], position: int) -> int:
    """Returns the leader epoch of the record before a position, which the broker compares with its own (R4).

    The position may lie inside a batch, but not behind the last set. The record before it may be compacted
    away. The epoch of the next record is used then, because the older epoch may have ended inside the gap.
    It is -1 in an old message format.
    """
    member = next(member for member in sets if member.next_offset >= position)
    return member.leader_epoch if isinstance(member, Batch) else -1
