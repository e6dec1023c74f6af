"""The product's own topics: what is asked for is what they have."""

import pytest

from runtime.contract.spec.internal_topics import at_destination, timestamps
from runtime.contract.spec.jobspec import InternalSpec, TimestampsSpec
from runtime.contract.spec.naming import TIMESTAMPS, is_internal

THIRTY_DAYS = 30 * 24 * 60 * 60 * 1000


@pytest.mark.parametrize(
    ("internal", "retention"),
    [
        (InternalSpec(), THIRTY_DAYS),
        (InternalSpec(retention_ms=7), 7),
        (InternalSpec(retention_ms=7, timestamps=TimestampsSpec(retention_ms=9)), 9),
    ],
)
def test_how_long_a_group_is_remembered(internal: InternalSpec, retention: int) -> None:
    topic = timestamps(internal)
    assert (topic.name, topic.partitions, topic.replication) == (TIMESTAMPS, 1, None)
    assert (topic.config["cleanup.policy"], topic.config["retention.ms"]) == (
        "compact,delete",
        str(retention),
    )


def test_copies_and_partitions_as_declared() -> None:
    topic = timestamps(InternalSpec(replication=3, timestamps=TimestampsSpec(replication=2, partitions=4)))
    assert (topic.partitions, topic.replication) == (4, 2)


def test_all_are_the_products_own_and_made_for_whoever_needs_them() -> None:
    names = [topic.name for topic in at_destination()]
    assert all(is_internal(name) for name in names)
    assert TIMESTAMPS not in names
