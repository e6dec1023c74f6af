"""The timestamp of a committed offset is read from the records that are still at the source."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.contract.records.group_records import NO_TIME
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.errors import BrokerError
from runtime.kafka.protocol.metadata import NO_LEADER
from runtime.ledger.consumer_times import time_at
from tests.fakes.clock import jumping
from tests.fakes.partition_logs import PartitionLog, PartitionLogs
from tests.runtime.batch.forge import batch_bytes, control_batch, record, summed

AT = TopicPartition("orders", 3)
TRANSACTIONAL, ABORT = 0x10, 0
# A batch of three records with times out of order, one alone, an aborted one with its marker.
LOG = [
    batch_bytes([record(200, timestamp=50), record(201, timestamp=80), record(202, timestamp=70)]),
    batch_bytes([record(203, timestamp=60)]),
    batch_bytes([record(204, timestamp=10)], producer=(9, 0, 0), more=TRANSACTIONAL),
    control_batch(205, 9, ABORT),
]
DAMAGED = bytearray(LOG[0])
DAMAGED[61] ^= 0xFF


def source(batches: list[bytes] = LOG, start: int = 200, **changes: Any) -> Any:
    log = PartitionLog(batches, start=start, aborted=((9, 204),), **changes)
    return PartitionLogs({AT: log}, {AT.topic: b"o" * 16})


@pytest.mark.parametrize(
    ("cluster", "committed", "time"),
    [
        (source(), 200, 50),
        (source(), 201, 60),  # the earliest of the next ones: 50 belongs to a record before
        (source(), 203, 60),
        (source(), 204, 60),  # behind the last committed record: that one's
        (source(), 206, 60),
        (source(start=202), 202, 60),
        (source(start=202), 201, None),  # the next record is gone
        (source(leader=NO_LEADER), 203, None),
        (source(), 1_000, None),  # no record within the offsets before
        (source([*LOG, batch_bytes([record(206, timestamp=NO_TIME)])]), 206, NO_TIME),
        # A record that can't be read: its commit is looked up again after some minutes.
        (source([summed(DAMAGED), *LOG[1:]]), 201, None),
    ],
)
@jumping
async def test_the_time_is_that_of_the_earliest_next_record(
    cluster: Any, committed: int, time: int | None
) -> None:
    assert await time_at(cluster, AT, committed) == time


@pytest.mark.parametrize(("start", "fetched"), [(0, [206, 106]), (200, [206, 200])])
async def test_at_the_end_a_hundred_offsets_are_searched_from_the_log_start_on(
    start: int, fetched: list[int]
) -> None:
    cluster = source(start=start)
    assert await time_at(cluster, AT, 206) == 60
    places = [place for request in cluster.asked for place in request.partitions.values()]
    assert [place.offset for place in places] == fetched


@jumping
async def test_an_answer_without_records_is_not_the_end_of_the_log() -> None:
    """A broker that has not loaded a remote segment in time sends none, and no error."""
    with pytest.raises(BrokerError, match="though the log goes on to 900"):
        await time_at(source(LOG[:2], end=900), AT, 250)
