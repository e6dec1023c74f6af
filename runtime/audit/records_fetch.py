"""Committed records of one partition, with the producer id that wrote them: what provenance is told by."""

from __future__ import annotations

from typing import NamedTuple

from runtime.batch import AbortedTransactions, Batch, RecordSet, Where, records, walk
from runtime.batch.layout import NO_PRODUCER
from runtime.kafka.cluster import Cluster
from runtime.kafka.codes import ErrorCode
from runtime.kafka.errors import BrokerError
from runtime.kafka.fetch.once import fetch_once
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.queries.partitions import log_start

_FETCH_BYTES = 1 << 20


class Found(NamedTuple):
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    producer_id: int


async def fetch_records(
    cluster: Cluster, at: TopicPartition, start: int, end: int, limit: int
) -> list[Found]:
    """At most `limit` of the offsets `start … end-1`, in order. Raises WireError, BatchFailure."""
    found: list[Found] = []
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
        where = Where(at.topic, at.partition)
        walked = walk(answer.records, where)
        if walked.failure is not None and not walked.sets:
            raise walked.failure
        if not walked.sets:
            break  # compaction took all that was left
        aborted = AbortedTransactions(answer.aborted)
        for member in walked.sets:
            if not isinstance(member, Batch) or aborted.keeps(member):
                found += _records(member, where, position, end)
            position = max(position, member.next_offset)
            if len(found) >= limit:
                break
    return found[:limit]


def _records(member: RecordSet, where: Where, start: int, end: int) -> list[Found]:
    producer = member.producer_id if isinstance(member, Batch) else NO_PRODUCER
    return [
        Found(where.partition, *one, producer) for one in records(member, where) if start <= one.offset < end
    ]
