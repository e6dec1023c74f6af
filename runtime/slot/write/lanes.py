"""The lanes of a flow: which partition goes through which, and where it goes when one is stuck (fencing
4).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from runtime.kafka.codes import ErrorCode
from runtime.kafka.errors import BrokerError, WireError
from runtime.slot.partition import PartitionCopy
from runtime.slot.write.errors import Do, Phase, decide
from runtime.slot.write.lane import Lane
from runtime.slot.write.owner import SlotMustEnd

_ATTEMPTS = 20
_PAUSE_S = 0.25


class LaneSet:
    """The first `homes` lanes share the partitions; of the others the first tries suspects, one at a time,
    and the rest take over from lanes that are stuck.
    """

    def __init__(self, lanes: list[Lane], homes: int, start: Callable[[Lane], None]) -> None:
        self.all = lanes
        self._homes = lanes[:homes]
        self._spares = lanes[homes + 1 :]
        self._solo = lanes[homes] if len(lanes) > homes else lanes[0]
        self._start = start

    async def begin(self) -> None:
        """Initialises every id, also the spare ones: an older slot of this number may hold any of them (R3).

        One that is stuck is left to its own task; copying begins when one works. Raises WireError.
        """
        working = [lane for lane in self.all if await self._begun(lane)]
        if not working:
            why = f"every transactional id like {self.all[0].transactional_id} waits for a marker"
            raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS, why)
        for lane in self.all:
            self._start(lane)

    async def _begun(self, lane: Lane) -> bool:
        for attempt in range(_ATTEMPTS):
            try:
                await lane.begin()
            except WireError as error:
                match decide(Phase.INIT, error).do:
                    case Do.END_SLOT:
                        raise SlotMustEnd(f"{lane.transactional_id}: {error}") from error
                    case Do.STUCK:
                        lane.is_stuck = True
                        return False
                if attempt == _ATTEMPTS - 1:
                    raise
                await asyncio.sleep(_PAUSE_S)
            else:
                return True
        return False

    def place(self, copy: PartitionCopy) -> None:
        """Into the lane where it belongs now; only for a partition in no open transaction."""
        lane = self._solo if copy.suspect else self._home()
        if copy.lane is not lane:
            if copy.lane is not None:
                copy.lane.leave(copy)
            lane.take(copy)
        else:
            lane.offer(copy)

    def leave_stuck(self, lane: Lane) -> None:
        """Its partitions go on elsewhere; those that still are in its transaction can't."""
        for copy in list(lane.copies):
            if not copy.busy and self._free() is not None:
                self.place(copy)

    def stuck(self) -> list[str]:
        return [lane.transactional_id for lane in self.all if lane.is_stuck]

    def aborts(self) -> int:
        return sum(lane.aborts for lane in self.all)

    def _home(self) -> Lane:
        """The home lane with the fewest partitions; a spare one while all of them are stuck."""
        return self._free() or self._homes[0]

    def _free(self) -> Lane | None:
        return _emptiest(self._homes) or _emptiest(self._spares)


def _emptiest(lanes: Iterable[Lane]) -> Lane | None:
    return min((lane for lane in lanes if not lane.is_stuck), key=lambda lane: len(lane.copies), default=None)
