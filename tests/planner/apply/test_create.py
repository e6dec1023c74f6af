"""A topic that exists already is compared with the step that creates it, by the meaning of each value."""

from collections.abc import Mapping

from planner.model.address import topic_address
from planner.model.observed import ConfigSource, ConfigValue, ObservedTopic
from planner.plan.object_kind import differences
from planner.plan.steps.topics import CreateTopic, topic_facts


def create(config: Mapping[str, str], partitions: int | None = 1, replication: int | None = None):
    address = topic_address("dc1", "t")
    return CreateTopic("create", address, "dc1", "t", partitions, replication, dict(config))


def found(step: CreateTopic, *replicas: int, **config: str | None) -> list[str]:
    """Returns how a topic differs. A value that is None is a secret, which the broker keeps to itself."""
    values = {
        key.replace("_", "."): ConfigValue(value, ConfigSource.TOPIC, sensitive=value is None)
        for key, value in config.items()
    }
    live = ObservedTopic("t", "id", tuple(tuple(range(factor)) for factor in replicas), values)
    return list(differences(step.left, topic_facts(live, step.keys), left=True))


def test_each_difference_is_a_clause_in_the_units_of_a_plan() -> None:
    config = {"flush.ms": "1", "retention.ms": "604800000", "segment.ms": "1000", "vendor.key": "1.10"}
    step = create(config, 3, 2)
    assert found(step, 1, 1, flush_ms="1", retention_ms="86400000", vendor_key="1.1") == [
        "has 2 partitions now, the plan has 3",
        "replication is 1 now, the plan has 2",
        "retention.ms is 1d now, the plan has 7d",
        "segment.ms is not set now, the plan has 1s",
        "vendor.key is 1.1 now, the plan has 1.10",
    ]
    assert found(create({"segment.ms": "1000"}, None), 1, 2, segment_ms="1000", other_key="x") == []


def test_a_value_that_the_broker_keeps_to_itself_is_no_difference() -> None:
    assert found(create({"vendor.token": "x"}), 1, vendor_token=None) == []
