"""This module splits a fetch response into batches, and selects those that a reader may see.

Every checksum is verified once. `AbortedTransactions` applies read_committed.
"""

import struct
import zlib
from collections.abc import Iterable
from heapq import heapify, heappop
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from runtime.batch.failure import CorruptBatch
from runtime.batch.layout import (
    CODEC_MASK,
    CONTROL,
    CRC_FROM,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    NO_PRODUCER,
    TRANSACTIONAL,
    Batch,
    Codec,
    LegacySet,
    RecordSet,
)
from runtime.contract.spec.naming import TopicPartition

_ENTRY: Final = struct.Struct(">qi")
_LEGACY: Final = struct.Struct(">qiIb")
_LEGACY_CRC_FROM: Final = 16
_LEGACY_LEAST: Final = (14, 22)  # by magic: the size of a message with null key and null value
_LONGEST_RUN: Final = 1 << 20  # a run is unpacked as one (R8)
_LAST_CODEC: Final = int(max(Codec))


class WalkedBatches(NamedTuple):
    sets: list[RecordSet]
    needed: int  # size of a last batch that the response cut off (fetch it again); 0 when it ended cleanly
    failure: CorruptBatch | None  # the bytes after the last good set are corrupt


class _Cut(Exception):
    def __init__(self, needed: int) -> None:
        self.needed = needed


def walk(records: bytes | bytearray | memoryview, where: TopicPartition) -> WalkedBatches:
    """Returns all complete batches, in order.

    A cut-off last batch is normal. A cut-off first one is not: since Fetch v3 brokers send the first batch
    whole, whatever its size is, so the rest would never arrive.
    """
    view = memoryview(records)
    sets: list[RecordSet] = []
    try:
        _walk(view, sets, where)
    except _Cut as cut:
        if sets:
            return WalkedBatches(sets, cut.needed, None)
        offset = _ENTRY.unpack_from(view)[0] if len(view) >= _ENTRY.size else -1
        why = f"truncated: {len(view)} bytes came, the first batch has {cut.needed}"
        return WalkedBatches(sets, cut.needed, CorruptBatch(where, offset, why))
    except CorruptBatch as failure:
        return WalkedBatches(sets, 0, failure)
    return WalkedBatches(sets, 0, None)


def _walk(view: memoryview, sets: list[RecordSet], where: TopicPartition) -> None:
    end = len(view)
    position, after = 0, 0
    unpack, make = HEADER.unpack_from, tuple.__new__
    while position < end:
        if end - position < HEADER_SIZE or view[position + MAGIC_AT] != MAGIC:
            legacy = _legacy_run(view, position, where)
            position += len(legacy.messages)
            if legacy.base_offset < after:
                raise _backwards(legacy.base_offset, after, where)
            after = legacy.next_offset
            sets.append(legacy)
            continue
        fields = unpack(view, position)
        stop = position + LOG_OVERHEAD + fields[1]
        if stop < position + HEADER_SIZE:
            raise CorruptBatch(where, fields[0], f"a batch of {fields[1]} bytes is shorter than its header")
        if stop > end:
            raise _Cut(stop - position)
        if crc32c(view[position + CRC_FROM : stop]) != fields[4]:
            raise CorruptBatch(where, fields[0], "wrong checksum")
        batch = make(Batch, (*fields, view[position + HEADER_SIZE : stop]))
        delta, count = fields[6], fields[12]
        if (codec := fields[5] & CODEC_MASK) > _LAST_CODEC:
            raise CorruptBatch(where, fields[0], f"unknown compression {codec}")
        if not 0 <= count <= delta + 1:
            raise CorruptBatch(where, fields[0], f"{count} records with a last offset delta of {delta}")
        if fields[0] < after:
            raise _backwards(fields[0], after, where)
        after = fields[0] + delta + 1
        sets.append(batch)
        position = stop


def _backwards(offset: int, after: int, where: TopicPartition) -> CorruptBatch:
    return CorruptBatch(where, offset, f"offsets go backwards: {after} or more was due")


