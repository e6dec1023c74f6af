"""ListOffsets and OffsetForLeaderEpoch: offsets of partitions by time or by epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from msgspec import Struct

from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.fetch import EpochEnd, Isolation
from runtime.kafka.protocol.layout import ERROR, KEY, VALUE, EntryOrder, Int32, Int64, since
from runtime.kafka.protocol.request import Api, Request

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
_CURRENT_EPOCH = Annotated[Int32, since(0, absent=-1)]  # the broker does not check it


class ListedOffset(Struct, frozen=True):
    """The `offset` of a ListedOffset is -1 where no record is as late as the requested timestamp."""

    WIRE: ClassVar[tuple[str, ...]] = ("timestamp", "offset", "leader_epoch")

    offset: Int64
    timestamp: Int64
    leader_epoch: Int32


class ListOffsetsRequest(Request[Mapping[TopicPartition, ListedOffset | ErrorCode]], frozen=True):
    """This request lists the offset of each time: a timestamp in ms, or LATEST, EARLIEST, MAX_TIMESTAMP.

    With READ_COMMITTED, LATEST is the last stable offset.
    """

    API = Api.LIST_OFFSETS
    FLEXIBLE = 6
    VERSIONS = (5, 8)
    _replica_id: ClassVar[Int32] = -1

    isolation: Annotated[Isolation, "int8"]
    times: Annotated[Mapping[TopicPartition, Int64], EntryOrder(KEY, _CURRENT_EPOCH, VALUE)]


class EpochEndsRequest(
    Request[Annotated[Mapping[TopicPartition, EpochEnd | ErrorCode], EntryOrder(ERROR, KEY, VALUE)]],
    frozen=True,
):
    """This request is OffsetForLeaderEpoch: it reads the end offset of each leader epoch.

    An end offset of -1 means that the broker does not know the epoch.
    """

    API = Api.OFFSET_FOR_LEADER_EPOCH
    FLEXIBLE = 4
    VERSIONS = (3, 4)
    _replica_id: ClassVar[Int32] = -1

    leader_epochs: Annotated[Mapping[TopicPartition, Int32], EntryOrder(KEY, _CURRENT_EPOCH, VALUE)]
