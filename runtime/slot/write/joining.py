"""Which partitions may join a lane's transaction: those whose leader and in-sync replicas are there (fencing
4).

A leader is connected to before its partitions join, while the transaction of the others goes on: one that
can't be reached from here holds up nobody else (R7). A new leader may have cut the log: what it leads is
looked at before it goes on (R4).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from runtime.kafka.cluster import Cluster
from runtime.kafka.errors import WireError
from runtime.slot.partition import PartitionCopy
from runtime.slot.write.owner import Owner
from runtime.slot.write.sender import Sender
from runtime.slot.write.transaction import Part


class _Reaching(NamedTuple):
    """A leader is being connected to, for these."""

    task: asyncio.Task[None]
    copies: dict[PartitionCopy, None]


class Joining:
    """True while somebody waits who may be able to join."""

    def __init__(self, cluster: Cluster, sender: Sender, owner: Owner, wake: Callable[[], None]) -> None:
        self._cluster = cluster
        self._sender = sender
        self._owner = owner
        self._wake = wake
        self._waiting: dict[PartitionCopy, None] = {}
        self._reaching: dict[int, _Reaching] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def offer(self, copy: PartitionCopy) -> None:
        """It has its first batch."""
        leader = self._cluster.leader(*copy.at)
        if leader is not None and not self._knows(leader.leader, copy):
            self._reach(leader.leader, copy)
        else:
            self._waiting[copy] = None
            self._wake()

    def leave(self, copy: PartitionCopy) -> None:
        self._waiting.pop(copy, None)
        for reaching in self._reaching.values():
            reaching.copies.pop(copy, None)

    def close(self) -> None:
        for reaching in self._reaching.values():
            reaching.task.cancel()

    def take(self, alone: bool) -> list[Part]:
        """Who can join now; `alone`: one at most."""
        parts: list[Part] = []
        for copy in list(self._waiting):
            del self._waiting[copy]
            if copy.part is None and copy.queue and not copy.releasing and (part := self._fit(copy)):
                parts.append(part)
                if alone:
                    break
        return parts

    def _fit(self, copy: PartitionCopy) -> Part | None:
        leader = self._cluster.leader(*copy.at)
        if leader is None:
            self._owner.unfit(copy, "the destination's partition has no leader")
        elif len(leader.in_sync) < copy.assigned.min_in_sync:
            why = f"{len(leader.in_sync)} of {copy.assigned.min_in_sync} in-sync replicas at the destination"
            self._owner.unfit(copy, why)
        elif not self._knows(leader.leader, copy):
            self._reach(leader.leader, copy)
        elif leader.leader_epoch != copy.looked_epoch:
            self._owner.led_anew(copy)
        else:
            return Part(copy, leader.leader, leader.leader_epoch)
        return None

    def _knows(self, node: int, copy: PartitionCopy) -> bool:
        """It is connected to, and what is known of its epoch is not from before."""
        reaches, heard_at = self._sender.reaches(node), self._cluster.heard_at(copy.at.topic)
        return reaches and heard_at >= self._sender.since(node)

    async def _know(self, node: int) -> None:
        if not self._sender.reaches(node):
            await self._sender.reach(node)
        await self._cluster.topics({copy.at.topic for copy in self._reaching[node].copies}, fresh=True)

    def _reach(self, node: int, copy: PartitionCopy) -> None:
        reaching = self._reaching.get(node)
        if reaching is None:
            task = asyncio.ensure_future(self._know(node))
            task.add_done_callback(lambda done: self._reached(node, done))
            reaching = self._reaching[node] = _Reaching(task, {})
        reaching.copies[copy] = None

    def _reached(self, node: int, done: asyncio.Task[None]) -> None:
        copies = self._reaching.pop(node).copies
        if done.cancelled():
            return
        error = done.exception()
        if error is not None and not isinstance(error, WireError):
            raise error
        for copy in copies:
            if error is None:
                self.offer(copy)
            elif copy.queue and not copy.releasing and not copy.busy:  # it may have another leader by now
                self._owner.unfit(copy, f"its leader at the destination can't be reached: {error}")
