"""Runs the standing query of a slot: one Spark task with a feeding worker, the transform and the slot itself.

The feeding worker yields the rows that the slot sends it. Spark's generated code evaluates the transform in
the task. The collecting worker is the slot: it gets an answer for every row, so it knows the progress.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from runtime.contract.spec.transform import TransformSpec
from runtime.sql.feed import feed
from runtime.sql.query import SETTINGS, answers
from runtime.sql.rows import DDL, ROWS

if TYPE_CHECKING:
    import pyarrow as pa

_SETTINGS = {
    **SETTINGS,
    # An Arrow batch leaves for the slot as soon as it has as many rows as the slot sent, whatever its size in
    # bytes: nothing waits in a buffer until later rows fill it.
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS),
    "spark.sql.execution.pandas.udf.buffer.size": "16",
}


def session_of(context: SparkContext, settings: dict[str, str]) -> SparkSession:
    """Returns a session of its own with these settings."""
    session = SparkSession(context).newSession()
    for key, value in settings.items():
        session.conf.set(key, value)
    return session


def standing_query(
    context: SparkContext,
    transform: TransformSpec,
    token: str,
    collect: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    result: str,
) -> Any:
    """Runs the query until `collect` ends, and returns the one value that it yields.

    `result` is the schema of that value, and `token` names the socket between the two workers.
    """

    def feeding(inputs: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return feed(token, inputs)

    def collecting(found: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return collect(found)

    session = session_of(context, _SETTINGS)
    rows = session.range(0, 1, 1, 1).mapInArrow(feeding, DDL)
    ((value,),) = answers(rows, transform).mapInArrow(collecting, result).collect()
    return value
