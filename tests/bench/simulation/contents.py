"""What a simulated cluster holds: topics, settings, groups and the ends of logs, all from a few numbers."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from runtime.contract.spec import naming, topic_settings
from runtime.contract.spec.topic_settings import MirrorRule, TopicSettings

NODES = 3
RECORDS = 1_000  # of each partition, at both clusters: what a flow that runs for long has copied
_REPLICAS = 3
LARGEST_BATCH = 1_048_588

# The settings of a topic of Kafka 4.1, with its defaults and types.
TOPIC_DEFAULTS: Mapping[str, tuple[str, int]] = {
    "compression.type": ("producer", 2),
    "remote.log.delete.on.disable": ("false", 1),
    "leader.replication.throttled.replicas": ("", 7),
    "remote.storage.enable": ("false", 1),
    "min.insync.replicas": ("1", 3),
    "segment.jitter.ms": ("0", 5),
    "remote.log.copy.disable": ("false", 1),
    "local.retention.ms": ("-2", 5),
    "cleanup.policy": ("delete", 7),
    "flush.ms": ("9223372036854775807", 5),
    "follower.replication.throttled.replicas": ("", 7),
    "compression.lz4.level": ("9", 3),
    "segment.bytes": ("1073741824", 3),
    "retention.ms": ("604800000", 5),
    "compression.gzip.level": ("-1", 3),
    "flush.messages": ("9223372036854775807", 5),
    "compression.zstd.level": ("3", 3),
    "max.compaction.lag.ms": ("9223372036854775807", 5),
    "file.delete.delay.ms": ("60000", 5),
    "max.message.bytes": ("1048588", 3),
    "min.compaction.lag.ms": ("0", 5),
    "message.timestamp.type": ("CreateTime", 2),
    "local.retention.bytes": ("-2", 5),
    "preallocate": ("false", 1),
    "min.cleanable.dirty.ratio": ("0.5", 6),
    "index.interval.bytes": ("4096", 3),
    "unclean.leader.election.enable": ("false", 1),
    "retention.bytes": ("-1", 5),
    "delete.retention.ms": ("86400000", 5),
    "message.timestamp.after.max.ms": ("3600000", 5),
    "message.timestamp.before.max.ms": ("9223372036854775807", 5),
    "segment.ms": ("604800000", 5),
    "segment.index.bytes": ("10485760", 3),
}
BROKER_SETTINGS: Mapping[str, str] = {
    "num.partitions": "1",
    "default.replication.factor": "3",
    "message.max.bytes": "1048588",
    "min.insync.replicas": "1",
    "log.retention.hours": "168",
    "log.cleanup.policy": "delete",
    "compression.type": "producer",
    "log.segment.bytes": "1073741824",
    "log.message.timestamp.type": "CreateTime",
    "log.message.timestamp.before.max.ms": "9223372036854775807",
    "log.message.timestamp.after.max.ms": "3600000",
    "unclean.leader.election.enable": "false",
    "auto.create.topics.enable": "false",
}
# Two settings of its own for each topic of the source; a mirror has those that a flow sets by them.
SOURCE_SETTINGS: Mapping[str, str] = {"retention.ms": "86400000", "max.message.bytes": "2000000"}


class ClusterSize(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers that a cluster follows from. `mirrors`: its topics are there, as after an apply."""

    name: str
    partitions: int
    partitions_of_topic: int = 2
    topics_of_flow: int = 500
    offsets_of_group: int = 100
    source: bool = True
    mirrors: bool = True
    seed: int = 7

    @property
    def topics(self) -> int:
        """How many topics are copied."""
        return self.partitions // self.partitions_of_topic

    @property
    def flows(self) -> list[str]:
        """The names of the flows."""
        count = -(-self.topics // self.topics_of_flow)
        return [flow_name(number) for number in range(count)]

    def topic_names(self) -> Iterator[str]:
        """The names of the topics that are copied. Each begins with the name of its flow."""
        for number in range(self.topics):
            yield f"{flow_name(number // self.topics_of_flow)}.topic-{number:05}"


def flow_name(number: int) -> str:
    """Returns the name of a flow."""
    return f"flow-{number:03}"


@dataclass(frozen=True, slots=True)
class ClusterTopic:
    """A topic. `first` is the node that leads its first partition; the others follow in order."""

    name: str
    id: uuid.UUID
    partitions: int
    first: int
    settings: Mapping[str, str]
    internal: bool = False

    def leader(self, partition: int) -> int:
        """Returns the node that leads a partition."""
        return 1 + (self.first + partition) % NODES

    def replicas(self, partition: int) -> list[int]:
        """Returns the nodes that hold a partition, its leader first."""
        return [1 + (self.first + partition + more) % NODES for more in range(_REPLICAS)]


@dataclass(slots=True)
class ClusterContents:
    """The topics, groups and committed offsets of a cluster."""

    size: ClusterSize
    topics: dict[str, ClusterTopic] = field(default_factory=dict)
    committed: dict[str, dict[tuple[str, int], int]] = field(default_factory=dict)

    @classmethod
    def of(cls, size: ClusterSize) -> ClusterContents:
        """Makes the contents of a cluster."""
        contents = cls(size)
        for one in (*topic_settings.at_destination(), *topic_settings.at_source()):
            contents.add(one.name, one.partitions, one.config)
        contents.add(naming.REGISTRY, 1, {"cleanup.policy": "compact"})
        settings = SOURCE_SETTINGS if size.source else mirror_settings()
        if size.source or size.mirrors:
            for name in size.topic_names():
                contents.add(name, size.partitions_of_topic, settings)
        if size.source:
            contents._add_groups()
        return contents

    @property
    def cluster_id(self) -> str:
        """The id of the cluster."""
        return f"simulated-{self.size.name}"

    def add(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        """Adds a topic. Its id and its leaders follow from its name."""
        digest = hashlib.blake2b(f"{self.size.name}/{name}".encode(), digest_size=16).digest()
        self.topics[name] = ClusterTopic(
            name, uuid.UUID(bytes=digest), partitions, digest[0] % NODES, settings
        )

    def coordinator(self, key: str) -> int:
        """Returns the node that coordinates a group or a transactional id."""
        return 1 + hashlib.blake2b(key.encode(), digest_size=1).digest()[0] % NODES

    def _add_groups(self) -> None:
        """Each partition that is copied has one group, which has read all of its records."""
        each = self.size.offsets_of_group
        places = [
            (name, partition)
            for name in self.size.topic_names()
            for partition in range(self.size.partitions_of_topic)
        ]
        for begin in range(0, len(places), each):
            group = f"group-{begin // each:05}"
            self.committed[group] = dict.fromkeys(places[begin : begin + each], RECORDS)


def mirror_settings() -> dict[str, str]:
    """Returns what a flow sets on the mirror of a topic of the source."""
    inherited = {key: value for key, (value, _) in TOPIC_DEFAULTS.items() if key not in SOURCE_SETTINGS}
    return MirrorRule("set", [], headers=False).wanted(TopicSettings(SOURCE_SETTINGS, inherited))
