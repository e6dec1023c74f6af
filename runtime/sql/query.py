"""Builds the query of a transform, and runs it as the standing query of a slot.

There is one answer for each row, in the order of the rows. `rows` says what an answer looks like.

The standing query is one Spark task with a feeding worker, the transform and the slot itself. The feeding
worker yields the rows that the slot sends it. Spark's generated code evaluates the transform in the task.
The collecting worker is the slot: it gets an answer for every row, so it knows the progress.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

from pyspark import SparkContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from runtime.contract.spec.transform import FIELDS, FormatSpec, TransformSpec
from runtime.sql.avro_schema import ddl_of
from runtime.sql.rows import DDL, FILTERED, KEY, MISMATCH, NEW, NEXT, ROWS, TRAVELS, VALUE, feed

if TYPE_CHECKING:
    import pyarrow as pa

ANSWER = "answer"
CORRUPT = "__corrupt"
_JSON_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": CORRUPT,
    "allowSingleQuotes": "false",
}
_METADATA = ("headers", "topic", "partition", "offset", "timestamp", "timestamp_type")
_WITH_NULLS = {"ignoreNullFields": "false"}
_BLANKS, _OBJECT = " \t\r\n", "{"

# What Spark's session needs for exact answers. Without the common subexpressions, an expression that occurs
# twice is not evaluated ahead of `try_to_binary`, so that its failure concerns its own row alone.
SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.subexpressionElimination.enabled": "false",
    "spark.sql.execution.pythonUDF.arrow.enabled": "false",
}


def decoded(rows: DataFrame, transform: TransformSpec) -> DataFrame:
    """Returns the columns that expressions read, beside what the answer needs of the raw bytes."""
    bad = _bad(VALUE, "value", transform.value) | _bad(KEY, "key", transform.key)
    return rows.select(
        F.col(VALUE).isNull().alias("__tombstone"),
        _decoded(VALUE, transform.value).alias("value"),
        _decoded(KEY, transform.key).alias("key"),
        *_METADATA,
        VALUE,
        KEY,
    ).withColumn("__bad", bad)


def answers(rows: DataFrame, transform: TransformSpec) -> DataFrame:
    """Returns the answer to each row."""
    known = decoded(rows, transform)
    travels = F.expr(f"({transform.where})") if transform.where is not None else F.lit(True)
    changed = [
        F.concat(F.lit(NEXT), F.to_json(F.struct(F.expr(f"({transform.set[path]})").alias(NEW)), _WITH_NULLS))
        for path in sorted(transform.set)
    ]
    answer = (
        F.when(F.col("__bad"), F.lit(MISMATCH))
        .when(F.col("__tombstone"), F.lit(TRAVELS))
        .when(travels, F.concat(F.lit(TRAVELS), *changed))
        .otherwise(F.lit(FILTERED))
    )
    return known.select(F.try_to_binary(answer, F.lit("utf-8")).alias(ANSWER))


def _decoded(raw: str, form: FormatSpec) -> Column:
    match form.format:
        case "json" | "avro":  # the slot decodes Avro to JSON
            return F.from_json(F.col(raw).cast(StringType()), schema_of(form), _JSON_OPTIONS)
        case "text":
            return F.col(raw).cast(StringType())
        case _:
            return F.col(raw).cast(BinaryType())


def schema_of(form: FormatSpec) -> StructType:
    """Returns the schema of JSON or Avro, with the field that takes what does not match it.

    Raises PySparkException and BadSchema.
    """
    ddl = ddl_of(form.schema or "") if form.format == "avro" else form.schema or ""
    declared = StructType.fromDDL(ddl)
    return StructType([*cast(StructType, declared).fields, StructField(CORRUPT, StringType())])


def _bad(raw: str, name: str, form: FormatSpec) -> Column:
    """Returns whether the bytes do not match the format."""
    if form.format not in FIELDS:
        return F.lit(False)
    read = F.col(name)
    # Spark also reads an array of one object as that object.
    is_object = F.startswith(F.ltrim(F.col(raw).cast(StringType()), F.lit(_BLANKS)), F.lit(_OBJECT))
    wrong = read.isNull() | read[CORRUPT].isNotNull() | ~is_object
    return F.col(raw).isNotNull() & wrong


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
