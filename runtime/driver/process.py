"""Limits the calls of Spark's JVM, keeps the spec file of a job, and ends a process with its parent.

The spec file is kept up to date for restarts. Calls of Spark's JVM have a deadline. The process ends when the
process that started it ends.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from runtime.contract.spec import jobspec
from runtime.contract.spec.jobspec import JobSpec
from runtime.contract.whole_file import write_private
from runtime.slot.log import log_driver_message


class SpecFile:
    """A SpecFile is the file that the job was started with, and that its next start uses.

    The command that changes a job may be called on another machine. So the driver itself writes the spec that
    it took over, for its supervisor. The clusters and the launch in the file never come from a record.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def keep(self, spec: JobSpec, started: JobSpec) -> None:
        """Writes the flows of `spec` with the clusters, registries and launch that the job was started with.

        A file that can't be written stays as it is. In a pod the file lives as long as the pod.
        """
        clusters = {name: cluster for name, cluster in started.clusters.items() if name in spec.clusters}
        kept = {"clusters": clusters, "registries": started.registries, "launch": started.launch}
        try:
            write_private(self._path, jobspec.encode(replace(spec, **kept)))
        except OSError as error:
            log_driver_message(f"{self._path} stays as it is: {error.strerror or error}")


_COLLECT_AFTER = 50_000  # objects; Python's default is 700


def collect_rarely() -> None:
    """Makes collections of garbage rare. Objects that exist now are never examined.

    It is for processes that decode many objects at a time: almost all of them are in no cycle, and are freed
    without a collection. A slot without a transform keeps Python's default, because a cycle there may hold
    the memory of a response.
    """
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER)


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
    """Runs blocking calls to the JVM in one thread.

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
    """Kills this process when its parent ends.

    A signal of the kernel does so where it is certain to come, else a thread within half a second.
    """
    parent = os.getppid()
    if forked_by_one_thread and hasattr(os, "pidfd_open"):  # only Linux has prctl and pidfd_open
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    threading.Thread(target=_watch, args=(parent,), name="watch-parent", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_EVERY_S)
    os.kill(os.getpid(), signal.SIGKILL)
