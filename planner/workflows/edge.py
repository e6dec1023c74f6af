"""The edge between workflows, which are coroutines, and callers of plain functions.

A command, a thread of the page or a script calls a workflow. Its event loop runs until it has returned.
"""

import asyncio
import contextlib
import contextvars
import functools
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, ParamSpec, TypeVar

from planner.kafka import run

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class Workflow(Generic[P, R]):
    """Decorates a coroutine function. A call runs it in an event loop of its own and returns its result.

    Another workflow awaits its `coroutine` instead: there is one loop for everything that a caller wants.
    """

    def __init__(self, coroutine: Callable[P, Coroutine[Any, Any, R]]) -> None:
        self.coroutine = coroutine
        functools.update_wrapper(self, coroutine)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return run(self.coroutine(*args, **kwargs))
        return _run_in_thread(self.coroutine(*args, **kwargs))

    def __reduce__(self) -> str:
        """Pickles it as a function, by its name."""
        return self.coroutine.__qualname__


def _run_in_thread(work: Coroutine[Any, Any, R]) -> R:
    """Runs a coroutine while an event loop runs in the caller's thread, as in Jupyter, and waits for it.

    KeyboardInterrupt in the caller's thread cancels the coroutine and is raised when it has ended.
    """
    interrupted = False
    cancels: list[Callable[[], object]] = []

    async def main() -> R:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        cancels.append(lambda: loop.call_soon_threadsafe(task.cancel))
        if interrupted:  # before there was something to cancel
            task.cancel()
        return await work

    with ThreadPoolExecutor(1, "workflow") as threads:
        threads.submit(int).result()  # starts the thread: an interruption in between has nothing to cancel
        try:
            return threads.submit(contextvars.copy_context().run, run, main()).result()
        except BaseException:
            interrupted = True
            for cancel in cancels:
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    cancel()
            raise
