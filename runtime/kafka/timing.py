"""Adds to asyncio: time limits, pauses, work that concurrent callers share, and background tasks."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections.abc import Callable, Coroutine, Iterable, Iterator
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
        self._done = 0

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

    def advance(self, done: int) -> None:
        """Resets the limit where more is done than at all failures before."""
        if done > self._done:
            self._done = done
            self.renew()


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
