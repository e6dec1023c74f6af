"""The lanes of a flow share its partitions, and take over those of a lane that is stuck (fencing 4)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterable

from runtime.kafka.errors import BrokerError, ErrorCode, WireError
from runtime.slot.partition import PartitionCopy
from runtime.slot.write.lane import Lane

_ATTEMPTS = 20
_PAUSE_S = 0.25
_QUIET_AFTER_S = 1.0


class LaneSet:
    """A lane set owns the lanes of a flow, and decides which lane copies a partition.

    The first `homes` lanes share the partitions while the flow catches up: then one can send while another
    ends its transaction. Once no partition has been behind for a second, the first lane copies all of them:
    transactions are small then, and each costs the brokers the same. The next lane retries suspect
    partitions, one at a time. The remaining lanes are spare: they take over from lanes that are stuck.
    """

    def __init__(self, lanes: list[Lane], homes: int) -> None:
        self.all = lanes
        self._homes = lanes[:homes]
        self._spares = lanes[homes + 1 :]
        self._solo = lanes[homes] if len(lanes) > homes else lanes[0]
        self._lanes: dict[PartitionCopy, Lane] = {}
        self._loop = asyncio.get_running_loop()
        self._behind_at = self._loop.time()

    async def begin(self) -> None:
        """Initialises every transactional id, one after the other, and then the first one again (R3).

        This includes the spare ids, and those that are stuck: an older attempt of this slot may hold any of
        them, and may still be alive. Of two attempts that begin at the same time, at most one finds the first
        id still its own. If both do, one of them began when the other had initialised all, and has fenced it
        completely. Raises SlotMustEnd, and WireError while an id waits for a marker.
        """
        for lane in (*self.all, self.all[0]):
            if not await _begin(lane):
                why = f"{lane.transactional_id} waits for the marker of an earlier transaction"
                raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS, why)

    def place(self, copy: PartitionCopy) -> None:
        """Moves a partition to its proper lane; it must not be in an open transaction."""
        before = self._lanes.get(copy)
        # All home lanes and spare lanes may be stuck.
        lane = self._solo if copy.suspect else self._usable_lane() or self._homes[0]
        if before is lane:
            lane.offer(copy)
            return
        if before is not None:
            before.remove(copy)
        self._lanes[copy] = lane
        lane.add(copy)

    def offer(self, copy: PartitionCopy) -> None:
        """Tells a partition's lane that a batch is queued, or that its idle position moved."""
        lane = self._lanes.get(copy)
        if lane is not None:
            lane.offer(copy)

    def rebalance_after(self, copies: Collection[PartitionCopy]) -> None:
        """Moves partitions whose transaction has ended, as the flow begins or ends to catch up."""
        if any(copy.behind for copy in copies):
            self._behind_at = self._loop.time()
        better = self._usable_lane()
        for copy in copies:
            lane = self._lanes.get(copy)
            if lane is None or better is None or lane is better:
                continue
            if copy.in_transaction or copy.suspect or copy.releasing:
                continue
            if not self._catches_up or len(better.copies) + 1 < len(lane.copies):
                self.place(copy)
                better = self._usable_lane()

    async def release(self, copy: PartitionCopy) -> None:
        """Removes a partition once it is in no open transaction; an open one is ended early for it."""
        while (lane := self._lanes.get(copy)) is not None:
            await lane.release(copy)
            if self._lanes.get(copy) is lane:
                del self._lanes[copy]

    def commit_replacement(self, copy: PartitionCopy) -> None:
        """Commits a partition's replacement progress at once; it must not be in an open transaction."""
        self.place(copy)
        self._lanes[copy].commit_idle_positions()

    def move_from_stuck_lane(self, transactional_id: str) -> list[PartitionCopy]:
        """Moves a stuck lane's partitions to other lanes; returns those that stay.

        Its transaction may still commit them, or there is no other lane for them.
        """
        (lane,) = (lane for lane in self.all if lane.transactional_id == transactional_id)
        for copy in list(lane.copies):
            if not copy.in_transaction and self._usable_lane() is not None:
                self.place(copy)
        return list(lane.copies)

    def move_from_stuck_lanes(self) -> None:
        """Moves the partitions that are left in stuck lanes, now that a lane works again."""
        for copy, lane in list(self._lanes.items()):
            if lane.is_stuck and not (copy.in_transaction or copy.suspect or copy.releasing):
                self.place(copy)

    def in_stuck_lane(self, copy: PartitionCopy) -> bool:
        """Returns whether the partition's lane is stuck."""
        lane = self._lanes.get(copy)
        return lane is not None and lane.is_stuck

    def producer_ids(self) -> set[int]:
        """Returns the producer ids of all lanes."""
        return {lane.producer_id for lane in self.all}

    def write_marker(self, copy: PartitionCopy, producer_id: int, *, commit: bool) -> None:
        """Lets the lane of a producer id write its missing marker into a partition."""
        for lane in self.all:
            if lane.producer_id == producer_id:
                lane.write_marker(copy, commit=commit)

    def drop_marker(self, copy: PartitionCopy) -> None:
        """Forgets a missing marker of a partition that no lane has begun to write."""
        for lane in self.all:
            lane.drop_marker(copy)

    def stuck(self) -> list[str]:
        """Returns the transactional ids that are stuck."""
        return [lane.transactional_id for lane in self.all if lane.is_stuck]

    def aborts(self) -> int:
        """Returns how many transactions of all lanes were aborted."""
        return sum(lane.aborts for lane in self.all)

    def _usable_lane(self) -> Lane | None:
        """Returns the lane for a partition: a home lane, or a spare one where these are stuck."""
        homes = self._homes if self._catches_up else self._homes[:1]
        return _least_loaded(homes) or _least_loaded(self._homes) or _least_loaded(self._spares)

    @property
    def _catches_up(self) -> bool:
        """Whether a partition was behind its source lately, or the flow has just begun."""
        return self._loop.time() - self._behind_at < _QUIET_AFTER_S


async def _begin(lane: Lane) -> bool:
    """Initialises a lane's id with retries; returns False where the id is stuck."""
    for _ in range(_ATTEMPTS - 1):
        with contextlib.suppress(WireError):
            return await lane.begin()
        await asyncio.sleep(_PAUSE_S)
    return await lane.begin()


def _least_loaded(lanes: Iterable[Lane]) -> Lane | None:
    return min((lane for lane in lanes if not lane.is_stuck), key=lambda lane: len(lane.copies), default=None)
