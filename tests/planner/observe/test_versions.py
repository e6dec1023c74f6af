"""What API versions, settings, disks and ids say of a cluster, and what it lacks."""

import pytest

from planner.model.diagnostic import ExitCode, Severity
from planner.model.observed import ConfigSource, ConfigValue
from planner.model.topology import Cluster
from planner.observe.disk_space import DiskSpace, too_little, unknown_space
from planner.observe.metadata import defaults_of
from planner.observe.observer import same_cluster, wrong_clusters


def broker(**settings: str | None) -> dict[str, ConfigValue]:
    return {key.replace("_", "."): ConfigValue(value, ConfigSource.BROKER) for key, value in settings.items()}


@pytest.mark.parametrize(
    ("settings", "key", "value"),
    [
        ({"log_retention_hours": "168"}, "retention.ms", "604800000"),
        ({"log_retention_hours": "168", "log_retention_minutes": "5"}, "retention.ms", "300000"),
        ({"log_retention_hours": "168", "log_retention_ms": None}, "retention.ms", "604800000"),
        ({"log_retention_hours": "168", "log_retention_ms": "-1"}, "retention.ms", "-1"),
        ({"log_retention_hours": "-1"}, "retention.ms", "-1"),
        ({"message_max_bytes": "1048588"}, "max.message.bytes", "1048588"),
        ({"log_cleanup_policy": "compact,delete"}, "cleanup.policy", "compact,delete"),
        ({"log_roll_hours": "24"}, "segment.ms", "86400000"),
    ],
)
def test_a_topics_default_is_the_brokers_setting(
    settings: dict[str, str | None], key: str, value: str
) -> None:
    assert defaults_of(broker(**settings))[0] == {key: value}


def test_partitions_and_replication_of_a_new_topic() -> None:
    assert defaults_of(broker(num_partitions="6", default_replication_factor="3")) == ({}, 6, 3)


def test_what_the_broker_does_not_tell_stays_unknown() -> None:
    assert defaults_of({}) == defaults_of(broker(num_partitions=None))


BROKERS: DiskSpace = {
    1: 300_000_000,
    2: 299_999_999,
    3: "no right to DESCRIBE the cluster",
    4: "no right to DESCRIBE the cluster",
    5: "Kafka tells it since version 3.3",
}


def test_the_disks_with_too_little_room_are_named_with_the_figures() -> None:
    assert too_little("dc2", BROKERS, 300_000_000) == [
        "broker 2 of dc2 has 300 MB left on a disk, and the drill needs 300 MB"
    ]
    assert too_little("dc2", {1: 300_000_000}, 300_000_000) == []


def test_brokers_that_do_not_tell_are_named_by_the_reason() -> None:
    assert unknown_space("dc2", BROKERS) == [
        "the room on the disks of dc2 was not checked for broker 3, 4: no right to DESCRIBE the cluster",
        "the room on the disks of dc2 was not checked for broker 5: Kafka tells it since version 3.3",
    ]


def test_only_a_cluster_that_answers_with_another_id_than_its_pin_is_refused() -> None:
    both = {
        "dc1": Cluster("dc1", bootstrap="a:9092", id="AAA"),
        "dc2": Cluster("dc2", bootstrap="b:9092"),
    }
    assert wrong_clusters(both, {"dc1": "AAA", "dc2": "anything"}) == wrong_clusters(both, {"dc2": "x"}) == []
    (only,) = wrong_clusters(both, {"dc1": "BBB", "dc2": "anything"})
    assert only.exit is ExitCode.REFUSED
    assert only.summary == "dc1 is pinned to cluster id AAA, but a:9092 is cluster BBB"


def test_two_names_for_one_cluster_are_said_aloud() -> None:
    (only,) = same_cluster({"dc1": "AAA", "dc2": "AAA", "dc3": "CCC"})
    assert only.severity is Severity.WARNING
    assert only.summary == "dc1 and dc2 are the same cluster (id AAA)"
    assert same_cluster({"dc1": "AAA", "dc2": "BBB"}) == []
