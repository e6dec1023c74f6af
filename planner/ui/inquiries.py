"""Answers that a page needs on demand: a plan, the history, a group's offsets, a job's log.

Each is made in a thread of its own, once for all requests that arrive meanwhile, and kept with its age.
A failure is an answer too: the page shows it. A question without an answer in time is one, and frees its
place: its thread can't be ended, so it is not asked again before the thread has ended.
"""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from planner.model.diagnostic import Diagnostic, Failure, error
from planner.ui.feed import now_ms

Value = TypeVar("Value")
Outcome = tuple[Value | None, tuple[Diagnostic, ...]]  # a value, or why there is none
MOST_KEPT = 200
AT_ONCE = 4
MOST_WAITING = 64
MOST_OVERDUE = 16  # threads of questions that do not end
ANSWER_S = 180.0  # a plan of a large cluster with SQL takes a minute
FIRST_S = 1.0  # how long a page waits for an answer before it is shown without one


class Inquiry(Generic[Value]):
    """A question with its last answer: its `value`, or its `failure`, at `at_ms` after `took_ms`.

    `at_ms` is None before the first answer. `begun_ms` is set while the question is being answered, `overdue`
    while it runs on after its time, for which nothing waits.
    """

    def __init__(self, ask: Callable[[], Value]) -> None:
        self.ask = ask
        self.value: Value | None = None
        self.failure: tuple[Diagnostic, ...] = ()
        self.at_ms: int | None = None
        self.took_ms = 0
        self.begun_ms: int | None = None
        self.overdue = False
        self.answered = asyncio.Event()

    def end(self, began_ms: int, outcome: Outcome[Value]) -> None:
        """Keeps an answer in place of the one before."""
        self.value, self.failure = outcome
        self.at_ms = now_ms()
        self.took_ms = self.at_ms - began_ms


class Inquiries:
    """Keeps the questions by key; the least recently asked are forgotten.

    `answered` is called in the viewers' loop after each answer.
    """

    def __init__(
        self,
        answered: Callable[[], None],
        unexpected: Callable[[Exception], str] = repr,
        answer_s: float = ANSWER_S,
    ) -> None:
        self._answered = answered
        self._unexpected = unexpected
        self._answer_s = answer_s
        self._overdue: set[asyncio.Task[Outcome[Any]]] = set()
        self._kept: OrderedDict[Hashable, Inquiry[Any]] = OrderedDict()
        self._running = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    async def asked(
        self, key: Hashable, ask: Callable[[], Value], fresh_s: float | None = None
    ) -> Inquiry[Value]:
        """Returns the question, after a short wait for its first answer.

        It is asked where it was never answered, or its answer is older than `fresh_s`; None asks only once.
        An older answer is returned at once, with its age: the next one rings.
        """
        inquiry: Inquiry[Value] = self._kept.setdefault(key, Inquiry(ask))
        self._kept.move_to_end(key)
        answered_ms = inquiry.at_ms
        if answered_ms is None or (fresh_s is not None and now_ms() - answered_ms > fresh_s * 1000):
            self._begin(inquiry)
        if answered_ms is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(inquiry.answered.wait(), FIRST_S)
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return inquiry

    def again(self, key: Hashable, ask: Callable[[], Value]) -> None:
        """Asks once more, unless it is being asked."""
        inquiry: Inquiry[Value] = self._kept.setdefault(key, Inquiry(ask))
        self._begin(inquiry)

    def __len__(self) -> int:
        return len(self._kept)

    def stop(self) -> None:
        for task in (*self._tasks, *self._overdue):
            task.cancel()

    def _begin(self, inquiry: Inquiry[Any]) -> None:
        if inquiry.begun_ms is not None or inquiry.overdue:
            return
        if len(self._tasks) >= MOST_WAITING or len(self._overdue) >= MOST_OVERDUE:
            many = error("too many questions wait for an answer", "ask again in some seconds")
            inquiry.end(now_ms(), (None, (many,)))
            inquiry.answered.set()
            return
        inquiry.begun_ms = now_ms()
        inquiry.answered.clear()
        task = asyncio.get_running_loop().create_task(self._answer(inquiry))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, inquiry: Inquiry[Any]) -> None:
        async with self._running:
            began = now_ms()
            work = asyncio.ensure_future(_in_thread(lambda: self._outcome(inquiry.ask)))
            try:
                inquiry.end(began, await asyncio.wait_for(asyncio.shield(work), self._answer_s))
            except TimeoutError:
                self._wait_no_more(inquiry, work, began)
        inquiry.begun_ms = None
        inquiry.answered.set()
        self._answered()

    def _wait_no_more(self, inquiry: Inquiry[Any], work: asyncio.Task[Outcome[Any]], began: int) -> None:
        """Answers that there is no answer in time. One that comes later takes its place."""

        def ended(work: asyncio.Task[Outcome[Any]]) -> None:
            self._overdue.discard(work)
            inquiry.overdue = False
            if not work.cancelled():
                inquiry.end(began, work.result())
                self._answered()

        inquiry.overdue = True
        self._overdue.add(work)
        work.add_done_callback(ended)
        late = error(f"no answer within {self._answer_s:g} s", "it is shown here when it comes")
        inquiry.end(began, (None, (late,)))

    def _outcome(self, ask: Callable[[], Value]) -> Outcome[Value]:
        try:
            return ask(), ()
        except Failure as failure:
            return None, failure.diagnostics
        except Exception as wrong:  # noqa: BLE001 - the thread's outermost edge: the page shows it
            return None, (error(f"unexpected {type(wrong).__name__}: {self._unexpected(wrong)}"),)


async def _in_thread(work: Callable[[], Value]) -> Value:
    """Runs `work` in a daemon thread: at the end of the server no question is waited for."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Value] = loop.create_future()

    def finish(value: Value) -> None:
        if not future.done():
            future.set_result(value)

    def run() -> None:
        value = work()
        with suppress(RuntimeError):  # the server has ended meanwhile
            loop.call_soon_threadsafe(finish, value)

    threading.Thread(target=run, name="inquiry", daemon=True).start()
    return await future
