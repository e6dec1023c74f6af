"""This module encodes Fetch v11 to v17: incremental sessions, leader epochs, and from v13 on topic ids.

No record is copied.

Callers name topics by id. Before v13 the request names them by name, from `FetchRequest.topics`, and the
response is converted back to ids. Last fetched epochs are sent from v12 on.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import ClassVar

from msgspec import Struct, field

from runtime.contract.spec.naming import NO_TOPIC_ID, is_from_kafka
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.request import (
    Api,
    Buffer,
    FixedReader,
    Reader,
    Truncated,
    Writer,
    reader_of,
    uvarint,
    writer_of,
)

_BY_ID = 13
_PARTITION = struct.Struct(">iiqiqi")
_OLD_PARTITION = struct.Struct(">iiqqi")
_ANSWERED = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_EPOCH_END = struct.Struct(">iq")
_LEADER = struct.Struct(">ii")
_EMPTY = memoryview(bytearray())

NO_SESSION = 0
FULL_SESSION_EPOCH = 0
NO_SESSION_EPOCH = -1


class Isolation(IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class FetchFrom(Struct, frozen=True):
    """A FetchFrom is the position to read a partition from.

    The broker does not check an epoch of -1, which is unknown.
    """

    offset: int
    leader_epoch: int = -1
    last_fetched_epoch: int = -1
    max_bytes: int = 1 << 20


class EpochEnd(Struct, frozen=True):
    """An EpochEnd is the largest known leader epoch at or below the requested one, and its end offset."""

    epoch: int
    end_offset: int


class LeaderHint(Struct, frozen=True):
    """A LeaderHint is the leader that the broker names beside an error; -1 when it knows none."""

    leader: int
    epoch: int


class FetchedPartition(Struct, frozen=True):
    """A FetchedPartition holds the response for one partition.

    `records` is a writable view of the response: whole batches, the last one perhaps incomplete.
    """

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


class FetchResponse(Struct, frozen=True):
    throttle_ms: int
    error: ErrorCode
    session_id: int
    partitions: tuple[FetchedPartition, ...]
    by_name: bool = False


class FetchedTopic(Struct, frozen=True):
    """A FetchedTopic is the name of a topic, and the cluster's current id for it."""

    name: str
    id: bytes


