"""Limits and pauses."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any, TypeVar

from runtime.copy.wire.errors import TimedOut

T = TypeVar("T")


async def in_time(work: Coroutine[Any, Any, T], seconds: float, where: str) -> T:
    """For work in which nothing is sent that could be sent twice."""
    try:
        async with asyncio.timeout(max(0.001, seconds)):
            return await work
    except TimeoutError:
        raise TimedOut(where, f"not done in {seconds:g} s", sent=False) from None


def jittered(pause: float) -> float:
    """Clients that failed together should not come back together."""
    return pause * random.uniform(0.5, 1.0)  # noqa: S311 - not for secrets
