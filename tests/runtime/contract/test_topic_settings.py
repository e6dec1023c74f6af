"""What a mirror takes from its source and gives back, and the product's own topics."""

import pytest

from runtime.contract.spec.naming import LEDGER, OFFSET_MAP, PRODUCERS, TIMESTAMPS, is_internal
from runtime.contract.spec.topic_settings import (
    BOUNDS,
    FOREVER_MS,
    ConfigUpdate,
    InternalSpec,
    MirrorRule,
    TimestampsSpec,
    TopicSettings,
    at_destination,
    of_plans,
    supported,
    timestamps,
)

SOURCE = TopicSettings(
    explicit={"retention.ms": "1000", "min.insync.replicas": "2"},
    inherited={"cleanup.policy": "delete", "max.message.bytes": "1048588", "flush.ms": "9"},
)


SET = {"retention.ms": "1000", "cleanup.policy": "delete", "max.message.bytes": "1048588"}


def rule(sync: str = "set", *, exclude: tuple[str, ...] = (), headers: bool = False) -> MirrorRule:
    return MirrorRule(sync, list(exclude), headers=headers)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mirrored", "expected"),
    [
        (rule("off"), {}),
        (rule("set"), SET),
        (rule("all"), SET | {"flush.ms": "9"}),
        (rule("set", headers=True), SET | {"max.message.bytes": str(1048588 + 1024)}),  # records grow
    ],
)
def test_settings_that_a_mirror_gets(mirrored: MirrorRule, expected: dict[str, str]) -> None:
    assert mirrored.wanted(SOURCE) == {**expected, **BOUNDS}


WANTED = rule().wanted(SOURCE)


@pytest.mark.parametrize(
    ("mirrored", "mirror", "declared", "expected"),
    [
        (rule(), WANTED, set(), ConfigUpdate({}, frozenset())),
        (
            rule(exclude=("flush\\..*",)),
            {**WANTED, "retention.ms": "5", "segment.ms": "7", "flush.ms": "1"},
            set(),
            ConfigUpdate({"retention.ms": "1000"}, frozenset({"segment.ms"})),
        ),
        (
            rule(),
            {**WANTED, "retention.ms": "5", "min.insync.replicas": "1"},
            {"retention.ms"},
            ConfigUpdate({}, frozenset()),
        ),
        (rule("off"), {**BOUNDS, "retention.ms": "5"}, set(), ConfigUpdate({}, frozenset())),
    ],
    ids=["the same", "other values and unset keys", "declared keys and each cluster's own", "no sync"],
)
def test_an_edit_of_a_mirror(
    mirrored: MirrorRule, mirror: dict[str, str], declared: set[str], expected: ConfigUpdate
) -> None:
    assert mirrored.edit(SOURCE, TopicSettings(mirror), frozenset(declared)) == expected


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


def test_internal_topics_are_made_as_declared() -> None:
    topic = timestamps(InternalSpec(replication=3, timestamps=TimestampsSpec(replication=2, partitions=4)))
    assert (topic.partitions, topic.replication) == (4, 2)
    names = [topic.name for topic in at_destination()]
    assert all(is_internal(name) for name in names)
    assert TIMESTAMPS not in names


def test_a_compacted_topic_never_loses_its_end_to_an_unclean_election() -> None:
    """A ledger that was cut would make a flow copy records a second time (R1)."""
    compacted = [topic for topic in at_destination() if topic.config["cleanup.policy"] == "compact"]
    assert {topic.name for topic in compacted} >= {LEDGER, OFFSET_MAP, PRODUCERS}
    assert {topic.config["unclean.leader.election.enable"] for topic in compacted} == {"false"}


@pytest.mark.parametrize(
    ("internal", "brokers", "replicas", "in_sync"),
    [
        (InternalSpec(), 5, 3, "2"),
        (InternalSpec(), 2, 2, "1"),
        (InternalSpec(), 1, 1, "1"),
        (InternalSpec(replication=5), 3, 5, "4"),  # which the brokers refuse
    ],
)
def test_an_internal_topic_is_as_durable_as_the_brokers_allow(
    internal: InternalSpec, brokers: int, replicas: int, in_sync: str
) -> None:
    for topic in (*at_destination(), *of_plans(internal)):
        made, config = topic.durable(internal, brokers)
        assert (made, config["min.insync.replicas"]) == (replicas, in_sync)
    kept = TimestampsSpec(replication=2)
    assert timestamps(InternalSpec(timestamps=kept)).durable(internal, brokers)[0] == 2
