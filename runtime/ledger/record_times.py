"""Finds the timestamp of the record at a group's committed offset, or of the last record before it."""

from __future__ import annotations

from runtime.batch import AbortedTransactions, Batch, PartitionLocation, Record, records, walk
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.codes import ErrorCode
from runtime.kafka.errors import BrokerError
from runtime.kafka.fetch.once import fetch_once
from runtime.kafka.protocol.offsets import EARLIEST, ListedOffset, TopicPartition
from runtime.kafka.queries.partitions import list_offsets

_WINDOW_BYTES = 64 << 10
_BACK = 100  # Markers and aborted records may precede an offset.
_PURPOSE = "groups"


async def time_at(cluster: KafkaCluster, at: TopicPartition, committed: int) -> int | None:
    """Returns the earliest timestamp in ms among the next records that one fetch returns.

    Timestamps may be out of order, and a later record with an earlier timestamp must not be skipped. At the
    end of the log, the result is the timestamp of the last record before the offset.

    The result is None where the source no longer holds the next record, because the records after it do not
    show when it was written. It is NO_TIME where records have no timestamp. Raises WireError, BatchFailure.
    """
    start = (await list_offsets(cluster, {at: EARLIEST}))[at]
    if not isinstance(start, ListedOffset) or start.offset > committed:
        return None
    ahead = [one.timestamp for one in await _from(cluster, at, committed) if one.offset >= committed]
    if ahead:
        return min(ahead)
    before = await _from(cluster, at, max(start.offset, committed - _BACK))
    behind = [one.timestamp for one in before if one.offset < committed]
    return behind[-1] if behind else None


async def _from(cluster: KafkaCluster, at: TopicPartition, offset: int) -> list[Record]:
    """Returns the committed records of one fetch."""
    answer = await fetch_once(cluster, at, offset, _WINDOW_BYTES, _PURPOSE)
    if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
        return []
    if answer.error is not ErrorCode.NONE:
        raise BrokerError(answer.error, f"{at.topic}-{at.partition}")
    aborted, where = AbortedTransactions(answer.aborted), PartitionLocation(*at)
    kept = [
        one for one in walk(answer.records, where).sets if not isinstance(one, Batch) or aborted.keeps(one)
    ]
    return [record for one in kept for record in records(one, where)]
