"""Checks a transform with Spark's own analyzer before any job runs it, and tries it on some records.

Beside what Spark refuses by itself, a check refuses what can't be exact: the same record must give the same
result each time it is evaluated, and a record's result depends on that record alone.

A trial has the same query, the same evaluation and the same edits as a slot. It runs in the place of the
slot, as the collecting worker of the query. Nothing is written.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal

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
from runtime.contract.spec.transform import FIELDS, VALUE, TransformSpec, fields_of
from runtime.sql.formats.dispatch import change_problem
from runtime.sql.formats.encoded import BadSchema
from runtime.sql.functions import RefusedExpression
from runtime.sql.gate import CORRUPT, expression
from runtime.sql.query import answers, decoded, file_type, output_of, schema_of
from runtime.sql.rows import DDL, InvalidValue
from runtime.sql.rows import KEY as KEY_BYTES
from runtime.sql.rows import VALUE as VALUE_BYTES

if TYPE_CHECKING:
    import pyarrow as pa

    from runtime.sql.query_input import QueryInput

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


class _Refused(Exception):
    """What the transform says can't be exact."""


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
    known = decoded(rows, transform)
    visible = known.drop("__tombstone", "__bad", VALUE_BYTES, KEY_BYTES)
    columns = session.createDataFrame([], visible.schema)  # so that no hidden column is found
    schema = schema_of(transform.value) if transform.value.format in FIELDS else None
    found = False
    unchangeable = list(_unchangeable(transform))
    refused = {part for part, _ in unchangeable}
    for part, why in unchangeable:
        found = True
        yield TransformProblem(flow, part, why)
    for part, text, target in _parts(transform):
        if part in refused:
            continue
        try:
            _check(columns, text, target, transform, schema)
        except (PySparkException, RefusedExpression, _Refused) as error:
            found = True
            yield _problem(flow, part, error)
    for path in transform.drop if "drop" not in refused else ():
        try:
            _type_at(schema, path)
        except _Refused as error:
            found = True
            yield TransformProblem(flow, "drop", str(error))
    if not found:
        try:
            _check_whole(rows, transform, files)
        except (PySparkException, RefusedExpression, _Refused) as error:
            yield _problem(flow, "transform", error)


def _check_whole(rows: DataFrame, transform: TransformSpec, files: Literal["json", "parquet"] | None) -> None:
    """Raises PySparkException or _Refused where the whole query is none, or has no columns for files."""
    output = output_of(transform, files) if files is not None else "edits"
    if output != "edits":
        _check_columns(file_type(transform), VALUE)
    answers(rows, transform, output).schema  # noqa: B018 - it analyzes the query


def _check_columns(kind: DataType, place: str) -> None:
    """Raises _Refused for a field that has no column in a file."""
    match kind:
        case StructType():
            if not kind.fields:
                raise _Refused(f"{place} has no field left for the files: keep one, or leave {place} out")
            names = [one.name.lower() for one in kind]
            if twice := next((name for name in names if names.count(name) > 1), None):
                raise _Refused(
                    f"{place} has several fields {twice}, which readers of files do not tell apart"
                )
            for one in kind:
                _check_columns(one.dataType, f"{place}.{one.name}")
        case ArrayType():
            _check_columns(kind.elementType, place)
        case MapType():
            if not isinstance(kind.keyType, StringType):
                raise _Refused(f"{place} is a map with keys that are no STRING, which files do not take")
            _check_columns(kind.valueType, place)
        case _ if not isinstance(kind, _COLUMNS):
            raise _Refused(
                f"{place} is {kind.simpleString().upper()}, which files have no column for: drop it"
            )


def _unchangeable(transform: TransformSpec) -> Iterator[tuple[str, str]]:
    """Yields the fields that can't be changed without breaking the schema of the value."""
    form = transform.value
    for path in sorted(transform.set):
        if why := change_problem(form, path, drop=False):
            yield f"set {path}", why
    for path in transform.drop:
        if why := change_problem(form, path, drop=True):
            yield "drop", why


