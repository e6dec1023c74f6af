"""This module encodes ListOffsets and OffsetForLeaderEpoch: offsets of partitions by time or by epoch."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Mapping
from typing import ClassVar, NamedTuple, TypeVar

from msgspec import Struct

from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.fetch import EpochEnd, Isolation
from runtime.kafka.protocol.request import Api, Buffer, Reader, Writer, reader_of, writer_of

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3

Q = TypeVar("Q")
_OFFSET_QUESTION = struct.Struct(">iq")  # the current epoch, and the time
_LISTED_OFFSET = struct.Struct(">ihqqi")  # partition, error, timestamp, offset, epoch
_EPOCH_QUESTION = struct.Struct(">ii")  # the current epoch, and the requested one
_EPOCH_END = struct.Struct(">hiiq")  # error, partition, epoch, end offset


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class OffsetQuestion(Struct, frozen=True):
    """An OffsetQuestion requests the offset of a time.

    `at` is a timestamp in ms, or LATEST, EARLIEST, MAX_TIMESTAMP. A current epoch of -1 is not checked.
    """

    at: int
    current_epoch: int = -1


class ListedOffset(NamedTuple):
    """The `offset` of a ListedOffset is -1 where no record is as late as the requested timestamp."""

    offset: int
    timestamp: int
    leader_epoch: int


class ListOffsetsResponse(Struct, frozen=True):
    throttle_ms: int
    answers: Mapping[TopicPartition, ListedOffset | ErrorCode]


class ListOffsetsRequest(Struct, frozen=True):
    """With READ_COMMITTED, the latest offset of this request is the last stable one."""

    API: ClassVar[Api] = Api.LIST_OFFSETS
    VERSIONS: ClassVar[tuple[int, int]] = (5, 8)
    FLEXIBLE: ClassVar[int] = 6

    isolation: Isolation
    questions: Mapping[TopicPartition, OffsetQuestion]

    def body(self, version: int) -> list[Buffer]:
        writer = writer_of(version, self.FLEXIBLE)
        writer.int32(-1)
        writer.int8(self.isolation)

        def question(at: OffsetQuestion) -> None:
            writer.fields(_OFFSET_QUESTION, at.current_epoch, at.at)

        write_by_topic(writer, self.questions, question)
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> ListOffsetsResponse:
        reader = reader_of(reader, version, self.FLEXIBLE)
        throttle_ms = reader.int32()
        answers: dict[TopicPartition, ListedOffset | ErrorCode] = {}
        for _ in range(reader.count()):
            topic = reader.compact_string()
            for _ in range(reader.count()):
                partition, code, timestamp, offset, epoch = reader.fields(_LISTED_OFFSET)
                reader.skip_tags()
                listed = ErrorCode(code) if code else ListedOffset(offset, timestamp, epoch)
                answers[TopicPartition(topic, partition)] = listed
            reader.skip_tags()
        return ListOffsetsResponse(throttle_ms, answers)


class EpochQuestion(Struct, frozen=True):
    """An EpochQuestion requests the end offset of `leader_epoch`. A current epoch of -1 is not checked."""

    leader_epoch: int
    current_epoch: int = -1


class EpochEndsResponse(Struct, frozen=True):
    throttle_ms: int
    answers: Mapping[TopicPartition, EpochEnd | ErrorCode]


class EpochEndsRequest(Struct, frozen=True):
    """This request is OffsetForLeaderEpoch.

    An end offset of -1 means that the broker does not know the epoch.
    """

    API: ClassVar[Api] = Api.OFFSET_FOR_LEADER_EPOCH
    VERSIONS: ClassVar[tuple[int, int]] = (3, 4)
    FLEXIBLE: ClassVar[int] = 4

    questions: Mapping[TopicPartition, EpochQuestion]

    def body(self, version: int) -> list[Buffer]:
        writer = writer_of(version, self.FLEXIBLE)
        writer.int32(-1)

        def question(epoch: EpochQuestion) -> None:
            writer.fields(_EPOCH_QUESTION, epoch.current_epoch, epoch.leader_epoch)

        write_by_topic(writer, self.questions, question)
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> EpochEndsResponse:
        reader = reader_of(reader, version, self.FLEXIBLE)
        throttle_ms = reader.int32()
        answers: dict[TopicPartition, EpochEnd | ErrorCode] = {}
        for _ in range(reader.count()):
            topic = reader.compact_string()
            for _ in range(reader.count()):
                code, partition, epoch, end = reader.fields(_EPOCH_END)
                reader.skip_tags()
                found = ErrorCode(code) if code else EpochEnd(epoch, end)
                answers[TopicPartition(topic, partition)] = found
            reader.skip_tags()
        return EpochEndsResponse(throttle_ms, answers)


def write_by_topic(
    writer: Writer, questions: Mapping[TopicPartition, Q], question: Callable[[Q], None]
) -> None:
    """Writes topics with their partitions; each partition's index is followed by its question."""
    ordered = sorted(questions, key=lambda key: key.topic)
    topics = [(topic, list(keys)) for topic, keys in itertools.groupby(ordered, key=lambda key: key.topic)]
    writer.count(len(topics))
    for topic, keys in topics:
        writer.compact_string(topic)
        writer.count(len(keys))
        for key in keys:
            writer.int32(key.partition)
            question(questions[key])
            writer.no_tags()
        writer.no_tags()
