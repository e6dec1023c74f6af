"""What `repl read` sees: made by runtime.audit, shown by planner.render. Pure data; see `seen`."""

from typing import Literal

import msgspec


class HopSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A place that a record came through. `cluster` is its name in the topology, `offset` is None where
    only the topic is known.
    """

    cluster_id: str
    cluster: str | None
    topic: str
    partition: int | None
    offset: int | None
    copied_at_ms: int | None


class RecordSeen(msgspec.Struct, frozen=True, kw_only=True):
    """`flow` wrote it here; None where no flow is known to have. `hops`: where it came from, its birth first.

    `provenance` is how that is known: by the record's headers, by the ledger's offset map (batch), or that
    it is native: a client wrote it here. `claimed`: places that the headers of a native record name, though
    no flow wrote it; any client can write such a header.
    """

    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    provenance: Literal["native", "headers", "batch"]
    flow: str | None
    hops: list[HopSeen]
    claimed: list[HopSeen] = []


class RecordsSeen(msgspec.Struct, frozen=True, kw_only=True):
    """`notes`: what could not be known."""

    cluster: str
    cluster_id: str
    topic: str
    partitions: int
    records: list[RecordSeen]
    notes: list[str]


class TopicHeld(msgspec.Struct, frozen=True, kw_only=True):
    """`offsets` is what lies between its log starts and ends: with markers, and holes of compaction."""

    topic: str
    partitions: int
    offsets: int | None
    flows: list[str]


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """How far a flow into this cluster has come in one partition."""

    flow: str
    source: str
    topic: str
    partition: int
    destination_topic: str
    position: int
    records: int
    last_timestamp_ms: int | None
    last_commit_ms: int | None


class ClusterHeld(msgspec.Struct, frozen=True, kw_only=True):
    cluster: str
    cluster_id: str
    brokers: int
    topics: list[TopicHeld]
    hidden: int
    copied: list[Copied]
    notes: list[str]
