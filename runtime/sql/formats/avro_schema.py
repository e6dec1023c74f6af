"""Reads Avro schemas: their fields as Spark's DDL, what of them can be set or dropped, and their wire format.

The functions are pure. A schema is the JSON text of an `.avsc` file. Errors name the place in the schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from runtime.sql.formats.encoded import BadSchema

Schema = Any  # of Avro: a name, a list for a union, or an object
Skip = Callable[[bytes, int], int]  # from the offset of a value to the offset behind it

_PLAIN = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bytes": "BINARY",
    "string": "STRING",
}
_LOGICAL = {
    ("int", "date"): "DATE",
    ("long", "timestamp-millis"): "TIMESTAMP",
    ("long", "timestamp-micros"): "TIMESTAMP",
    ("long", "local-timestamp-millis"): "TIMESTAMP_NTZ",
    ("long", "local-timestamp-micros"): "TIMESTAMP_NTZ",
    ("int", "time-millis"): "STRING",
    ("long", "time-micros"): "STRING",
    ("string", "uuid"): "STRING",
}
_SETTABLE = frozenset({*_PLAIN, "enum"})


class AvroSchema:
    """An Avro schema with its named types. `root` is the schema itself, a record."""

    def __init__(self, text: str, references: Sequence[str] = ()) -> None:
        """Raises BadSchema. `references` are the texts of schemas whose types it names."""
        self.named: dict[str, Schema] = {}
        for one in (*references, text):
            try:
                self.root: Schema = msgspec.json.decode(one)
            except msgspec.DecodeError as error:
                raise BadSchema(f"no JSON: {error}") from None
            self._collect(self.root, "", "value")

    def _collect(self, schema: Schema, space: str, place: str) -> None:
        """Notes the named types by their full names, and replaces names by full names."""
        match schema:
            case list():
                for one in schema:
                    self._collect(one, space, place)
            case {"type": "record" | "error" | "enum" | "fixed"}:
                name = schema.get("name")
                if not isinstance(name, str) or not name:
                    raise BadSchema(f"{place} has no name")
                space = str(schema.get("namespace", space)) if "." not in name else name.rpartition(".")[0]
                full = name if "." in name or not space else f"{space}.{name}"
                self.named[full] = schema
                schema["__space"] = space
                for field in schema.get("fields", ()):
                    if not isinstance(field, dict) or "name" not in field or "type" not in field:
                        raise BadSchema(f"{place} has a field without a name or a type")
                    self._collect(field["type"], space, f"{place}.{field['name']}")
            case {"type": "array", "items": inner} | {"type": "map", "values": inner}:
                self._collect(inner, space, place)
            case {"type": dict() | list() as inner}:
                self._collect(inner, space, place)

    def of(self, schema: Schema, space: str = "") -> Schema:
        """Returns the type behind a name, or the type itself. Raises BadSchema for an unknown name."""
        while isinstance(schema, dict) and isinstance(schema.get("type"), dict | list):
            schema = schema["type"]
        if isinstance(schema, dict) and schema.get("type") not in _TYPES:
            schema = schema.get("type")
        if isinstance(schema, str) and schema not in _PLAIN and schema != "null":
            for name in (f"{space}.{schema}" if space and "." not in schema else schema, schema):
                if name in self.named:
                    return self.named[name]
            raise BadSchema(f"{schema} is no type of the schema")
        return schema

    def fields(self, schema: Schema) -> list[dict[str, Any]]:
        """Returns the fields of a record."""
        fields: list[dict[str, Any]] = schema["fields"]
        return fields

    def record(self) -> Schema:
        """Returns the record at the root. Raises BadSchema where there is none."""
        root = self.of(self.root)
        if kind_of(root) != "record":
            raise BadSchema("the schema is no record: only fields of a record can be named")
        return root


_TYPES = frozenset({*_PLAIN, "null", "record", "error", "enum", "fixed", "array", "map"})


def kind_of(schema: Schema) -> str:
    """Returns the name of a type: `union` for a list."""
    if isinstance(schema, list):
        return "union"
    kind = schema["type"] if isinstance(schema, dict) else schema
    return "record" if kind == "error" else str(kind)


def ddl_of(text: str) -> str:
    """Returns the fields of a schema in Spark's DDL. Raises BadSchema for what expressions can't read."""
    schema = AvroSchema(text)
    root = schema.record()
    return ", ".join(_fields_ddl(schema, root, "value", (), ": ", top=True))


def _fields_ddl(
    schema: AvroSchema, record: Schema, place: str, inside: tuple[int, ...], colon: str, *, top: bool = False
) -> list[str]:
    if id(record) in inside:
        raise BadSchema(f"{place} contains itself: expressions can't read a recursive type")
    space = record.get("__space", "")
    return [
        f"`{field['name'].replace('`', '``')}`{' ' if top else colon}"
        + _type_ddl(schema, field["type"], f"{place}.{field['name']}", (*inside, id(record)), space)
        for field in schema.fields(record)
    ]


def _type_ddl(schema: AvroSchema, of: Schema, place: str, inside: tuple[int, ...], space: str) -> str:
    found = schema.of(of, space)
    kind = kind_of(found)
    logical = found.get("logicalType") if isinstance(found, dict) else None
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return f"DECIMAL({found.get('precision')}, {found.get('scale', 0)})"
    if (kind, logical) in _LOGICAL:
        return _LOGICAL[kind, str(logical)]
    match kind:
        case "record":
            return f"STRUCT<{', '.join(_fields_ddl(schema, found, place, inside, ': '))}>"
        case "enum":
            return "STRING"
        case "fixed":
            return "BINARY"
        case "array":
            return f"ARRAY<{_type_ddl(schema, found['items'], place, inside, space)}>"
        case "map":
            return f"MAP<STRING, {_type_ddl(schema, found['values'], place, inside, space)}>"
        case "union":
            others = [one for one in found if one != "null"]
            if len(others) != 1:
                raise BadSchema(f"{place} is a union of several types: expressions can't read it")
            return _type_ddl(schema, others[0], place, inside, space)
        case "null":
            raise BadSchema(f"{place} is always null")
        case _:
            return _PLAIN[kind]


def change_problem(text: str, path: Sequence[str], *, drop: bool) -> str | None:
    """Returns why a field of the schema can't be set or dropped; None where it can."""
    schema = AvroSchema(text)
    record, place = schema.record(), "value"
    for number, name in enumerate(path):
        space = record.get("__space", "")
        field = next((one for one in schema.fields(record) if one["name"] == name), None)
        if field is None:
            return f"{place} has no field {name}"
        place = f"{place}.{name}"
        branches = _branches(schema, field["type"], space)
        if number < len(path) - 1:
            record = next((one for one in branches if kind_of(one) == "record"), None)
            if record is None:
                return f"{place} is no record"
            continue
        if drop:
            if "null" in branches or "default" in field:
                return None
            return f"{place} is neither nullable nor has it a default: a record without it would not be valid"
        wanted = next((one for one in branches if one != "null"), "null")
        if kind_of(wanted) in _SETTABLE and not (isinstance(wanted, dict) and wanted.get("logicalType")):
            return None
        return f"{place} is of a type that can't be set in Avro: booleans, numbers, text, bytes and enums can"
    return None


