"""Defines the results of `repl verify`: made by runtime.audit on Spark, shown by planner.render.

It holds pure data.
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
