"""Decodes values of Avro for expressions, and writes them again with fields that changed.

Spark reads the decoded value as JSON. fastavro writes an edited value by its writer's schema, so no field of
the writer is lost.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import msgspec
from fastavro import schemaless_reader, schemaless_writer
from fastavro.read import LOGICAL_READERS
from fastavro.validation import validate

from runtime.contract.records.schema_names import WIRE_PREFIX
from runtime.contract.spec.transform import FormatSpec
from runtime.sql.formats.avro_schema import (
    BRANCH,
    MOST_FIELDS,
    SETTABLE,
    AvroSchema,
    Schema,
    ddl_of,
    is_branch,
    kind_of,
)
from runtime.sql.formats.encoded import BadSchema, Changes, RecordValues, UndecodableValue, UneditableValue
from runtime.sql.formats.registry import WriterSchemas

_MOST_DECIMAL = 1 << 10  # bytes; Spark's largest number takes 16


def _bounded(read: Callable[[bytes, Schema, Schema], Any]) -> Callable[[bytes, Schema, Schema], Any]:
    """Returns a reader of decimals that refuses long ones: the time for one grows with its size squared."""

    def bounded(data: bytes, writer: Schema, reader: Schema) -> Any:
        if len(data) > _MOST_DECIMAL:
            raise ValueError(f"a decimal of more than {_MOST_DECIMAL} bytes")
        return read(data, writer, reader)

    return bounded


for _name in ("bytes-decimal", "fixed-decimal"):
    LOGICAL_READERS[_name] = _bounded(LOGICAL_READERS[_name])


def _read(data: bytes, at: int, writer: Schema, reader: Schema | None, *, named: bool = False) -> Any:
    """Returns the value at an offset of the bytes, which ends with them. Raises UndecodableValue.

    With `named`, a union's value of a named type is that name and the value, so that it is written as it was.
    """
    stream = io.BytesIO(data)
    stream.seek(at)
    try:
        value = schemaless_reader(stream, writer, reader, return_record_name=named, return_named_type=named)
    except Exception as error:  # noqa: BLE001 - any bytes may come, and fastavro raises what its types raise
        raise UndecodableValue(f"no value of the schema ({type(error).__name__})") from None
    if stream.tell() != len(data):
        raise UndecodableValue("bytes behind the value")
    return value


class _RecordEdit:
    """An edit changes the same fields in every record of a type.

    A field that a writer's schema does not have needs no change; `declared` says that it must be there.
    """

    def __init__(
        self, schema: AvroSchema, record: Schema, changes: Changes, place: str, *, declared: bool = False
    ) -> None:
        """Raises BadSchema where a field can't be changed in this schema."""
        names = {field["name"] for field in record["fields"]}
        for name in (*changes.drop, *changes.set, *changes.inside):
            if declared and name not in names:
                raise BadSchema(f"{place} has no field {name}")
        self._drop: dict[str, Any] = {}  # the value of each dropped field: null, or its default
        self._set: dict[str, _NewValue] = {}
        self._inside: dict[str, dict[str, _RecordEdit]] = {}  # of a field, by the names of its records
        for field in record["fields"]:
            name, where = field["name"], f"{place}.{field['name']}"
            branches = schema.branches(field["type"])
            if name in changes.drop:
                self._drop[name] = _dropped(schema, field, where)
            elif name in changes.set:
                self._set[name] = _NewValue(branches, changes.set[name], where)
            elif name in changes.inside:
                self._inside[name] = {
                    branch["name"]: _RecordEdit(
                        schema, branch, changes.inside[name], where, declared=declared
                    )
                    for branch in branches
                    if kind_of(branch) == "record" and not is_branch(branch)
                }
                if not self._inside[name]:
                    raise BadSchema(f"{where} is no record")

    def apply(self, record: dict[str, Any], values: Sequence[Any]) -> None:
        """Changes the fields of a record. Raises UneditableValue."""
        record.update(self._drop)
        for name, new in self._set.items():
            record[name] = new.value(values)
        for name, edits in self._inside.items():
            match record[name]:
                case (str(of), dict(inner)) if of in edits:  # in a union
                    edits[of].apply(inner, values)
                case dict(inner):
                    (edit,) = edits.values()
                    edit.apply(inner, values)


class _NewValue:
    """What a field is set to, from the new JSON value of the number `index`."""

    def __init__(self, branches: Sequence[Schema], index: int, place: str) -> None:
        """Raises BadSchema for a type that can't be set."""
        others = [branch for branch in branches if branch != "null"]
        if len(others) != 1:
            raise BadSchema(f"{place} is a union of several types")
        self._type, self._kind = others[0], kind_of(others[0])
        logical = isinstance(self._type, dict) and self._type.get("logicalType")
        if self._kind not in SETTABLE or logical:
            raise BadSchema(
                f"{place} is of a type that can't be set in Avro:"
                " booleans, numbers, text, bytes and enums can"
            )
        self._nullable = "null" in branches
        self._index, self._place = index, place

    def value(self, values: Sequence[Any]) -> Any:
        """Returns the value that fastavro writes. Raises UneditableValue."""
        value = values[self._index]
        if value is None:
            if self._nullable:
                return None
            raise UneditableValue(f"the new value of {self._place} is null, which its schema does not allow")
        try:
            if self._kind in ("float", "double") and isinstance(value, int | str):
                value = float(value)  # Spark writes NaN and the infinities as text
            elif self._kind == "bytes" and isinstance(value, str):
                value = msgspec.convert(value, bytes)  # base64
            fits = validate(value, self._type, raise_errors=False)
        except (ValueError, OverflowError):
            fits = False
        if not fits:
            raise UneditableValue(f"the new value of {self._place} does not fit its type")
        return value


