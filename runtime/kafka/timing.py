"""Adds to asyncio: time limits, pauses, work that concurrent callers share, and background tasks."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import math
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from msgspec import Struct

from runtime.kafka.errors import ConnectionFailure, RequestInterrupted, TimedOut

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

SILENCE_S = 1.0  # a healthy broker answers within milliseconds; a hanging one may never answer
AT_ONCE = 2  # many concurrent callers must not multiply the load


def now_ms() -> int:
    """Returns the wall clock's time in ms since 1970."""
    return int(time.time() * 1000)


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


class Silence:
    """Counts the seconds since something last gave a sign of life in a topic.

    Time counts only between two complete reads of the topic, and at most `longest_gap_s` for each. So neither
    an outage of the cluster nor a reader that stood still makes a living process seem dead.
    """

    def __init__(self, longest_gap_s: float) -> None:
        self.seconds = 0.0
        self._longest_gap_s = longest_gap_s
        self._read_at: float | None = None

    def restart(self) -> None:
        """Begins anew: a sign of life was read, or nothing could be read."""
        self.seconds = 0.0
        self._read_at = None

    def end_read(self, now: float) -> None:
        """Ends one complete read at `now`, in seconds of a monotonic clock."""
        if self._read_at is not None:
            self.seconds += min(now - self._read_at, self._longest_gap_s)
        self._read_at = now


