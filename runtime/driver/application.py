"""The Spark side: the context, and slots as single-task jobs, each with a thread and a job group of its own.

One long stage for all slots would stop every one of them with each change, and its failures would add up over
weeks until Spark gives up on its healthy tasks. A job of one task fails alone.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
import time

import msgspec
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException

from runtime.copy.log import FORMAT_KEY
from runtime.driver.task import Ended, Ticket, encode, run_task

_EXECUTORS_S, _SETTLED_S, _LOOK_S = 30.0, 4.0, 0.2

# Laid over whatever was given: the invariants depend on them.
_FIXED = {
    "spark.speculation": "false",
    "spark.task.maxFailures": "1",
    "spark.python.worker.reuse": "false",
    "spark.task.cpus": "1",
    "spark.scheduler.mode": "FIFO",
    "spark.stage.maxConsecutiveAttempts": "1",
}
# Unless something else was given.
_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.eventLog.enabled": "false",
}


class Application:
    """Made in a thread: it takes seconds, in which the driver can do other things."""

    def __init__(self, job: str) -> None:
        # Only with the JVM at hand does a SparkConf know what was given, and what is missing.
        SparkContext._ensure_initialized()
        conf = SparkConf().setAppName(f"repl {job}")
        for key, value in _FIXED.items():
            conf.set(key, value)
        for key, value in _DEFAULTS.items():
            conf.setIfMissing(key, value)
        if FORMAT_KEY in os.environ:  # slots log as their driver does
            conf.setIfMissing(f"spark.executorEnv.{FORMAT_KEY}", os.environ[FORMAT_KEY])
        self._context = SparkContext.getOrCreate(conf)
        self._context.setLogLevel("ERROR")
        self.id = self._context.applicationId or ""
        self.master = self._context.master or ""

    def cores(self) -> int:
        return max(self._context.defaultParallelism, 1)

    def await_executors(self) -> None:
        """A cluster's executors register one after the other; blocks until no more come, for a while."""
        deadline, seen, since = time.monotonic() + _EXECUTORS_S, -1, time.monotonic()
        while not self.master.startswith("local") and time.monotonic() < deadline:
            if self.cores() != seen:
                seen, since = self.cores(), time.monotonic()
            elif time.monotonic() - since > _SETTLED_S:
                return
            time.sleep(_LOOK_S)

    def submit(self, group: str, ticket: Ticket) -> asyncio.Future[Ended]:
        """The slot's end, or how Spark failed it. Runs in a thread of its own, which holds nobody up at the
        end.
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Ended] = loop.create_future()

        def settle(result: Ended) -> None:
            if not ended.done():
                ended.set_result(result)

        def work() -> None:
            result = self._run(group, encode(ticket))
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, result)

        threading.Thread(target=work, name=group, daemon=True).start()
        return ended

    def _run(self, group: str, text: bytes) -> Ended:
        context = self._context
        try:
            context.setJobGroup(group, group, interruptOnCancel=True)
            numbers = context.parallelize([0], 1)
            (found,) = numbers.mapPartitions(functools.partial(run_task, text)).collect()
        except (Py4JError, PySparkException, OSError, EOFError, ValueError) as error:
            return Ended("failed", _first_line(error))
        return msgspec.json.decode(found, type=Ended)

    def scheduled(self, group: str) -> bool:
        """Whether the group's task has a core. Asks the JVM."""
        tracker = self._context.statusTracker()
        try:
            jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
            stages = [
                tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds
            ]
        except (Py4JError, OSError):
            return False
        return any(stage is not None and stage.numActiveTasks > 0 for stage in stages)

    def cancel(self, group: str) -> None:
        """The worker is killed, whatever it does."""
        try:
            self._context.cancelJobGroup(group)
        except (Py4JError, OSError):
            return

    def stop(self) -> None:
        try:
            self._context.stop()
        except (Py4JError, OSError):
            return


def _first_line(error: Exception) -> str:
    """Of a Java stack trace, what a person wants to know."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if "Job aborted" in line or "Lost task" in line or "cancelled" in line]
    return (told or lines or [type(error).__name__])[0][:500]
