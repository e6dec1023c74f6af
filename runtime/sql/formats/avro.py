"""Decodes values of Avro for expressions, and writes them again with fields that changed.

Spark reads the decoded value as JSON. fastavro writes an edited value by its writer's schema, so no field of
the writer is lost.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from fastavro import schemaless_reader, schemaless_writer
from fastavro.validation import validate

from runtime.contract.spec.transform import FormatSpec
from runtime.sql.formats.avro_schema import AvroSchema, Schema, kind_of
from runtime.sql.formats.encoded import NOTHING, BadSchema, Changes, UndecodableValue, UneditableValue
from runtime.sql.formats.registry import FRAME, WriterSchema, WriterSchemas


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


class AvroReader:
    """A reader decodes values of one writer's schema as the fields of the reader's schema, as JSON."""

    def __init__(self, writer: str, reader: str, references: Sequence[str] = ()) -> None:
        """Raises BadSchema."""
        self._writer = AvroSchema(writer, references).root
        self._reader = AvroSchema(reader).root if reader != writer else None

    def json(self, data: bytes, at: int = 0) -> bytes:
        """Returns the value at an offset of the bytes as JSON. Raises UndecodableValue."""
        value = _read(data, at, self._writer, self._reader)
        try:
            return msgspec.json.encode(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise UndecodableValue(f"no value of the schema ({type(error).__name__})") from None


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
        schema = AvroSchema(writer, references, logical=False)
        self._schema = schema.root
        self._edit = _RecordEdit(schema, schema.record(), Changes.of(paths, drop), "value")

    def edited(self, data: bytes, values: Sequence[bytes], at: int = 0) -> bytes:
        """Returns the bytes with the new values; those before `at` stay. Raises UneditableValue."""
        try:
            record = _read(data, at, self._schema, None, named=True)
        except UndecodableValue as error:
            raise UneditableValue(str(error)) from None
        self._edit.apply(record, [msgspec.json.decode(value) for value in values])
        stream = io.BytesIO()
        stream.write(data[:at])
        schemaless_writer(stream, self._schema, record)
        return stream.getvalue()


class _RecordEdit:
    """An edit changes the same fields in every record of a type."""

    def __init__(self, schema: AvroSchema, record: Schema, changes: Changes, place: str) -> None:
        """Raises BadSchema."""
        self._drop: dict[str, Any] = {}  # the value of each dropped field: null, or its default
        self._set: dict[str, _NewValue] = {}
        self._inside: dict[str, dict[str, _RecordEdit]] = {}  # of a field, by the names of its records
        for field in record["fields"]:
            name, where = field["name"], f"{place}.{field['name']}"
            branches = schema.branches(field["type"])
            if name in changes.drop:
                self._drop[name] = _dropped(field, branches, where)
            elif name in changes.set:
                self._set[name] = _NewValue(branches, changes.set[name], where)
            elif name in changes.inside:
                self._inside[name] = {
                    branch["name"]: _RecordEdit(schema, branch, changes.inside[name], where)
                    for branch in branches
                    if kind_of(branch) == "record"
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
        """Raises BadSchema for a union of several types."""
        others = [branch for branch in branches if branch != "null"]
        if len(others) != 1:
            raise BadSchema(f"{place} is a union of several types")
        self._type, self._kind = others[0], kind_of(others[0])
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


def _dropped(field: Mapping[str, Any], branches: Sequence[Schema], place: str) -> Any:
    """Returns the value of a dropped field: null, or its default. Raises BadSchema where it has neither."""
    if "null" in branches:
        return None
    if "default" not in field:
        raise BadSchema(f"{place} is neither nullable nor has it a default")
    default = field["default"]
    is_bytes = kind_of(branches[0]) in ("bytes", "fixed")
    return default.encode("iso-8859-1") if is_bytes and isinstance(default, str) else default


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