def _parts(transform: TransformSpec) -> Iterator[tuple[str, str, str | None]]:
    """Yields each expression with its place, and the path that it sets."""
    if transform.where is not None:
        yield "where", transform.where, None
    for path in sorted(transform.set):
        yield f"set {path}", transform.set[path], path


def _check(
    columns: DataFrame, text: str, target: str | None, transform: TransformSpec, schema: StructType | None
) -> None:
    """Raises PySparkException or _Refused for an expression that no transform may have."""
    column = expression(columns, text)
    if target is None:
        columns.where(column)  # Spark refuses a condition that is no boolean
    else:
        made = columns.select(column).schema[0].dataType
        wanted = _target_type(transform, schema, target)
        if not _fits(made, wanted):
            raise _Refused(
                f"{target} is {wanted.simpleString().upper()}, and {text} is {made.simpleString().upper()}:"
                f" cast it"
            )


def _target_type(transform: TransformSpec, schema: StructType | None, target: str) -> DataType:
    if target == VALUE:
        return StringType() if transform.value.format == "text" else BinaryType()
    return _type_at(schema, target)


def _type_at(schema: StructType | None, path: str) -> DataType:
    """Returns the type of the field at a path. Raises _Refused where the schema has no such field."""
    found: Any = schema
    walked = VALUE
    for name in fields_of(path):
        if not isinstance(found, StructType):
            raise _Refused(f"{walked} is no struct in the schema, so {path} can't be changed")
        if name not in found.names or name.startswith("__"):
            names = ", ".join(one for one in found.names if not one.startswith("__"))
            raise _Refused(f"the schema has no field {path}: {walked} has {names}")
        found = found[name].dataType
        walked = f"{walked}.{name}"
    typed: DataType = found
    return typed


def _fits(made: DataType, wanted: DataType) -> bool:
    """Returns whether a value of one type may stand in a field of the other."""
    if made == wanted or isinstance(made, NullType):
        return True
    if isinstance(wanted, IntegralType):
        return isinstance(made, IntegralType)
    return isinstance(wanted, NumericType) and isinstance(made, NumericType)


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


RESULT = "results"


def run_trial(
    text: bytes, token: str, wanted: QueryInput, answers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yields the encoded results of a request. `answers` are Spark's answers to the rows of its records."""
    import pyarrow as pa

    asked = decode_request(text)
    assert isinstance(asked, TryRequest)
    found = encode(asyncio.run(_tried(asked, token, wanted, answers)))
    yield pa.RecordBatch.from_arrays([pa.array([found], pa.binary())], [RESULT])


async def _tried(
    asked: TryRequest, token: str, wanted: QueryInput, answers: Iterable[pa.RecordBatch]
) -> list[TrialResult]:
    """Returns what a slot would decide about the records, in their order. Raises EvaluationEnded."""
    from runtime.sql.evaluator import serving_evaluator
    from runtime.sql.transformer import Transformer

    transform = asked.transform
    bad: Decision = "quarantined" if transform.quarantines else "stops"
    results: list[TrialResult] = []
    async with serving_evaluator(token, transform, wanted, answers) as evaluator:
        transformer = Transformer(transform, evaluator)
        evaluated = await transformer.evaluate(asked.records)
        for record, answer in zip(asked.records, evaluated.to_pylist(), strict=True):
            try:
                after = transformer.new_value(record.value, answer) if record.value is not None else None
            except InvalidValue as error:
                results.append(TrialResult(record=record, decision=bad, why=str(error)))
                continue
            left_out: Decision = "tombstone" if transform.deletes(record.key) else "filtered"
            travels = after is not None or record.value is None  # a tombstone always travels
            results.append(
                TrialResult(record=record, decision="travels" if travels else left_out, after=after)
            )
    return results
