"""How much of a lane may be unacknowledged at a broker: what that broker takes in within a moment.

Behind a slow link, or once a quota holds answers back, what is in flight must still come through within its
transaction. So it begins small, grows with every answer that is in time, twofold while they come quickly, and
shrinks to what came within a moment when they come late.
"""

from __future__ import annotations

REQUESTS = 4
_FIRST = 256 << 10
_LEAST = 64 << 10
_QUICK_S = 0.5
_SLOW_S = 2.0


class Flight:
    def __init__(self, most: int) -> None:
        self.limit = min(_FIRST, most)
        self._most = most
        self._requests = 0
        self._bytes = 0
        self._slowed_at = 0.0

    @property
    def room(self) -> int:
        """Bytes that may go out now. A request holds a batch at least, however large that is."""
        return self.limit - self._bytes if self._requests < REQUESTS else 0

    def sent(self, size: int) -> None:
        self._requests += 1
        self._bytes += size

    def answered(self, size: int, sent_at: float, now: float, throttle_s: float = 0.0) -> None:
        """`throttle_s`: for so long the broker reads nothing more."""
        took = now - sent_at + throttle_s
        if took > _SLOW_S:
            self._shrink(sent_at, now, took)
        elif 2 * self._bytes >= self.limit:  # who does not use it learns nothing about it
            self.limit = min(self.limit + (size if took < _QUICK_S else size // 4), self._most)
        self._landed(size)

    def given_up(self, size: int, sent_at: float, now: float) -> None:
        """It is not waited for any more."""
        if now - sent_at > _SLOW_S:
            self._shrink(sent_at, now, now - sent_at)
        self._landed(size)

    def _shrink(self, sent_at: float, now: float, took: float) -> None:
        if sent_at >= self._slowed_at:  # what was in flight together counts once
            self.limit = max(min(self.limit, int(self._bytes * _SLOW_S / took)), _LEAST)
            self._slowed_at = now

    def _landed(self, size: int) -> None:
        self._requests -= 1
        self._bytes -= size
