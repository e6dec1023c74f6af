"""This module runs Spark for a job: its context, and each slot as a single-task Spark job.

Each slot has a driver thread and a Spark job group of its own. One long stage for all slots would stop every
slot with each change, and its task failures would add up over weeks until Spark aborts the stage with its
healthy tasks. A job of one task fails alone.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from subprocess import Popen
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec
from py4j.protocol import INPUT_CONVERTER, Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

import runtime
from runtime.contract.spec.jobspec import JobExit
from runtime.contract.spec.transform import TransformSpec
from runtime.driver.kubernetes import KubernetesExecutors
from runtime.driver.process import JvmCalls
from runtime.driver.slots.ticket import SlotStartRequest, encode
from runtime.driver.task import run_sql_export, run_sql_task, run_task
from runtime.driver.yarn import YarnApplications
from runtime.kafka.trace import VARIABLE as TRACE_KEY
from runtime.slot.errors import SlotEnd
from runtime.slot.log import FORMAT_KEY, log_driver_message
from runtime.sql.functions import RefusedExpression

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from runtime.sql.evaluator import MakeEvaluator

T = TypeVar("T")
# What a task of a round does: it gets the tickets of its partition, and yields a result for each.
RoundWork = Callable[[Iterable[bytes]], Iterator[bytes]]

_EXECUTORS_S, _SETTLED_S, _POLL_S = 30.0, 4.0, 0.2

# Spark, or the connection to it, raises these. The gate refuses the SQL of a transform before Spark sees it.
_SPARK_ERRORS = (Py4JError, PySparkException, RefusedExpression, OSError, EOFError)

# These override the given settings, because the invariants depend on them.
_FIXED = {
    "spark.speculation": "false",
    "spark.task.maxFailures": "1",
    "spark.python.worker.reuse": "false",
    "spark.task.cpus": "1",
    "spark.scheduler.mode": "FIFO",
    "spark.stage.maxConsecutiveAttempts": "1",
}
# These apply only where no other value was given.
_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.eventLog.enabled": "false",
    "spark.sql.ui.retainedExecutions": "10",  # each round of a flow into files with a transform is one
}


class TasksFailed(Exception):
    """Spark failed tasks, or was asked to cancel them; the text is the line of the cause."""


class SparkNotStarted(Exception):
    """Spark's context could not be created, so nothing of the job runs."""

    def __init__(self, job: str, error: BaseException) -> None:
        super().__init__(
            f"Spark did not start for the job {job}: {reason(error)} — check the master, the conf and the"
            " Java of the job; Spark's own messages stand above this line in the job's log (job.log in the"
            " job's folder, or what spark-submit wrote)"
        )


def start_application(
    job: str, yarn: YarnApplications | None, executors: KubernetesExecutors | None
) -> SparkSlotRunner:
    """Starts Spark and returns the application; `yarn` or `executors` asks the cluster about it.

    It blocks for seconds, so it is called in a thread. Raises SparkNotStarted.
    """
    try:
        if executors is not None:
            executors.remove()
        return SparkSlotRunner(job, yarn, executors)
    except (*_SPARK_ERRORS, ValueError, RuntimeError) as error:
        log_driver_message(
            str(error)
        )  # the whole Java stack trace; SparkNotStarted shows only the line with the cause
        raise SparkNotStarted(job, error) from error


