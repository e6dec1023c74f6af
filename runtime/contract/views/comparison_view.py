"""Defines the results of `repl verify` and `repl salvage`: records that differ or that one side lacks.

It holds pure data: made by runtime.audit, shown by planner.render.
"""

from typing import Literal

import msgspec

Kind = Literal["missing", "doubled", "changed", "swapped", "moved", "foreign"]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Describes one difference between source and destination.

    `source_offset` is the record's own; None where the source has none. `expected` is its destination offset
    by the offset map, `destination_offset` the one where it was found. `fields`: the fields that differ.
    """

    kind: Kind
    source_offset: int | None
    expected: int | None
    destination_offset: int | None
    key: str
    fields: list[str] = []
    why: str = ""


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
    """Reports the comparison of a flow. `sample`: the share of the offsets that was compared, in percent."""

    flow: str
    source: str
    destination: str
    at_ms: int
    took_ms: int
    sample: float
    partitions: list[VerifiedPartition]

    @property
    def different(self) -> bool:
        """Returns whether any partition differs."""
        return any(one.differences for one in self.partitions)

    @property
    def unread(self) -> bool:
        """Returns whether any partition could not be compared to its end."""
        return any(one.unread for one in self.partitions)


class SalvagedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a committed record of the source that never reached the destination.

    `cluster` is where it was read; `came_from` are the places that it was copied from before, by its headers.
    `flow` wrote it to that cluster; None for a client's record, whatever its headers name.
    """

    cluster: str
    cluster_id: str
    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    came_from: list[tuple[str, str, int, int]]  # cluster id, topic, partition, offset
    flow: str | None = None


class SalvagedPartition(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the salvaged records of one partition.

    `stretches`: the source offsets `low … end-1` that were read, and why the flow did not copy them. `lost`
    is the number of offsets that retention deleted before they were copied; `begun` is false where the flow
    never reached the partition. `unread`: why it could not be read to its end. `first`: some of the records.
    """

    topic: str
    partition: int
    destination_topic: str
    stretches: list[tuple[int, int, str]]
    records: int
    bytes: int
    kept_back: int
    lost: int
    begun: bool
    first_offset: int | None
    last_offset: int | None
    first_timestamp_ms: int | None
    last_timestamp_ms: int | None
    first: list[SalvagedRecord]
    unread: str = ""


class SalvageView(msgspec.Struct, frozen=True, kw_only=True):
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
        return sum(one.records for one in self.partitions)

    @property
    def unread(self) -> bool:
        return any(one.unread for one in self.partitions)

    @property
    def replayable(self) -> list[SalvagedPartition]:
        """Returns the partitions that were read to their end and hold records to replay."""
        return [one for one in self.partitions if one.records and not one.unread]


class ReplayedPartition(msgspec.Struct, frozen=True):
    """Reports the replay of one partition. `unread`: why it stopped early, after `records` records."""

    topic: str
    partition: int
    into: str
    records: int
    unread: str = ""
