"""Fetch v13 to v17: topic ids, incremental sessions, last fetched epochs. Hot: no record is copied."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

from runtime.kafka.codes import ErrorCode
from runtime.kafka.protocol.fields import Reader, Truncated, Writer, uvarint
from runtime.kafka.protocol.request import Api, Buffer

_PARTITION = struct.Struct(">iiqiqi")
_ANSWERED = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_EPOCH_END = struct.Struct(">iq")
_LEADER = struct.Struct(">ii")
_EMPTY = memoryview(bytearray())

FULL_SESSION_EPOCH = 0
NO_SESSION_EPOCH = -1


class Isolation(IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class FetchFrom:
    """Where a partition is read from. Epochs of -1 are unknown and not checked by the broker."""

    offset: int
    leader_epoch: int = -1
    last_fetched_epoch: int = -1
    max_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """The largest leader epoch the broker knows at or below the one asked for, and where it ended."""

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class LeaderHint:
    """The leader that the broker names beside an error; -1 when it knows none."""

    leader: int
    epoch: int


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """`records` is a writable view over the response: whole batches, the last one perhaps cut short."""

    topic_id: bytes
    partition: int
    error: ErrorCode
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]
    preferred_replica: int
    records: memoryview
    diverging: EpochEnd | None = None
    leader: LeaderHint | None = None


@dataclass(frozen=True, slots=True)
class FetchResponse:
    throttle_ms: int
    error: ErrorCode
    session_id: int
    partitions: tuple[FetchedPartition, ...]


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """The partitions are in the order in which the broker fills the response."""

    API: ClassVar[Api] = Api.FETCH
    VERSIONS: ClassVar[tuple[int, int]] = (13, 17)
    FLEXIBLE: ClassVar[int] = 12

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: Isolation
    session_id: int
    session_epoch: int
    partitions: Mapping[tuple[bytes, int], FetchFrom]
    forgotten: Sequence[tuple[bytes, int]] = ()
    rack: str = ""

    def body(self, version: int) -> list[Buffer]:
        writer = Writer()
        if version < 15:
            writer.int32(-1)
        writer.int32(self.max_wait_ms)
        writer.int32(self.min_bytes)
        writer.int32(self.max_bytes)
        writer.int8(self.isolation)
        writer.int32(self.session_id)
        writer.int32(self.session_epoch)
        _write_wanted(writer.buffer, self.partitions)
        _write_forgotten(writer.buffer, self.forgotten)
        writer.compact_string(self.rack)
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> FetchResponse:
        throttle_ms = reader.int32()
        error = ErrorCode(reader.int16())
        session_id = reader.int32()
        partitions: list[FetchedPartition] = []
        for _ in range(reader.count()):
            topic_id = reader.uuid()
            partitions += [_partition(reader, topic_id) for _ in range(reader.count())]
            reader.skip_tags()
        reader.skip_tags()
        return FetchResponse(throttle_ms, error, session_id, tuple(partitions))


def _write_wanted(out: bytearray, partitions: Mapping[tuple[bytes, int], FetchFrom]) -> None:
    """Neighbours of one topic share its entry; the order of partitions is kept, so a topic may come again."""
    runs: list[tuple[bytes, list[bytes]]] = []
    for (topic_id, partition), start in partitions.items():
        if not runs or runs[-1][0] != topic_id:
            runs.append((topic_id, []))
        runs[-1][1].append(
            _PARTITION.pack(
                partition, start.leader_epoch, start.offset, start.last_fetched_epoch, -1, start.max_bytes
            )
        )
    out += uvarint(len(runs) + 1)
    for topic_id, packed in runs:
        out += topic_id
        out += uvarint(len(packed) + 1)
        out += b"\0".join(packed)
        out += b"\0\0"


def _write_forgotten(out: bytearray, forgotten: Sequence[tuple[bytes, int]]) -> None:
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, partition in forgotten:
        by_topic.setdefault(topic_id, []).append(partition)
    out += uvarint(len(by_topic) + 1)
    for topic_id, indexes in by_topic.items():
        out += topic_id
        out += uvarint(len(indexes) + 1)
        out += struct.pack(f">{len(indexes)}i", *indexes)
        out += b"\0"


def _partition(reader: Reader, topic_id: bytes) -> FetchedPartition:
    index, error, high_watermark, stable, log_start = _ANSWERED.unpack(reader.take(_ANSWERED.size))
    aborted = _aborted(reader)
    preferred = reader.int32()
    size = reader.uvarint()
    records = reader.take(size - 1) if size > 1 else _EMPTY
    diverging, leader = _partition_tags(reader)
    return FetchedPartition(
        topic_id,
        index,
        ErrorCode(error),
        high_watermark,
        stable,
        log_start,
        aborted,
        preferred,
        records,
        diverging,
        leader,
    )


def _aborted(reader: Reader) -> tuple[tuple[int, int], ...]:
    found = []
    for _ in range(reader.count()):
        found.append(_ABORTED.unpack(reader.take(_ABORTED.size)))
        reader.skip_tags()
    return tuple(found)


def _partition_tags(reader: Reader) -> tuple[EpochEnd | None, LeaderHint | None]:
    buffer, position = reader.buffer, reader.position
    if position >= len(buffer):
        raise Truncated("a partition without its tagged fields")
    if buffer[position] == 0:
        reader.position = position + 1
        return None, None
    tags = reader.tags()
    diverging = leader = None
    if 0 in tags:
        diverging = EpochEnd(*_EPOCH_END.unpack(tags[0].take(_EPOCH_END.size)))
    if 1 in tags:
        leader = LeaderHint(*_LEADER.unpack(tags[1].take(_LEADER.size)))
    return diverging, leader
