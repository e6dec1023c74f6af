"""Checks a transform with Spark's own analyzer before any job runs it, and tries it on some records.

Beside what Spark refuses by itself, a check refuses what can't be exact: the same record must give the same
result each time it is evaluated, and a record's result depends on that record alone.

A trial has the same query, the same evaluation and the same edits as a slot. It runs in the place of the
slot, as the collecting worker of the query. Nothing is written.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal

from pyspark.errors import PySparkException
from pyspark.errors.exceptions.base import QueryContextType
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    IntegralType,
    MapType,
    NullType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from runtime.contract.results.transforms import (
    Decision,
    TransformProblem,
    TrialResult,
    TryRequest,
    decode_request,
    encode,
)
from runtime.contract.spec.transform import FIELDS, VALUE, TransformSpec
from runtime.sql.formats.dispatch import change_problem
from runtime.sql.formats.encoded import BadSchema
from runtime.sql.functions import RefusedExpression
from runtime.sql.gate import CORRUPT, expression
from runtime.sql.query import (
    EVERYTHING,
    HIDDEN,
    answers,
    file_type,
    known_columns,
    output_of,
    schema_of,
    type_at,
)
from runtime.sql.rows import DDL

if TYPE_CHECKING:
    from runtime.sql.evaluator import MakeEvaluator

_POSITION = re.compile(r"line (\d+),? pos(?:ition)? (\d+)")
_COLUMNS = (  # the types of columns in files, beside structs, arrays and maps
    StringType,
    BinaryType,
    BooleanType,
    NumericType,
    DateType,
    TimestampType,
    TimestampNTZType,
)


def problems(
    session: SparkSession,
    flow: str,
    transform: TransformSpec,
    files: Literal["json", "parquet"] | None = None,
) -> Iterator[TransformProblem]:
    """Yields everything that is wrong with the transform of a flow. `files` is the format that it writes."""
    for part, form in (("value", transform.value), ("key", transform.key)):
        if form.format in FIELDS:
            try:
                schema_of(form)
            except (PySparkException, RefusedExpression, BadSchema) as error:
                yield _problem(flow, f"{part}.schema", error)
                return
    rows = session.createDataFrame([], DDL)
    visible = known_columns(rows, transform, EVERYTHING).drop(*HIDDEN)
    columns = session.createDataFrame([], visible.schema)  # so that no hidden column is found
    schema = schema_of(transform.value) if transform.value.format in FIELDS else None
    refused = set()
    changes = [(f"set {path}", path) for path in sorted(transform.set)]
    changes += [("drop", path) for path in transform.drop]
    for part, path in changes:
        if why := change_problem(transform.value, path, drop=part == "drop"):
            refused.add(part)
            yield TransformProblem(flow, part, why)
    wrong = bool(refused)
    for part, check in _checks(columns, transform, schema):
        if part not in refused:
            try:
                check()
            except (PySparkException, RefusedExpression) as error:
                wrong = True
                yield _problem(flow, part, error)
    if not wrong:
        output = output_of(transform, files) if files is not None else "edits"
        try:
            if output != "edits":
                _check_columns(file_type(transform), VALUE)
            answers(rows, transform, EVERYTHING, output).schema  # noqa: B018 - it analyzes the query
        except (PySparkException, RefusedExpression) as error:
            yield _problem(flow, "transform", error)


def _checks(
    columns: DataFrame, transform: TransformSpec, schema: StructType | None
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yields what is checked of each part. A check raises PySparkException or RefusedExpression."""
    where = transform.where
    if where is not None:  # Spark refuses a condition that is no boolean
        yield "where", lambda: columns.where(expression(columns, where))
    for path in sorted(transform.set):
        yield f"set {path}", functools.partial(_check_value, columns, transform, schema, path)
    for path in transform.drop:
        yield "drop", functools.partial(type_at, schema, path)


