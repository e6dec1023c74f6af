"""A group's committed offsets, for the commits at the origin: OffsetCommit v8, v9, OffsetFetch v6 to v9."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from runtime.kafka.codes import ErrorCode
from runtime.kafka.protocol.fields import Reader, Writer
from runtime.kafka.protocol.offsets import TopicPartition, write_by_topic
from runtime.kafka.protocol.request import Api, Buffer

# The versions of OffsetFetch that brought some of its fields.
MANY_GROUPS = 8
REQUIRE_STABLE = 7


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """`offset` is -1 where nothing was committed. A leader epoch of -1 is unknown, and never written."""

    offset: int
    leader_epoch: int = -1
    metadata: str | None = None


@dataclass(frozen=True, slots=True)
class OffsetCommitResponse:
    throttle_ms: int
    errors: Mapping[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True)
class OffsetCommitRequest:
    """As a client that is no member of the group: refused by the broker while the group has members."""

    API: ClassVar[Api] = Api.OFFSET_COMMIT
    VERSIONS: ClassVar[tuple[int, int]] = (8, 9)
    FLEXIBLE: ClassVar[int] = 8

    group: str
    offsets: Mapping[TopicPartition, CommittedOffset]

    def body(self, version: int) -> list[Buffer]:
        writer = Writer()
        writer.compact_string(self.group)
        writer.int32(-1)
        writer.compact_string("")
        writer.compact_string(None)

        def committed(offset: CommittedOffset) -> None:
            writer.int64(offset.offset)
            writer.int32(offset.leader_epoch)
            writer.compact_string(offset.metadata)

        write_by_topic(writer, self.offsets, committed)
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> OffsetCommitResponse:
        throttle_ms = reader.int32()
        errors: dict[TopicPartition, ErrorCode] = {}
        for _ in range(reader.count()):
            topic = reader.compact_string()
            for _ in range(reader.count()):
                partition = reader.int32()
                errors[TopicPartition(topic, partition)] = ErrorCode(reader.int16())
                reader.skip_tags()
            reader.skip_tags()
        return OffsetCommitResponse(throttle_ms, errors)


@dataclass(frozen=True, slots=True)
class OffsetFetchResponse:
    throttle_ms: int
    error: ErrorCode
    offsets: Mapping[TopicPartition, CommittedOffset | ErrorCode]


@dataclass(frozen=True, slots=True)
class OffsetFetchRequest:
    """`partitions` of None asks for all that the group ever committed."""

    API: ClassVar[Api] = Api.OFFSET_FETCH
    VERSIONS: ClassVar[tuple[int, int]] = (6, 9)
    FLEXIBLE: ClassVar[int] = 6

    group: str
    partitions: Sequence[TopicPartition] | None = None

    def body(self, version: int) -> list[Buffer]:
        writer = Writer()
        if version >= MANY_GROUPS:
            writer.count(1)
        writer.compact_string(self.group)
        if version >= 9:
            writer.compact_string(None)
            writer.int32(-1)
        if self.partitions is None:
            writer.count(None)
        else:
            writer.by_topic(self.partitions)
        if version >= MANY_GROUPS:
            writer.no_tags()
        if version >= REQUIRE_STABLE:
            writer.boolean(False)
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> OffsetFetchResponse:
        throttle_ms = reader.int32()
        offsets: dict[TopicPartition, CommittedOffset | ErrorCode] = {}
        error = ErrorCode.NONE
        if version < MANY_GROUPS:
            read_group(reader, offsets)
            return OffsetFetchResponse(throttle_ms, ErrorCode(reader.int16()), offsets)
        for _ in range(reader.count()):
            reader.compact_string()
            read_group(reader, offsets)
            error = ErrorCode(reader.int16())
            reader.skip_tags()
        return OffsetFetchResponse(throttle_ms, error, offsets)


def read_group(reader: Reader, offsets: dict[TopicPartition, CommittedOffset | ErrorCode]) -> None:
    """The topics of one group in an answer."""
    for _ in range(reader.count()):
        topic = reader.compact_string()
        for _ in range(reader.count()):
            partition = reader.int32()
            committed = CommittedOffset(reader.int64(), reader.int32(), reader.nullable_string())
            error = ErrorCode(reader.int16())
            reader.skip_tags()
            offsets[TopicPartition(topic, partition)] = error or committed
        reader.skip_tags()
