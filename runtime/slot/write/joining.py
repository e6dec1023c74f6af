"""Joining selects the partitions that may join a lane's transaction.

A partition may join while it has a leader and enough in-sync replicas (fencing 4). The lane connects to the
leader before its partitions join, while the transaction of the other partitions continues: an unreachable
leader does not delay them (R7). A new leader may have truncated the log, so its partitions are inspected
before they continue (R4).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import WireError
from runtime.slot.partition import PartitionCopy
from runtime.slot.write.owner import LaneFlow
from runtime.slot.write.sender import ProduceSender
from runtime.slot.write.transaction import TransactionPartition


class _Connecting(NamedTuple):
    """A connection attempt to a leader, and the partitions that wait for it."""

    task: asyncio.Task[None]
    copies: dict[PartitionCopy, None]


class JoiningPartitions:
    """A joining owns the partitions that wait to join the lane's transaction.

    It is true while at least one waiting partition may be able to join.
    """

    def __init__(
        self, cluster: KafkaCluster, sender: ProduceSender, owner: LaneFlow, wake: Callable[[], None]
    ) -> None:
        self._cluster = cluster
        self._sender = sender
        self._owner = owner
        self._wake = wake
        self._waiting: dict[PartitionCopy, None] = {}
        self._connecting: dict[int, _Connecting] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def offer(self, copy: PartitionCopy) -> None:
        """Adds a partition that has its first batch."""
        leader = self._cluster.leader(*copy.at)
        if leader is not None and not self._is_ready(leader.leader, copy):
            self._connect(leader.leader, copy)
        else:
            self._waiting[copy] = None
            self._wake()

    def leave(self, copy: PartitionCopy) -> None:
        """Removes a partition from those that wait."""
        self._waiting.pop(copy, None)
        for connecting in self._connecting.values():
            connecting.copies.pop(copy, None)

    def close(self) -> None:
        """Cancels the connection attempts."""
        for connecting in self._connecting.values():
            connecting.task.cancel()

    def take(self, alone: bool) -> list[TransactionPartition]:
        """Returns parts for the partitions that can join now, at most one where `alone` is set."""
        parts: list[TransactionPartition] = []
        for copy in list(self._waiting):
            del self._waiting[copy]
            if copy.part is None and copy.queue and not copy.releasing and (part := self._part_if_fit(copy)):
                parts.append(part)
                if alone:
                    break
        return parts

    def _part_if_fit(self, copy: PartitionCopy) -> TransactionPartition | None:
        """Returns a part if the partition can join; else connects to its leader or notifies the flow."""
        leader = self._cluster.leader(*copy.at)
        if leader is None:
            self._owner.on_not_ready(copy, "the destination's partition has no leader")
        elif len(leader.in_sync) < copy.assigned.min_in_sync:
            why = f"{len(leader.in_sync)} of {copy.assigned.min_in_sync} in-sync replicas at the destination"
            self._owner.on_not_ready(copy, why)
        elif not self._is_ready(leader.leader, copy):
            self._connect(leader.leader, copy)
        elif leader.leader_epoch != copy.inspected_epoch:
            self._owner.on_leader_change(copy)
        else:
            return TransactionPartition(copy, leader.leader, leader.leader_epoch)
        return None

    def _is_ready(self, node: int, copy: PartitionCopy) -> bool:
        """Returns whether the leader is connected, and the metadata is newer than the connection."""
        connected, refreshed_at = self._sender.is_connected(node), self._cluster.heard_at(copy.at.topic)
        return connected and refreshed_at >= self._sender.connected_at(node)

    async def _connect_and_refresh(self, node: int) -> None:
        """Connects to a leader and fetches the metadata of the topics that wait for it."""
        if not self._sender.is_connected(node):
            await self._sender.connect_to(node)
        await self._cluster.topics({copy.at.topic for copy in self._connecting[node].copies}, fresh=True)

    def _connect(self, node: int, copy: PartitionCopy) -> None:
        """Lets a partition wait for the connection to its leader, which is started once per leader."""
        connecting = self._connecting.get(node)
        if connecting is None:
            task = asyncio.ensure_future(self._connect_and_refresh(node))
            task.add_done_callback(lambda done: self._on_connected(node, done))
            connecting = self._connecting[node] = _Connecting(task, {})
        connecting.copies[copy] = None

    def _on_connected(self, node: int, done: asyncio.Task[None]) -> None:
        """Offers the waiting partitions again, or reports them where the leader is unreachable."""
        copies = self._connecting.pop(node).copies
        if done.cancelled():
            return
        error = done.exception()
        if error is not None and not isinstance(error, WireError):
            raise error
        for copy in copies:
            if error is None:
                self.offer(copy)
            elif copy.queue and not copy.releasing and not copy.busy:  # It may have another leader by now.
                self._owner.on_not_ready(copy, f"its leader at the destination can't be reached: {error}")