def _legacy_run(view: memoryview, start: int, where: TopicPartition) -> LegacySet:
    """Returns messages of v0 and v1 up to the next batch of v2, the end, the cut, or the limit of a run."""
    position, base, last = start, -1, -1
    while position < len(view) and position - start < _LONGEST_RUN:
        try:
            offset, stop = _legacy_message(view, position, where)
        except _Cut:
            if position == start:
                raise
            break
        if stop == position:  # a batch of v2 begins here
            break
        if position == start:
            base = offset
        elif offset <= last:
            raise _backwards(offset, last + 1, where)
        last, position = offset, stop
    return LegacySet(base, last, view[start:position])


def _legacy_message(view: memoryview, position: int, where: TopicPartition) -> tuple[int, int]:
    """Returns the offset and the end of one message.

    Its own start as the end means that there is no message.
    """
    left = len(view) - position
    if left < _ENTRY.size:
        raise _Cut(_ENTRY.size)
    offset, size = _ENTRY.unpack_from(view, position)
    if size < _LEGACY_LEAST[0]:
        raise CorruptBatch(where, offset, f"a message of {size} bytes is too short")
    stop = position + LOG_OVERHEAD + size
    if left < _LEGACY.size:
        raise _Cut(stop - position)
    _, _, checksum, magic = _LEGACY.unpack_from(view, position)
    if magic == MAGIC:
        if left < HEADER_SIZE:
            raise _Cut(max(stop - position, HEADER_SIZE))
        return offset, position
    if magic not in (0, 1) or size < _LEGACY_LEAST[magic]:
        raise CorruptBatch(where, offset, f"unknown format {magic} or {size} bytes too short for it")
    if stop > len(view):
        raise _Cut(stop - position)
    if zlib.crc32(view[position + _LEGACY_CRC_FROM : stop]) != checksum:
        raise CorruptBatch(where, offset, "wrong checksum")
    return offset, stop


_ABORT: Final = 0
_CONTROL_KEY: Final = Struct(">hh")  # version, type


class AbortedTransactions:
    """Holds the aborted transactions that a fetch response lists for one partition.

    Brokers list (producer id, first offset) of each that overlaps the response. From that offset on, the id's
    transactional batches are void until its abort marker. An instance serves one response.
    """

    __slots__ = ("_open", "_waiting")

    def __init__(self, aborted: Iterable[tuple[int, int]] = ()) -> None:
        self._waiting = [(first, producer) for producer, first in aborted]
        heapify(self._waiting)
        self._open: set[int] = set()

    def keeps(self, batch: Batch) -> bool:
        """Returns whether a read_committed reader sees the batch's records.

        Call it for every batch, in order.
        """
        attributes = batch.attributes
        waiting = self._waiting
        if batch.producer_id != NO_PRODUCER and (waiting or self._open):
            while waiting and waiting[0][0] <= batch.last_offset:
                self._open.add(heappop(waiting)[1])
            if attributes & CONTROL:
                if marker_type(batch) == _ABORT:
                    self._open.discard(batch.producer_id)
            elif attributes & TRANSACTIONAL and batch.producer_id in self._open:
                return False
        return not attributes & CONTROL


def marker_type(batch: Batch) -> int:
    """Returns the marker's type: 0 abort, 1 commit, or another; -1 if compaction removed its record."""
    if not batch.records or len(batch.body) < 9:
        return -1
    position = _skip(batch.body, 0)  # length
    position += 1  # attributes
    position = _skip(batch.body, position)  # timestamp delta
    position = _skip(batch.body, position)  # offset delta
    position = _skip(batch.body, position)  # key length
    if position + _CONTROL_KEY.size > len(batch.body):
        return -1
    kind: int = _CONTROL_KEY.unpack_from(batch.body, position)[1]
    return kind


def _skip(body: memoryview, position: int) -> int:
    size = len(body)
    while position < size and body[position] & 0x80:
        position += 1
    return position + 1
