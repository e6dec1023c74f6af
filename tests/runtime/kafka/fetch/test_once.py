"""One fetch of one partition."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.errors import BrokerError
from runtime.kafka.fetch import holds_record
from tests.fakes.partition_logs import PartitionLog, PartitionLogs
from tests.runtime.batch.forge import batch_bytes, control_batch, record

AT = TopicPartition("orders", 3)
RECORDS = batch_bytes([record(5), record(7)], producer=(9, 0, 0), more=0x10)


def cluster(*batches: bytes, end: int = -1) -> Any:
    return PartitionLogs({AT: PartitionLog(batches, start=5, end=end)}, {AT.topic: b"o" * 16})


@pytest.mark.parametrize(("offset", "holds"), [(5, True), (7, True), (8, False), (9, False)])
async def test_an_offset_holds_a_record_but_no_marker(offset: int, holds: bool) -> None:
    assert await holds_record(cluster(RECORDS, control_batch(8, 9, 0)), AT, offset) is holds


async def test_records_that_a_broker_has_not_loaded_are_not_taken_for_deleted() -> None:
    """A broker that has not loaded a remote segment in time sends none, and no error."""
    with pytest.raises(BrokerError, match="though the log goes on to 900"):
        await holds_record(cluster(RECORDS, end=900), AT, 250)
