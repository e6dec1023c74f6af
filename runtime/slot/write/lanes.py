"""The lanes of a flow share its partitions, and take over those of a lane that is stuck (fencing 4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from runtime.kafka.codes import ErrorCode
from runtime.kafka.errors import BrokerError, WireError
from runtime.slot.errors import ErrorAction, ErrorPhase, decide
from runtime.slot.partition import PartitionCopy
from runtime.slot.write.lane import Lane
from runtime.slot.write.owner import SlotMustEnd

_ATTEMPTS = 20
_PAUSE_S = 0.25


class LaneSet:
    """A lane set owns the lanes of a flow and decides which lane copies a partition.

    The first `homes` lanes share the partitions. The next lane retries suspect partitions, one at a time. The
    remaining lanes are spare: they take over from lanes that are stuck.
    """

    def __init__(self, lanes: list[Lane], homes: int, start: Callable[[Lane], None]) -> None:
        self.all = lanes
        self._homes = lanes[:homes]
        self._spares = lanes[homes + 1 :]
        self._solo = lanes[homes] if len(lanes) > homes else lanes[0]
        self._start = start

    async def begin(self) -> None:
        """Initialises every transactional id and starts the lanes.

        This includes the spare ids: an older slot of this number may hold any of them (R3). The task of a
        lane retries an id that is stuck. Copying begins as soon as one id works. Raises WireError.
        """
        working = [lane for lane in self.all if await self._initialise(lane)]
        if not working:
            why = f"every transactional id like {self.all[0].transactional_id} waits for a marker"
            raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS, why)
        for lane in self.all:
            self._start(lane)

    async def _initialise(self, lane: Lane) -> bool:
        """Initialises a lane's id with retries; returns False where the id is stuck."""
        for attempt in range(_ATTEMPTS):
            try:
                await lane.begin()
            except WireError as error:
                match decide(ErrorPhase.INIT, error).do:
                    case ErrorAction.END_SLOT:
                        raise SlotMustEnd(f"{lane.transactional_id}: {error}") from error
                    case ErrorAction.STUCK:
                        lane.is_stuck = True
                        return False
                if attempt == _ATTEMPTS - 1:
                    raise
                await asyncio.sleep(_PAUSE_S)
            else:
                return True
        return False

    def place(self, copy: PartitionCopy) -> None:
        """Moves a partition to its proper lane; it must not be in an open transaction."""
        lane = self._solo if copy.suspect else self._home_lane()
        if copy.lane is not lane:
            if copy.lane is not None:
                copy.lane.leave(copy)
            lane.take(copy)
        else:
            lane.offer(copy)

    def move_from_stuck_lane(self, lane: Lane) -> None:
        """Moves a stuck lane's partitions to other lanes, except those that are in its transaction."""
        for copy in list(lane.copies):
            if not copy.busy and self._usable_lane() is not None:
                self.place(copy)

    def stuck(self) -> list[str]:
        """Returns the transactional ids that are stuck."""
        return [lane.transactional_id for lane in self.all if lane.is_stuck]

    def aborts(self) -> int:
        """Returns how many transactions of all lanes were aborted."""
        return sum(lane.aborts for lane in self.all)

    def _home_lane(self) -> Lane:
        """Returns the home lane with the fewest partitions, or a spare lane while all of them are stuck."""
        return self._usable_lane() or self._homes[0]

    def _usable_lane(self) -> Lane | None:
        """Returns the lane to use among those that are not stuck; home lanes take precedence."""
        return _least_loaded(self._homes) or _least_loaded(self._spares)


def _least_loaded(lanes: Iterable[Lane]) -> Lane | None:
    return min((lane for lane in lanes if not lane.is_stuck), key=lambda lane: len(lane.copies), default=None)
