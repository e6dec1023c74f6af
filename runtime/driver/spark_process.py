"""Calls Spark's JVM with a deadline, and ends this process when the process that started it ends.

A JVM may pause for longer than the driver's heartbeat may be silent: in a garbage collection, or while its
machine swaps. The event loop, and with it the heartbeat, never waits for the JVM (R10).

Linux can signal a child at its parent's death, but only at the death of the *thread* that forked it. That is
certain for pyspark's worker daemon, which has one thread, but not for a JVM. Therefore the parent's pid is
polled as well.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

ANSWERS_WITHIN_S = 10.0
_PR_SET_PDEATHSIG = 1
_EVERY_S = 0.5


class JvmSilent(Exception):
    """The JVM did not answer in time; the caller retries later."""

    def __init__(self, question: str, within_s: float) -> None:
        super().__init__(
            f"Spark's JVM has not answered for {within_s:g} s ({question}); it is asked again. If that lasts,"
            " look for garbage collections in job.log, and raise spark.driver.memory in the job's conf"
        )


class JvmCalls:
    """A JvmCalls object runs blocking calls to the JVM in one thread.

    A call that missed its deadline is left to end, and the next call starts only after that.
    """

    def __init__(self, within_s: float = ANSWERS_WITHIN_S) -> None:
        self._within_s = within_s
        self._thread = ThreadPoolExecutor(1, "jvm")
        self._lock = asyncio.Lock()
        self._newest: asyncio.Future[Any] | None = None

    async def call(self, question: str, work: Callable[[], T]) -> T:
        """Returns the result of `work`. Raises JvmSilent, and any exception that `work` raises."""
        deadline = asyncio.timeout(self._within_s)
        try:
            async with deadline, self._lock:
                if self._newest is not None:
                    await asyncio.wait([self._newest])
                answer = asyncio.get_running_loop().run_in_executor(self._thread, work)
                answer.add_done_callback(_retrieved)
                self._newest = answer
                return await asyncio.shield(answer)
        except TimeoutError:
            if not deadline.expired():
                raise
            raise JvmSilent(question, self._within_s) from None


def _retrieved(answer: asyncio.Future[Any]) -> None:
    """Marks the exception of an abandoned call as retrieved, so that asyncio does not log it."""
    if not answer.cancelled():
        answer.exception()


def die_with_parent(*, forked_by_one_thread: bool) -> None:
    """Kills this process when its parent ends, by a signal of the kernel where that is certain, else within
    half a second.
    """
    parent = os.getppid()
    if forked_by_one_thread and hasattr(os, "pidfd_open"):  # only Linux has prctl and pidfd_open
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    threading.Thread(target=_watch, args=(parent,), name="watch-parent", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_EVERY_S)
    os.kill(os.getpid(), signal.SIGKILL)
