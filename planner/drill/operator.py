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

WITHIN_S = 60.0  # for what a cluster must show; jobs follow their sources within seconds
_REQUEST_S = 60.0
_LOOK_S = 0.2
Found = TypeVar("Found")


class TopicOperator:
    """Changes topics at clusters directly. `settings` returns the client settings of a cluster.

    `name` returns the name of a topic at the clusters, where it is another one than in the text.
    """

    def __init__(
        self, settings: Callable[[str], Mapping[str, Any]], name: Callable[[str], str] = str
    ) -> None:
        self._settings = settings
        self._name = name

    def create(self, cluster: str, topic: str, partitions: int) -> None:
        """Creates a topic, and returns when the cluster shows it."""
        name, admin = self._name(topic), self._admin(cluster)
        admin.create_topics([NewTopic(name, partitions)])[name].result(_REQUEST_S)
        self._require(cluster, topic, partitions)

    def delete(self, cluster: str, topic: str) -> None:
        """Deletes a topic, and returns when the cluster does not show it any more."""
        name, admin = self._name(topic), self._admin(cluster)
        admin.delete_topics([name])[name].result(_REQUEST_S)
        self._require(cluster, topic, 0)

    def grow(self, cluster: str, topic: str, partitions: int) -> None:
        """Adds partitions to a topic until it has so many, and returns when the cluster shows them."""
        name, admin = self._name(topic), self._admin(cluster)
        admin.create_partitions([NewPartitions(name, partitions)])[name].result(_REQUEST_S)
        self._require(cluster, topic, partitions)

    def set_config(self, cluster: str, topic: str, key: str, value: str) -> None:
        """Sets one setting of a topic; its other settings stay."""
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, self._name(topic), incremental_configs=[entry])
        admin = self._admin(cluster)  # lives until the answer is there
        admin.incremental_alter_configs([resource])[resource].result(_REQUEST_S)

    def partitions(self, cluster: str, topic: str, wanted: int) -> int:
        """Returns how many partitions a topic has, as soon as it has so many; 0 where there is no topic."""
        admin, name = self._admin(cluster), self._name(topic)

        def found() -> int:
            topics = admin.list_topics(timeout=_REQUEST_S).topics
            return len(topics[name].partitions) if name in topics else 0

        return _awaited(found, wanted)

    def config(self, cluster: str, topic: str, key: str, wanted: str) -> str:
        """Returns the value of a topic's setting, as soon as it is the wanted one."""
        admin = self._admin(cluster)
        resource = ConfigResource(ResourceType.TOPIC, self._name(topic))

        def found() -> str:
            return str(admin.describe_configs([resource])[resource].result(_REQUEST_S)[key].value)

        return _awaited(found, wanted)

    def _require(self, cluster: str, topic: str, partitions: int) -> None:
        if (found := self.partitions(cluster, topic, partitions)) != partitions:
            raise TimeoutError(
                f"{cluster} shows {found} partitions of {topic}, not {partitions}, after {WITHIN_S:g} s"
            )

    def _admin(self, cluster: str) -> AdminClient:
        return AdminClient({**self._settings(cluster), "log_level": 0})


def _awaited(read: Callable[[], Found], wanted: Found) -> Found:
    deadline = time.monotonic() + WITHIN_S
    while (found := read()) != wanted and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    return found
