"""What `repl salvage` sees: made by runtime.audit, shown by planner.render. Pure data."""

import msgspec


class Salvaged(msgspec.Struct, frozen=True, kw_only=True):
    """A committed record of the source that never reached the other side. `cluster` is where it was read;
    `came_from` are the places that it was copied from before, as far as its headers tell. `flow` wrote it
    there; None for a client's record, whatever its headers name.
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


class PartitionSalvaged(msgspec.Struct, frozen=True, kw_only=True):
    """`stretches`: the source offsets `low … end-1` that were read, and why the flow did not copy them.

    `lost` is how many offsets retention took before they were copied; `begun` is false where the flow never
    came to the partition. `unread`: why it could not be read to its end. `first`: some of the records.
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
    first: list[Salvaged]
    unread: str = ""


class SalvageSeen(msgspec.Struct, frozen=True, kw_only=True):
    """`state` is what the ledger says of the flow: while it is active, what is here may be on its way."""

    flow: str
    state: str
    source: str
    source_id: str
    destination: str
    partitions: list[PartitionSalvaged]

    @property
    def records(self) -> int:
        return sum(one.records for one in self.partitions)

    @property
    def unread(self) -> bool:
        return any(one.unread for one in self.partitions)


class ReplayedPart(msgspec.Struct, frozen=True):
    """What a replay did with a partition. `unread`: why it did not come to its end; `records` went before."""

    topic: str
    partition: int
    into: str
    records: int
    unread: str = ""
