"""Produce; record batches are sent from the caller's memory, without a copy.

Version 12 would add partitions to the transaction by itself and needs transaction.version=2, version 13 names
topics by id; docs/internals/kafka-client.md says why the classic protocol is spoken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from msgspec import Struct

from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.fetch import LeaderHint
from runtime.kafka.protocol.layout import Int16, Int32, Int64, Nested, Pieces, tag
from runtime.kafka.protocol.request import Api, Request

ALL_IN_SYNC = -1


class ProducePartition(Struct, frozen=True):
    """A ProducePartition is one record batch for one partition, in any number of pieces.

    A broker accepts only one batch per partition and request.
    """

    topic: str
    partition: Int32
    records: Pieces


class ProducedPartition(Struct, frozen=True):
    """The `record_errors` of a ProducedPartition are pairs of a record's index in its batch and a message."""

    topic: str
    partition: Int32
    error: ErrorCode
    base_offset: Int64
    log_append_time_ms: Int64
    log_start_offset: Int64
    record_errors: tuple[tuple[Int32, str | None], ...] = ()
    message: str | None = None
    leader: Annotated[LeaderHint | None, tag(0)] = None


class ProduceResponse(Struct, frozen=True):
    WIRE: ClassVar[tuple[str, ...]] = ("partitions", "throttle_ms")

    throttle_ms: Int32
    partitions: Annotated[tuple[ProducedPartition, ...], Nested(1)]


class ProduceRequest(Request[ProduceResponse], frozen=True):
    """Lists the partitions of a topic together."""

    API = Api.PRODUCE
    FLEXIBLE = 9
    VERSIONS = (8, 11)
    THROTTLED = None
    WIRE: ClassVar[tuple[str, ...]] = ("transactional_id", "acks", "timeout_ms", "partitions")

    transactional_id: str | None
    timeout_ms: Int32
    partitions: Annotated[Sequence[ProducePartition], Nested(1)]
    acks: Int16 = ALL_IN_SYNC
