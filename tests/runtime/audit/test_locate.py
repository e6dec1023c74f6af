"""What `repl locate` says of a partition that the flow did not copy, and where replays can begin."""

from __future__ import annotations

import pytest

from runtime.audit.ledger import ClusterAccess
from runtime.audit.offsets.locate import LocateRequest, not_copied
from runtime.contract.records.advance import first_progress
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.records.offset_map import OffsetMap, Run, Span, encode_runs

PROGRESS = first_progress(
    generation=1,
    source_topic_id=b"1" * 16,
    destination_topic="dc1.orders",
    destination_topic_id=b"2" * 16,
    position=0,
    destination_end=0,
    now_ms=0,
)


@pytest.mark.parametrize(
    ("topic", "partition", "reverse", "hint"),
    [
        ("dc1.orders", 0, False, "that is a topic's name at dc2: add --reverse to ask about a record there"),
        ("orders", 0, True, "that is a topic's name at dc1: leave --reverse out to ask about a record there"),
        ("orders", 7, False, "orders has other partitions"),
        ("nothing", 0, False, "it copied from orders"),
        ("nothing", 0, True, "it copied into dc1.orders"),
    ],
)
def test_a_wrong_name_gets_a_way_out(topic: str, partition: int, reverse: bool, hint: str) -> None:
    sides = ClusterAccess("dc1", "a:1"), ClusterAccess("dc2", "b:1")
    asked = LocateRequest("there", topic, partition, 5, None, reverse, *sides)
    failure = not_copied(asked, {PartitionKey("there", "orders", 0): PROGRESS})
    assert hint in failure.hint


def test_what_was_copied_before_an_offset_ends_at_the_destination() -> None:
    """Source offsets 10…14 at 100…104, and 20…24 at 110…114 in the next span."""
    spans = [
        Span(10, 18, 100, 105, encode_runs([Run(10, 100, 5)], 10, 100)),
        Span(18, 30, 105, 115, encode_runs([Run(20, 110, 5)], 18, 105)),
    ]
    offsets = OffsetMap(spans)
    asked = (5, 10, 12, 15, 18, 20, 22, 25, 99)
    assert [offsets.destination_behind(at) for at in asked] == [100, 100, 102, 105, 105, 105, 112, 115, 115]
