"""Produce; record batches are sent from the caller's memory, without a copy.

Version 12 would add partitions to the transaction by itself and needs transaction.version=2, version 13 names
topics by id; docs/internals/kafka-client.md says why the classic protocol is spoken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from msgspec import Struct

from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.fetch import LeaderHint
from runtime.kafka.protocol.layout import Buffer
from runtime.kafka.protocol.request import Api, Message, Request, Rows

ALL_IN_SYNC = -1


class ProducePartition(Struct, frozen=True):
    """A ProducePartition is one record batch for one partition, in any number of pieces.

    A broker accepts only one batch per partition and request.
    """

    topic: str
    partition: int
    records: Sequence[Buffer]


class ProducedPartition(Struct, frozen=True):
    """The `record_errors` of a ProducedPartition are pairs of a record's index in its batch and a message."""

    topic: str
    partition: int
    error: ErrorCode
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    message: str | None = None
    record_errors: tuple[tuple[int, str | None], ...] = ()
    leader: LeaderHint | None = None


class ProduceResponse(Struct, frozen=True):
    throttle_ms: int
    partitions: tuple[ProducedPartition, ...]


class ProduceRequest(Request[ProduceResponse], frozen=True):
    """A ProduceRequest lists the partitions of a topic together."""

    MESSAGE: ClassVar[Message] = Message(
        Api.PRODUCE,
        9,
        """
        transactional_id        string?
        acks                    int16
        timeout_ms              int32
        topics                  []
          name                  string
          partitions            []
            index               int32
            records             records
        """,
        """
        topics                  []
          name                  string
          partitions            []
            index               int32
            error               error
            base_offset         int64
            log_append_time_ms  int64
            log_start_offset    int64
            record_errors       []
              batch_index       int32
              message           string?
            message             string?
            tag 0 leader        {} -> LeaderHint
              node_id           int32
              epoch             int32
        throttle_ms             int32
        """,
        LeaderHint,
    )
    VERSIONS: ClassVar[tuple[int, int]] = (8, 11)

    transactional_id: str | None
    timeout_ms: int
    partitions: Sequence[ProducePartition]
    acks: int = ALL_IN_SYNC

    def values(self, version: int) -> Any:
        topics: dict[str, list[tuple[int, Sequence[Buffer]]]] = {}
        for part in self.partitions:
            topics.setdefault(part.topic, []).append((part.partition, part.records))
        return self.transactional_id, self.acks, self.timeout_ms, topics.items()

    def result(self, topics: Rows, throttle_ms: int) -> ProduceResponse:
        produced = [
            ProducedPartition(topic, index, error, offset, append_ms, start, message, tuple(refused), leader)
            for topic, partitions in topics
            for index, error, offset, append_ms, start, refused, message, leader in partitions
        ]
        return ProduceResponse(throttle_ms, tuple(produced))
