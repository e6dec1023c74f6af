"""Accounts for the offsets of a destination partition: own records, own markers, and the rest. Pure."""

from __future__ import annotations

from typing import NamedTuple

_MOST_RANGES = 16


class OffsetRange(NamedTuple):
    """The offsets `low … end-1`."""

    low: int
    end: int


class OffsetAccounts:
    """Says which offsets at the destination the flow may not have written, as far as arithmetic can tell.

    Every offset at the destination is an own record, a marker of an own transaction, or a foreign record. A
    partition gets one marker from every transaction that it joined, whether it sent a record or not. A
    transactional id adds a partition again only after its last marker there is written. So where the offsets
    between two own batches are as many as the own transactions that were committed there meanwhile, none is
    foreign. Where they are more, own aborted records and markers may be among them: that range is to be read
    (`unexplained`). It is to be read, too, where the last marker may be written late: in another lane.

    `end` is behind the last offset that is accounted for, `markers` how many own ones are due from there on.
    """

    __slots__ = ("_late", "_ranges", "end", "markers")

    def __init__(self, end: int) -> None:
        self.end = end
        self.markers = 0
        self._late = True
        self._ranges: list[OffsetRange] = []

    def acknowledged(self, base_offset: int, records: int, committed_end: int) -> None:
        """Takes in an own batch. `committed_end`: what the ledger says; own aborted records above it may be
        gone after a leader change.
        """
        if base_offset < self.end:
            self._add(OffsetRange(committed_end, base_offset))
        elif self._late or base_offset - self.end != self.markers:
            self._add(OffsetRange(self.end, base_offset))
        self.end = base_offset + records
        self.markers = 0
        self._late = False

    def committed(self) -> None:
        """A transaction that the partition had joined is committed: its marker is due."""
        self.markers += 1

    def change_lane(self) -> None:
        """The next own batch may be written before the markers that are due."""
        self._late = True

    def idle(self, log_end: int) -> None:
        """Takes in where the log ends while nothing of the flow is on its way to it."""
        if log_end - self.end > (0 if self._late else self.markers):
            self._add(OffsetRange(self.end, log_end))
            self.end = log_end
            self.markers = 0

    def unexplained(self) -> list[OffsetRange]:
        """Hands over the ranges that are to be read."""
        ranges, self._ranges = self._ranges, []
        return ranges

    @property
    def doubtful(self) -> bool:
        return bool(self._ranges)

    def keep(self, unread: OffsetRange) -> None:
        """Takes a range back that could not be read."""
        self._add(unread)

    def _add(self, one: OffsetRange) -> None:
        """Bounded (R8): own batches between two ranges are recognised when they are read, so ranges may be
        joined over them.
        """
        if one.low < one.end:
            self._ranges.append(one)
        if len(self._ranges) > _MOST_RANGES:
            low, end = min(each.low for each in self._ranges), max(each.end for each in self._ranges)
            self._ranges = [OffsetRange(low, end)]