def _check_columns(kind: DataType, place: str) -> None:
    """Raises RefusedExpression for a field that has no column in a file."""
    match kind:
        case StructType():
            if not kind.fields:
                raise RefusedExpression(
                    f"{place} has no field left for the files: keep one, or leave {place} out"
                )
            names = [field.name.lower() for field in kind]
            if twice := next((name for name in names if names.count(name) > 1), None):
                raise RefusedExpression(
                    f"{place} has several fields {twice}, which readers of files do not tell apart"
                )
            for field in kind:
                _check_columns(field.dataType, f"{place}.{field.name}")
        case ArrayType():
            _check_columns(kind.elementType, place)
        case MapType():
            if not isinstance(kind.keyType, StringType):
                raise RefusedExpression(
                    f"{place} is a map with keys that are no STRING, which files do not take"
                )
            _check_columns(kind.valueType, place)
        case _ if not isinstance(kind, _COLUMNS):
            raise RefusedExpression(
                f"{place} is {kind.simpleString().upper()}, which files have no column for: drop it"
            )


def _check_value(columns: DataFrame, transform: TransformSpec, schema: StructType | None, path: str) -> None:
    """Raises PySparkException or RefusedExpression for an expression whose value does not fit the field."""
    text = transform.set[path]
    made = columns.select(expression(columns, text)).schema[0].dataType
    if path == VALUE:
        declared: DataType = StringType() if transform.value.format == "text" else BinaryType()
    else:
        declared = type_at(schema, path)
    fits = made == declared or isinstance(made, NullType)
    if isinstance(declared, IntegralType):
        fits |= isinstance(made, IntegralType)
    elif isinstance(declared, NumericType):
        fits |= isinstance(made, NumericType)
    if not fits:
        raise RefusedExpression(
            f"{path} is {declared.simpleString().upper()}, and {text} is {made.simpleString().upper()}:"
            " cast it"
        )


def _problem(flow: str, part: str, error: Exception) -> TransformProblem:
    """Returns a problem with the place that Spark names, counted from 1."""
    if isinstance(error, RefusedExpression):
        return TransformProblem(flow, part, str(error), error.line, error.column)
    if not isinstance(error, PySparkException):
        return TransformProblem(flow, part, str(error))
    text = str(error)
    text = text.replace(f", `{CORRUPT}`", "")
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    line, column = _place(error, text)
    return TransformProblem(flow, part, first[:500], line, column)


def _place(error: PySparkException, text: str) -> tuple[int, int]:
    """Returns the line and the column in the expression; 0 where Spark names none."""
    if named := _POSITION.search(text):
        return int(named[1]), int(named[2]) + 1
    for context in error.getQueryContext() or []:
        if context.contextType() is QueryContextType.SQL and context.startIndex() >= 0:
            return 1, context.startIndex() + 1
    return 0, 0


def run_trial(text: bytes, make: MakeEvaluator) -> bytes:
    """Returns the encoded results of a request, in the collecting worker of a query."""
    request = decode_request(text)
    assert isinstance(request, TryRequest)
    return encode(asyncio.run(_tried(request, make)))


async def _tried(request: TryRequest, make: MakeEvaluator) -> list[TrialResult]:
    """Returns what a slot would decide about the records, in their order. Raises EvaluationEnded."""
    from runtime.sql.evaluator import serving_evaluator
    from runtime.sql.transformer import Transformer

    transform = request.transform
    bad: Decision = "quarantined" if transform.quarantines else "stops"
    results: list[TrialResult] = []
    async with serving_evaluator(make) as evaluator:
        transformer = Transformer(transform, evaluator)
        evaluated = await transformer.evaluate(request.records)
        for record, answer in zip(request.records, evaluated.to_pylist(), strict=True):
            outcome = transformer.outcome(record.key, record.value, record.headers, answer)
            decision: Decision = bad if outcome.decision == "bad" else outcome.decision
            results.append(
                TrialResult(record=record, decision=decision, why=outcome.why, after=outcome.value)
            )
    return results
