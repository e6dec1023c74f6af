"""Limits and pauses."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Generic, TypeVar

from runtime.kafka.errors import TimedOut

T = TypeVar("T")


async def in_time(work: Coroutine[Any, Any, T], seconds: float, where: str) -> T:
    """For work in which nothing is sent that could be sent twice."""
    try:
        async with asyncio.timeout(max(0.001, seconds)):
            return await work
    except TimeoutError:
        raise TimedOut(where, f"not done in {seconds:g} s", sent=False) from None


class Patience:
    """So many seconds from the first failure on: a quota may keep any question waiting before."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until = math.inf

    def over(self) -> bool:
        """Asked after each failure."""
        now = asyncio.get_running_loop().time()
        self._until = min(self._until, now + self._seconds)
        return now > self._until

    def extend(self, seconds: float) -> None:
        self._until += seconds

    def renew(self) -> None:
        """Something moved on: the next failure is the first one."""
        self._until = math.inf


class Shared(Generic[T]):
    """Work that many may want at once: who comes while it is under way gets its outcome, good or bad.

    A caller that gives up leaves the work to the others.
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
            work.exception()  # whoever waited was told; if nobody did, nobody needs to be


def shuffled(things: Iterable[T]) -> list[T]:
    """So that not all clients begin with the same one."""
    mixed = list(things)
    random.shuffle(mixed)
    return mixed


def jittered(pause: float) -> float:
    """Clients that failed together should not come back together."""
    return pause * random.uniform(0.5, 1.0)  # noqa: S311 - not for secrets
