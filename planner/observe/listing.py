"""Metadata: who the cluster is, its brokers, and every topic with id, partitions and replicas."""

import base64
import uuid
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from planner.model.observed import Broker, ObservedTopic
from planner.observe.asking import NONE, TOPIC_REFUSED, UNKNOWN_TOPIC, version_of
from planner.observe.wire import Connection
from runtime.contract.naming import is_internal
from runtime.kafka.brokers import MAX_BROKER_LIST_BYTES, check_address

# 8 is Kafka 2.3, the oldest that we can work with at all; 10 brought topic ids.
_OLDEST, _NEWEST, _WITH_IDS = 1, 12, 10
_WITHOUT_CREATING = 4
_WITH_RIGHTS = 8
_BATCH = 5_000


@dataclass(frozen=True, slots=True)
class Identity:
    id: str
    brokers: tuple[Broker, ...]


@dataclass(slots=True)
class Listing:
    """`hidden` are names that were asked for, and that the broker would not talk about."""

    topics: dict[str, ObservedTopic] = field(default_factory=dict)
    internal: dict[str, ObservedTopic] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)

    def knows(self, name: str) -> bool:
        return name in self.topics or name in self.internal


def identify(connection: Connection) -> Identity:
    """The least that can be asked: no topic at all."""
    answer = _metadata(connection, [], MAX_BROKER_LIST_BYTES)
    brokers = connection.read(lambda: _brokers(answer.brokers), "Metadata")
    return Identity(answer.cluster_id or "", brokers)


def _brokers(announced: Iterable[Any]) -> tuple[Broker, ...]:
    brokers = []
    for one in announced:
        check_address(one.node_id, one.host or "", one.port)
        brokers.append(Broker(one.node_id, one.host, one.port, one.rack or None))
    return tuple(sorted(brokers, key=lambda broker: broker.id))


def list_topics(connection: Connection) -> Listing:
    """Every topic that we may see."""
    listing = Listing()
    _take(_metadata(connection, None).topics, listing)
    return listing


def look_up(connection: Connection, names: Collection[str], listing: Listing) -> None:
    """Ask for these by name and add what is there: no listing shows what we may not describe."""
    for batch in _batches(sorted(names)):
        _take(_metadata(connection, batch).topics, listing)


def _metadata(connection: Connection, names: list[str] | None, at_most: int | None = None) -> Any:
    version = version_of(connection, MetadataRequest, _NEWEST, _OLDEST)
    wanted: dict[str, Any] = {
        "topics": None
        if names is None
        else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    }
    if version >= _WITHOUT_CREATING:
        wanted["allow_auto_topic_creation"] = False
    if version >= _WITH_RIGHTS:
        wanted["include_topic_authorized_operations"] = False
    return connection.call(MetadataRequest(**wanted), MetadataResponse, version, at_most)


def _take(topics: Iterable[Any], listing: Listing) -> None:
    shared: dict[tuple[int, ...], tuple[int, ...]] = {}
    for topic in topics:
        if topic.error_code == TOPIC_REFUSED:
            listing.hidden.add(topic.name)
        elif topic.error_code == NONE or (topic.error_code != UNKNOWN_TOPIC and topic.partitions):
            target = listing.internal if topic.is_internal or is_internal(topic.name) else listing.topics
            target[topic.name] = _observed(topic, shared)


def _observed(topic: Any, shared: dict[tuple[int, ...], tuple[int, ...]]) -> ObservedTopic:
    partitions = topic.partitions
    if any(partition.partition_index != at for at, partition in enumerate(partitions)):
        partitions = sorted(partitions, key=lambda partition: partition.partition_index)
    replicas = []
    for partition in partitions:
        nodes = tuple(partition.replica_nodes)
        replicas.append(shared.setdefault(nodes, nodes))
    return ObservedTopic(topic.name, topic_id(getattr(topic, "topic_id", None)), tuple(replicas))


def topic_id(value: uuid.UUID | None) -> str:
    """As Kafka's own tools write it; empty where the broker is too old for ids."""
    if value is None or value.int == 0:
        return ""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def _batches(names: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(names), _BATCH):
        yield names[start : start + _BATCH]
