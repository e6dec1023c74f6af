"""The in-flight window bounds how many bytes of a lane may be unacknowledged at a broker.

Behind a slow link, or once a quota delays responses, the bytes in flight must still be acknowledged within
their transaction. So the window starts small. It grows with every response that is in time, and doubles
while responses come quickly. When responses come late, it shrinks to what the broker acknowledged within
two seconds.
"""

from __future__ import annotations

REQUESTS = 4
_INITIAL = 256 << 10
_MIN = 64 << 10
_QUICK_S = 0.5
_SLOW_S = 2.0


class InFlightWindow:
    """A window owns the limit and the count of bytes and requests in flight at one broker."""

    def __init__(self, most: int) -> None:
        self.limit = min(_INITIAL, most)
        self._most = most
        self._requests = 0
        self._bytes = 0
        self._slowed_at = 0.0

    @property
    def room(self) -> int:
        """The room is the number of bytes that may be sent now.

        A request holds at least one batch, however large that is.
        """
        return self.limit - self._bytes if self._requests < REQUESTS else 0

    def sent(self, size: int) -> None:
        """Counts a request of `size` bytes as in flight."""
        self._requests += 1
        self._bytes += size

    def answered(self, size: int, sent_at: float, now: float, throttle_s: float = 0.0) -> None:
        """Counts a response and adapts the limit to the time it took.

        `throttle_s` is how long the broker reads no further request, because of a quota.
        """
        took = now - sent_at + throttle_s
        if took > _SLOW_S:
            self._shrink(sent_at, now, took)
        elif 2 * self._bytes >= self.limit:  # A window that is not used gives no measurement.
            self.limit = min(self.limit + (size if took < _QUICK_S else size // 4), self._most)
        self._remove(size)

    def given_up(self, size: int, sent_at: float, now: float) -> None:
        """Counts a request as no longer in flight, although it has no response."""
        if now - sent_at > _SLOW_S:
            self._shrink(sent_at, now, now - sent_at)
        self._remove(size)

    def _shrink(self, sent_at: float, now: float, took: float) -> None:
        if sent_at >= self._slowed_at:  # Requests that were in flight together shrink the window once.
            self.limit = max(min(self.limit, int(self._bytes * _SLOW_S / took)), _MIN)
            self._slowed_at = now

    def _remove(self, size: int) -> None:
        self._requests -= 1
        self._bytes -= size
