"""Decodes values of Avro for expressions, and changes fields in their bytes. Every other byte stays.

Spark reads the decoded value as JSON. The bytes of an edited value are those of its writer's schema: a field
is cut out of them or replaced in them, and nothing else is encoded again.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from fastavro import parse_schema, schemaless_reader, schemaless_writer

from runtime.contract.spec.transform import FormatSpec
from runtime.sql.formats.avro_schema import (
    AvroSchema,
    Schema,
    Skip,
    Skipper,
    kind_of,
    read_long,
    written_long,
)
from runtime.sql.formats.encoded import NOTHING, BadSchema, Changes, UndecodableValue
from runtime.sql.formats.registry import FRAME, WriterSchema, WriterSchemas
from runtime.sql.json_fields import UneditableValue

_UNREADABLE = (
    EOFError,
    ValueError,
    IndexError,
    KeyError,
    TypeError,
    OverflowError,
    ArithmeticError,
    struct.error,
)


Make = Callable[[Any], bytes]  # the encoding of a new value, from its JSON


class AvroReader:
    """A reader decodes values of one writer's schema as the fields of the reader's schema, as JSON."""

    def __init__(self, writer: str, reader: str, references: Sequence[str] = ()) -> None:
        """Raises BadSchema."""
        known: dict[str, Any] = {}
        try:
            for text in references:
                parse_schema(msgspec.json.decode(text), named_schemas=known)
            written, read = msgspec.json.decode(writer), msgspec.json.decode(reader)
            self._writer = parse_schema(written, named_schemas=known)
            self._reader = parse_schema(read) if read != written else None
        except (*_UNREADABLE, msgspec.DecodeError) as error:
            raise BadSchema(f"{type(error).__name__}: {error}") from None

    def json(self, data: bytes, at: int = 0) -> bytes:
        """Returns the value at an offset of the bytes as JSON. Raises UndecodableValue."""
        stream = io.BytesIO(data)
        stream.seek(at)
        try:
            found = schemaless_reader(stream, self._writer, self._reader)
            text = msgspec.json.encode(found)
        except Exception as error:  # noqa: BLE001 - any bytes may come, and fastavro raises what its types raise
            raise UndecodableValue(f"no value of the schema ({type(error).__name__})") from None
        if stream.tell() != len(data):
            raise UndecodableValue("bytes behind the value")
        return text


class AvroEditor:
    """An editor changes the same fields in every value of one writer's schema.

    A field that the writer's schema does not have needs no change. New values come as JSON, in the order of
    the sorted paths.
    """

    def __init__(
        self,
        writer: str,
        paths: Mapping[str, str],
        drop: Sequence[str],
        references: Sequence[str] = (),
    ) -> None:
        """Raises BadSchema where a field can't be changed in this schema."""
        self._schema = AvroSchema(writer, references)
        self._skipper = Skipper(self._schema)
        self._edit = self._record(self._schema.record(), Changes.of(paths, drop), "value")

    def edited(self, data: bytes, values: Sequence[bytes], at: int = 0) -> bytes:
        """Returns the bytes with the new values; those before `at` stay. Raises UneditableValue."""
        parts: list[bytes] = [data[:at]]
        decoded = [msgspec.json.decode(value) for value in values]
        try:
            end = self._edit(data, at, decoded, parts)
        except IndexError as error:
            raise UneditableValue(str(error)) from None
        if end != len(data):
            raise UneditableValue("bytes behind the value")
        return b"".join(parts)

    def _record(self, record: Schema, changes: Changes, place: str) -> _Edit:
        steps: list[_Edit] = []
        space = record.get("__space", "")
        for one in self._schema.fields(record):
            name, where = one["name"], f"{place}.{one['name']}"
            skip = self._skipper.of(one["type"], space)
            if name in changes.drop:
                steps.append(_replaced(skip, self._without(one, space, where)))
            elif name in changes.set:
                steps.append(_set(skip, self._maker(one["type"], space, where), changes.set[name]))
            elif name in changes.inside:
                steps.append(self._inside(one["type"], space, changes.inside[name], where))
            else:
                steps.append(_kept(skip))
        return _in_order(steps)

    def _inside(self, of: Schema, space: str, changes: Changes, place: str) -> _Edit:
        found = self._schema.of(of, space)
        if kind_of(found) == "record":
            return self._record(found, changes, place)
        if not isinstance(found, list):
            raise BadSchema(f"{place} is no record")
        branches: list[_Edit] = []
        for one in found:
            inner = self._schema.of(one, space)
            is_record = kind_of(inner) == "record"
            branches.append(
                self._record(inner, changes, place) if is_record else _kept(self._skipper.of(one, space))
            )
        return _branch(branches)

    def _without(self, of: dict[str, Any], space: str, place: str) -> bytes:
        """Returns the encoding of a dropped field: null, or its default."""
        found = self._schema.of(of["type"], space)
        if isinstance(found, list) and "null" in found:
            return written_long(found.index("null"))
        if "default" not in of:
            raise BadSchema(f"{place} is neither nullable nor has it a default")
        inner = found[0] if isinstance(found, list) else of["type"]
        default = _encoder(self._schema, inner, space)(of["default"])
        return written_long(0) + default if isinstance(found, list) else default

    def _maker(self, of: Schema, space: str, place: str) -> Make:
        """Returns the function that encodes a new value."""
        found = self._schema.of(of, space)
        branches = found if isinstance(found, list) else [found]
        others = [one for one in branches if one != "null"]
        if len(others) != 1:
            raise BadSchema(f"{place} is a union of several types")
        encode = _encoder(self._schema, others[0], space)
        if not isinstance(found, list):
            return lambda value: _not_null(value, place) or encode(value)
        branch = written_long(found.index(others[0]))
        null = written_long(found.index("null")) if "null" in found else None

        def make(value: Any) -> bytes:
            if value is None and null is not None:
                return null
            return _not_null(value, place) or branch + encode(value)

        return make


