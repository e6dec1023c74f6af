"""What an operator does to topics by hand, outside the topology, and what the clusters then show."""

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from planner.drill.steps.language import demand, step

WITHIN_S = 60.0  # for what a cluster must show; jobs follow their sources within seconds
_REQUEST_S = 60.0
_LOOK_S = 0.2
Value = TypeVar("Value")


class TopicOperator:
    """Changes topics at clusters directly. `settings` returns the client settings of a cluster.

    `name` returns the name of a topic at the clusters, where it is another one than in the text.
    """

    def __init__(
        self, settings: Callable[[str], Mapping[str, Any]], name: Callable[[str], str] = str
    ) -> None:
        self._settings = settings
        self._name = name

    @step("an operator creates {topic} at {cluster} with {count} partitions", of="operator")
    def create(self, topic: str, cluster: str, count: int) -> None:
        """The topic is created by hand, outside the topology."""
        name, admin = self._name(topic), self._admin(cluster)
        admin.create_topics([NewTopic(name, count)])[name].result(_REQUEST_S)
        self._await_partitions(topic, cluster, count, TimeoutError)

    @step("an operator deletes {topic} at {cluster}", of="operator")
    def delete(self, topic: str, cluster: str) -> None:
        """The topic is deleted by hand."""
        name, admin = self._name(topic), self._admin(cluster)
        admin.delete_topics([name])[name].result(_REQUEST_S)
        self._await_partitions(topic, cluster, 0, TimeoutError)

    @step("{topic} at {cluster} grows to {count} partitions", of="operator")
    def grow(self, topic: str, cluster: str, count: int) -> None:
        """Partitions are added by hand, until the topic has so many."""
        name, admin = self._name(topic), self._admin(cluster)
        admin.create_partitions([NewPartitions(name, count)])[name].result(_REQUEST_S)
        self._await_partitions(topic, cluster, count, TimeoutError)

    @step("an operator sets {key} of {topic} at {cluster} to {value}", of="operator")
    def set_config(self, key: str, topic: str, cluster: str, value: str) -> None:
        """One setting of the topic is changed by hand, to Kafka's own value: `86400000`, not `1d`."""
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, self._name(topic), incremental_configs=[entry])
        admin = self._admin(cluster)  # lives until the answer is there
        admin.incremental_alter_configs([resource])[resource].result(_REQUEST_S)

    @demand("{topic} at {cluster} has {count} partitions", of="operator")
    def require_partitions(self, topic: str, cluster: str, count: int) -> None:
        """The topic has so many partitions, or comes to them within a minute."""
        self._await_partitions(topic, cluster, count, AssertionError)

    @demand("{topic} does not exist at {cluster}", of="operator")
    def require_none(self, topic: str, cluster: str) -> None:
        """The cluster has no such topic, or loses it within a minute."""
        self._await_partitions(topic, cluster, 0, AssertionError)

    @demand("{key} of {topic} at {cluster} is {value}", of="operator")
    def require_config(self, key: str, topic: str, cluster: str, value: str) -> None:
        """The setting of the topic has Kafka's value, or comes to it within a minute."""
        admin = self._admin(cluster)
        resource = ConfigResource(ResourceType.TOPIC, self._name(topic))

        def setting() -> str:
            return str(admin.describe_configs([resource])[resource].result(_REQUEST_S)[key].value)

        if (shown := _awaited(setting, value)) != value:
            raise AssertionError(f"it is {shown}")

    def _await_partitions(self, topic: str, cluster: str, count: int, failure: type[Exception]) -> None:
        """Returns when a topic has so many partitions; 0 means that there is no topic."""
        admin, name = self._admin(cluster), self._name(topic)

        def partitions() -> int:
            topics = admin.list_topics(timeout=_REQUEST_S).topics
            return len(topics[name].partitions) if name in topics else 0

        if (shown := _awaited(partitions, count)) != count:
            raise failure(f"{cluster} shows {shown} partitions of {topic}, not {count}, after {WITHIN_S:g} s")

    def _admin(self, cluster: str) -> AdminClient:
        return AdminClient({**self._settings(cluster), "log_level": 0})


def _awaited(read: Callable[[], Value], wanted: Value) -> Value:
    """Returns what is read, as soon as it is as wanted, or after a minute."""
    deadline = time.monotonic() + WITHIN_S
    while (value := read()) != wanted and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    return value
