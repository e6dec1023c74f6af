"""Defines the results of `repl salvage`: made by runtime.audit, shown by planner.render. Pure data."""

import msgspec


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
