"""Defines the results of `repl read` and `repl clients`: made by runtime.audit, shown by planner.render."""

from typing import Literal

import msgspec


class ProvenanceHopView(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a place that a record was copied from.

    `cluster` is its name in the topology, `offset` is None where only the topic is known.
    """

    cluster_id: str
    cluster: str | None
    topic: str
    partition: int | None
    offset: int | None
    copied_at_ms: int | None


class RecordView(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a record and its provenance.

    `flow` wrote it to this cluster; None where no flow is known to have done so. `hops`: the places that it
    was copied from, the first one where it was produced. `provenance` says how that is known: by the record's
    headers, by the ledger's offset map (batch), or that it is native: a client wrote it in this cluster.
    `claimed`: places that the headers of a native record name, though no flow wrote it; any client can write
    such a header.
    """

    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    provenance: Literal["native", "headers", "batch"]
    flow: str | None
    hops: list[ProvenanceHopView]
    claimed: list[ProvenanceHopView] = []


class RecordsView(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the records that were read from a topic. `notes` list what could not be found out."""

    cluster: str
    cluster_id: str
    topic: str
    partitions: int
    records: list[RecordView]
    notes: list[str]


class TopicContentView(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a topic of a cluster.

    `offsets` is the number of offsets between its log starts and ends: with markers, and gaps of compaction.
    """

    topic: str
    partitions: int
    offsets: int | None
    flows: list[str]


class CopiedPartitionView(msgspec.Struct, frozen=True, kw_only=True):
    """Describes how far a flow into this cluster has copied one partition."""

    flow: str
    source: str
    topic: str
    partition: int
    destination_topic: str
    position: int
    records: int
    last_timestamp_ms: int | None
    last_commit_ms: int | None


class ClusterContentView(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the topics of a cluster, and the progress of each flow into it."""

    cluster: str
    cluster_id: str
    brokers: int
    topics: list[TopicContentView]
    hidden: int
    copied: list[CopiedPartitionView]
    notes: list[str]


class GroupMemberView(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a member of a group that has partitions of the topic."""

    client_id: str
    host: str
    member_id: str
    partitions: list[int]


class CommittedOffsetView(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a group's position in one partition; None where it never committed."""

    partition: int
    offset: int | None
    end: int | None
    lag: int | None
    records_per_s: float | None


class ConsumerGroupView(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a group that reads a topic, known by its commits or by its members' assignments.

    `state` is Kafka's.
    """

    group: str
    state: str
    members: list[GroupMemberView]
    lag: int | None
    records_per_s: float | None
    partitions: list[CommittedOffsetView]


class ProducerView(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a producer id that wrote to a topic recently.

    `flow`: it is the product's own and copies for that flow. `last_timestamp_ms` is its newest record's own
    timestamp. `open_since`: the offsets, by partition, at which its open transaction began.
    """

    producer_id: int
    epoch: int
    transactional_id: str | None
    flow: str | None
    last_timestamp_ms: int | None
    partitions: list[int]
    open_since: dict[int, int]


class TopicClients(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the producers and consumers of a topic."""

    topic: str
    partitions: int
    producers: list[ProducerView]
    consumers: list[ConsumerGroupView]


class ClientsView(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the clients of a cluster's topics.

    `over_ms` is the time between the two inspections from which rates are computed, 0 where there was one.
    `notes` list what could not be read.
    """

    cluster: str
    cluster_id: str
    at_ms: int
    over_ms: int
    topics: list[TopicClients]
    notes: list[str]
