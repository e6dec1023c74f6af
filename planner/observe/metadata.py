"""Reads the metadata of a cluster and the configs of its topics, with the defaults that they inherit.

Metadata are the cluster's id, its brokers, and every topic with id, partitions and replicas. Configs are read
in batches: only chosen keys where that is enough, and all values where it is not.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from operator import itemgetter

from msgspec import Struct, field
from msgspec.structs import replace

from planner.kafka.client import BrokerConnection, ClusterClient
from planner.kafka.failures import meaning
from planner.kafka.topics import config_values, topic_id_text
from planner.model.observed import (
    ClusterDetailsRequest,
    ConfigValue,
    ObservedBroker,
    ObservedTopic,
)
from runtime.contract.spec.naming import is_internal
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.configs import (
    BROKER,
    TOPIC,
    ConfigEntry,
    DescribeConfigsRequest,
    Described,
)
from runtime.kafka.protocol.metadata import AnyMetadataRequest, TopicMetadata

_BATCH = 5_000


class ClusterIdentity(Struct, frozen=True):
    """The id and the brokers of a cluster."""

    id: str
    brokers: tuple[ObservedBroker, ...]

    @property
    def addresses(self) -> dict[int, tuple[str, int]]:
        """The address that each broker announces, by its id."""
        return {broker.id: (broker.host, broker.port) for broker in self.brokers}


class TopicListing(Struct):
    """`hidden` are topics that were asked for by name and may not be described."""

    topics: dict[str, ObservedTopic] = field(default_factory=dict)
    internal: dict[str, ObservedTopic] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)

    def knows(self, name: str) -> bool:
        """Returns whether the topic exists."""
        return name in self.topics or name in self.internal

    def describe(self, described: Described, entries: Iterable[ConfigEntry]) -> str:
        """Adds the configs of a topic. Returns why there are none; "" also where the topic has vanished."""
        name = described.name
        topics = self.topics if name in self.topics else self.internal
        if name not in topics:
            return ""
        if not described.error:
            topics[name] = replace(topics[name], config=config_values(entries))
            return ""
        if described.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            del topics[name]
            return ""
        self.hidden.add(name)
        if described.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return "not authorized to describe its configs"
        return meaning(described.error, described.message)


async def identify(client: ClusterClient) -> ClusterIdentity:
    """Returns the cluster's id and brokers, with the smallest possible request."""
    answer = await client.ask(AnyMetadataRequest(()))
    brokers = (
        ObservedBroker(broker.node_id, broker.host, broker.port, broker.rack or None)
        for broker in answer.brokers
    )
    return ClusterIdentity(answer.cluster_id, tuple(sorted(brokers, key=lambda broker: broker.id)))


async def list_topics(client: ClusterClient) -> TopicListing:
    """Returns every topic that may be described."""
    listing = TopicListing()
    _add_topics((await client.ask(AnyMetadataRequest(None))).topics, listing)
    return listing


async def look_up(client: ClusterClient, names: Collection[str], listing: TopicListing) -> None:
    """Adds topics to the listing that are asked for by name."""
    in_order = sorted(names)
    for start in range(0, len(in_order), _BATCH):
        batch = in_order[start : start + _BATCH]
        _add_topics((await client.ask(AnyMetadataRequest(batch))).topics, listing)


def _add_topics(topics: Iterable[TopicMetadata], listing: TopicListing) -> None:
    shared: dict[tuple[int, ...], tuple[int, ...]] = {}
    for topic in topics:
        if topic.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            listing.hidden.add(topic.name)
        elif not topic.error or (
            topic.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and topic.partitions
        ):
            target = listing.internal if topic.internal or is_internal(topic.name) else listing.topics
            replicas = (
                shared.setdefault(partition.replicas, partition.replicas)
                for _, partition in sorted(topic.partitions.items())
            )
            target[topic.name] = ObservedTopic(topic.name, topic_id_text(topic.id), tuple(replicas))


_HOUR, _MINUTE = 3_600_000, 60_000

# topic key → (broker key, milliseconds of its unit), the first that is set wins; as Kafka's LogConfig does it
_BROKER_KEYS: Mapping[str, tuple[tuple[str, int], ...]] = {
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "max.message.bytes": (("message.max.bytes", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.downconversion.enable": (("log.message.downconversion.enable", 1),),
    "message.format.version": (("log.message.format.version", 1),),
    "message.timestamp.difference.max.ms": (("log.message.timestamp.difference.max.ms", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "min.insync.replicas": (("min.insync.replicas", 1),),
    "preallocate": (("log.preallocate", 1),),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", _MINUTE),
        ("log.retention.hours", _HOUR),
    ),
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR)),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", _HOUR)),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", 1),),
}


# The inherited topic settings, and the default numbers of partitions and replicas.
BrokerDefaults = tuple[Mapping[str, str], int | None, int | None]


def defaults_of(broker: Mapping[str, ConfigValue]) -> BrokerDefaults:
    """Returns the defaults that a broker's settings mean for topics."""
    config = {}
    for key, sources in _BROKER_KEYS.items():
        value = next(
            (config_value for source in sources if (config_value := _value(broker, *source)) is not None),
            None,
        )
        if value is not None:
            config[key] = value
    return config, _number(broker, "num.partitions"), _number(broker, "default.replication.factor")


def _value(broker: Mapping[str, ConfigValue], key: str, unit: int) -> str | None:
    setting = broker.get(key)
    if setting is None or setting.value is None:
        return None
    if unit == 1:
        return setting.value
    # -1 hours means no limit and stays -1 in milliseconds.
    number = int(setting.value)
    return str(number * unit if number > 0 else number)


def _number(broker: Mapping[str, ConfigValue], key: str) -> int | None:
    setting = broker.get(key)
    return None if setting is None or setting.value is None else int(setting.value)


# Large enough to make round trips cheap, small enough for an answer within the timeout.
_BATCH_OF_ALL, _BATCH_OF_KEYS = 500, 2_000


Done = Callable[[int], None]


async def read_configs(
    client: ClusterClient, listing: TopicListing, wanted: ClusterDetailsRequest, done: Done
) -> dict[str, str]:
    """Reads the configs of the listed topics that are wanted, and returns why the others have none.

    A topic that vanished is taken out of the listing. `done` is called with the number read so far.
    """
    refused: dict[str, str] = {}
    groups: dict[frozenset[str] | None, list[str]] = {}  # by the keys of a request; None asks for all
    for name, keys in sorted(wanted.configs.items(), key=itemgetter(0)):
        if listing.knows(name):
            groups.setdefault(None if wanted.explicit else keys, []).append(name)
    count = 0
    for keys, names in groups.items():
        size = _BATCH_OF_ALL if keys is None else _BATCH_OF_KEYS
        for start in range(0, len(names) if keys is None or keys else 0, size):
            batch = names[start : start + size]
            chosen = None if keys is None else tuple(sorted(keys))
            for described in await client.ask(DescribeConfigsRequest(TOPIC, batch, chosen)):
                of_topic = wanted.configs.get(described.name)
                entries = [
                    entry
                    for entry in described.entries
                    if of_topic is None or (wanted.explicit and entry.explicit) or entry.key in of_topic
                ]
                if why := listing.describe(described, entries):
                    refused[described.name] = why
            count += len(batch)
            done(count)
    return refused


async def describe_broker(connection: BrokerConnection, broker_id: int) -> Described:
    """Returns all settings of a broker. Only the broker itself returns them."""
    (described,) = await connection.call(DescribeConfigsRequest(BROKER, [str(broker_id)]))
    return described
