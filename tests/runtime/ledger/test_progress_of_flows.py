"""Flows share a ledger partition, and each has its own progress of it (R7)."""

from typing import cast

import pytest

from runtime.contract.records.ledger import (
    PartitionKey,
    ProgressKey,
    UnreadableRecord,
    encode_key,
    encode_value,
)
from runtime.kafka.cluster import KafkaCluster
from runtime.ledger.ledger import Ledger
from runtime.ledger.records import InternalRecord, build
from tests.runtime.ledger.given import progress


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


def test_a_removed_record_is_gone():
    ledger = WrittenLedger()
    ledger.write(key("one"), encode_value(progress(1)))
    assert ledger.all_progress("one")
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
