"""Defines the results of `repl read`: made by runtime.audit, shown by planner.render. Pure data."""

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
