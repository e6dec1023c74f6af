"""A topic that exists already is compared with the step that creates it, by the meaning of each value."""

from collections.abc import Mapping

from planner.apply.handlers.topics import differences
from planner.model.address import topic_address
from planner.model.observed import ConfigSource, ConfigValue
from planner.plan.steps.topics import CreateTopic
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.metadata import Partition, TopicMetadata


def create(config: Mapping[str, str], partitions: int | None = 1, replication: int | None = None):
    address = topic_address("dc1", "t")
    return CreateTopic("create", address, "dc1", "t", partitions, replication, dict(config))


def topic(*replicas: int) -> TopicMetadata:
    partitions = {
        number: Partition(number, 1, 0, tuple(range(factor)), ()) for number, factor in enumerate(replicas)
    }
    return TopicMetadata("t", b"", ErrorCode.NONE, False, partitions)


def live(text: str | None, *, sensitive: bool = False) -> ConfigValue:
    return ConfigValue(text, ConfigSource.TOPIC, sensitive)


def told(**values: str | None) -> dict[str, ConfigValue]:
    return {key.replace("_", "."): live(value) for key, value in values.items()}


def test_each_difference_is_a_sentence_in_the_units_of_a_plan() -> None:
    config = {"flush.ms": "1", "retention.ms": "604800000", "segment.ms": "1000", "vendor.key": "1.10"}

    found = differences(
        create(config, 3, 2), topic(1, 1), told(flush_ms="1", retention_ms="86400000", vendor_key="1.1")
    )

    assert list(found) == [
        "it has 2 partitions instead of 3",
        "its replication is 1 instead of 2",
        "retention.ms is 1d instead of 7d",
        "segment.ms is not set instead of 1s",
        "vendor.key is 1.1 instead of 1.10",
    ]


def test_a_value_that_the_broker_keeps_to_itself_is_no_difference() -> None:
    secret = live(None, sensitive=True)

    assert list(differences(create({"vendor.token": "x"}), topic(1), {"vendor.token": secret})) == []
