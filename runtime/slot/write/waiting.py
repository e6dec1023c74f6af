"""The partitions of a lane that wait: to join, for their leader, or to commit an idle position."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import WireError
from runtime.kafka.protocol.metadata import Partition
from runtime.slot.partition import PartitionCopy
from runtime.slot.write.events import EmitLaneEvent, LeaderChanged, NotReady
from runtime.slot.write.sender import ProduceSender
from runtime.slot.write.timer import WakeTimer
from runtime.slot.write.transaction import TransactionPartition

_QUARANTINE_BYTES = 16 << 20
# Of the transactions in which a partition carries data: the weight of the newest one, the share from which
# on it joins ahead (two in a row, or two of three), and the share that is forgotten.
_NEWEST = 0.25
_LIKELY = 0.3
_NEGLIGIBLE = 0.05

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
    interval, so that an idle source costs few transactions. `wake` is called when they are due.
    """

    def __init__(self, interval_s: float, wake: Callable[[], None]) -> None:
        self._interval_s = interval_s
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._timer = WakeTimer(wake)
        self._copies: dict[PartitionCopy, None] = {}
        self._due = 0.0

    def add(self, copy: PartitionCopy) -> None:
        """Adds a partition whose idle position moved; the first one starts the interval.

        Bad records that wait for the quarantine hold memory (R8), so they are due at once.
        """
        if not self._copies:
            self._due = self._loop.time() + self._interval_s
            self._timer.set(self._due)
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

        Partitions with bad records are returned up to a total size, because a transaction must be written in
        time.
        """
        copies: list[PartitionCopy] = []
        size = 0
        for copy in self._copies:
            if copy.idle_position_moved and (not copy.quarantine or size < _QUARANTINE_BYTES):
                copies.append(copy)
                size += sum(queued.record.size for queued in copy.quarantine)
        return copies

    def clear(self) -> list[PartitionCopy]:
        """Removes and returns all partitions."""
        copies, self._copies = list(self._copies), {}
        return copies


class ActivePartitions:
    """Partitions that carried data in about a third of the last transactions with data.

    They join the next transaction ahead of their first batch. A transaction writes a marker into each of its
    partitions, so only those join ahead that will probably carry data. Only data counts as activity: markers
    and idle positions of two opposite flows must not keep each other going. A share of transactions is a
    moving average; it is forgotten where no transaction carried data for an interval.
    """

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self._active: dict[PartitionCopy, None] = {}
        self._shares: dict[PartitionCopy, float] = {}
        self._carried_at = 0.0

    def __bool__(self) -> bool:
        return bool(self._active)

    def carried(self, copies: Iterable[PartitionCopy], now: float) -> None:
        """Records the partitions that carried data in a committed transaction.

        After a transaction without data, none is active.
        """
        carried = set(copies)
        if not carried:
            self._active = {}
            return
        recent = self._shares if now - self._carried_at < self.interval_s else {}
        shares = {copy: share * (1 - _NEWEST) for copy, share in recent.items() if share > _NEGLIGIBLE}
        for copy in carried:
            shares[copy] = shares.get(copy, 0.0) + _NEWEST
        self._shares, self._carried_at = shares, now
        self._active = {copy: None for copy, share in shares.items() if share > _LIKELY}

    def forget(self, copy: PartitionCopy) -> None:
        """Removes a partition."""
        self._active.pop(copy, None)
        self._shares.pop(copy, None)

    def take(self) -> list[PartitionCopy]:
        """Removes and returns the active partitions."""
        active, self._active = list(self._active), {}
        return active


class JoinQueue:
    """The partitions of a lane that wait to join a transaction: with a batch, or because they carried data.

    A partition may join while it has a leader and enough in-sync replicas (fencing 4). Its leader is
    connected before, while the transaction of the other partitions continues: an unreachable leader does not
    delay them (R7). A new leader may have truncated the log, so its partitions are inspected before they
    continue (R4). `wake` is called when a partition can be tried.
    """

    def __init__(
        self,
        cluster: KafkaCluster,
        sender: ProduceSender,
        active: ActivePartitions,
        emit: EmitLaneEvent,
        wake: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._active = active
        self._emit = emit
        self._wake = wake
        self._copies: dict[PartitionCopy, None] = {}
        self._leaders = LeaderConnections(cluster, sender, self._on_connected)

    def __bool__(self) -> bool:
        """Returns whether a partition with a batch waits."""
        return bool(self._copies)

    def offer(self, copy: PartitionCopy) -> None:
        """Lets a partition with a batch wait for the next join, once its leader is connected."""
        leader = self._cluster.leader(*copy.at)
        if leader is not None and not self._leaders.is_ready(leader.leader, copy):
            self._leaders.connect(leader.leader, copy)
        else:
            self._copies[copy] = None
            self._wake()

    def discard(self, copy: PartitionCopy) -> None:
        """Removes a partition, if it is there."""
        self._copies.pop(copy, None)
        self._active.forget(copy)
        self._leaders.forget(copy)

    def close(self) -> None:
        """Cancels the connection attempts."""
        self._leaders.close()

    def take(self, most: int | None = None) -> list[TransactionPartition]:
        """Returns parts for the waiting partitions that can join now, at most `most`."""
        parts: list[TransactionPartition] = []
        for copy in list(self._copies):
            del self._copies[copy]
            if copy.in_transaction or not copy.queue or copy.releasing:
                continue
            if (part := self._part_if_ready(copy)) is not None:
                parts.append(part)
                if len(parts) == most:
                    break
        return parts

    def take_active(self, copies: Iterable[PartitionCopy]) -> list[TransactionPartition]:
        """Returns parts for those of `copies` that are active, and can join now.

        A partition that can't join is not retried: it has nothing to send.
        """
        parts: list[TransactionPartition] = []
        for copy in self._active.take():
            leader = self._cluster.leader(*copy.at)
            free = copy in copies and not (copy.queue or copy.in_transaction or copy.suspect)
            if free and copy.fetchable and leader is not None and self._is_ready(copy, leader):
                parts.append(TransactionPartition(copy, leader.leader, leader.leader_epoch))
        return parts

    def may_send(self, part: TransactionPartition) -> bool:
        """Returns whether a partition that joined may still send its first batch to the same leader."""
        leader = self._cluster.leader(*part.copy.at)
        return (
            leader is not None
            and (leader.leader, leader.leader_epoch) == (part.leader, part.epoch)
            and self._is_ready(part.copy, leader)
        )

    def _is_ready(self, copy: PartitionCopy, leader: Partition) -> bool:
        inspected = leader.leader_epoch == copy.inspected_epoch
        return inspected and copy.is_writable(leader) and self._leaders.is_ready(leader.leader, copy)

    def _part_if_ready(self, copy: PartitionCopy) -> TransactionPartition | None:
        """Returns a part if the partition can join; else connects to its leader or notifies the flow."""
        leader = self._cluster.leader(*copy.at)
        if leader is None or not copy.is_writable(leader):
            self._emit(NotReady(copy, copy.why_not_writable(leader)))
        elif not self._leaders.is_ready(leader.leader, copy):
            self._leaders.connect(leader.leader, copy)
        elif leader.leader_epoch != copy.inspected_epoch:
            self._emit(LeaderChanged(copy))
        else:
            return TransactionPartition(copy, leader.leader, leader.leader_epoch)
        return None

    def _on_connected(self, copies: list[PartitionCopy], error: WireError | None) -> None:
        """Offers the partitions that waited for their leader, or reports that it can't be reached."""
        for copy in copies:
            if error is None:
                self.offer(copy)
            elif copy.queue and not copy.releasing and not copy.in_transaction:  # It may have a new leader.
                self._emit(NotReady(copy, f"its leader at the destination can't be reached: {error}"))
