"""This module adds to asyncio: failures of callbacks, waiting with a limit, and background tasks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
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


class BackgroundTasks:
    """A BackgroundTasks owns the job's background tasks. `failed` gets the first exception of any of them."""

    def __init__(self) -> None:
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        """Starts a background task."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def fail(self, error: BaseException) -> None:
        """Fails the job, unless another error has failed it before."""
        if not self.failed.done():
            self.failed.set_exception(error)

    async def end(self, task: asyncio.Task[None]) -> None:
        """Cancels one task and waits for its end."""
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def end_all(self) -> None:
        """Cancels all tasks and waits for their end."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.fail(error)
