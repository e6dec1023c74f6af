"""This module encodes AlterPartitionReassignments v0, which moves partitions to other replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from runtime.kafka.codes import ErrorCode
from runtime.kafka.protocol.fields import Reader, Writer
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.protocol.request import Api, Buffer


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
