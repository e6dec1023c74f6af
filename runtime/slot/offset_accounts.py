"""Accounts for the offsets of a partition at the destination: own records, own markers and the rest."""

from __future__ import annotations

from typing import NamedTuple

_MAX_RANGES = 16
# Transactions for which no base offset is expected after a wrong expectation; doubled by each further one.
_UNPROVEN = 64
_MAX_DOUBLINGS = 14


class OffsetRange(NamedTuple):
    """A range of the offsets `low … end-1`."""

    low: int
    end: int


class OffsetAccounts:
    """Computes which offsets at the destination the flow may not have written.

    Every offset at the destination is an own record, a marker of an own transaction, or a foreign record. A
    partition gets one marker from every transaction that it joined, whether it sent a record or not. A
    transactional id adds a partition again only after its last marker there is written. So no offset
    between two own batches is foreign if there are as many as own transactions were committed in between.
    If there are more, own aborted records and markers may be among them: that range must be read
    (`unexplained`). The range must also be read where the last marker may be written late, by another lane.

    `end` is the first offset that is not accounted for. `markers` counts the own markers that are due from
    there on. The account also predicts the base offset of the next own batch (`next_base`). The
    acknowledgement of that batch confirms or refutes it.
    """

    __slots__ = ("_late", "_ranges", "_unproven", "_wrong", "end", "markers")

    def __init__(self, end: int) -> None:
        self.end = end
        self.markers = 0
        self._late = True
        self._unproven = 0
        self._wrong = 0
        self._ranges: list[OffsetRange] = []

    @property
    def next_base(self) -> int | None:
        """The base offset of the next own batch if no other producer writes; None while it is not known.

        The partition must have joined a transaction of its lane: then the markers that are due are written.
        """
        return None if self._late or self._unproven else self.end + self.markers

    def acknowledged(self, base_offset: int, records: int, committed_end: int) -> None:
        """Accounts for an own batch.

        `committed_end` is the ledger's destination end. Own aborted records above it may be gone after a
        leader change.
        """
        if base_offset < self.end:
            self._add(OffsetRange(committed_end, base_offset))
        elif self._late or base_offset - self.end != self.markers:
            self._add(OffsetRange(self.end, base_offset))
        elif self._unproven and self.markers:
            self._unproven -= 1
        self.end = base_offset + records
        self.markers = 0
        self._late = False

    def committed(self) -> None:
        """Accounts for a committed transaction that the partition had joined: its marker is due."""
        self.markers += 1

    def change_lane(self) -> None:
        """Records a change of lane: the next own batch may be written before the markers that are due."""
        self._late = True
        self._unproven = max(self._unproven, 1)

    def aborted(self) -> None:
        """Records an aborted transaction: how many own records and markers it leaves is not known."""
        self._late = True

    def expected_wrongly(self) -> None:
        """Records that `next_base` was wrong: it is None for some transactions, twice as many each time."""
        self._unproven = _UNPROVEN << min(self._wrong, _MAX_DOUBLINGS)
        self._wrong += 1

    def idle(self, log_end: int) -> None:
        """Accounts for the log end, while no batch of the flow is in flight to the partition."""
        if log_end - self.end > (0 if self._late else self.markers):
            self._add(OffsetRange(self.end, log_end))
            self.end, self.markers, self._late = log_end, 0, True  # Some of the markers may still be due.

    def unexplained(self) -> list[OffsetRange]:
        """Returns the ranges that must be read, and removes them."""
        ranges, self._ranges = self._ranges, []
        return ranges

    @property
    def doubtful(self) -> bool:
        """Whether there are ranges that must be read."""
        return bool(self._ranges)

    def restore_range(self, unread: OffsetRange) -> None:
        """Adds a range again that could not be read."""
        self._add(unread)

    def _add(self, offset_range: OffsetRange) -> None:
        """Adds a range; too many ranges are joined into one, so that memory is bounded (R8).

        Own batches between two joined ranges are recognised when they are read.
        """
        if offset_range.low < offset_range.end:
            self._ranges.append(offset_range)
        if len(self._ranges) > _MAX_RANGES:
            low, end = min(each.low for each in self._ranges), max(each.end for each in self._ranges)
            self._ranges = [OffsetRange(low, end)]
