"""An event loop whose clock jumps to the next timer, so that minutes of retries take no time."""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

P = ParamSpec("P")


class _JumpingSelector(selectors.DefaultSelector):
    """Where nothing is ready, it counts the time until the next timer in place of waiting."""

    jumped_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if timeout is None and not ready:
            raise RuntimeError("no timer is set and no socket is ready: the test would wait for ever")
        if not ready and timeout is not None:
            self.jumped_s += timeout
        return ready


class JumpingClock(asyncio.SelectorEventLoop):
    """Use it without sockets and threads: it does not wait for them."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return super().time() + self._jumping.jumped_s


class VirtualClock(JumpingClock):
    """Its time passes only where it jumps, so that a property test repeats its steps exactly."""

    def time(self) -> float:
        return self._jumping.jumped_s


Test = Callable[P, Coroutine[Any, Any, None]]


def _run_with(clock: type[JumpingClock], test: Test[P]) -> Callable[P, None]:
    """Runs the test in such a loop; its time limit is one of the loop's clock."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=clock) as runner:
            runner.run(asyncio.wait_for(test(*args, **kwargs), 600))

    return run


def jumping(test: Test[P]) -> Callable[P, None]:
    """Runs the test with a clock that jumps, and else passes as the machine's does."""
    return _run_with(JumpingClock, test)


def virtual(test: Test[P]) -> Callable[P, None]:
    """Runs the test with a clock that only jumps: a machine that is slow is none of its cases."""
    return _run_with(VirtualClock, test)
