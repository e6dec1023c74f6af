"""What a mirror takes from its source and gives back, and the product's own topics."""

import pytest

from runtime.contract.spec.jobspec import InternalSpec, TimestampsSpec
from runtime.contract.spec.naming import TIMESTAMPS, is_internal
from runtime.contract.spec.topic_settings import (
    BOUNDS,
    FOREVER_MS,
    ConfigUpdate,
    MirrorRule,
    TopicSettings,
    at_destination,
    supported,
    timestamps,
)

SOURCE = TopicSettings(
    explicit={"retention.ms": "1000", "min.insync.replicas": "2"},
    inherited={"cleanup.policy": "delete", "max.message.bytes": "1048588", "flush.ms": "9"},
)


@pytest.mark.parametrize(
    ("sync", "expected"),
    [
        ("off", {}),
        ("set", {"retention.ms": "1000", "cleanup.policy": "delete", "max.message.bytes": "1048588"}),
        (
            "all",
            {
                "retention.ms": "1000",
                "cleanup.policy": "delete",
                "max.message.bytes": "1048588",
                "flush.ms": "9",
            },
        ),
    ],
)
def test_what_is_wanted(sync, expected):
    assert MirrorRule(sync, [], headers=False).wanted(SOURCE) == {**expected, **BOUNDS}


def test_a_header_makes_records_grow():
    wanted = MirrorRule("set", [], headers=True).wanted(SOURCE)
    assert wanted["max.message.bytes"] == str(1048588 + 1024)


def test_an_edit_sets_what_differs_and_takes_back_what_is_no_longer_set():
    rule = MirrorRule("set", ["flush\\..*"], headers=False)
    same = rule.wanted(SOURCE)
    assert not rule.edit(SOURCE, TopicSettings(same), frozenset())
    stale = TopicSettings({**same, "retention.ms": "5", "segment.ms": "7", "flush.ms": "1"})
    assert rule.edit(SOURCE, stale, frozenset()) == ConfigUpdate(
        {"retention.ms": "1000"}, frozenset({"segment.ms"})
    )


def test_declared_keys_and_each_clusters_own_are_left_alone():
    rule = MirrorRule("set", [], headers=False)
    mirror = TopicSettings({**rule.wanted(SOURCE), "retention.ms": "5", "min.insync.replicas": "1"})
    assert not rule.edit(SOURCE, mirror, frozenset({"retention.ms"}))


def test_off_takes_nothing_back():
    mirror = TopicSettings({**BOUNDS, "retention.ms": "5"})
    assert not MirrorRule("off", [], headers=False).edit(SOURCE, mirror, frozenset())


@pytest.mark.parametrize(
    ("known", "settings"),
    [
        (set(), {**BOUNDS, "compression.gzip.level": "3", "retention.ms": "1"}),
        ({*BOUNDS, "compression.gzip.level"}, {**BOUNDS, "compression.gzip.level": "3", "retention.ms": "1"}),
        (set(BOUNDS), {**BOUNDS, "retention.ms": "1"}),
        (
            {"message.timestamp.difference.max.ms"},  # before Kafka 3.6
            {
                "message.timestamp.type": "CreateTime",
                "message.timestamp.difference.max.ms": FOREVER_MS,
                "retention.ms": "1",
            },
        ),
    ],
)
def test_a_setting_that_the_destinations_version_lacks_is_left_out(
    known: set[str], settings: dict[str, str]
) -> None:
    wanted = {**BOUNDS, "compression.gzip.level": "3", "retention.ms": "1"}
    assert supported(wanted, known) == settings


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
