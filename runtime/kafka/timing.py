"""This module holds time limits, pauses, and work that concurrent callers share."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Generic, TypeVar

from runtime.kafka.errors import TimedOut

T = TypeVar("T")


async def in_time(work: Coroutine[Any, Any, T], seconds: float, where: str) -> T:
    """Returns the result of work that finishes in time. Raises TimedOut, as for work that sends nothing."""
    try:
        async with asyncio.timeout(max(0.001, seconds)):
            return await work
    except TimeoutError:
        raise TimedOut(where, f"not done in {seconds:g} s", sent=False) from None


class RetryDeadline:
    """The deadline is `seconds` after the first failure, because a quota may delay any request before."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until = math.inf

    def over(self) -> bool:
        """Returns whether the time is over. Call it after each failure."""
        now = asyncio.get_running_loop().time()
        self._until = min(self._until, now + self._seconds)
        return now > self._until

    def extend(self, seconds: float) -> None:
        self._until += seconds

    def renew(self) -> None:
        """Resets the limit after progress: the next failure counts as the first one."""
        self._until = math.inf


class Shared(Generic[T]):
    """Concurrent callers share one execution of the work and get its result or its exception.

    A caller that is cancelled does not cancel the work.
    """

    def __init__(self) -> None:
        self._work: asyncio.Task[T] | None = None

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self._work is None:
            self._work = asyncio.ensure_future(work())
            self._work.add_done_callback(self._done)
        return await asyncio.shield(self._work)

    async def stop(self) -> None:
        work = self._work
        if work is not None:
            work.cancel()
            await asyncio.wait({work})

    def _done(self, work: asyncio.Task[T]) -> None:
        self._work = None
        if not work.cancelled():
            work.exception()  # marks the exception as retrieved; the callers that waited got it


def shuffled(things: Iterable[T]) -> list[T]:
    """Returns the items in random order, so that not all clients begin with the same one."""
    mixed = list(things)
    random.shuffle(mixed)
    return mixed


def jittered(pause: float) -> float:
    """Returns a random part of the pause, so that clients that failed together do not reconnect together."""
    return pause * random.uniform(0.5, 1.0)  # noqa: S311 - not for secrets
