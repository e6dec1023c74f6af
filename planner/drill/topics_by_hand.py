"""What an operator does to topics by hand, outside the topology, and what the clusters then show."""

from typing import Protocol

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from planner.drill.scenario_record import wait_while
from planner.drill.steps.language import demand, step

WITHIN_S = 60.0  # for what a cluster must show; jobs follow their sources within seconds
_REQUEST_S = 60.0


class Operated(Protocol):
    """The clusters of a scenario, by whose names people act. `named` is a topic's name at the clusters."""

    def admin(self, cluster: str) -> AdminClient: ...

    def named(self, topic: str) -> str: ...


@step("an operator creates {topic} at {cluster} with {count} partitions")
def create(run: Operated, topic: str, cluster: str, count: int) -> None:
    """The topic is created by hand, outside the topology."""
    name, admin = run.named(topic), run.admin(cluster)
    admin.create_topics([NewTopic(name, count)])[name].result(_REQUEST_S)
    _await_partitions(run, topic, cluster, count, TimeoutError)


@step("an operator deletes {topic} at {cluster}")
def delete(run: Operated, topic: str, cluster: str) -> None:
    """The topic is deleted by hand."""
    name, admin = run.named(topic), run.admin(cluster)
    admin.delete_topics([name])[name].result(_REQUEST_S)
    _await_partitions(run, topic, cluster, 0, TimeoutError)


@step("{topic} at {cluster} grows to {count} partitions")
def grow(run: Operated, topic: str, cluster: str, count: int) -> None:
    """Partitions are added by hand, until the topic has so many."""
    name, admin = run.named(topic), run.admin(cluster)
    admin.create_partitions([NewPartitions(name, count)])[name].result(_REQUEST_S)
    _await_partitions(run, topic, cluster, count, TimeoutError)


@step("an operator sets {key} of {topic} at {cluster} to {value}")
def set_config(run: Operated, key: str, topic: str, cluster: str, value: str) -> None:
    """One setting of the topic is changed by hand, to Kafka's own value: `86400000`, not `1d`."""
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, run.named(topic), incremental_configs=[entry])
    admin = run.admin(cluster)
    admin.incremental_alter_configs([resource])[resource].result(_REQUEST_S)


@demand("{topic} at {cluster} has {count} partitions")
def require_partitions(run: Operated, topic: str, cluster: str, count: int) -> None:
    """The topic has so many partitions, or comes to them within a minute."""
    _await_partitions(run, topic, cluster, count, AssertionError)


@demand("{topic} does not exist at {cluster}")
def require_none(run: Operated, topic: str, cluster: str) -> None:
    """The cluster has no such topic, or loses it within a minute."""
    _await_partitions(run, topic, cluster, 0, AssertionError)


@demand("{key} of {topic} at {cluster} is {value}")
def require_config(run: Operated, key: str, topic: str, cluster: str, value: str) -> None:
    """The setting of the topic has Kafka's value, or comes to it within a minute."""
    admin, resource = run.admin(cluster), ConfigResource(ResourceType.TOPIC, run.named(topic))

    def setting() -> str:
        return str(admin.describe_configs([resource])[resource].result(_REQUEST_S)[key].value)

    if wait_while(lambda: setting() != value, WITHIN_S):
        raise AssertionError(f"it is {setting()}")


def _await_partitions(run: Operated, topic: str, cluster: str, count: int, failure: type[Exception]) -> None:
    """Returns when a topic has so many partitions; 0 means that there is no topic."""
    name, admin = run.named(topic), run.admin(cluster)

    def partitions() -> int:
        topics = admin.list_topics(timeout=_REQUEST_S).topics
        return len(topics[name].partitions) if name in topics else 0

    if wait_while(lambda: partitions() != count, WITHIN_S):
        what = f"{cluster} shows {partitions()} partitions of {topic}, not {count}"
        raise failure(f"{what}, after {WITHIN_S:g} s")
