"""Fetch: incremental sessions, leader epochs, and from version 13 on topic ids. No record is copied.

Callers name topics by id. Before version 13 the request names them by name, from `FetchRequest.topics`, and
the response is converted back to ids. Last fetched epochs are sent from version 12 on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Annotated, Any

from msgspec import Struct, field

from runtime.contract.spec.naming import NO_TOPIC_ID, is_from_kafka
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.layout import (
    Int8,
    Int32,
    Int64,
    Records,
    Uuid,
    grouped,
    since,
    tag,
    until,
)
from runtime.kafka.protocol.request import Api, Request

_BY_NAME = 12
_BY_ID = 13
_EMPTY = memoryview(bytearray())

NO_SESSION = 0
FULL_SESSION_EPOCH = 0
NO_SESSION_EPOCH = -1


class Isolation(IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class FetchFrom(Struct, frozen=True):
    """A FetchFrom is the position to read a partition from.

    The broker does not check an epoch of -1, which is unknown.
    """

    offset: int
    leader_epoch: int = -1
    last_fetched_epoch: int = -1
    max_bytes: int = 1 << 20


class EpochEnd(Struct, frozen=True):
    """An EpochEnd is the largest known leader epoch at or below the requested one, and its end offset."""

    epoch: Int32
    end_offset: Int64


class LeaderHint(Struct, frozen=True):
    """A LeaderHint is the leader that the broker names beside an error; -1 when it knows none."""

    leader: Int32
    epoch: Int32


class FetchedPartition(Struct, frozen=True):
    """Holds the response for one partition.

    `records` is a writable view of the response: whole batches, the last one perhaps incomplete.
    """

    topic_id: bytes
    partition: int
    error: ErrorCode
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]
    preferred_replica: int
    records: memoryview
    diverging: EpochEnd | None = None
    leader: LeaderHint | None = None


class FetchResponse(Struct, frozen=True):
    throttle_ms: int
    error: ErrorCode
    session_id: int
    partitions: tuple[FetchedPartition, ...]
    by_name: bool = False


class FetchedTopic(Struct, frozen=True):
    """A FetchedTopic is the name of a topic, and the cluster's current id for it."""

    name: str
    id: bytes


class FetchRequest(Request[FetchResponse], frozen=True):
    """Lists the partitions in the order in which the broker fills the response.

    A broker that was upgraded, and still runs with the inter-broker protocol of Kafka 2.7, offers versions by
    id while its topics have none. So a request with such a topic is sent by name.

    `topics` describes the topics of the session by the caller's ids. From version 13 on, an id that is
    missing there is sent unchanged; before, such a partition is left out of the request, and is answered with
    UNKNOWN_TOPIC_ID.
    """

    API = Api.FETCH
    FLEXIBLE = 12
    VERSIONS = (11, 17)
    BODY = tuple[
        Annotated[Int32, until(14)],  # the replica's id
        Int32,  # max_wait_ms
        Int32,  # min_bytes
        Int32,  # max_bytes
        Int8,  # the isolation
        Int32,  # the session's id
        Int32,  # the session's epoch
        Sequence[
            tuple[
                Annotated[str, until(12)],
                Annotated[Uuid, since(13)],
                Sequence[
                    tuple[
                        Int32,
                        Int32,  # the current leader epoch
                        Int64,  # the offset
                        Annotated[Int32, since(12)],  # the last fetched epoch
                        Int64,  # the log start offset of a follower
                        Int32,  # max_bytes
                    ]
                ],
            ]
        ],
        Sequence[tuple[Annotated[str, until(12)], Annotated[Uuid, since(13)], Sequence[Int32]]],  # forgotten
        str,  # the rack
    ]
    RESPONSE = tuple[
        ErrorCode,
        Int32,  # the session's id
        Sequence[
            tuple[
                Annotated[str, until(12)],
                Annotated[Uuid, since(13)],
                Sequence[
                    tuple[
                        Int32,
                        ErrorCode,
                        Int64,  # the high watermark
                        Int64,  # the last stable offset
                        Int64,  # the log start offset
                        tuple[tuple[Int64, Int64], ...],  # aborted transactions: producer id, first offset
                        Int32,  # the preferred replica
                        Records,
                        Annotated[EpochEnd | None, tag(0)],
                        Annotated[LeaderHint | None, tag(1)],
                    ]
                ],
            ]
        ],
    ]

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: Isolation
    session_id: int
    session_epoch: int
    partitions: Mapping[tuple[bytes, int], FetchFrom]
    forgotten: Sequence[tuple[bytes, int]] = ()
    rack: str = ""
    topics: Mapping[bytes, FetchedTopic] = field(default_factory=dict)

    @property
    def versions(self) -> tuple[int, int]:
        lowest, highest = self.VERSIONS
        by_id = all(is_from_kafka(topic.id) for topic in self.topics.values())
        return (lowest, highest) if by_id else (lowest, _BY_NAME)

    def values(self, version: int) -> Any:
        topics: list[tuple[str, bytes, list[tuple[int, ...]]]] = []
        before = None
        for (topic_id, partition), start in self.partitions.items():
            if topic_id != before:  # neighbours of one topic share its item, so a topic may occur again
                before = topic_id
                item = self._named(topic_id, version)
                rows: list[tuple[int, ...]] = []
                if item is not None:
                    topics.append((*item, rows))
            rows.append(
                (partition, start.leader_epoch, start.offset, start.last_fetched_epoch, -1, start.max_bytes)
            )
        forgotten = [
            (*item, partitions)
            for topic_id, partitions in grouped(self.forgotten)
            if (item := self._named(topic_id, version)) is not None
        ]
        limits = self.max_wait_ms, self.min_bytes, self.max_bytes
        return -1, *limits, self.isolation, self.session_id, self.session_epoch, topics, forgotten, self.rack

    def _named(self, topic_id: bytes, version: int) -> tuple[str, bytes] | None:
        """Returns the name and the cluster's id of a topic; None if it can't be named in this version."""
        topic = self.topics.get(topic_id)
        if topic is None:
            return ("", topic_id) if version >= _BY_ID else None
        return topic.name, topic.id if is_from_kafka(topic.id) else topic_id

    def answer(self, version: int, response: memoryview) -> tuple[int, FetchResponse]:
        throttle_ms, (error, session_id, topics) = self.decoded_response(version, response)
        by_name = version < _BY_ID
        topic_ids: dict[str | bytes, bytes] = {
            topic.name if by_name else topic.id: topic_id
            for topic_id, topic in self.topics.items()
            if by_name or (topic.id != topic_id and is_from_kafka(topic.id))
        }
        partitions: list[FetchedPartition] = []
        for name, cluster_id, rows in topics:
            # a session may hold partitions that were forgotten
            topic_id = topic_ids.get(name, NO_TOPIC_ID) if by_name else topic_ids.get(cluster_id, cluster_id)
            partitions += [FetchedPartition(topic_id, *row) for row in rows]
        if by_name and not error:
            partitions += [unknown_topic(*key) for key in self.partitions if key[0] not in self.topics]
        return throttle_ms, FetchResponse(throttle_ms, error, session_id, tuple(partitions), by_name)


def unknown_topic(topic_id: bytes, partition: int) -> FetchedPartition:
    """Returns the response for a partition of a topic that no longer exists."""
    return FetchedPartition(topic_id, partition, ErrorCode.UNKNOWN_TOPIC_ID, -1, -1, -1, (), -1, _EMPTY)
