"""Runs an operator's command as a Spark application: `repl verify`, `repl salvage --replay`, `repl restore`.

Its request and its outcome are files, and it exits with 0 in every case. What it compares or copies is
distributed in groups: a task works on one group in its Python worker. Records cross into the JVM only where
the flow has a transform.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import pickle
import sys
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec
import uvloop
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException

from runtime.audit.ledger import AuditFailure, SparkOutcome
from runtime.contract.spec.transform import TransformSpec
from runtime.sql.formats.encoded import BadSchema
from runtime.sql.functions import RefusedExpression

if TYPE_CHECKING:
    from runtime.sql.evaluator import MakeEvaluator
    from runtime.sql.transformer import Evaluates


Group = TypeVar("Group")
Result = TypeVar("Result")
# Works on a group, with what evaluates the flow's transform if it has one, and returns its result.
Work = Callable[[Group, "Evaluates | None"], Coroutine[Any, Any, Result]]


def argument_parser(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    for option in ("--request", "--out"):
        parser.add_argument(option, required=True, type=Path)
    return parser


def run_application(
    arguments: argparse.Namespace, run: Callable[[argparse.Namespace], SparkOutcome[Result]]
) -> SparkOutcome[Result]:
    """Runs the application, and writes its outcome."""
    try:
        outcome = run(arguments)
    except AuditFailure as failure:
        outcome = SparkOutcome(cluster=failure.cluster, why=failure.why, hint=failure.hint)
    except (Py4JError, PySparkException, RefusedExpression, BadSchema) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        java = (line.removeprefix(": ") for line in lines if line.startswith(": "))  # it follows Py4J's own
        outcome = SparkOutcome(cluster="Spark", why=next(java, lines[0])[:500])
    arguments.out.write_bytes(msgspec.json.encode(outcome))
    return outcome


@contextlib.contextmanager
def spark_context(name: str) -> Iterator[SparkContext]:
    SparkContext._ensure_initialized()  # before that, a SparkConf lacks the settings of spark-submit
    conf = SparkConf().setAppName(name).setIfMissing("spark.ui.showConsoleProgress", "false")
    context = SparkContext.getOrCreate(conf)
    context.setLogLevel("ERROR")
    try:
        yield context
    finally:
        context.stop()


def results_of(
    context: SparkContext,
    work: Work[Group, Result],
    groups: Sequence[Group],
    transform: TransformSpec | None = None,
    files: Literal["json", "parquet"] | None = None,
) -> Generator[tuple[int, Result]]:
    """Yields the number and the result of each group as soon as it is known: a Spark job works on each.

    Behind a failure, and where it is closed, no other group is begun. `files` is the format of files that
    hold the decoded values of the transform.
    """
    threads = ThreadPoolExecutor(concurrent_tasks(context, groups))
    try:
        jobs = {
            threads.submit(_in_task, context, work, group, transform, files): number
            for number, group in enumerate(groups)
        }
        for done in as_completed(jobs):
            yield jobs[done], done.result()
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def show(command: str, text: str) -> None:
    """Shows a line to the user of the command."""
    sys.stderr.write(f"{command}: {text}\n")
    sys.stderr.flush()


def concurrent_tasks(context: SparkContext, groups: Sequence[object]) -> int:
    """Returns how many of the groups are worked on at a time."""
    return min(max(context.defaultParallelism, 1), len(groups))


def _in_task(
    context: SparkContext,
    work: Work[Group, Result],
    group: Group,
    transform: TransformSpec | None,
    files: Literal["json", "parquet"] | None,
) -> Result:
    if transform is None:
        task = functools.partial(_work, work)
        return context.parallelize([group], 1).mapPartitions(task).collect()[0]
    # Most flows do not need Spark SQL.
    from runtime.sql.query import STANDING, output_of, session_of, standing_query

    collect = functools.partial(_work_with_sql, work, group)
    output = output_of(transform, files) if files is not None else "edits"
    session = session_of(context, STANDING)
    (pickled,) = standing_query(session, transform, collect, output)
    result: Result = pickle.loads(pickled)  # noqa: S301 - Spark writes the results of tasks so, too
    return result


def _work(work: Work[Group, Result], groups: Iterable[Group]) -> Iterator[Result]:
    for group in groups:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            yield runner.run(work(group, None))


def _work_with_sql(work: Work[Group, Result], group: Group, make: MakeEvaluator) -> bytes:
    """Works on a group in the collecting worker of a query; returns the pickled result."""
    from runtime.sql.evaluator import serving_evaluator

    async def with_evaluator(group: Group, _: Evaluates | None) -> Result:
        async with serving_evaluator(make) as evaluator:
            return await work(group, evaluator)

    (result,) = _work(with_evaluator, [group])
    return pickle.dumps(result)
