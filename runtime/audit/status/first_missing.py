"""Reads when the first records that flows have not copied were written. The lag in seconds follows."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from runtime.batch import Batch, records, walk
from runtime.batch.failure import BatchFailure
from runtime.contract.records.ledger import PartitionKey
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import WireError
from runtime.kafka.fetch import fetch_loaded
from runtime.kafka.timing import in_time

MOST = 50  # partitions in one inspection: a batch may have a megabyte
_CONCURRENT = 8
_MIN_FETCH_BYTES = 1  # brokers send the first batch whole, however small the limit is


async def first_missing(
    cluster: KafkaCluster, positions: Mapping[PartitionKey, int], within: float
) -> dict[PartitionKey, int]:
    """Returns timestamps by partition, for those that could be read.

    It raises nothing: the timestamp is one estimate of several.
    """
    limit = asyncio.Semaphore(_CONCURRENT)
    timestamps: dict[PartitionKey, int] = {}

    async def inspect(key: PartitionKey, position: int) -> None:
        async with limit:
            try:
                timestamp = await in_time(_timestamp(cluster, key, position), within, "reading a record")
            except (WireError, BatchFailure):
                return
        if timestamp is not None and timestamp >= 0:
            timestamps[key] = timestamp

    await asyncio.gather(*(inspect(key, position) for key, position in positions.items()))
    return timestamps


async def _timestamp(cluster: KafkaCluster, key: PartitionKey, position: int) -> int | None:
    at = key.at
    answer = await fetch_loaded(cluster, at, position, _MIN_FETCH_BYTES, "look")
    behind = (member for member in walk(answer.records, at).sets if member.next_offset > position)
    first = next(behind, None)
    if isinstance(first, Batch):
        return first.max_timestamp if first.log_append_time else first.base_timestamp
    some = records(first, at) if first is not None else ()
    return next((record.timestamp for record in some if record.offset >= position), None)
