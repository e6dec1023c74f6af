"""Waiting in a coroutine, while the tasks of its event loop go on."""

import asyncio
from collections.abc import Callable


async def until(holds: Callable[[], object], within_s: float = 120.0) -> None:
    """Returns once it holds. Raises TimeoutError where that takes too long."""
    async with asyncio.timeout(within_s):
        while not holds():
            await asyncio.sleep(0.01)
