"""This module sends a request that several brokers can answer to a second one while the first is silent."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from runtime.kafka.errors import ConnectionFailure

T = TypeVar("T")

SILENCE_S = 1.0  # a healthy broker answers within milliseconds; a hanging one may never answer
AT_ONCE = 2  # many concurrent callers must not multiply the load


async def first_answer(
    attempts: Iterable[Callable[[], Coroutine[Any, Any, T]]], silence_s: float = SILENCE_S
) -> T:
    """Returns the first answer and cancels the attempts that are still running.

    An attempt that cannot connect is replaced by the next one at once; after any other failure no new attempt
    is started. If all fail, raises the first failure that is not a ConnectionFailure, or else the first one.
    """
    loop = asyncio.get_running_loop()
    left = deque(attempts)
    running: dict[asyncio.Task[T], float] = {}
    failures: list[BaseException] = []
    try:
        while left or running:
            silence = loop.time() - min(running.values(), default=float("-inf"))
            if left and len(running) < AT_ONCE and silence >= silence_s:
                running[asyncio.ensure_future(left.popleft()())] = loop.time()
                continue
            timeout_s = silence_s - silence if left and len(running) < AT_ONCE else None
            done, _ = await asyncio.wait(running, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                del running[one]
                if (error := one.exception()) is None:
                    return one.result()
                failures.append(error)
                if not isinstance(error, ConnectionFailure):
                    left.clear()
    finally:
        for one in running:
            one.cancel()
        if running:
            await asyncio.wait(running)
    raise min(failures, key=lambda error: isinstance(error, ConnectionFailure))
