"""ListOffsets and OffsetForLeaderEpoch: offsets of partitions by time or by epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from msgspec import Struct

from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.fetch import EpochEnd, Isolation
from runtime.kafka.protocol.layout import grouped
from runtime.kafka.protocol.request import Api, Message, Request, Rows

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3


class TopicPartition(NamedTuple):
    topic: str
    partition: int


def partition_errors(topics: Rows) -> dict[TopicPartition, ErrorCode]:
    """Returns the error of each partition, from topics that have nothing else."""
    return {
        TopicPartition(topic, index): error for topic, partitions in topics for index, error in partitions
    }


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


class ListOffsetsRequest(Request[Mapping[TopicPartition, ListedOffset | ErrorCode]], frozen=True):
    """With READ_COMMITTED, the latest offset of this request is the last stable one."""

    MESSAGE: ClassVar[Message] = Message(
        Api.LIST_OFFSETS,
        6,
        """
        _replica_id      int32  = -1
        isolation        int8
        topics           []
          name           string
          partitions     []
            index        int32
            current_epoch int32
            timestamp    int64
        """,
        """
        throttle_ms      int32
        topics           []
          name           string
          partitions     []
            index        int32
            error        error
            timestamp    int64
            offset       int64
            leader_epoch int32
        """,
    )
    VERSIONS: ClassVar[tuple[int, int]] = (5, 8)

    isolation: Isolation
    questions: Mapping[TopicPartition, OffsetQuestion]

    def values(self, version: int) -> Any:
        asked = ((at, (question.current_epoch, question.at)) for at, question in self.questions.items())
        return self.isolation, grouped(asked)

    def result(self, _throttle_ms: int, topics: Rows) -> Mapping[TopicPartition, ListedOffset | ErrorCode]:
        return {
            TopicPartition(topic, index): error or ListedOffset(offset, timestamp, epoch)
            for topic, partitions in topics
            for index, error, timestamp, offset, epoch in partitions
        }


class EpochQuestion(Struct, frozen=True):
    """An EpochQuestion requests the end offset of `leader_epoch`. A current epoch of -1 is not checked."""

    leader_epoch: int
    current_epoch: int = -1


class EpochEndsRequest(Request[Mapping[TopicPartition, EpochEnd | ErrorCode]], frozen=True):
    """This request is OffsetForLeaderEpoch.

    An end offset of -1 means that the broker does not know the epoch.
    """

    MESSAGE: ClassVar[Message] = Message(
        Api.OFFSET_FOR_LEADER_EPOCH,
        4,
        """
        _replica_id       int32  = -1
        topics            []
          name            string
          partitions      []
            index         int32
            current_epoch int32
            leader_epoch  int32
        """,
        """
        throttle_ms       int32
        topics            []
          name            string
          partitions      []
            error         error
            index         int32
            epoch         int32
            end_offset    int64
        """,
    )
    VERSIONS: ClassVar[tuple[int, int]] = (3, 4)

    questions: Mapping[TopicPartition, EpochQuestion]

    def values(self, version: int) -> Any:
        return grouped(
            (at, (epoch.current_epoch, epoch.leader_epoch)) for at, epoch in self.questions.items()
        )

    def result(self, _throttle_ms: int, topics: Rows) -> Mapping[TopicPartition, EpochEnd | ErrorCode]:
        return {
            TopicPartition(topic, index): error or EpochEnd(epoch, end_offset)
            for topic, partitions in topics
            for error, index, epoch, end_offset in partitions
        }