class SparkSlotRunner:
    """Owns the Spark context of a job and submits its slots.

    It is created in a thread, because that takes seconds in which the driver can do other things. Requests to
    the JVM raise JvmSilent when the JVM does not answer in time.
    """

    def __init__(
        self, job: str, yarn: YarnApplications | None, executors: KubernetesExecutors | None
    ) -> None:
        # Py4J looks for NumPy's types in what the JVM is called with, and a job never passes any. Spark's
        # converters would load pandas and pyarrow at the first call: 60 MB, and 0.3 s of CPU at each start.
        of_numpy = (NumpyArrayConverter, NumpyScalarConverter)
        INPUT_CONVERTER[:] = [
            converter for converter in INPUT_CONVERTER if not isinstance(converter, of_numpy)
        ]
        # A SparkConf knows which settings were given only after the JVM has started.
        SparkContext._ensure_initialized()
        conf = SparkConf().setAppName(f"repl {job}")
        for key, value in _FIXED.items():
            conf.set(key, value)
        for key, value in _DEFAULTS.items():
            conf.setIfMissing(key, value)
        for name in (FORMAT_KEY, TRACE_KEY):  # slots log and trace as their driver does
            if name in os.environ:
                conf.setIfMissing(f"spark.executorEnv.{name}", os.environ[name])
        if conf.get("spark.master", "").startswith("local"):
            conf.setIfMissing("spark.python.daemon.module", "runtime.driver.workers")
            conf.setIfMissing("spark.executorEnv.PYTHONPATH", str(Path(runtime.__file__).parent.parent))
        if yarn is not None:
            yarn.prepare(conf)
        self._context = SparkContext.getOrCreate(conf)
        self._context.setLogLevel("ERROR")
        self._session: SparkSession | None = None  # of all queries
        self._session_lock = threading.Lock()
        self._jvm = JvmCalls()
        self._yarn = yarn
        self._executors = executors
        self._stopping = False
        end_with_gateway()
        self.id = self._context.applicationId or ""
        self.master = self._context.master or ""

    async def cores(self) -> int:
        """Returns the number of cores that Spark offers, at least 1. Raises JvmSilent."""
        return max(await self._jvm.call("how many cores there are", self._registered_cores), 1)

    def _registered_cores(self) -> int:
        """Returns how many tasks the executors that Spark has now can run at the same time.

        `defaultParallelism` is at least 2 on a cluster, also where there is one core, or none.
        """
        spark: Any = self._context._jsc.sc()
        cores: int = spark.maxNumConcurrentTasks(spark.resourceProfileManager().defaultResourceProfile())
        return cores

    async def await_executors(self) -> None:
        """Waits until no more executors register for some seconds, at most 30 s.

        The executors of a cluster register one after the other. With a local master it returns at once.
        Raises JvmSilent.
        """
        loop = asyncio.get_running_loop()
        deadline, seen, since = loop.time() + _EXECUTORS_S, -1, loop.time()
        while not self.master.startswith("local") and loop.time() < deadline:
            cores = await self._jvm.call("how many executors there are", self._registered_cores)
            if cores != seen:
                seen, since = cores, loop.time()
            elif cores and loop.time() - since > _SETTLED_S:
                return
            await asyncio.sleep(_POLL_S)

    def submit(self, group: str, ticket: SlotStartRequest) -> asyncio.Future[SlotEnd]:
        """Submits a slot and returns a future of its end, or of the reason why Spark failed it.

        The call runs in a thread of its own. A slot with a transform is one task of a standing query: feeding
        worker, the transform, collecting worker.
        """
        text, transform = encode(ticket), ticket.spec.transform

        def run() -> SlotEnd:
            if transform is None:
                (result,) = self._map(group, functools.partial(run_task, text), [b""])
            else:
                (result,) = self._query(group, transform, functools.partial(run_sql_task, text))
            return msgspec.json.decode(result, type=SlotEnd)

        return in_thread(group, run)

    def submit_round(
        self, group: str, work: RoundWork, tickets: Sequence[bytes]
    ) -> asyncio.Future[list[bytes]]:
        """Submits a round of a flow into or from files, a task for each ticket, and returns a future of the
        results.

        Its exception is TasksFailed where Spark failed a task. The call runs in a thread of its own.
        """
        return _future(group, lambda: _results(lambda: self._map(group, work, tickets)))

    def submit_sql_export(
        self, group: str, transform: TransformSpec, form: Literal["json", "parquet"], tickets: Sequence[bytes]
    ) -> asyncio.Future[list[bytes]]:
        """Submits a round of a flow into files with a transform, as `submit_round` does: one query, with a
        task for each ticket.
        """
        collect = functools.partial(run_sql_export, list(tickets))
        return _future(
            group, lambda: _results(lambda: self._query(group, transform, collect, form, len(tickets)))
        )

    def _map(self, group: str, work: RoundWork, tickets: Sequence[bytes]) -> list[bytes]:
        def run() -> list[bytes]:
            numbered = self._context.parallelize(list(tickets), len(tickets))
            results: list[bytes] = numbered.mapPartitions(work).collect()
            return results

        return self._run(group, run)

    def _run(self, group: str, work: Callable[[], T]) -> T:
        """Runs `work` in the Spark job group.

        Where Spark itself has stopped the context, this process ends: a cluster ends an application, for
        example once YARN's attempts are used up, and no slot can be submitted again. The launcher then starts
        the driver again, which submits a new application.
        """
        try:
            self._context.setJobGroup(group, group, interruptOnCancel=True)
            return work()
        except _SPARK_ERRORS as error:
            spark: Any = self._context._jsc.sc()
            if not self._stopping and spark.isStopped():
                log_driver_message(f"Spark's application has ended: this driver ends. {reason(error)}")
                os._exit(JobExit.FAILED)
            raise

    def _query(
        self,
        group: str,
        transform: TransformSpec,
        collect: Callable[[MakeEvaluator], bytes],
        form: Literal["json", "parquet"] | None = None,
        tasks: int = 1,
    ) -> list[bytes]:
        """Evaluates a transform in a standing query. All queries share a session: the JVM keeps each one."""
        from runtime.sql.query import (  # most jobs do not need Spark SQL
            STANDING,
            output_of,
            session_of,
            standing_query,
        )

        def run() -> list[bytes]:
            with self._session_lock:
                if self._session is None:
                    self._session = session_of(self._context, STANDING)
            output = output_of(transform, form) if form is not None else "edits"
            return standing_query(self._session, transform, collect, output, tasks)

        return self._run(group, run)

    async def waits_for(self, group: str) -> str | None:
        """Returns what the group's task waits for; None if it has a core. Raises JvmSilent.

        It is "" where the cluster lacks nothing: an executor of YARN or Kubernetes starts.
        """
        why = await self._jvm.call(f"whether {group} runs", lambda: self._waits_for(group))
        if why is None:
            return None
        if self._executors is not None:
            why = self._executors.newest_reason()
        if why:
            return f"Spark has not started its task: {why}"
        return "Spark has not started its task" if self._yarn is None and self._executors is None else ""

    def _waits_for(self, group: str) -> str | None:
        """Returns what YARN says of a queue that is full; None if the group's task has a core."""
        if self._scheduled(group):
            return None
        return self._yarn.queue(self.id) if self._yarn is not None else ""

    def _scheduled(self, group: str) -> bool:
        tracker = self._context.statusTracker()
        try:
            jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
            stages = [
                tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds
            ]
        except (Py4JError, OSError):
            return False
        return any(stage is not None and stage.numActiveTasks > 0 for stage in stages)

    async def cancel(self, group: str) -> None:
        """Cancels the Spark job group, which kills its worker process, whatever state it is in.

        Raises JvmSilent.
        """
        with suppress(Py4JError, OSError):
            await self._jvm.call(f"to cancel {group}", lambda: self._context.cancelJobGroup(group))

    async def stop(self) -> None:
        """Stops the Spark context. Raises JvmSilent."""
        self._stopping = True
        with suppress(Py4JError, OSError):
            await self._jvm.call("to stop", self._context.stop)


