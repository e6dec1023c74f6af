"""The partitions of a lane that have nothing to send, but an idle position to commit to the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from runtime.slot.partition import PartitionCopy


class IdlePositions:
    """Positions that moved over records which are not copied: aborted, filtered, or compacted away.

    They are committed with the next transaction of the lane. Without one, they are due together after an
    interval, so that a source without news costs few transactions. `wake` is called when they are due.
    """

    def __init__(self, interval_s: float, wake: Callable[[], None]) -> None:
        self._interval_s = interval_s
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._copies: dict[PartitionCopy, None] = {}
        self._due = 0.0

    def add(self, copy: PartitionCopy) -> None:
        """Adds a partition whose idle position moved; the first one starts the interval."""
        if not self._copies:
            self._due = self._loop.time() + self._interval_s
            self._loop.call_at(self._due, self._wake)
        self._copies[copy] = None

    def discard(self, copy: PartitionCopy) -> None:
        """Removes a partition, if it is there."""
        self._copies.pop(copy, None)

    def make_due(self) -> None:
        """Ends the interval: the positions are due now."""
        self._due = 0.0
        self._wake()

    def is_due(self) -> bool:
        """Returns whether there are positions to commit now, also without a batch."""
        return bool(self._copies) and self._loop.time() >= self._due

    def moved(self) -> list[PartitionCopy]:
        """Returns the partitions whose position is still to be committed without a batch."""
        return [copy for copy in self._copies if copy.idle_position_moved]

    def clear(self) -> list[PartitionCopy]:
        """Removes and returns all partitions."""
        copies, self._copies = list(self._copies), {}
        return copies
