"""What asyncio leaves out: failures of callbacks, which belong to no task, and waiting with a bound."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def callback_failures(fail: Callable[[BaseException], None]) -> Iterator[None]:
    """Passes the exception of every callback of the running loop to `fail`, after its traceback was logged.

    The loop itself only logs such an exception and continues. The incomplete work of the callback would
    then be committed, or awaited for ever.
    """
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Logs the exception, and passes it to `fail` where a callback raised it."""
        loop.default_exception_handler(context)
        error = context.get("exception")
        if error is not None and "handle" in context:  # Without it, the source is a transport or a lost task.
            fail(error)

    loop.set_exception_handler(handle)
    try:
        yield
    finally:
        loop.set_exception_handler(before)


async def wait_at_most(event: asyncio.Event, seconds: float) -> None:
    """Waits for the event, at most `seconds`."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
