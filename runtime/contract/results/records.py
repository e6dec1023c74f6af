"""Defines the results of `repl read`, `clients`, `verify` and `salvage`: records, and how two sides differ.

It holds pure data: made by runtime.audit, shown by planner.render.
"""

from typing import Literal

import msgspec

from runtime.contract.records.consumer_record import ConsumerRecord


class ProvenanceHop(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a place that a record was copied from.

    `cluster` is its name in the topology, `offset` is None where only the topic is known.
    """

    cluster_id: str
    cluster: str | None
    topic: str
    partition: int | None
    offset: int | None
    copied_at_ms: int | None


class TracedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a record and its provenance.

    `flow` wrote it to this cluster; None where no flow is known to have done so. `hops`: the places that it
    was copied from, the first one where it was produced. `provenance` says how that is known: by the record's
    headers, by the ledger's offset map (batch), or that it is native: a client wrote it in this cluster.
    `claimed`: places that the headers of a native record name, though no flow wrote it; any client can write
    such a header.
    """

    record: ConsumerRecord
    provenance: Literal["native", "headers", "batch"]
    flow: str | None
    hops: list[ProvenanceHop]
    claimed: list[ProvenanceHop] = []


class TopicRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the records that were read from a topic. `notes` list what could not be found out."""

    cluster: str
    cluster_id: str
    topic: str
    partitions: int
    records: list[TracedRecord]
    notes: list[str]


class TopicContent(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a topic of a cluster.

    `offsets` is the number of offsets between its log starts and ends: with markers, and gaps of compaction.
    """

    topic: str
    partitions: int
    offsets: int | None
    flows: list[str]


class MirrorProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Describes how far a flow into this cluster has copied one partition.

    `quarantined`: bad records that it wrote to the quarantine topic of `destination_topic`.
    """

    flow: str
    source: str
    topic: str
    partition: int
    destination_topic: str
    position: int
    records: int
    last_timestamp_ms: int | None
    last_commit_ms: int | None
    quarantined: int = 0


class ClusterContent(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the topics of a cluster, and the progress of each flow into it."""

    cluster: str
    cluster_id: str
    brokers: int
    topics: list[TopicContent]
    hidden: int
    copied: list[MirrorProgress]
    notes: list[str]


class GroupMember(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a member of a group that has partitions of the topic."""

    client_id: str
    host: str
    member_id: str
    partitions: list[int]


class ConsumerPosition(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a group's position in one partition; None where it never committed."""

    partition: int
    offset: int | None
    end: int | None
    lag: int | None
    records_per_s: float | None


class ConsumerGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a group that reads a topic, known by its commits or by its members' assignments.

    `state` is Kafka's.
    """

    group: str
    state: str
    members: list[GroupMember]
    lag: int | None
    records_per_s: float | None
    partitions: list[ConsumerPosition]


class TopicProducer(msgspec.Struct, frozen=True, kw_only=True):
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
    producers: list[TopicProducer]
    consumers: list[ConsumerGroup]


class ClusterClients(msgspec.Struct, frozen=True, kw_only=True):
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


Kind = Literal["missing", "doubled", "changed", "swapped", "moved", "foreign", "damaged"]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Describes one difference between source and destination.

    `source_offset` is the record's own; None where the source has none. `expected` is its destination offset
    by the offset map, `destination_offset` the one where it was found. `fields`: the fields that differ.
    `file`: the path of the file with the record, or of the damaged one, in a flow with files.
    """

    kind: Kind
    source_offset: int | None
    expected: int | None
    destination_offset: int | None
    key: str
    fields: list[str] = []
    why: str = ""
    file: str = ""


class UncomparableRange(msgspec.Struct, frozen=True, kw_only=True):
    """Holds source offsets `low … end-1`, and why it cannot be decided whether they are equal."""

    low: int
    end: int
    why: str


class VerifiedPartition(msgspec.Struct, frozen=True, kw_only=True):
    """Reports the comparison of source offsets `low … end-1`; up to `equal_up_to` there is no difference.

    `compared`: pairs of records. `kept_back`: records that the provenance filter dropped. `given_up`: records
    in a gap of the ledger. `others`: records that other flows or, by design, other producers wrote at the
    destination. `compacted`: records that only one side holds because the topic is compacted. `unread`: why
    it could not be compared to the end. `replayed`: records at the destination that salvage replayed, by the
    ledger; each was compared with its original where the source still holds it. `filtered`: records that the
    flow's transform does not let through.
    """

    topic: str
    partition: int
    destination_topic: str
    low: int
    end: int
    equal_up_to: int
    compared: int
    kept_back: int
    given_up: int
    others: int
    compacted: int
    differences: list[Difference]
    more: bool
    not_comparable: list[UncomparableRange]
    unread: str = ""
    replayed: int = 0
    filtered: int = 0


class VerificationReport(msgspec.Struct, frozen=True, kw_only=True):
    """Reports the comparison of a flow. `sample`: the share of the offsets that was compared, in percent.

    `unit`: what the positions at the source count. Those of files are in bytes or rows. `in_files`: the
    destination holds the records in files.
    """

    flow: str
    source: str
    destination: str
    at_ms: int
    took_ms: int
    sample: float
    partitions: list[VerifiedPartition]
    unit: Literal["offsets", "bytes", "rows"] = "offsets"
    in_files: bool = False

    @property
    def different(self) -> bool:
        """Returns whether any partition differs."""
        return any(partition.differences for partition in self.partitions)

    @property
    def unread(self) -> bool:
        """Returns whether any partition could not be compared completely."""
        return any(partition.unread for partition in self.partitions)

    @property
    def nothing_comparable(self) -> bool:
        """Returns whether there was something to compare, and nothing of it could be compared."""
        compared = any(partition.compared for partition in self.partitions)
        return not compared and any(partition.not_comparable for partition in self.partitions)

    @property
    def equal(self) -> bool:
        """Returns whether all that was to be compared is equal, as far as it is comparable."""
        return not (self.different or self.unread or self.nothing_comparable)


class SalvagedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a committed record of the source that never reached the destination.

    `cluster` is where it was read. `flow` wrote it to that cluster; None for a client's record, whatever its
    headers name. Where the flow syncs schemas, `registry` is the cluster whose schema registry gave the ids
    in key and value.
    """

    cluster: str
    cluster_id: str
    record: ConsumerRecord
    flow: str | None = None
    registry: str | None = None


SHOWN = 10  # records that the result of one partition holds


class SalvagedPartition(msgspec.Struct, kw_only=True):
    """Counts the salvaged records of one partition.

    `stretches`: the source offsets `low … end-1` that were read, and why the flow did not copy them.
    `kept_back` counts the records that the provenance filter dropped. `lost` is the number of offsets that
    retention deleted before they were copied; `begun` is false where the flow never reached the partition.
    `open_from`: a transaction is open at this offset, and from it on nothing was read. `unread`: why the
    partition could not be read to its end otherwise. `first`: some of the records.
    """

    topic: str
    partition: int
    destination_topic: str
    stretches: list[tuple[int, int, str]] = []
    records: int = 0
    bytes: int = 0
    kept_back: int = 0
    lost: int = 0
    begun: bool
    first_offset: int | None = None
    last_offset: int | None = None
    first_timestamp_ms: int | None = None
    last_timestamp_ms: int | None = None
    first: list[SalvagedRecord] = []
    open_from: int | None = None
    unread: str = ""

    def count(self, salvaged: SalvagedRecord) -> None:
        """Adds a record, the next one in the order of offsets."""
        record = salvaged.record
        self.records += 1
        self.bytes += len(record.key or b"") + len(record.value or b"")
        if len(self.first) < SHOWN:
            self.first.append(salvaged)
        if self.first_offset is None:
            self.first_offset = record.offset
        self.last_offset = record.offset
        if (at_ms := record.timestamp_ms) is not None:
            first, last = self.first_timestamp_ms, self.last_timestamp_ms
            self.first_timestamp_ms = at_ms if first is None else min(first, at_ms)
            self.last_timestamp_ms = at_ms if last is None else max(last, at_ms)


class Salvage(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the salvaged records of a flow.

    `state` is the flow's state in the ledger: while it is active, these records may still be copied.
    """

    flow: str
    state: str
    source: str
    source_id: str
    destination: str
    partitions: list[SalvagedPartition]

    @property
    def records(self) -> int:
        return sum(partition.records for partition in self.partitions)

    @property
    def unread(self) -> bool:
        return any(partition.unread for partition in self.partitions)

    @property
    def complete(self) -> bool:
        """Returns whether every partition was read to its end, and no transaction is open in it."""
        return not self.unread and all(partition.open_from is None for partition in self.partitions)

    @property
    def replayable(self) -> list[SalvagedPartition]:
        """Returns the partitions that were read to their end and hold records to replay."""
        return [partition for partition in self.partitions if partition.records and not partition.unread]


class ReplayedPartition(msgspec.Struct, frozen=True):
    """Reports the replay of one partition. `unread`: why it stopped early, after `records` records.

    `note` says what was not checked.
    """

    topic: str
    partition: int
    into: str
    records: int
    unread: str = ""
    note: str = ""
