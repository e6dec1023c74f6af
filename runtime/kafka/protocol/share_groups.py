"""This module encodes the requests for the positions of share groups (KIP-932), since Kafka 4.2.

Kafka 4.1 offers version 0 of both, and refuses them unless an operator switched the preview on.

A share group has no committed offsets. Of each partition, the share coordinator keeps the start offset: all
records before it are acknowledged or archived. Records behind it may be acknowledged, acquired or available.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from msgspec import Struct

from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.offsets import TopicPartition, write_by_topic
from runtime.kafka.protocol.request import Api, Buffer, Reader, Writer

StartOffsets = Mapping[TopicPartition, int | ErrorCode]


class DescribeShareOffsetsResponse(Struct, frozen=True):
    throttle_ms: int
    groups: Mapping[str, StartOffsets | ErrorCode]


class DescribeShareOffsetsRequest(Struct, frozen=True):
    """This request reads the start offsets of groups from their coordinator.

    A start offset of -1 says that no consumer of the group has fetched from the partition yet.
    """

    API: ClassVar[Api] = Api.DESCRIBE_SHARE_GROUP_OFFSETS
    VERSIONS: ClassVar[tuple[int, int]] = (1, 1)
    FLEXIBLE: ClassVar[int] = 0

    groups: Sequence[str]

    def body(self, version: int) -> list[Buffer]:
        writer = Writer()
        writer.count(len(self.groups))
        for group in self.groups:
            writer.compact_string(group)
            writer.count(None)  # every topic of the group
            writer.no_tags()
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> DescribeShareOffsetsResponse:
        throttle_ms = reader.int32()
        groups: dict[str, StartOffsets | ErrorCode] = {}
        for _ in range(reader.count()):
            group = reader.compact_string()
            offsets: dict[TopicPartition, int | ErrorCode] = {}
            for _ in range(reader.count()):
                topic = reader.compact_string()
                reader.uuid()
                for _ in range(reader.count()):
                    partition, start = reader.int32(), reader.int64()
                    reader.int32()  # leader epoch
                    reader.int64()  # lag
                    error = reader.error_code()
                    reader.nullable_string()
                    reader.skip_tags()
                    offsets[TopicPartition(topic, partition)] = error or start
                reader.skip_tags()
            error = reader.error_code()
            reader.nullable_string()
            reader.skip_tags()
            groups[group] = error or offsets
        return DescribeShareOffsetsResponse(throttle_ms, groups)


class AlterShareOffsetsResponse(Struct, frozen=True):
    throttle_ms: int
    error: ErrorCode
    errors: Mapping[TopicPartition, ErrorCode]


class AlterShareOffsetsRequest(Struct, frozen=True):
    """This request sets start offsets, and creates the group where there is none.

    The broker refuses it while the group has members.
    """

    API: ClassVar[Api] = Api.ALTER_SHARE_GROUP_OFFSETS
    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE: ClassVar[int] = 0

    group: str
    offsets: Mapping[TopicPartition, int]

    def body(self, version: int) -> list[Buffer]:
        writer = Writer()
        writer.compact_string(self.group)
        write_by_topic(writer, self.offsets, writer.int64)
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> AlterShareOffsetsResponse:
        throttle_ms = reader.int32()
        error = reader.error_code()
        reader.nullable_string()
        errors: dict[TopicPartition, ErrorCode] = {}
        for _ in range(reader.count()):
            topic = reader.compact_string()
            reader.uuid()
            for _ in range(reader.count()):
                partition = reader.int32()
                errors[TopicPartition(topic, partition)] = reader.error_code()
                reader.nullable_string()
                reader.skip_tags()
            reader.skip_tags()
        reader.skip_tags()
        return AlterShareOffsetsResponse(throttle_ms, error, errors)
