"""Builds the query of a transform, and runs it as the standing query of a slot.

There is one answer for each row, in the order of the rows. `rows` says what an answer looks like.

The standing query is one Spark task with a feeding worker, the transform and the slot itself. The feeding
worker yields the rows that the slot sends it. Spark's generated code evaluates the transform in the task.
The collecting worker is the slot: it gets an answer for every row, so it knows the progress.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, cast

import pyarrow as pa
from pyspark import SparkContext, TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from runtime.contract.spec.transform import FIELDS, FormatSpec, TransformSpec, fields_of
from runtime.contract.spec.transform import VALUE as VALUE_PART
from runtime.sql.formats.dispatch import values_of
from runtime.sql.functions import RefusedExpression
from runtime.sql.gate import CORRUPT, expression, made_times, read_schema, widest_item
from runtime.sql.json_reader import SCALARS
from runtime.sql.query_input import (
    READ,
    READ_FIELDS,
    QueryInput,
    read_columns,
    read_fields,
    reads_value,
)
from runtime.sql.rows import (
    COLUMNS,
    DECODED,
    FILTERED,
    FLAG,
    FLUSH,
    FLUSHED,
    KEY,
    MISMATCH,
    NEW,
    NEXT,
    TRAVELS,
    VALUE,
    feed,
)

if TYPE_CHECKING:
    from runtime.sql.evaluator import MakeEvaluator

ANSWER = "answer"
_PARSED = "__parsed"
_JSON_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": CORRUPT,
    "allowSingleQuotes": "false",
    # Without a pattern, Spark reads the text of a time of day as that time of the present day.
    "timestampFormat": "yyyy-M-d[['T'][' ']H[:m[:s[.SSSSSSSSS]]]][XXX]",
}
_WITH_NULLS = {"ignoreNullFields": "false"}
_IN_FILES = {  # without these, the text of a time has milliseconds
    **_WITH_NULLS,
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_BLANKS, _OBJECT = " \t\r\n", "{"

# What an answer holds: the new values of `set`, or, for files, the decoded value as JSON or as a struct.
Output = Literal["edits", "json", "struct"]

# What Spark's session needs for exact answers. Without the common subexpressions, an expression that occurs
# twice is not evaluated ahead of `try_to_binary`, so that its failure concerns its own row alone.
SETTINGS = {
    "spark.sql.variable.substitute": "false",
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.subexpressionElimination.enabled": "false",
    "spark.sql.execution.pythonUDF.arrow.enabled": "false",
}


def answers(
    rows: DataFrame, transform: TransformSpec, wanted: QueryInput, output: Output = "edits"
) -> DataFrame:
    """Returns the answer to each row, and behind it FLUSHED bytes where the row flushes."""
    decoded = known_columns(rows, transform, wanted)
    travels = expression(decoded, transform.where) if transform.where is not None else F.lit(True)
    changes = list(_changes(decoded, transform, output))
    changed = [
        F.concat(F.lit(NEXT), F.to_json(F.struct(column.alias(NEW)), _WITH_NULLS)) for _, column in changes
    ]
    answer = (
        F.when(F.col("__bad"), F.lit(MISMATCH))
        .when(F.col("__tombstone"), F.lit(TRAVELS))
        .when(travels, F.concat(F.lit(TRAVELS), *changed))
        .otherwise(F.lit(FILTERED))
    )
    safe = F.try_to_binary(answer, F.lit("utf-8"))
    flush = F.repeat(F.lit(" "), F.when(F.col(FLUSH), F.lit(FLUSHED))).alias(FLUSH)
    if output == "edits":
        return decoded.select(safe.alias(ANSWER), flush)
    # The answer stands first: where it says that a record travels, no expression of `set` fails on it.
    answered = decoded.withColumn(ANSWER, safe)
    shown = F.startswith(F.col(ANSWER), F.lit(TRAVELS.encode())) & ~F.col("__tombstone")
    value = _file_value(transform, changes)
    value = F.when(shown, F.to_json(value, _IN_FILES) if output == "json" else value)
    flag = F.substring(F.col(ANSWER), 1, 1)
    return answered.select(F.struct(flag.alias(FLAG), value.alias(DECODED)).alias(ANSWER), flush)


def _changes(decoded: DataFrame, transform: TransformSpec, output: Output) -> Iterator[tuple[str, Column]]:
    """Yields the expressions of `set` by sorted path. In files, each has the declared type of its field."""
    schema = schema_of(transform.value) if output != "edits" else None
    for path in sorted(transform.set):
        made = expression(decoded, transform.set[path])
        yield path, made if schema is None else made.cast(type_at(schema, path))


def type_at(schema: StructType | None, path: str) -> DataType:
    """Returns the type of the field at a path. Raises RefusedExpression where there is none."""
    kind: DataType | None = schema
    walked = VALUE_PART
    for name in fields_of(path):
        if not isinstance(kind, StructType):
            raise RefusedExpression(f"{walked} is no struct in the schema, so {path} can't be changed")
        if name not in kind.names or name.startswith("__"):
            names = ", ".join(field for field in kind.names if not field.startswith("__"))
            raise RefusedExpression(f"the schema has no field {path}: {walked} has {names}")
        kind = kind[name].dataType
        walked = f"{walked}.{name}"
    return cast(DataType, kind)


def _file_value(transform: TransformSpec, changes: Sequence[tuple[str, Column]]) -> Column:
    """Returns the decoded value as files have it: its declared fields, after `set` and `drop`."""
    value = F.col("value").dropFields(CORRUPT)
    for path, made in changes:
        value = value.withField(_quoted(path), made)
    if transform.drop:
        value = value.dropFields(*map(_quoted, transform.drop))
    return value.cast(file_type(transform))


def _quoted(path: str) -> str:
    return ".".join("`" + name.replace("`", "``") + "`" for name in fields_of(path))


def file_type(transform: TransformSpec) -> StructType:
    """Returns the type of the decoded value in files. Raises PySparkException and BadSchema."""
    declared = StructType(schema_of(transform.value).fields[:-1])
    return cast(StructType, _remaining(declared, [fields_of(path) for path in transform.drop]))


def _remaining(kind: DataType, dropped: Collection[tuple[str, ...]]) -> DataType:
    """Returns the type without these fields; what it holds may be null, as in all that is read of JSON."""
    match kind:
        case StructType():
            inner = {field.name: [path[1:] for path in dropped if path[0] == field.name] for field in kind}
            return StructType(
                [
                    StructField(field.name, _remaining(field.dataType, inner[field.name]))
                    for field in kind
                    if () not in inner[field.name]
                ]
            )
        case ArrayType():
            return ArrayType(_remaining(kind.elementType, ()))
        case MapType():
            return MapType(_remaining(kind.keyType, ()), _remaining(kind.valueType, ()))
        case _:
            return kind


def _decoded(raw: str, form: FormatSpec) -> Column:
    match form.format:
        case "json" | "avro" | "protobuf":  # the slot decodes the others to JSON
            return F.from_json(F.col(raw).cast(StringType()), schema_of(form), _JSON_OPTIONS)
        case "text":
            return F.col(raw).cast(StringType())
        case _:
            return F.col(raw).cast(BinaryType())


def schema_of(form: FormatSpec) -> StructType:
    """Returns the schema of a format with fields, with the field that takes what does not match it.

    Raises PySparkException, RefusedExpression and BadSchema.
    """
    declared = read_schema(values_of(form).ddl(form.schema or ""))
    if not isinstance(declared, StructType):
        raise RefusedExpression("a schema must be fields, as id BIGINT, name STRING")
    return StructType([*declared.fields, StructField(CORRUPT, StringType())])


def _bad(raw: str, name: str, form: FormatSpec) -> Column:
    """Returns whether the bytes do not match the format."""
    if form.format not in FIELDS:
        return F.lit(False)
    read = F.col(name)
    # Spark also reads an array of one object as that object.
    is_object = F.startswith(F.ltrim(F.col(raw).cast(StringType()), F.lit(_BLANKS)), F.lit(_OBJECT))
    wrong = read.isNull() | read[CORRUPT].isNotNull() | ~is_object
    return F.col(raw).isNotNull() & wrong


def output_of(transform: TransformSpec, form: Literal["json", "parquet"]) -> Output:
    """Returns what an answer holds for files of a format. A value without fields stays bytes."""
    if transform.value.format not in FIELDS:
        return "edits"
    return "json" if form == "json" else "struct"


def input_of(transform: TransformSpec, output: Output) -> QueryInput:
    """Returns what the query reads of each record. Raises PySparkException and BadSchema."""
    read = read_columns(transform)
    columns = tuple(name for name, _ in COLUMNS if name in read)
    if transform.value.format not in FIELDS:
        if reads_value(transform):
            return QueryInput(columns, "text")
        return QueryInput(tuple(name for name in columns if name != VALUE), "presence")
    declared = _struct_type(schema_of(transform.value).fields[:-1])
    if declared is None:
        return QueryInput(columns, "text")
    fields = read_fields(transform) if output == "edits" else None
    shown = tuple(each.name for each in declared if fields is None or each.name.lower() in fields)
    return QueryInput(columns, "fields", declared, shown, whole=fields is None)


def _struct_type(fields: Sequence[StructField]) -> pa.StructType | None:
    """Returns the type of an object with these fields; None where only Spark knows how to read them."""
    types = {each.name: _arrow_type(each.dataType) for each in fields}
    for each in fields:
        # A field of this metadata has a default value, or a type that is no more than a text to Spark.
        if types[each.name] is None or each.metadata or not each.nullable or "\ufffd" in each.name:
            return None
    names = {name.lower() for name in types}
    return pa.struct(list(types.items())) if fields and len(names) == len(fields) else None


def _arrow_type(kind: DataType) -> pa.DataType | None:
    if isinstance(kind, StructType):
        return _struct_type(kind.fields)
    if isinstance(kind, ArrayType):
        element = _arrow_type(kind.elementType)
        return pa.list_(element) if element is not None and kind.containsNull else None
    return SCALARS.get(kind.simpleString())


EVERYTHING = QueryInput(tuple(name for name, _ in COLUMNS), "text")  # of whole records
HIDDEN = ("__tombstone", "__bad", FLUSH, VALUE, KEY)  # columns that no expression reads


def known_columns(rows: DataFrame, transform: TransformSpec, wanted: QueryInput) -> DataFrame:
    """Returns the columns that expressions read, beside what the answer needs: the columns HIDDEN.

    The slot has read the values of the rows where it could.
    """
    columns = [F.col(name) for name in (FLUSH, *wanted.columns) if name != VALUE]
    bad = F.lit(False)
    if KEY in wanted.columns:
        columns.append(_decoded(KEY, transform.key).alias("key"))
        bad = _bad(KEY, "key", transform.key)
    read = F.coalesce(F.col(READ), F.lit(False))
    match wanted.value:
        case "text":
            decoded = rows.select(*columns, VALUE, _decoded(VALUE, transform.value).alias("value"))
            decoded = decoded.withColumn("__tombstone", F.col(VALUE).isNull())
            bad = _bad(VALUE, "value", transform.value) | bad
        case "presence":
            decoded = rows.select(*columns, (~read).alias("__tombstone"))
        case "fields":
            # It is null where the slot has read the value. It is used several times, so that Spark evaluates
            # it once.
            parsed = _decoded(VALUE, transform.value).alias(_PARSED)
            fields = [READ_FIELDS] if wanted.shown else []
            decoded = rows.select(*columns, VALUE, read.alias(READ), *fields, parsed)
            if wanted.shown:
                decoded = decoded.withColumn("value", _value(wanted.shown, wanted.whole))
            decoded = decoded.withColumn("__tombstone", ~F.col(READ) & F.col(VALUE).isNull())
            bad = _bad(VALUE, _PARSED, transform.value) | bad
    return decoded.withColumn("__bad", bad)


def _value(shown: Sequence[str], whole: bool) -> Column:
    """Returns the value, from what the slot has read or else from what Spark has."""

    def members(source: str) -> list[Column]:
        return [F.col(source)[name].alias(name) for name in shown]

    if whole:  # `from_json` has one more field
        read = F.struct(*members(READ_FIELDS), F.lit(None).cast(StringType()).alias(CORRUPT))
        return F.when(F.col(READ), read).otherwise(F.col(_PARSED))
    parsed = F.when(F.col(_PARSED).isNotNull(), F.struct(*members(_PARSED)))
    return F.when(F.col(READ), F.col(READ_FIELDS)).otherwise(parsed)


STANDING = {
    **SETTINGS,
    # Answers leave for the slot as soon as a row flushes them, so that nothing waits for later rows.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "0",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(FLUSHED),
    "spark.sql.execution.pandas.udf.buffer.size": "16",
}


def session_of(context: SparkContext, settings: dict[str, str]) -> SparkSession:
    """Returns a session of its own with these settings."""
    session = SparkSession(context).newSession()
    for key, value in settings.items():
        session.conf.set(key, value)
    return session


def _ddl(transform: TransformSpec, wanted: QueryInput) -> StructType:
    """Returns the schema of the query's rows, which is that of `InputRows`."""
    schema = StructType.fromDDL(
        ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS if name in wanted.columns)
    )
    columns = [*cast(StructType, schema).fields]
    if wanted.value != "text":
        columns.append(StructField(READ, BooleanType()))
    if wanted.shown:
        fields = {field.name: field for field in schema_of(transform.value).fields}
        columns.append(StructField(READ_FIELDS, StructType([fields[name] for name in wanted.shown])))
    columns.append(StructField(FLUSH, BooleanType()))
    return StructType(columns)