def end_with_gateway() -> None:
    """Ends this process when the JVM that it started ends: without it the driver can't run slots.

    The launcher then starts the driver again, which starts a new JVM.
    """
    gateway: Any = SparkContext._gateway
    process: Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is None:
        return

    def watch() -> None:
        code = process.wait()
        log_driver_message(f"Spark's JVM ended with {code}: this driver ends")
        os._exit(JobExit.FAILED)

    threading.Thread(target=watch, name="gateway", daemon=True).start()


def _future(name: str, work: Callable[[], T]) -> asyncio.Future[T]:
    """Runs work in a thread of its own, and returns its future."""
    thread = ThreadPoolExecutor(1, name)
    done = asyncio.wrap_future(thread.submit(work))
    thread.shutdown(wait=False)
    return done


def _results(work: Callable[[], list[bytes]]) -> list[bytes]:
    """Returns the results of a round. Raises TasksFailed."""
    try:
        return work()
    except _SPARK_ERRORS as error:
        raise TasksFailed(reason(error)) from error


def in_thread(name: str, work: Callable[[], SlotEnd]) -> asyncio.Future[SlotEnd]:
    """Runs `work` in a thread of its own.

    An exception that `work` raises is returned as an end, too: `failed`, with the reason.
    """
    return asyncio.ensure_future(_outcome(_future(name, work)))


async def _outcome(done: asyncio.Future[SlotEnd]) -> SlotEnd:
    """Returns the end of a slot's thread; an unexpected exception is printed with its traceback."""
    await asyncio.wait([done])
    error = done.exception()
    if error is None:
        return done.result()
    if isinstance(error, _SPARK_ERRORS):
        return SlotEnd("failed", reason(error))
    traceback.print_exception(error)
    return SlotEnd("failed", f"{type(error).__name__}: {reason(error)}")


def reason(error: BaseException) -> str:
    """Returns the line of an error, or of a Java stack trace, that states the cause."""
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines() if line.strip()]
    matching = [line for line in lines if "Job aborted" in line or "Lost task" in line or "cancelled" in line]
    if not matching and isinstance(error, Py4JError):
        matching = lines[1:]  # Java's message is below Py4J's "An error occurred while calling …"
    return (matching or lines or [type(error).__name__])[0][:500]
