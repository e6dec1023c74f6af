"""Reads metadata: the cluster's id, its brokers, and every topic with id, partitions and replicas."""

import base64
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from planner.kafka.connections import BlockingConnection
from planner.model.observed import ObservedBroker, ObservedTopic
from runtime.contract.spec.naming import NO_TOPIC_ID, is_internal
from runtime.kafka.codes import ErrorCode
from runtime.kafka.protocol.metadata import AnyMetadataRequest, TopicMetadata

_BATCH = 5_000


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """The id and the brokers of a cluster."""

    id: str
    brokers: tuple[ObservedBroker, ...]


@dataclass(slots=True)
class TopicListing:
    """`hidden` are topics that were asked for by name and may not be described."""

    topics: dict[str, ObservedTopic] = field(default_factory=dict)
    internal: dict[str, ObservedTopic] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)

    def knows(self, name: str) -> bool:
        """Returns whether the topic exists."""
        return name in self.topics or name in self.internal


def identify(connection: BlockingConnection) -> ClusterIdentity:
    """Returns the cluster's id and brokers, with the smallest possible request."""
    answer = connection.call(AnyMetadataRequest(()))
    brokers = (ObservedBroker(one.node_id, one.host, one.port, one.rack or None) for one in answer.brokers)
    return ClusterIdentity(answer.cluster_id, tuple(sorted(brokers, key=lambda broker: broker.id)))


def list_topics(connection: BlockingConnection) -> TopicListing:
    """Returns every topic that may be described."""
    listing = TopicListing()
    _add_topics(connection.call(AnyMetadataRequest(None)).topics, listing)
    return listing


def look_up(connection: BlockingConnection, names: Collection[str], listing: TopicListing) -> None:
    """Adds topics to the listing that are asked for by name."""
    for batch in _batches(sorted(names)):
        _add_topics(connection.call(AnyMetadataRequest(batch)).topics, listing)


def _add_topics(topics: Iterable[TopicMetadata], listing: TopicListing) -> None:
    shared: dict[tuple[int, ...], tuple[int, ...]] = {}
    for topic in topics:
        if topic.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            listing.hidden.add(topic.name)
        elif not topic.error or (
            topic.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and topic.partitions
        ):
            target = listing.internal if topic.internal or is_internal(topic.name) else listing.topics
            target[topic.name] = _observed(topic, shared)


def _observed(topic: TopicMetadata, shared: dict[tuple[int, ...], tuple[int, ...]]) -> ObservedTopic:
    replicas = []
    for _, partition in sorted(topic.partitions.items()):
        replicas.append(shared.setdefault(partition.replicas, partition.replicas))
    return ObservedTopic(topic.name, topic_id(topic.id), tuple(replicas))


def topic_id(value: bytes) -> str:
    """Returns a topic id as Kafka's tools write it; "" if the broker is too old for ids."""
    return "" if value == NO_TOPIC_ID else base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def _batches(names: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(names), _BATCH):
        yield names[start : start + _BATCH]