def _dropped(schema: AvroSchema, field: Mapping[str, Any], place: str) -> Any:
    """Returns the value of a dropped field: null, or its default. Raises BadSchema where it has neither."""
    if "null" in schema.branches(field["type"]):
        return None
    if "default" not in field:
        raise BadSchema(
            f"{place} is neither nullable nor has it a default: a record without it would not be valid"
        )
    try:
        value = _default(schema, field["type"], field["default"], count())
        fits = validate(value, schema.of(field["type"]), raise_errors=False)
    except BadSchema:
        raise
    except (AttributeError, KeyError, TypeError, ValueError):
        fits = False
    if not fits:
        raise BadSchema(f"the default of {place} does not fit its type")
    return value


def _default(schema: AvroSchema, kind: Schema, default: Any, made: Iterator[int]) -> Any:
    """Returns a default, which a schema has as JSON, as fastavro writes it: that of a union is one of its
    first branch.

    `made` counts the values. Those of records within one another may be very many. Raises BadSchema.
    """
    if next(made) >= MOST_FIELDS:
        raise BadSchema(f"a default has more than {MOST_FIELDS:,} values, with those of its records")
    resolved = schema.of(kind)
    match kind_of(resolved):
        case "union":
            first = schema.of(resolved[0])
            value = _default(schema, first, default, made)
            return (first["name"], value) if kind_of(first) in ("record", "enum", "fixed") else value
        case "record" if is_branch(resolved) and not (isinstance(default, dict) and BRANCH in default):
            return {BRANCH: _default(schema, resolved["fields"][0]["type"], default, made)}
        case "record":
            return {
                field["name"]: _default(
                    schema,
                    field["type"],
                    default[field["name"]] if field["name"] in default else field["default"],
                    made,
                )
                for field in resolved["fields"]
            }
        case "array":
            return [_default(schema, resolved["items"], item, made) for item in default]
        case "map":
            return {key: _default(schema, resolved["values"], value, made) for key, value in default.items()}
        case "bytes" | "fixed":
            return default.encode("iso-8859-1")
        case _:
            return default


class _Writer:
    """Reads and edits the values of one writer's schema. Errors of the schema are raised for its values."""

    def __init__(self, text: str, references: Sequence[str], declared: str, changes: Changes) -> None:
        self._unreadable = self._unchangeable = ""
        try:
            schema = AvroSchema(text, references)
            schema.check_bounds()
            self._schema = schema.root
            self._declared = AvroSchema(declared).root if declared != text else None
        except BadSchema as error:
            self._unreadable = self._unchangeable = str(error)
            return
        try:
            exact = AvroSchema(text, references, exact=True)
            self._exact = exact.root
            self._edit = _RecordEdit(exact, exact.record(), changes, "value")
        except BadSchema as error:
            self._unchangeable = str(error)

    def json(self, data: bytes, at: int) -> bytes:
        """Returns the fields of the declared schema as JSON. Raises UndecodableValue."""
        if self._unreadable:
            raise UndecodableValue(self._unreadable)
        value = _read(data, at, self._schema, self._declared)
        try:
            return msgspec.json.encode(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise UndecodableValue(f"no value of the schema ({type(error).__name__})") from None

    def edited(self, data: bytes, values: Sequence[bytes], at: int) -> bytes:
        """Returns the bytes with the new values; those before `at` stay. Raises UneditableValue."""
        if self._unchangeable:
            raise UneditableValue(self._unchangeable)
        try:
            record = _read(data, at, self._exact, None, named=True)
        except UndecodableValue as error:
            raise UneditableValue(str(error)) from None
        self._edit.apply(record, [msgspec.json.decode(value) for value in values])
        stream = io.BytesIO()
        stream.write(data[:at])
        schemaless_writer(stream, self._exact, record)
        return stream.getvalue()


class AvroValues(RecordValues):
    """The values of Avro in one part of a flow's records: each with its writer's schema.

    Without a registry, the writer's schema is the declared one. With one, a value has Confluent's wire
    format: a zero, the id of its writer's schema in four bytes, then the value. `prepare` fetches the schemas
    that are not known. The id stays, so an edited value is read by the schema that it was written with.
    """

    def __init__(self, form: FormatSpec, changes: Changes) -> None:
        declared = form.schema or ""
        self._declared = _Writer(declared, (), declared, changes)
        self._writers: WriterSchemas[_Writer] | None = None
        if form.registry:
            self._writers = WriterSchemas(
                form.registry,
                "AVRO",
                lambda text, references: _Writer(text, references, declared, changes),
            )

    @classmethod
    def ddl(cls, schema: str) -> str:
        return ddl_of(schema)

    @classmethod
    def check(cls, schema: str, changes: Changes) -> None:
        read = AvroSchema(schema)
        _RecordEdit(read, read.record(), changes, "value", declared=True)

    async def prepare(self, values: Iterable[bytes | None]) -> None:
        if self._writers is not None:
            await self._writers.fetch(values)

    def json(self, data: bytes) -> bytes:
        writer, at = self._of(data)
        return writer.json(data, at)

    def edited(self, data: bytes, values: Sequence[bytes]) -> bytes:
        writer, at = self._of(data)
        return writer.edited(data, values, at)

    def _of(self, data: bytes) -> tuple[_Writer, int]:
        """Returns the writer's schema of a value, and where the value begins in the bytes."""
        return (self._declared, 0) if self._writers is None else (self._writers.of(data), WIRE_PREFIX)
