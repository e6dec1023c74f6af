"""A timer wakes a lane at a time, and never before it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_LEAST_S = 0.001


class WakeTimer:
    """A wake timer calls `wake` once the event loop's clock shows a time; it has one time at most.

    uvloop rounds a delay to whole milliseconds, so its timers may fire early. Such a timer is set again: a
    lane that woke too early would find nothing due, and sleep on.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def set(self, at: float) -> None:
        """Sets the time, in place of the one before; a time that is set already costs nothing."""
        if self._timer is not None and at == self._at:
            return
        self.cancel()
        self._at = at
        self._timer = self._loop.call_at(at, self._fire)

    def cancel(self) -> None:
        """Removes the time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        left_s = self._at - self._loop.time()
        if left_s > 0:
            self._timer = self._loop.call_later(max(left_s, _LEAST_S), self._fire)
        else:
            self._timer = None
            self._wake()
