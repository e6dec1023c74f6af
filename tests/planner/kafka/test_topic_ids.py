"""A cluster before Kafka 2.8 gives topics no id: then nothing tells that a topic is another one."""

import pytest

from planner.kafka.topics import topic_id_text
from planner.model.address import topic_address
from planner.model.observed import ID, RegistryEntry


def test_an_id_of_zero_is_none() -> None:
    assert topic_id_text(bytes(16)) == ""
    assert topic_id_text((1 << 64 | 2).to_bytes(16)) == "AAAAAAAAAAEAAAAAAAAAAg"


@pytest.mark.parametrize(
    ("applied", "live", "another"),
    [("a", "a", False), ("a", "b", True), ("", "b", False), ("a", "", False), ("", "", False)],
)
def test_another_topic_is_told_by_two_ids(applied: str, live: str, another: bool) -> None:
    spec = {ID: applied} if applied else {}
    entry = RegistryEntry(topic_address("dc1", "orders"), "t", origin="declared", spec=spec)
    assert entry.is_another(live) is another