def _branches(schema: AvroSchema, of: Schema, space: str) -> list[Schema]:
    found = schema.of(of, space)
    return [schema.of(one, space) for one in found] if isinstance(found, list) else [found]


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """Returns the number at an offset, and the offset behind it. Raises IndexError."""
    byte = data[at]
    at += 1
    value, shift = byte & 0x7F, 7
    while byte & 0x80:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > 70:
            raise IndexError("a number of more than ten bytes")
    return (value >> 1) ^ -(value & 1), at


def written_long(value: int) -> bytes:
    """Returns the encoding of a number."""
    value = (value << 1) ^ (value >> 63)
    found = bytearray()
    while value & ~0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


class Skipper:
    """Builds the functions that find the end of a value of each type of a schema."""

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._known: dict[int, Skip] = {}

    def of(self, schema: Schema, space: str) -> Skip:
        """Returns the function of a type. It raises IndexError for bytes that are no such value."""
        found = self._schema.of(schema, space)
        kind = kind_of(found)
        if kind == "record":
            return self._record(found)
        if kind == "union":
            return _union([self.of(one, space) for one in found])
        if kind in ("array", "map"):
            inner = self.of(found["items" if kind == "array" else "values"], space)
            return _blocks(inner, keys=kind == "map")
        if kind == "fixed":
            size = int(found["size"])
            return lambda _, at: at + size
        return _SKIPS[kind]

    def _record(self, record: Schema) -> Skip:
        known = self._known.get(id(record))
        if known is not None:
            return known
        skips: list[Skip] = []

        def skip(data: bytes, at: int) -> int:
            for one in skips:
                at = one(data, at)
            return at

        self._known[id(record)] = skip  # before its fields: a record may contain itself
        space = record.get("__space", "")
        skips += [self.of(field["type"], space) for field in self._schema.fields(record)]
        return skip


def _skip_long(data: bytes, at: int) -> int:
    while data[at] & 0x80:
        at += 1
    return at + 1


def _skip_sized(data: bytes, at: int) -> int:
    size, at = read_long(data, at)
    if size < 0:
        raise IndexError("a negative length")
    return at + size


_SKIPS: Mapping[str, Skip] = {
    "null": lambda _, at: at,
    "boolean": lambda _, at: at + 1,
    "int": _skip_long,
    "long": _skip_long,
    "enum": _skip_long,
    "float": lambda _, at: at + 4,
    "double": lambda _, at: at + 8,
    "bytes": _skip_sized,
    "string": _skip_sized,
}


def _union(branches: Sequence[Skip]) -> Skip:
    def skip(data: bytes, at: int) -> int:
        branch, at = read_long(data, at)
        if branch < 0:
            raise IndexError("a negative branch")
        return branches[branch](data, at)

    return skip


def _blocks(inner: Skip, *, keys: bool) -> Skip:
    def skip(data: bytes, at: int) -> int:
        while True:
            count, at = read_long(data, at)
            if count == 0:
                return at
            if count < 0:
                size, at = read_long(data, at)
                at += size
                continue
            for _ in range(count):
                if keys:
                    at = _skip_sized(data, at)
                at = inner(data, at)

    return skip
