"""The partitions of a lane that wait for the connection to their leader, or to commit an idle position."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import WireError
from runtime.slot.partition import PartitionCopy
from runtime.slot.write.sender import ProduceSender

_QUARANTINE_BYTES = 16 << 20

Finished = Callable[[list[PartitionCopy], WireError | None], None]


class _Attempt(NamedTuple):
    """A connection attempt to a leader, and the partitions that wait for it."""

    task: asyncio.Task[None]
    copies: dict[PartitionCopy, None]


class LeaderConnections:
    """The connection attempts of a lane, one for each leader, while its open transaction continues (R7).

    `finished` is called after an attempt, with the partitions that waited for it, and with the error if the
    leader can't be reached.
    """

    def __init__(self, cluster: KafkaCluster, sender: ProduceSender, finished: Finished) -> None:
        self._cluster = cluster
        self._sender = sender
        self._finished = finished
        self._attempts: dict[int, _Attempt] = {}

    def is_ready(self, leader: int, copy: PartitionCopy) -> bool:
        """Returns whether the leader is connected, and the metadata is newer than the connection.

        A broker that was unavailable before may lead its partitions under a new epoch.
        """
        connected, refreshed_at = self._sender.is_connected(leader), self._cluster.refreshed_at(copy.at.topic)
        return connected and refreshed_at >= self._sender.connected_at(leader)

    def connect(self, leader: int, copy: PartitionCopy) -> None:
        """Lets a partition wait for the connection to its leader."""
        attempt = self._attempts.get(leader)
        if attempt is None:
            task = asyncio.ensure_future(self._connect_and_refresh(leader))
            task.add_done_callback(lambda done: self._on_done(leader, done))
            attempt = self._attempts[leader] = _Attempt(task, {})
        attempt.copies[copy] = None

    def forget(self, copy: PartitionCopy) -> None:
        """Removes a partition from those that wait."""
        for attempt in self._attempts.values():
            attempt.copies.pop(copy, None)

    def close(self) -> None:
        """Cancels all attempts."""
        for attempt in self._attempts.values():
            attempt.task.cancel()

    async def _connect_and_refresh(self, leader: int) -> None:
        """Connects to a leader and fetches the metadata of the topics that wait for it."""
        if not self._sender.is_connected(leader):
            await self._sender.connect_to(leader)
        await self._cluster.topics({copy.at.topic for copy in self._attempts[leader].copies}, fresh=True)

    def _on_done(self, leader: int, done: asyncio.Task[None]) -> None:
        copies = list(self._attempts.pop(leader).copies)
        if done.cancelled():
            return
        error = done.exception()
        if error is not None and not isinstance(error, WireError):
            raise error
        self._finished(copies, error)


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
        """Adds a partition whose idle position moved; the first one starts the interval.

        Bad records that wait for the quarantine hold memory (R8), so they are due at once.
        """
        if not self._copies:
            self._due = self._loop.time() + self._interval_s
            self._loop.call_at(self._due, self._wake)
        self._copies[copy] = None
        if copy.quarantine:
            self.make_due()

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
        """Returns the partitions whose position is still to be committed without a batch.

        Those with bad records are taken until these have some size: a transaction must be written in time.
        """
        found: list[PartitionCopy] = []
        size = 0
        for copy in self._copies:
            if copy.idle_position_moved and (not copy.quarantine or size < _QUARANTINE_BYTES):
                found.append(copy)
                size += sum(one.record.size for one in copy.quarantine)
        return found

    def clear(self) -> list[PartitionCopy]:
        """Removes and returns all partitions."""
        copies, self._copies = list(self._copies), {}
        return copies
