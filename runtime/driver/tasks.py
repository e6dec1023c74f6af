"""This module runs background tasks whose failure fails the whole job."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine


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
