"""A broker's settings under the topics' names."""

import pytest

from planner.model.observed import ConfigSource, ConfigValue
from planner.observe.metadata import defaults_of


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
    assert defaults_of(broker(**settings)).config == {key: value}


def test_partitions_and_replication_of_a_new_topic() -> None:
    found = defaults_of(broker(num_partitions="6", default_replication_factor="3"))
    assert (found.partitions, found.replication) == (6, 3)


def test_what_the_broker_does_not_tell_stays_unknown() -> None:
    assert defaults_of({}) == defaults_of(broker(num_partitions=None))
