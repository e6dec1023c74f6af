"""This module encodes DescribeLogDirs v1 to v4: the bytes that a broker's replicas have on its disks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from runtime.kafka.codes import ErrorCode
from runtime.kafka.protocol.fields import Reader, reader_of, writer_of
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