_RESULT = "result"  # the column of the result of a task


def standing_query(
    session: SparkSession,
    transform: TransformSpec,
    collect: Callable[[MakeEvaluator], bytes],
    output: Output = "edits",
    tasks: int = 1,
) -> list[bytes]:
    """Runs the query in so many tasks until `collect` ends in each, and returns what it returned there.

    `session` has the settings STANDING. `collect` runs in the collecting worker of its task.
    """
    forms = [form for form in (transform.value, transform.key) if form.format in FIELDS]
    wanted = replace(
        input_of(transform, output),
        times=made_times(session, transform.expressions),
        widest=max((widest_item(schema_of(form)) for form in forms), default=0),
    )
    secret = secrets.token_hex(16)

    def token() -> str:
        """Returns the name of this task's socket. A task that Spark repeats has another one."""
        context = TaskContext.get()
        assert context is not None
        return f"{secret}-{context.taskAttemptId()}"

    def feeding(inputs: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return feed(token(), inputs)

    def collecting(answered: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from runtime.sql.evaluator import Evaluator

        result = collect(functools.partial(Evaluator, token(), transform, wanted, answered))
        yield pa.RecordBatch.from_arrays([pa.array([result], pa.binary())], [_RESULT])

    rows = session.range(0, tasks, 1, tasks).mapInArrow(feeding, _ddl(transform, wanted))
    answered = answers(rows, transform, wanted, output)
    return [bytes(result) for (result,) in answered.mapInArrow(collecting, f"{_RESULT} BINARY").collect()]
