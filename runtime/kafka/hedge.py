"""A question that several can answer: one is asked, and another one too while it keeps silent."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from runtime.kafka.errors import ConnectionFailure

T = TypeVar("T")

SILENCE_S = 1.0  # a broker that lives answers within milliseconds; one that hangs may never
AT_ONCE = 2  # what many ask at the same time must not become a storm


async def first_answer(
    ways: Iterable[Callable[[], Coroutine[Any, Any, T]]], silence_s: float = SILENCE_S
) -> T:
    """The first answer counts, and whoever is still asked then is given up. One that can't be reached makes
    room for the next at once; after any other failure nobody new is asked. Raises the first failure, of those
    that are no ConnectionFailure where there is one.
    """
    loop = asyncio.get_running_loop()
    left = deque(ways)
    asked: dict[asyncio.Task[T], float] = {}
    failures: list[BaseException] = []
    try:
        while left or asked:
            silence = loop.time() - min(asked.values(), default=float("-inf"))
            if left and len(asked) < AT_ONCE and silence >= silence_s:
                asked[asyncio.ensure_future(left.popleft()())] = loop.time()
                continue
            patience = silence_s - silence if left and len(asked) < AT_ONCE else None
            done, _ = await asyncio.wait(asked, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                del asked[one]
                if (error := one.exception()) is None:
                    return one.result()
                failures.append(error)
                if not isinstance(error, ConnectionFailure):
                    left.clear()
    finally:
        for one in asked:
            one.cancel()
        if asked:
            await asyncio.wait(asked)
    raise min(failures, key=lambda error: isinstance(error, ConnectionFailure))
