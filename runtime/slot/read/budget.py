"""What bounds a slot: bytes that are held (R8) and bytes a second (rate_limit)."""

import asyncio
from collections.abc import Callable


class Held:
    """The memory of one response: given back when the last batch that is a view of it was let go."""

    __slots__ = ("_budget", "_views", "size")

    def __init__(self, budget: "ByteBudget", size: int) -> None:
        self._budget = budget
        self.size = size
        self._views = 0

    def view(self) -> "Held":
        self._views += 1
        return self

    def let_go(self) -> None:
        self._views -= 1
        if self._views == 0:
            self._budget.give(self.size)


class ByteBudget:
    """Bytes fetched and not yet acknowledged. `take` may overdraw: one batch can be larger than what is
    left.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._freed = asyncio.Event()

    @property
    def left(self) -> int:
        return self.limit - self.used

    def take(self, size: int) -> None:
        self.used += size

    def give(self, size: int) -> None:
        self.used -= size
        self._freed.set()

    async def room(self, least: int) -> None:
        """Waits until `least` bytes are left, or nothing is held at all."""
        while self.left < least and self.used > 0:
            self._freed.clear()
            await self._freed.wait()


class TokenBucket:
    """A flow's rate: bytes are taken after they came, and nothing is fetched while the bucket is in debt."""

    def __init__(self, rate: int | None, now: Callable[[], float]) -> None:
        self._now = now
        self._level = 0.0
        self._at = now()
        self.rate = rate
        self.throttled_s = 0.0

    def set_rate(self, rate: int | None) -> None:
        self._refill()
        self.rate = rate

    def take(self, size: int) -> None:
        if self.rate is not None:
            self._refill()
            self._level -= size

    def wait_s(self) -> float:
        """Seconds until the next byte may be fetched; 0 when it may now."""
        if self.rate is None:
            return 0.0
        self._refill()
        return max(0.0, -self._level / self.rate)

    def _refill(self) -> None:
        """Saves up for a fifth of a second at most, so that a quiet flow does not burst later."""
        now = self._now()
        if self.rate is not None:
            if self._level < 0:
                self.throttled_s += min(now - self._at, -self._level / self.rate)
            self._level = min(self._level + (now - self._at) * self.rate, self.rate / 5)
        self._at = now
