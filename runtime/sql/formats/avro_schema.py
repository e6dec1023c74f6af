"""Reads Avro schemas: their types, and their fields as Spark's DDL.

The functions are pure. A schema is the JSON text of an `.avsc` file. Errors name the place in the schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from fastavro import parse_schema
from fastavro.schema import SchemaParseException, UnknownType

from runtime.sql.formats.encoded import BadSchema

Schema = Any  # of Avro: a name, a list for a union, or an object

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
SETTABLE = frozenset({*_PLAIN, "enum"})
BRANCH = "__branch"  # the field of a record that stands for a branch of a union
_MOST_LEVELS = 100
MOST_FIELDS = 5_000  # in the DDL, and in a default
_TOO_DEEP = f"the schema has more than {_MOST_LEVELS} types within one another"


class AvroSchema:
    """An Avro schema as fastavro parses it. `root` is the schema itself; types are named in full."""

    def __init__(self, text: str, references: Sequence[str] = (), *, exact: bool = False) -> None:
        """Raises BadSchema. `references` are the texts of schemas whose types it names.

        With `exact`, a value that is read can be written again with the same bytes. It has the underlying
        types in place of logical ones, such as the bytes of a decimal, and each branch of a union has a name.
        """
        self._named: dict[str, Schema] = {}
        rewrite = _ExactTypes()
        for schema_text in (*references, text):
            try:
                declared = msgspec.json.decode(schema_text)
                self.root = parse_schema(
                    rewrite.of(declared) if exact else declared, named_schemas=self._named
                )
            except msgspec.DecodeError as error:
                raise BadSchema(f"no JSON: {error}") from None
            except UnknownType as error:
                raise BadSchema(f"{error.name} is no type of the schema") from None
            except RecursionError:
                raise BadSchema(_TOO_DEEP) from None
            except (SchemaParseException, AttributeError, KeyError, TypeError, ValueError) as error:
                raise BadSchema(f"no schema of Avro: {type(error).__name__}: {error}") from None

    def of(self, schema: Schema) -> Schema:
        """Returns the type behind a name, or the type itself."""
        while isinstance(schema, dict) and isinstance(schema.get("type"), dict | list):
            schema = schema["type"]
        return self._named.get(schema, schema) if isinstance(schema, str) else schema

    def branches(self, schema: Schema) -> list[Schema]:
        """Returns the types of a union, or the type itself as the only one."""
        resolved = self.of(schema)
        return [self.of(branch) for branch in resolved] if isinstance(resolved, list) else [resolved]

    def check_bounds(self) -> None:
        """Raises BadSchema for types of which a small value can end the process.

        These are a type that contains itself, too many types within one another, and an array whose items
        take no bytes. fastavro reads a value by recursion in C, without a limit, and as many items as the
        value says.
        """
        self._levels(self.root, 1, {}, {})

    def _levels(self, schema: Schema, level: int, depths: dict[str, int], sized: dict[str, bool]) -> int:
        """Returns how many types are within one another. `depths` has those of named types, at first 0.

        `sized` has of named types whether each value takes bytes.
        """
        if level > _MOST_LEVELS:
            raise BadSchema(_TOO_DEEP)
        resolved = self.of(schema)
        name = resolved.get("name") if isinstance(resolved, dict) else None
        if (levels := depths.get(name) if name else None) is None:
            if name:
                depths[name] = 0
            levels = 1 + max(
                (self._levels(part, level + 1, depths, sized) for part in _parts(resolved)), default=0
            )
            if name:
                depths[name] = levels
        if not levels:
            raise BadSchema(f"{name} contains itself: values of a recursive type are not read")
        if kind_of(resolved) == "array" and not self._takes_bytes(resolved["items"], sized):
            raise BadSchema(
                "the items of an array take no bytes: a small value could hold any number of them"
            )
        if level + levels - 1 > _MOST_LEVELS:
            raise BadSchema(_TOO_DEEP)
        return levels

    def _takes_bytes(self, schema: Schema, sized: dict[str, bool]) -> bool:
        """Returns whether each value of a type takes a byte at least. The type does not contain itself.

        A record may be named at many places within others: each record is looked at once.
        """
        resolved = self.of(schema)
        match kind_of(resolved):
            case "null":
                return False
            case "fixed":
                return int(resolved["size"]) > 0
            case "record":
                if (name := resolved["name"]) not in sized:
                    sized[name] = any(self._takes_bytes(part, sized) for part in _parts(resolved))
                return sized[name]
            case _:
                return True

    def record(self) -> Schema:
        """Returns the record at the root. Raises BadSchema where there is none."""
        root = self.of(self.root)
        if kind_of(root) != "record":
            raise BadSchema("the schema is no record: only fields of a record can be named")
        return root


def kind_of(schema: Schema) -> str:
    """Returns the name of a type: `union` for a list."""
    if isinstance(schema, list):
        return "union"
    kind = schema["type"] if isinstance(schema, dict) else schema
    return "record" if kind == "error" else str(kind)


def _parts(schema: Schema) -> list[Schema]:
    """Returns the types within a type, as its definition names them."""
    match kind_of(schema):
        case "union":
            return list(schema)
        case "record":
            return [field["type"] for field in schema["fields"]]
        case "array":
            return [schema["items"]]
        case "map":
            return [schema["values"]]
        case _:
            return []


class _ExactTypes:
    """Rewrites schemas so that fastavro writes each value as it was read.

    fastavro chooses the first branch of a union that a value fits, such as a double for a long. It keeps the
    branch of a named type alone. So each branch without a name becomes a record with one field, of which the
    bytes are those of the field.
    """

    def __init__(self) -> None:
        self._count = 0

    def of(self, schema: Schema) -> Schema:
        """Returns the type that stands for this one."""
        match schema:
            case list():
                branches = [self.of(branch) for branch in schema]
                several = sum(branch != "null" for branch in branches) > 1
                return [self._named(branch) for branch in branches] if several else branches
            case dict():
                exact = {name: part for name, part in schema.items() if name != "logicalType"}
                exact |= {name: self.of(exact[name]) for name in ("type", "items", "values") if name in exact}
                if isinstance(fields := exact.get("fields"), list):
                    exact["fields"] = [self._field(field) for field in fields]
                return exact
            case _:
                return schema

    def _field(self, field: Any) -> Any:
        exact = self.of(field)
        union = exact["type"] if isinstance(exact, dict) and "default" in exact else None
        if isinstance(union, list) and union and is_branch(union[0]):
            exact["default"] = {BRANCH: exact["default"]}  # the default of a union is one of its first branch
        return exact

    def _named(self, branch: Schema) -> Schema:
        kind = branch
        while isinstance(kind, dict):
            kind = kind.get("type")
        if kind == "null" or not (kind in _PLAIN or kind in ("array", "map")):
            return branch
        self._count += 1
        field = {"name": BRANCH, "type": branch}
        return {"type": "record", "name": f"__branch{self._count}", "fields": [field]}


def is_branch(branch: Schema) -> bool:
    """Returns whether a type of an exact schema stands for a branch of a union without a name."""
    return isinstance(branch, dict) and [field["name"] for field in branch.get("fields", ())] == [BRANCH]


def ddl_of(text: str) -> str:
    """Returns the fields of a schema in Spark's DDL. Raises BadSchema for what expressions can't read."""
    schema = AvroSchema(text)
    try:
        ddl = ", ".join(_Ddl(schema).fields(schema.record(), "value", (), " "))
    except RecursionError:
        raise BadSchema(_TOO_DEEP) from None
    schema.check_bounds()
    return ddl


class _Ddl:
    """It writes one DDL. A record is written again at each place, so the fields are counted."""

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._count = 0

    def fields(self, record: Schema, place: str, inside: tuple[str, ...], separator: str) -> Iterator[str]:
        if record["name"] in inside:
            raise BadSchema(f"{place} contains itself: expressions can't read a recursive type")
        self._count += len(record["fields"])
        if self._count > MOST_FIELDS:
            raise BadSchema(f"value has more than {MOST_FIELDS:,} fields, with those of its records")
        for field in record["fields"]:
            kind = self._type(field["type"], f"{place}.{field['name']}", (*inside, record["name"]))
            yield f"`{field['name']}`{separator}{kind}"

    def _type(self, of: Schema, place: str, inside: tuple[str, ...]) -> str:
        resolved = self._schema.of(of)
        kind = kind_of(resolved)
        logical = resolved.get("logicalType") if isinstance(resolved, dict) else None
        if logical == "decimal" and kind in ("bytes", "fixed"):
            return f"DECIMAL({resolved.get('precision')}, {resolved.get('scale', 0)})"
        if (kind, logical) in _LOGICAL:
            return _LOGICAL[kind, str(logical)]
        match kind:
            case "record":
                return f"STRUCT<{', '.join(self.fields(resolved, place, inside, ': '))}>"
            case "enum":
                return "STRING"
            case "fixed":
                return "BINARY"
            case "array":
                return f"ARRAY<{self._type(resolved['items'], place, inside)}>"
            case "map":
                return f"MAP<STRING, {self._type(resolved['values'], place, inside)}>"
            case "union":
                others = [branch for branch in resolved if branch != "null"]
                if len(others) != 1:
                    raise BadSchema(f"{place} is a union of several types: expressions can't read it")
                return self._type(others[0], place, inside)
            case "null":
                raise BadSchema(f"{place} is always null")
            case _:
                return _PLAIN[kind]
