"""Budgets bound the bytes that a slot holds (R8), and the rate of a flow."""

import asyncio
from collections.abc import Callable


class ResponseMemory:
    """The memory of one response returns to the budget when the last batch that views it is released."""

    __slots__ = ("_budget", "_views", "size")

    def __init__(self, budget: "ByteBudget", size: int) -> None:
        self._budget = budget
        self.size = size
        self._views = 0

    def view(self) -> "ResponseMemory":
        """Counts one more view of the memory."""
        self._views += 1
        return self

    def release_memory(self) -> None:
        """Releases one view; the last one returns the memory to the budget."""
        self._views -= 1
        if self._views == 0:
            self._budget.give(self.size)


class ByteBudget:
    """A budget counts the bytes that are fetched and not yet acknowledged.

    `take` may exceed the limit, because one batch can be larger than the room that is left.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._freed = asyncio.Event()

    @property
    def left(self) -> int:
        """The number of bytes that are left; negative where the limit is exceeded."""
        return self.limit - self.used

    def take(self, size: int) -> None:
        """Takes `size` bytes from the budget."""
        self.used += size

    def give(self, size: int) -> None:
        """Returns `size` bytes to the budget."""
        self.used -= size
        self._freed.set()

    async def wait_for_room(self, least: int) -> None:
        """Waits until `least` bytes are left, or no bytes are held at all."""
        while self.left < least and self.used > 0:
            self._freed.clear()
            await self._freed.wait()


class TokenBucket:
    """A token bucket limits a flow's rate in bytes per second.

    Bytes are taken after they were fetched. No fetch is sent while the level is negative.
    """

    def __init__(self, rate: int | None, now: Callable[[], float]) -> None:
        self._now = now
        self._level = 0.0
        self._at = now()
        self.rate = rate
        self.throttled_s = 0.0

    def set_rate(self, rate: int | None) -> None:
        """Changes the rate; None means no limit."""
        self._refill()
        self.rate = rate

    def take(self, size: int) -> None:
        """Takes `size` fetched bytes; the level may become negative."""
        if self.rate is not None:
            self._refill()
            self._level -= size

    def wait_s(self) -> float:
        """Returns the seconds until the next fetch may be sent; 0 if it may be sent now."""
        if self.rate is None:
            return 0.0
        self._refill()
        return max(0.0, -self._level / self.rate)

    def _refill(self) -> None:
        """Adds tokens for the time that passed.

        They are saved for at most 0.2 s, so that a flow which was idle does not burst later.
        """
        now = self._now()
        if self.rate is not None:
            if self._level < 0:
                self.throttled_s += min(now - self._at, -self._level / self.rate)
            self._level = min(self._level + (now - self._at) * self.rate, self.rate / 5)
        self._at = now


_LEAST_BYTES = 512 << 10


class SessionShares:
    """This object divides a slot's memory between its fetch sessions.

    A waiting fetch reserves the bytes of its response. The reservations of all waiting fetches together take
    at most half of the memory, so that no session waits for another one that has no records.
    """

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._sessions = 0

    def join(self) -> None:
        """Counts one more session."""
        self._sessions += 1

    def leave(self) -> None:
        """Counts one session less."""
        self._sessions -= 1

    def least_bytes(self) -> int:
        """Returns how many bytes a fetch reserves at least."""
        limit = self._budget.limit
        return max(1, min(_LEAST_BYTES, limit // 4, limit // (2 * max(self._sessions, 1))))
