"""This module encodes the requests for replicas: DescribeLogDirs v1 to v4, AlterPartitionReassignments v0."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from runtime.kafka.codes import ErrorCode
from runtime.kafka.protocol.fields import Reader, Writer, reader_of, writer_of
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.protocol.request import Api, Buffer

_WITH_ERROR, _WITH_VOLUME = 3, 4


@dataclass(frozen=True, slots=True)
class DescribeLogDirsResponse:
    """The `replicas` of this response hold each replica and its bytes.

    A replica that moves between disks occurs twice.
    """

    throttle_ms: int
    error: ErrorCode
    replicas: tuple[tuple[TopicPartition, int], ...]


@dataclass(frozen=True, slots=True)
class DescribeLogDirsRequest:
    API: ClassVar[Api] = Api.DESCRIBE_LOG_DIRS
    VERSIONS: ClassVar[tuple[int, int]] = (1, 4)
    FLEXIBLE: ClassVar[int] = 2

    partitions: Iterable[TopicPartition]

    def body(self, version: int) -> list[Buffer]:
        writer = writer_of(version, self.FLEXIBLE)
        writer.by_topic(self.partitions)
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> DescribeLogDirsResponse:
        reader = reader_of(reader, version, self.FLEXIBLE)
        throttle_ms = reader.int32()
        error = ErrorCode(reader.int16()) if version >= _WITH_ERROR else ErrorCode.NONE
        replicas: list[tuple[TopicPartition, int]] = []
        for _ in range(reader.count()):
            reader.int16()  # an error of this directory: the response then leaves out its replicas
            reader.compact_string()
            for _ in range(reader.count()):
                topic = reader.compact_string()
                for _ in range(reader.count()):
                    partition, size = reader.int32(), reader.int64()
                    reader.int64()  # offset lag
                    reader.boolean()  # whether it is to replace the present replica
                    reader.skip_tags()
                    replicas.append((TopicPartition(topic, partition), size))
                reader.skip_tags()
            if version >= _WITH_VOLUME:
                reader.int64()  # bytes of the volume
                reader.int64()  # usable bytes of the volume
            reader.skip_tags()
        return DescribeLogDirsResponse(throttle_ms, error, tuple(replicas))


@dataclass(frozen=True, slots=True)
class Refusal:
    """A Refusal is the reason why the brokers rejected a change; `message` is their text, if there is one."""

    error: ErrorCode
    message: str | None


@dataclass(frozen=True, slots=True)
class AlterReassignmentsResponse:
    """In this response, `refusal` concerns the whole request and `refused` single partitions.

    The others are being moved.
    """

    throttle_ms: int
    refusal: Refusal | None
    refused: Mapping[TopicPartition, Refusal]


@dataclass(frozen=True, slots=True)
class AlterReassignmentsRequest:
    """This request moves each partition to its replicas, the preferred leader first. It may be sent again."""

    API: ClassVar[Api] = Api.ALTER_PARTITION_REASSIGNMENTS
    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE: ClassVar[int] = 0

    replicas: Mapping[TopicPartition, Sequence[int]]
    timeout_ms: int

    def body(self, version: int) -> list[Buffer]:
        topics: dict[str, list[tuple[int, Sequence[int]]]] = {}
        for place, replicas in self.replicas.items():
            topics.setdefault(place.topic, []).append((place.partition, replicas))
        writer = Writer()
        writer.int32(self.timeout_ms)
        writer.count(len(topics))
        for topic, partitions in topics.items():
            writer.compact_string(topic)
            writer.count(len(partitions))
            for partition, replicas in partitions:
                writer.int32(partition)
                writer.int32s(list(replicas))
                writer.no_tags()
            writer.no_tags()
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> AlterReassignmentsResponse:
        throttle_ms = reader.int32()
        refusal = _refusal(reader)
        refused = {}
        for _ in range(reader.count()):
            topic = reader.compact_string()
            for _ in range(reader.count()):
                partition = reader.int32()
                if (why := _refusal(reader)) is not None:
                    refused[TopicPartition(topic, partition)] = why
                reader.skip_tags()
            reader.skip_tags()
        return AlterReassignmentsResponse(throttle_ms, refusal, refused)


def _refusal(reader: Reader) -> Refusal | None:
    error, message = ErrorCode(reader.int16()), reader.nullable_string()
    return Refusal(error, message) if error else None
