"""When the record was written that a group goes on with: at its committed offset, or else before it."""

from __future__ import annotations

from runtime.batch import AbortedTransactions, Batch, Record, Where, records, walk
from runtime.kafka.cluster import Cluster
from runtime.kafka.codes import ErrorCode
from runtime.kafka.errors import BrokerError
from runtime.kafka.fetch.once import fetch_once
from runtime.kafka.protocol.offsets import EARLIEST, ListedOffset, TopicPartition
from runtime.kafka.queries.partitions import list_offsets

_WINDOW_BYTES = 64 << 10
_BACK = 100  # markers and what was aborted may lie right before an offset
_PURPOSE = "groups"


async def time_at(cluster: Cluster, at: TopicPartition, committed: int) -> int | None:
    """The earliest time among the next records, as many as one fetch brings: where timestamps are somewhat
    out of order, a later one that is earlier must not be skipped. At the end, the time of the last record
    before.

    None where the source no longer holds the next record: what follows says nothing of when it was written.
    NO_TIME where records have none. Raises WireError, BatchFailure.
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


async def _from(cluster: Cluster, at: TopicPartition, offset: int) -> list[Record]:
    """What one fetch brings of what is committed."""
    answer = await fetch_once(cluster, at, offset, _WINDOW_BYTES, _PURPOSE)
    if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
        return []
    if answer.error is not ErrorCode.NONE:
        raise BrokerError(answer.error, f"{at.topic}-{at.partition}")
    aborted, where = AbortedTransactions(answer.aborted), Where(*at)
    kept = [
        one for one in walk(answer.records, where).sets if not isinstance(one, Batch) or aborted.keeps(one)
    ]
    return [record for one in kept for record in records(one, where)]