@dataclass(frozen=True, slots=True)
class _Writer:
    """The reader and the editor of a writer's schema.

    `unreadable` is why its values can't be read, and `unchangeable` why they can't be changed.
    """

    reader: AvroReader | None = None
    editor: AvroEditor | None = None
    unreadable: str = ""
    unchangeable: str = ""


class AvroValues:
    """The values of Avro in one part of a flow's records: each with its writer's schema.

    Without a registry, the writer's schema is the declared one. With one, a value has Confluent's wire
    format: a zero, the id of its writer's schema in four bytes, then the value. `prepare` fetches the schemas
    that are not known. The id stays, so an edited value is read by the schema that it was written with.
    """

    def __init__(
        self, form: FormatSpec, paths: Mapping[str, str] = NOTHING, drop: Sequence[str] = ()
    ) -> None:
        self._reader = form.schema or ""
        self._paths, self._drop = paths, drop
        self._declared = self._writer(WriterSchema(self._reader))
        self._writers = WriterSchemas(form.registry, "AVRO", self._writer) if form.registry else None

    async def prepare(self, values: Iterable[bytes | None]) -> None:
        """Fetches the schemas of these values that are not known. Raises RegistryUnavailable."""
        if self._writers is not None:
            await self._writers.fetch(values)

    def json(self, data: bytes) -> bytes:
        """Returns a value as JSON. Raises UndecodableValue."""
        writer, at = self._of(data)
        if writer.reader is None:
            raise UndecodableValue(writer.unreadable)
        return writer.reader.json(data, at)

    def edited(self, data: bytes, values: Sequence[bytes]) -> bytes:
        """Returns a value with its new fields. Raises UneditableValue."""
        writer, at = self._of(data)
        if writer.editor is None:
            raise UneditableValue(writer.unchangeable)
        return writer.editor.edited(data, values, at)

    def _of(self, data: bytes) -> tuple[_Writer, int]:
        """Returns the writer's schema of a value, and where the value begins in the bytes."""
        return (self._declared, 0) if self._writers is None else (self._writers.of(data), FRAME)

    def _writer(self, schema: WriterSchema) -> _Writer:
        try:
            reader = AvroReader(schema.text, self._reader, schema.references)
        except BadSchema as error:
            return _Writer(unreadable=str(error))
        if not self._paths and not self._drop:
            return _Writer(reader)
        try:
            return _Writer(reader, AvroEditor(schema.text, self._paths, self._drop, schema.references))
        except BadSchema as error:
            return _Writer(reader, unchangeable=str(error))


_Edit = Callable[[bytes, int, list[Any], list[bytes]], int]


def _not_null(value: Any, place: str) -> bytes:
    """Raises UneditableValue for null; else returns nothing."""
    if value is None:
        raise UneditableValue(f"the new value of {place} is null, which its schema does not allow")
    return b""


def _encoder(schema: AvroSchema, of: Schema, space: str) -> Make:
    """Returns the function that encodes a value of a plain type from its JSON."""
    found = schema.of(of, space)
    kind = kind_of(found)
    if kind == "enum":
        symbols = {symbol: written_long(number) for number, symbol in enumerate(found["symbols"])}

        def symbol(value: Any) -> bytes:
            if value not in symbols:
                raise UneditableValue("a new value is no symbol of its enum")
            return symbols[value]

        return symbol
    parsed = parse_schema(_without_marks(found), named_schemas={})

    def encode(value: Any) -> bytes:
        stream = io.BytesIO()
        try:
            schemaless_writer(stream, parsed, _plain(kind, value))
        except _UNREADABLE as error:
            raise UneditableValue(f"a new value does not fit its type ({type(error).__name__})") from None
        return stream.getvalue()

    return encode


def _plain(kind: str, value: Any) -> Any:
    if kind in ("float", "double") and isinstance(value, int | str):
        return float(value)  # Spark writes NaN and the infinities as text
    if kind == "bytes" and isinstance(value, str):
        return msgspec.convert(value, bytes)  # base64
    return value


def _without_marks(schema: Schema) -> Schema:
    match schema:
        case dict():
            return {
                key: _without_marks(one)
                for key, one in schema.items()
                if key not in ("__space", "logicalType")
            }
        case list():
            return [_without_marks(one) for one in schema]
        case _:
            return schema


def _kept(skip: Skip) -> _Edit:
    def edit(data: bytes, at: int, _: list[Any], parts: list[bytes]) -> int:
        end = skip(data, at)
        parts.append(data[at:end])
        return end

    return edit


def _replaced(skip: Skip, by: bytes) -> _Edit:
    def edit(data: bytes, at: int, _: list[Any], parts: list[bytes]) -> int:
        parts.append(by)
        return skip(data, at)

    return edit


def _set(skip: Skip, make: Make, number: int) -> _Edit:
    def edit(data: bytes, at: int, values: list[Any], parts: list[bytes]) -> int:
        parts.append(make(values[number]))
        return skip(data, at)

    return edit


def _in_order(steps: Sequence[_Edit]) -> _Edit:
    def edit(data: bytes, at: int, values: list[Any], parts: list[bytes]) -> int:
        for step in steps:
            at = step(data, at, values, parts)
        return at

    return edit


def _branch(branches: Sequence[_Edit]) -> _Edit:
    def edit(data: bytes, at: int, values: list[Any], parts: list[bytes]) -> int:
        branch, behind = read_long(data, at)
        if branch < 0:
            raise IndexError("a negative branch")
        parts.append(data[at:behind])
        return branches[branch](data, behind, values, parts)

    return edit
