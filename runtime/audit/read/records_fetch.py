"""Reads committed records of one partition, with their producer id, by which provenance is decided."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import NamedTuple

from runtime.batch import AbortedTransactions, Batch, PartitionLocation, RecordSet, records, walk
from runtime.batch.layout import LOG_APPEND_TIME, NO_PRODUCER
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.codes import ErrorCode
from runtime.kafka.errors import BrokerError
from runtime.kafka.fetch import fetch_once
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.queries.partitions import log_start

_FETCH_BYTES = 1 << 20


class FetchedRecord(NamedTuple):
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    producer_id: int
    appended: bool = False  # the timestamp is the broker's


async def fetch_records(
    cluster: KafkaCluster, at: TopicPartition, start: int, end: int, limit: int
) -> list[FetchedRecord]:
    """Returns at most `limit` records of the offsets `start … end-1`, in order.

    Raises WireError, BatchFailure.
    """
    found: list[FetchedRecord] = []
    position = start
    while position < end and len(found) < limit:
        answer = await fetch_once(cluster, at, position, _FETCH_BYTES, "read")
        if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            first = await log_start(cluster, at)
            if first > position:
                position = first
                continue
        if answer.error is not ErrorCode.NONE:
            raise BrokerError(answer.error, f"{at.topic}-{at.partition}")
        where = PartitionLocation(at.topic, at.partition)
        walked = walk(answer.records, where)
        if walked.failure is not None and not walked.sets:
            raise walked.failure
        if not walked.sets:
            break  # compaction removed all remaining records
        aborted = AbortedTransactions(answer.aborted)
        for member in walked.sets:
            if not isinstance(member, Batch) or aborted.keeps(member):
                found += _records(member, where, position, end)
            position = max(position, member.next_offset)
            if len(found) >= limit:
                break
    return found[:limit]


async def fetch_places(
    cluster: KafkaCluster,
    at: TopicPartition,
    topic_id: bytes | None,
    offsets: Iterable[int],
    read: Callable[[int], None] = lambda _: None,
) -> dict[int, FetchedRecord]:
    """Returns the committed records at these offsets; an offset that no longer holds a record is not in the
    result.

    `topic_id` of None means the topic that has the name now. `read` receives the number of bytes of each
    fetch. Raises WireError, BatchFailure.
    """
    found: dict[int, FetchedRecord] = {}
    left = sorted(set(offsets))
    where = PartitionLocation(at.topic, at.partition)
    while left:
        answer = await fetch_once(cluster, at, left[0], _FETCH_BYTES, "read", topic_id=topic_id)
        if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            left = [offset for offset in left[1:] if offset >= answer.log_start_offset]
            continue
        if answer.error is not ErrorCode.NONE:
            raise BrokerError(answer.error, str(where))
        read(len(answer.records))
        walked = walk(answer.records, where)
        if walked.failure is not None and not walked.sets:
            raise walked.failure
        if not walked.sets:
            break  # no record is committed from this offset on
        aborted, wanted = AbortedTransactions(answer.aborted), set(left)
        for member in walked.sets:
            if not isinstance(member, Batch) or aborted.keeps(member):
                within = _records(member, where, left[0], left[-1] + 1)
                found.update((one.offset, one) for one in within if one.offset in wanted)
        behind = max(walked.sets[-1].next_offset, left[0] + 1)
        left = [offset for offset in left if offset >= behind]
    return found


async def find_record(
    cluster: KafkaCluster,
    at: TopicPartition,
    start: int,
    producer_ids: Container[int],
    wanted: Callable[[FetchedRecord], bool],
) -> FetchedRecord | None:
    """Returns the first wanted committed record from `start` on that one of the producer ids wrote.

    Batches of other ids are skipped undecoded. Raises WireError, BatchFailure.
    """
    position, where = start, PartitionLocation(at.topic, at.partition)
    while True:
        answer = await fetch_once(cluster, at, position, _FETCH_BYTES, "read")
        if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE and position < answer.log_start_offset:
            position = answer.log_start_offset
            continue
        if answer.error is not ErrorCode.NONE:
            raise BrokerError(answer.error, str(where))
        walked = walk(answer.records, where)
        if walked.failure is not None and not walked.sets:
            raise walked.failure
        if not walked.sets:
            return None
        aborted = AbortedTransactions(answer.aborted)
        for member in walked.sets:
            if isinstance(member, Batch) and aborted.keeps(member) and member.producer_id in producer_ids:
                for one in _records(member, where, position, member.next_offset):
                    if wanted(one):
                        return one
        position = max(position + 1, walked.sets[-1].next_offset)


def _records(member: RecordSet, where: PartitionLocation, start: int, end: int) -> list[FetchedRecord]:
    producer = member.producer_id if isinstance(member, Batch) else NO_PRODUCER
    appended = isinstance(member, Batch) and bool(member.attributes & LOG_APPEND_TIME)
    return [
        FetchedRecord(where.partition, *one, producer, appended)
        for one in records(member, where)
        if start <= one.offset < end
    ]
