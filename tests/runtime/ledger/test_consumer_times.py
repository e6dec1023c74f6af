"""The timestamp of a committed offset is read from the records that are still at the source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from runtime.contract.records.group_records import NO_TIME
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import BrokerError, ErrorCode
from runtime.kafka.protocol.fetch import FetchedPartition
from runtime.kafka.protocol.offsets import ListedOffset
from runtime.ledger import consumer_times
from runtime.ledger.consumer_times import time_at
from tests.fakes.partition_logs import PartitionLog, PartitionLogs
from tests.runtime.batch.forge import batch_bytes, control_batch, record

AT = TopicPartition("orders", 3)
TRANSACTIONAL, ABORT = 0x10, 0
# By the first offset behind it: a batch of three records with times out of order, one alone, an aborted one
# with its marker.
LOG = {
    203: batch_bytes([record(200, timestamp=50), record(201, timestamp=80), record(202, timestamp=70)]),
    204: batch_bytes([record(203, timestamp=60)]),
    205: batch_bytes([record(204, timestamp=10)], producer=(9, 0, 0), more=TRANSACTIONAL),
    206: control_batch(205, 9, ABORT),
}


class Log:
    """A partition of the source, from a log start on."""

    def __init__(self, start: int | ErrorCode = 200, end: int = 206) -> None:
        self.start, self.end = start, end
        self.fetched: list[int] = []

    async def list_offsets(self, *_: object) -> Mapping[TopicPartition, ListedOffset | ErrorCode]:
        start = self.start
        return {AT: start if isinstance(start, ErrorCode) else ListedOffset(start, -1, 0)}

    async def fetch_loaded(
        self, cluster: object, at: TopicPartition, offset: int, *_: object
    ) -> FetchedPartition:
        self.fetched.append(offset)
        error = ErrorCode.OFFSET_OUT_OF_RANGE if offset > self.end else ErrorCode.NONE
        log = b"".join(batch for end, batch in LOG.items() if end > offset and end <= self.end)
        return FetchedPartition(b"", at.partition, error, 0, 0, 0, ((9, 204),), -1, memoryview(log))


async def time_in(log: Log, committed: int) -> int | None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(consumer_times, "list_offsets", log.list_offsets)
        patch.setattr(consumer_times, "fetch_loaded", log.fetch_loaded)
        return await time_at(cast(KafkaCluster, None), AT, committed)


@pytest.mark.parametrize(
    ("committed", "start", "time"),
    [
        (200, 200, 50),
        (201, 200, 60),  # the earliest of the next ones: 50 belongs to a record before
        (203, 200, 60),
        (204, 200, 60),  # behind the last committed record: that one's
        (206, 200, 60),
        (202, 202, 60),
        (201, 202, None),  # the next record is gone
        (203, ErrorCode.LEADER_NOT_AVAILABLE, None),
        (1_000, 200, None),  # no record within the offsets before
    ],
)
async def test_the_time_is_that_of_the_earliest_next_record(
    committed: int, start: int | ErrorCode, time: int | None
) -> None:
    assert await time_in(Log(start), committed) == time


@pytest.mark.parametrize(("start", "fetched"), [(0, [206, 106]), (200, [206, 200])])
async def test_at_the_end_a_hundred_offsets_are_searched_from_the_log_start_on(
    start: int, fetched: list[int]
) -> None:
    log = Log(start)
    assert await time_in(log, 206) == 60
    assert log.fetched == fetched


async def test_a_record_without_a_time_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOG, 206, batch_bytes([record(205, timestamp=NO_TIME)]))
    assert await time_in(Log(), 205) == NO_TIME


async def test_a_record_that_can_not_be_read_has_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """So its commit is looked up again after some minutes, as one whose record was not found."""
    damaged = bytearray(LOG[203])
    damaged[61] ^= 0xFF
    monkeypatch.setitem(LOG, 203, bytes(damaged))
    assert await time_in(Log(), 201) is None


async def test_an_answer_without_records_is_not_the_end_of_the_log() -> None:
    """A broker that has not loaded a remote segment in time sends none, and no error."""
    batches = [batch_bytes([record(at, timestamp=at)]) for at in range(200, 202)]
    logs = PartitionLogs({AT: PartitionLog(batches, start=200, end=900)}, {AT.topic: b"o" * 16})
    with pytest.raises(BrokerError, match="though the log goes on to 900"):
        await time_at(cast(KafkaCluster, cast(Any, logs)), AT, 250)
