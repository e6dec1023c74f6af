"""What `repl verify` sees: made by runtime.audit on Spark, shown by planner.render. Pure data."""

from typing import Literal

import msgspec

Kind = Literal["missing", "doubled", "changed", "swapped", "moved", "foreign"]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """`source_offset` is the record's own; None where the source has none. `expected` is where the offset map
    says it is at the destination, `destination_offset` where it was found. `fields`: what was changed.
    """

    kind: Kind
    source_offset: int | None
    expected: int | None
    destination_offset: int | None
    key: str
    fields: list[str] = []
    why: str = ""


class NotComparable(msgspec.Struct, frozen=True, kw_only=True):
    """Source offsets `low … end-1`, and why nobody can tell whether they are equal."""

    low: int
    end: int
    why: str


class PartitionVerified(msgspec.Struct, frozen=True, kw_only=True):
    """Source offsets `low … end-1` were looked at; up to `equal_up_to` there is no difference.

    `compared`: pairs of records. `kept_back`: records that provenance did not let pass. `given_up`: records
    in a gap of the ledger. `others`: records that other flows or, by design, other producers wrote at the
    destination. `compacted`: records that one side holds alone because the topic is compacted.
    `unread`: why it could not be compared to the end. `replayed`: records at the destination that salvage
    replayed, by the ledger; each was compared with its original where the source still holds it.
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
    not_comparable: list[NotComparable]
    unread: str = ""
    replayed: int = 0


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """`sample`: the share of the offsets that was looked at, in percent."""

    flow: str
    source: str
    destination: str
    at_ms: int
    took_ms: int
    sample: float
    partitions: list[PartitionVerified]

    @property
    def different(self) -> bool:
        return any(one.differences for one in self.partitions)

    @property
    def unread(self) -> bool:
        return any(one.unread for one in self.partitions)
