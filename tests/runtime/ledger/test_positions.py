"""Of which partitions a start speaks."""

import pytest

from runtime.contract.spec.jobspec import AtOffsets, AtTimestamp, Earliest, Latest, Start
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.ledger.positions import names

OFFSETS = AtOffsets(offsets={"orders": {"1": 42}})


@pytest.mark.parametrize("start", [Earliest(), Latest(), AtTimestamp(timestamp_ms=1)])
def test_most_start_rules_name_every_partition(start: Start) -> None:
    assert names(start, TopicPartition("orders", 0))


@pytest.mark.parametrize(
    ("topic", "partition", "named"), [("orders", 1, True), ("orders", 0, False), ("payments", 1, False)]
)
def test_start_offsets_name_their_partitions_only(topic: str, partition: int, named: bool) -> None:
    assert names(OFFSETS, TopicPartition(topic, partition)) is named
