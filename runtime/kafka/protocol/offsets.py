"""ListOffsets and OffsetForLeaderEpoch: offsets of partitions by time or by epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, NamedTuple

from msgspec import Struct

from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.fetch import EpochEnd, Isolation
from runtime.kafka.protocol.layout import ERROR, KEY, VALUE, Entry, Int32, Int64
from runtime.kafka.protocol.request import Api, Request

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3


class TopicPartition(NamedTuple):
    topic: str
    partition: Int32


class OffsetQuestion(Struct, frozen=True):
    """An OffsetQuestion requests the offset of a time.

    `at` is a timestamp in ms, or LATEST, EARLIEST, MAX_TIMESTAMP. A current epoch of -1 is not checked.
    """

    WIRE: ClassVar[tuple[str, ...]] = ("current_epoch", "at")

    at: Int64
    current_epoch: Int32 = -1


class ListedOffset(Struct, frozen=True):
    """The `offset` of a ListedOffset is -1 where no record is as late as the requested timestamp."""

    WIRE: ClassVar[tuple[str, ...]] = ("timestamp", "offset", "leader_epoch")

    offset: Int64
    timestamp: Int64
    leader_epoch: Int32


class ListOffsetsRequest(Request[Mapping[TopicPartition, ListedOffset | ErrorCode]], frozen=True):
    """With READ_COMMITTED, the latest offset of this request is the last stable one."""

    API = Api.LIST_OFFSETS
    FLEXIBLE = 6
    VERSIONS = (5, 8)
    _replica_id: ClassVar[Int32] = -1

    isolation: Annotated[Isolation, "int8"]
    questions: Mapping[TopicPartition, OffsetQuestion]


class EpochQuestion(Struct, frozen=True):
    """An EpochQuestion requests the end offset of `leader_epoch`. A current epoch of -1 is not checked."""

    WIRE: ClassVar[tuple[str, ...]] = ("current_epoch", "leader_epoch")

    leader_epoch: Int32
    current_epoch: Int32 = -1


class EpochEndsRequest(
    Request[Annotated[Mapping[TopicPartition, EpochEnd | ErrorCode], Entry(ERROR, KEY, VALUE)]],
    frozen=True,
):
    """This request is OffsetForLeaderEpoch.

    An end offset of -1 means that the broker does not know the epoch.
    """

    API = Api.OFFSET_FOR_LEADER_EPOCH
    FLEXIBLE = 4
    VERSIONS = (3, 4)
    _replica_id: ClassVar[Int32] = -1

    questions: Mapping[TopicPartition, EpochQuestion]