async def first_answer(
    attempts: Iterable[Callable[[], Coroutine[Any, Any, T]]],
    silence_s: float = SILENCE_S,
    at_once: int = AT_ONCE,
) -> T:
    """Returns the first answer and cancels the attempts that are still running.

    While the newest attempt is silent, the next one begins, up to `at_once`. One that cannot connect is
    replaced at once; after any other failure no new attempt is started. If all fail, raises the first failure
    that is not a ConnectionFailure, or else the first one.
    """
    loop = asyncio.get_running_loop()
    left = deque(attempts)
    running: dict[asyncio.Task[T], float] = {}
    failures: list[BaseException] = []
    try:
        while left or running:
            silence = loop.time() - max(running.values(), default=-math.inf)
            if left and len(running) < at_once and silence >= silence_s:
                running[asyncio.ensure_future(left.popleft()())] = loop.time()
                continue
            timeout_s = silence_s - silence if left and len(running) < at_once else None
            done, _ = await asyncio.wait(running, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            for attempt in done:
                del running[attempt]
                if (error := attempt.exception()) is None:
                    return attempt.result()
                failures.append(error)
                if not isinstance(error, ConnectionFailure):
                    left.clear()
    finally:
        for attempt in running:
            attempt.cancel()
        if running:
            await asyncio.wait(running)
    raise min(failures, key=lambda error: isinstance(error, ConnectionFailure))


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


class RecentReads(Generic[T]):
    """Callers that read the same thing at the same moment, or soon after, share one read of it."""

    def __init__(self, recent_s: float) -> None:
        self._recent_s = recent_s
        self._newest: dict[str, tuple[float, T]] = {}
        self._reading: dict[str, Shared[T]] = {}

    async def read(self, name: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Returns the newest result of a name, or reads it. Raises what the work raises."""
        loop = asyncio.get_running_loop()
        if name in self._newest and loop.time() - self._newest[name][0] < self._recent_s:
            return self._newest[name][1]

        async def read() -> T:
            result = await work()
            self._newest[name] = loop.time(), result
            return result

        return await self._reading.setdefault(name, Shared()).run(read)


async def in_own_thread(work: Callable[[], T]) -> T:
    """Runs work that may block for long in a thread of its own, and returns its result.

    A caller that is cancelled leaves the thread behind. Unlike one of the loop's own threads it keeps no
    other work waiting, and the process can end without it.
    """
    outcome: concurrent.futures.Future[T] = concurrent.futures.Future()
    outcome.set_running_or_notify_cancel()  # a caller that is cancelled does not end the work

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as failed:  # noqa: BLE001 - the caller gets it
            outcome.set_exception(failed)

    threading.Thread(target=run, daemon=True).start()
    return await asyncio.wrap_future(outcome)


class _Caller(Struct, Generic[K, V, T], eq=False):
    """Holds the items of one caller of a Gathered, and its result or its exception."""

    items: Mapping[K, V]
    result: asyncio.Future[T]


class Gathered(Generic[K, V, T]):
    """Callers that wait at the same time share one request, and get its result or its exception.

    One request is under way; what is asked meanwhile goes with the next one, in order. A request holds each
    key once. Callers are added to a request until it has `most` items; the items of one caller are never
    split. After a request of several callers failed in a way for which `apart` is true, each of them gets a
    request of its own.

    With `resend`, a request may be sent twice. Then callers that give a key the same value share it. If the
    caller that sends is cancelled, one of the others sends the request again. Without `resend` they get
    RequestInterrupted.
    """

    def __init__(
        self,
        send: Callable[[dict[K, V]], Coroutine[Any, Any, T]],
        most: int,
        apart: Callable[[Exception], bool] = lambda _: False,
        *,
        resend: bool = False,
    ) -> None:
        self._send = send
        self._most = most
        self._apart = apart
        self._resend = resend
        self._turn = asyncio.Lock()
        self._waiting: list[_Caller[K, V, T]] = []
        self._alone = 0  # how many of the next requests hold the items of one caller

    async def ask(self, items: Mapping[K, V]) -> T:
        """Sends these items, perhaps together with those of other callers."""
        mine = _Caller[K, V, T](items, asyncio.get_running_loop().create_future())
        self._waiting.append(mine)
        try:
            async with self._turn:
                if not mine.result.done():
                    await self._send_with_others(mine)
            return mine.result.result()
        finally:
            if mine in self._waiting:  # the caller was cancelled before its turn
                self._waiting.remove(mine)
            if not mine.result.cancel():  # it is done, and this marks its exception as retrieved
                mine.result.exception()

    async def _send_with_others(self, mine: _Caller[K, V, T]) -> None:
        together = self._take(mine)
        try:
            result = await self._send(
                {key: value for caller in together for key, value in caller.items.items()}
            )
        except Exception as error:  # noqa: BLE001 - each caller gets it
            if len(together) > 1 and self._apart(error):
                self._alone = len(together)
            for caller in _left(together):
                caller.result.set_exception(error)
        except BaseException:  # this caller was cancelled
            others = [caller for caller in _left(together) if caller is not mine]
            if self._resend:
                self._waiting[:0] = others
                raise
            for caller in others:
                caller.result.set_exception(
                    RequestInterrupted("a request for several callers was interrupted")
                )
            raise
        else:
            for caller in _left(together):
                caller.result.set_result(result)

    def _take(self, mine: _Caller[K, V, T]) -> list[_Caller[K, V, T]]:
        """Takes the callers of one request."""
        others = [caller for caller in self._waiting if caller is not mine]
        together, items = [mine], dict(mine.items)
        if self._alone:
            self._alone -= 1
            others = []
        for caller in others:
            same = items.keys() & caller.items.keys()
            if same and not (self._resend and all(items[key] == caller.items[key] for key in same)):
                break
            if len(items) + len(caller.items) - len(same) > self._most:
                break
            together.append(caller)
            items.update(caller.items)
        self._waiting = [caller for caller in self._waiting if caller not in together]
        return together


def _left(callers: Iterable[_Caller[K, V, T]]) -> list[_Caller[K, V, T]]:
    """Returns the callers that were not cancelled meanwhile."""
    return [caller for caller in callers if not caller.result.done()]


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


def until_next(every_s: float) -> float:
    """Returns the seconds until the event loop's clock shows the next multiple of the interval.

    Tasks that wait with the same interval wake up together, so they can share requests.
    """
    return every_s - asyncio.get_running_loop().time() % every_s


async def wait_at_most(event: asyncio.Event, seconds: float) -> None:
    """Waits for the event, at most `seconds`."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class BackgroundTasks:
    """Owns the job's background tasks. `failed` gets the first exception of any of them."""

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
