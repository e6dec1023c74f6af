"""Flows share a ledger partition, each with its own progress (R7); start rules; retries of lookups."""

from typing import cast

import pytest

from runtime.contract.records.group_records import GroupKey
from runtime.contract.records.ledger import (
    PartitionKey,
    ProgressKey,
    UnreadableRecord,
    encode_key,
    encode_value,
)
from runtime.contract.spec.flow import AtOffsets, AtTimestamp, Earliest, Latest, Start
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.records import InternalRecord, build
from runtime.ledger.consumer_times import LookupRetries
from runtime.ledger.ledger import Ledger
from runtime.ledger.positions import names
from tests.fakes.progress import progress


class WrittenLedger(Ledger):
    """A ledger of one partition whose records a test writes."""

    def __init__(self) -> None:
        super().__init__(cast("KafkaCluster", None), 1)

    def write(self, key: bytes, value: bytes | None) -> None:
        fold = self._scan("any").fold
        fold.take([build([InternalRecord(key, value)], 0)._replace(base_offset=fold.position)])


def key(flow: str, partition: int = 0) -> bytes:
    return encode_key(ProgressKey(PartitionKey(flow, "t", partition)))


def test_a_flow_has_its_own_progress_and_the_newest():
    ledger = WrittenLedger()
    ledger.write(key("one"), encode_value(progress(1)))
    ledger.write(key("two"), encode_value(progress(2)))
    first = ledger.all_progress("one")
    ledger.write(key("one"), encode_value(progress(3)))
    assert first == {PartitionKey("one", "t", 0): progress(1)}
    assert ledger.all_progress("one") == {PartitionKey("one", "t", 0): progress(3)}
    assert ledger.all_progress("two") == {PartitionKey("two", "t", 0): progress(2)}
    ledger.write(key("one"), None)
    assert ledger.all_progress("one") == {}


def test_a_record_that_cannot_be_read_stops_its_own_flow_until_it_is_replaced():
    ledger = WrittenLedger()
    ledger.write(key("one"), b"\x01garbage")
    ledger.write(key("two"), encode_value(progress(2)))
    assert ledger.all_progress("two") == {PartitionKey("two", "t", 0): progress(2)}
    with pytest.raises(UnreadableRecord):
        ledger.all_progress("one")
    ledger.write(key("one"), encode_value(progress(1)))
    assert ledger.all_progress("one") == {PartitionKey("one", "t", 0): progress(1)}


# Of which partitions a start speaks

OFFSETS = AtOffsets(offsets={"orders": {1: 42}})


@pytest.mark.parametrize(
    ("start", "topic", "partition", "named"),
    [
        *((start, "orders", 0, True) for start in (Earliest(), Latest(), AtTimestamp(timestamp_ms=1))),
        (OFFSETS, "orders", 1, True),
        (OFFSETS, "orders", 0, False),
        (OFFSETS, "payments", 1, False),
    ],
)
def test_start_rules_name_every_partition_and_offsets_their_own(
    start: Start, topic: str, partition: int, named: bool
) -> None:
    assert names(start, TopicPartition(topic, partition)) is named


# When a commit is looked up again whose record was not found at the source

GROUP = GroupKey("flow", "billing", "orders", 0)
MINUTE = 60_000


@pytest.mark.parametrize(
    ("expiry_ms", "failures", "now_ms", "due"),
    [
        (None, [], 0, True),
        (None, [0], 5 * MINUTE - 1, False),
        (None, [0], 5 * MINUTE, True),
        (None, [0, 6 * MINUTE], 10 * MINUTE, False),
        (None, [0, 6 * MINUTE], 1_000 * MINUTE, True),
        (8 * MINUTE, [0], 5 * MINUTE, True),
        (8 * MINUTE, [0, 6 * MINUTE], 12 * MINUTE, False),  # 8 minutes after the first time
    ],
)
def test_it_is_due_after_five_minutes_until_it_expires(
    expiry_ms: int | None, failures: list[int], now_ms: int, due: bool
) -> None:
    retries = LookupRetries(None, expiry_ms)
    for at_ms in failures:
        retries.note_failure(GROUP, 7, at_ms)
    assert retries.is_due(GROUP, 7, now_ms) is due


def test_a_new_commit_starts_anew() -> None:
    retries = LookupRetries(MINUTE, MINUTE)
    retries.note_failure(GROUP, 7, 0)
    assert retries.is_due(GROUP, 8, 1)
    assert retries.is_due(GROUP._replace(group="other"), 7, 1)
    retries.note_failure(GROUP, 8, 10 * MINUTE)
    assert not retries.is_due(GROUP, 8, 10 * MINUTE + 1)
