"""This module encodes Produce v8 to v11; record batches are sent from the caller's memory, without a copy.

Version 12 would add partitions to the transaction by itself and needs transaction.version=2, version 13 names
topics by id; docs/internals/kafka-client.md says why the classic protocol is spoken.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import ClassVar

from msgspec import Struct

from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.fetch import LeaderHint
from runtime.kafka.protocol.request import (
    INT16,
    INT32,
    Api,
    Buffer,
    FixedReader,
    Reader,
    Writer,
    reader_of,
    uvarint,
    writer_of,
)

_ANSWERED = struct.Struct(">ihqqq")
_LEADER = struct.Struct(">ii")
_NOTHING_MORE = b"\1\0\0"  # no record errors, no message, no tags: nearly always
_NOTHING_MORE_OLD = b"\0\0\0\0\xff\xff"  # the same in version 8
ALL_IN_SYNC = -1


class ProducePartition(Struct, frozen=True):
    """A ProducePartition is one record batch for one partition, in any number of pieces.

    A broker accepts only one batch per partition and request.
    """

    topic: str
    partition: int
    records: Sequence[Buffer]


class ProducedPartition(Struct, frozen=True):
    """The `record_errors` of a ProducedPartition are pairs of a record's index in its batch and a message."""

    topic: str
    partition: int
    error: ErrorCode
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    message: str | None = None
    record_errors: tuple[tuple[int, str | None], ...] = ()
    leader: LeaderHint | None = None


class ProduceResponse(Struct, frozen=True):
    throttle_ms: int
    partitions: tuple[ProducedPartition, ...]


class ProduceRequest(Struct, frozen=True):
    """A ProduceRequest lists the partitions of a topic together."""

    API: ClassVar[Api] = Api.PRODUCE
    VERSIONS: ClassVar[tuple[int, int]] = (8, 11)
    FLEXIBLE: ClassVar[int] = 9

    transactional_id: str | None
    timeout_ms: int
    partitions: Sequence[ProducePartition]
    acks: int = ALL_IN_SYNC

    def body(self, version: int) -> list[Buffer]:
        writer = writer_of(version, self.FLEXIBLE)
        writer.compact_string(self.transactional_id)
        writer.int16(self.acks)
        writer.int32(self.timeout_ms)
        by_topic: dict[str, list[ProducePartition]] = {}
        for partition in self.partitions:
            by_topic.setdefault(partition.topic, []).append(partition)
        writer.count(len(by_topic))
        parts: list[Buffer] = []
        if version < self.FLEXIBLE:
            return self._old_body(writer, by_topic)
        between = writer.buffer
        for topic, partitions in by_topic.items():
            name = topic.encode()
            between += uvarint(len(name) + 1) + name + uvarint(len(partitions) + 1)
            for partition in partitions:
                size = sum(map(len, partition.records))
                between += INT32.pack(partition.partition) + uvarint(size + 1)
                parts.append(between)
                parts += partition.records
                between = bytearray(1)
            between += b"\0"
        between += b"\0"
        parts.append(between)
        return parts

    def _old_body(self, writer: Writer, by_topic: Mapping[str, Sequence[ProducePartition]]) -> list[Buffer]:
        parts: list[Buffer] = []
        between = writer.buffer
        for topic, partitions in by_topic.items():
            name = topic.encode()
            between += INT16.pack(len(name)) + name + INT32.pack(len(partitions))
            for partition in partitions:
                size = sum(map(len, partition.records))
                between += INT32.pack(partition.partition) + INT32.pack(size)
                parts.append(between)
                parts += partition.records
                between = bytearray()
        return parts

    def answer(self, version: int, reader: Reader) -> ProduceResponse:
        reader = reader_of(reader, version, self.FLEXIBLE)
        partitions: list[ProducedPartition] = []
        for _ in range(reader.count()):
            topic = reader.compact_string()
            partitions += [_partition(reader, topic) for _ in range(reader.count())]
            reader.skip_tags()
        throttle_ms = reader.int32()
        reader.skip_tags()
        return ProduceResponse(throttle_ms, tuple(partitions))


def _partition(reader: Reader, topic: str) -> ProducedPartition:
    index, error, base_offset, append_time, log_start = _ANSWERED.unpack(reader.take(_ANSWERED.size))
    old = isinstance(reader, FixedReader)
    if not error and reader.skip(_NOTHING_MORE_OLD if old else _NOTHING_MORE):
        return ProducedPartition(topic, index, ErrorCode.NONE, base_offset, append_time, log_start)
    record_errors = tuple([_record_error(reader) for _ in range(reader.count())])
    message = reader.nullable_string()
    tags = {} if old else reader.tags()
    leader = LeaderHint(*_LEADER.unpack(tags[0].take(_LEADER.size))) if 0 in tags else None
    return ProducedPartition(
        topic,
        index,
        ErrorCode(error),
        base_offset,
        append_time,
        log_start,
        message,
        record_errors,
        leader,
    )


def _record_error(reader: Reader) -> tuple[int, str | None]:
    found = reader.int32(), reader.nullable_string()
    reader.skip_tags()
    return found