class FetchRequest(Struct, frozen=True):
    """A FetchRequest lists the partitions in the order in which the broker fills the response.

    `topics` describes the topics of the session by the caller's ids. From v13 on, an id that is missing there
    is sent unchanged; before, such a partition is left out of the request, and is answered with
    UNKNOWN_TOPIC_ID.
    """

    API: ClassVar[Api] = Api.FETCH
    VERSIONS: ClassVar[tuple[int, int]] = (11, 17)
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
    topics: Mapping[bytes, FetchedTopic] = field(default_factory=dict)

    def body(self, version: int) -> list[Buffer]:
        if version < _BY_ID:
            return self._body_by_name(version)
        writer = self._lead(version)
        ids = {known: topic.id for known, topic in self.topics.items() if is_from_kafka(topic.id)}
        _write_wanted(writer.buffer, self.partitions, ids)
        _write_forgotten(writer.buffer, self.forgotten, ids)
        writer.compact_string(self.rack)
        writer.no_tags()
        return [writer.buffer]

    def _lead(self, version: int) -> Writer:
        """Returns a writer with the fields before the partitions."""
        writer = writer_of(version, self.FLEXIBLE)
        if version < 15:
            writer.int32(-1)
        writer.int32(self.max_wait_ms)
        writer.int32(self.min_bytes)
        writer.int32(self.max_bytes)
        writer.int8(self.isolation)
        writer.int32(self.session_id)
        writer.int32(self.session_epoch)
        return writer

    def _body_by_name(self, version: int) -> list[Buffer]:
        writer = self._lead(version)
        runs: list[tuple[bytes, list[tuple[int, FetchFrom]]]] = []
        for (topic_id, partition), start in self.partitions.items():
            if topic_id not in self.topics:
                continue
            if not runs or runs[-1][0] != topic_id:
                runs.append((topic_id, []))
            runs[-1][1].append((partition, start))
        writer.count(len(runs))
        for topic_id, wanted in runs:
            writer.compact_string(self.topics[topic_id].name)
            writer.count(len(wanted))
            for partition, start in wanted:
                if version >= self.FLEXIBLE:
                    epochs = (start.leader_epoch, start.offset, start.last_fetched_epoch)
                    writer.raw(_PARTITION.pack(partition, *epochs, -1, start.max_bytes))
                else:
                    position = (start.leader_epoch, start.offset)
                    writer.raw(_OLD_PARTITION.pack(partition, *position, -1, start.max_bytes))
                writer.no_tags()
            writer.no_tags()
        writer.by_topic(
            (self.topics[topic_id].name, index)
            for topic_id, index in self.forgotten
            if topic_id in self.topics
        )
        writer.compact_string(self.rack)
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> FetchResponse:
        if version < _BY_ID:
            return self._answer_by_name(reader_of(reader, version, self.FLEXIBLE))
        known = {
            topic.id: topic_id
            for topic_id, topic in self.topics.items()
            if topic.id != topic_id and is_from_kafka(topic.id)
        }
        throttle_ms = reader.int32()
        error = reader.error_code()
        session_id = reader.int32()
        partitions: list[FetchedPartition] = []
        for _ in range(reader.count()):
            topic_id = reader.uuid()
            topic_id = known.get(topic_id, topic_id)
            partitions += [_partition(reader, topic_id) for _ in range(reader.count())]
            reader.skip_tags()
        reader.skip_tags()
        return FetchResponse(throttle_ms, error, session_id, tuple(partitions))

    def _answer_by_name(self, reader: Reader) -> FetchResponse:
        ids = {topic.name: topic_id for topic_id, topic in self.topics.items()}
        throttle_ms = reader.int32()
        error = reader.error_code()
        session_id = reader.int32()
        partitions: list[FetchedPartition] = []
        for _ in range(reader.count()):
            # a session may hold partitions that were forgotten
            topic_id = ids.get(reader.compact_string(), NO_TOPIC_ID)
            partitions += [_partition(reader, topic_id) for _ in range(reader.count())]
            reader.skip_tags()
        reader.skip_tags()
        if not error:
            unknown = [key for key in self.partitions if key[0] not in self.topics]
            partitions += [unknown_topic(*key) for key in unknown]
        return FetchResponse(throttle_ms, error, session_id, tuple(partitions), by_name=True)


def unknown_topic(topic_id: bytes, partition: int) -> FetchedPartition:
    """Returns the response for a partition of a topic that no longer exists."""
    return FetchedPartition(topic_id, partition, ErrorCode.UNKNOWN_TOPIC_ID, -1, -1, -1, (), -1, _EMPTY)


def _write_wanted(
    out: bytearray, partitions: Mapping[tuple[bytes, int], FetchFrom], ids: Mapping[bytes, bytes]
) -> None:
    """Writes the partitions in their order.

    Neighbours of one topic share its entry, so a topic may occur again.
    """
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
        out += ids.get(topic_id, topic_id)
        out += uvarint(len(packed) + 1)
        out += b"\0".join(packed)
        out += b"\0\0"


def _write_forgotten(
    out: bytearray, forgotten: Sequence[tuple[bytes, int]], ids: Mapping[bytes, bytes]
) -> None:
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, partition in forgotten:
        by_topic.setdefault(topic_id, []).append(partition)
    out += uvarint(len(by_topic) + 1)
    for topic_id, indexes in by_topic.items():
        out += ids.get(topic_id, topic_id)
        out += uvarint(len(indexes) + 1)
        out += struct.pack(f">{len(indexes)}i", *indexes)
        out += b"\0"


def _partition(reader: Reader, topic_id: bytes) -> FetchedPartition:
    index, error, high_watermark, stable, log_start = _ANSWERED.unpack(reader.take(_ANSWERED.size))
    aborted = _aborted(reader)
    preferred = reader.int32()
    size = reader.bytes_size()
    records = reader.take(size) if size > 0 else _EMPTY
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
    if isinstance(reader, FixedReader):
        return None, None
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
