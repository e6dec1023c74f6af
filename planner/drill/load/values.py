"""Makes values that fit a declared schema, as JSON or Avro. The same random numbers give the same values.

Fields are never null: a value shows what an expression makes of content. It is pure.
"""

import base64
import datetime
import io
import json
from collections.abc import Callable, Mapping
from random import Random
from typing import Any
from uuid import UUID

from fastavro import parse_schema, schemaless_writer

from planner.drill.load.ddl import DdlField, UnknownType, fields_of_ddl

_DAY = datetime.date(2026, 1, 1)
_SINCE_MS = 1_767_225_600_000  # that day
_YEAR_S = 365 * 86_400
_MOST_DIGITS = 15
_MOST_NUMBER = 1_000_000
_MOST_ITEMS = 3
# What whole numbers are below, by their types in Spark's DDL.
_BELOW = {
    **dict.fromkeys(("byte", "tinyint"), 100),
    **dict.fromkeys(("short", "smallint"), 10_000),
    **dict.fromkeys(("int", "integer", "long", "bigint", "variant"), _MOST_NUMBER),
}
_DEEPEST = 12  # types within one another; a type that contains itself ends there


def random_of(seed: str) -> Random:
    """Returns the same random numbers for the same seed."""
    return Random(seed)  # noqa: S311 - they make samples, and no secrets


def scalar(kind: str, name: str, random: Random) -> Any:
    """Returns a value of a plain type, by its name in Avro. Raises UnknownType."""
    match kind:
        case "boolean":
            return random.random() < 0.5
        case "int" | "long":
            return random.randrange(_MOST_NUMBER)
        case "float" | "double":
            return random.randrange(_MOST_NUMBER) / 4
        case "bytes":
            return random.randbytes(8)
        case "string":
            return f"{name}-{random.randrange(100_000)}"
        case other:
            raise UnknownType(f"a drill makes no values of the type {other}")


def json_maker(schema: str) -> Callable[[Random], bytes]:
    """Returns a function that makes JSON objects with the fields of a schema. Raises UnknownType."""
    root = DdlField("", "struct", inside=fields_of_ddl(schema))
    _json(root, "", random_of(""))  # names a type that is not known
    return lambda random: json.dumps(_json(root, "", random)).encode()


def _json(of: DdlField, name: str, random: Random) -> Any:
    """Returns a value of a field's type for JSON. `name` is that of the field around it, which has a name."""
    match of.type:
        case "struct":
            return {field.name: _json(field, field.name, random) for field in of.inside}
        case "array":
            return [_json(of.inside[0], name, random) for _ in range(random.randint(1, _MOST_ITEMS))]
        case "map":
            keys = [f"{name}-{number}" for number in range(random.randint(1, _MOST_ITEMS))]
            return {key: _json(of.inside[1], name, random) for key in keys}
        case "decimal" | "dec" | "numeric":
            precision, scale = (*of.numbers, 0)[:2] if of.numbers else (10, 0)
            digits = random.randrange(10 ** min(precision, _MOST_DIGITS))
            return digits / 10**scale if scale else digits
        case "varchar" | "char" | "character":
            return scalar("string", name, random)[: of.numbers[0] if of.numbers else None]
        case "binary":
            return base64.b64encode(random.randbytes(8)).decode()
        case "date":
            return str(_DAY + datetime.timedelta(days=random.randrange(365)))
        case "timestamp" | "timestamp_ltz" | "timestamp_ntz":
            at = datetime.datetime.combine(_DAY, datetime.time()) + datetime.timedelta(
                seconds=random.randrange(_YEAR_S), milliseconds=random.randrange(1_000)
            )
            zone = "" if of.type == "timestamp_ntz" else "Z"
            return f"{at.isoformat(timespec='milliseconds')}{zone}"
        case "boolean" | "string" | "float" | "double":
            return scalar(of.type, name, random)
        case "real":
            return scalar("float", name, random)
        case kind if kind in _BELOW:
            return random.randrange(_BELOW[kind])
        case other:
            raise UnknownType(f"a drill makes no values of the type {other.upper()}")


def avro_maker(schema: str) -> Callable[[Random], bytes]:
    """Returns a function that makes values of an Avro schema, in its binary encoding. Raises UnknownType."""
    named: dict[str, Any] = {}
    try:
        parsed = parse_schema(json.loads(schema), named_schemas=named)
    except Exception as wrong:  # noqa: BLE001 - any text may come, and fastavro raises what it raises
        raise UnknownType(f"no Avro schema: {wrong}") from None

    def make(random: Random) -> bytes:
        stream = io.BytesIO()
        schemaless_writer(stream, parsed, _avro(parsed, "value", random, named, 0))
        return stream.getvalue()

    make(random_of(""))  # names a type that is not known
    return make


def _avro(of: Any, name: str, random: Random, named: Mapping[str, Any], depth: int) -> Any:
    """Returns a value of a type, as fastavro takes it."""
    if depth > _DEEPEST:
        raise UnknownType(f"a drill makes no values of a type that contains itself ({name})")
    if isinstance(of, list):
        kind = next((kind for kind in of if kind != "null"), "null")
        return _avro(kind, name, random, named, depth + 1)
    kind = of["type"] if isinstance(of, dict) else of
    if isinstance(kind, dict | list):
        return _avro(kind, name, random, named, depth + 1)
    if kind in named and not isinstance(of, dict):
        return _avro(named[kind], name, random, named, depth + 1)
    if isinstance(of, dict) and "logicalType" in of and (made := _logical(of, kind, random)) is not None:
        return made
    match kind:
        case "record" | "error":
            return {
                field["name"]: _avro(field["type"], field["name"], random, named, depth + 1)
                for field in of["fields"]
            }
        case "enum":
            return random.choice(of["symbols"])
        case "fixed":
            return random.randbytes(of["size"])
        case "array":
            return [
                _avro(of["items"], name, random, named, depth + 1)
                for _ in range(random.randint(1, _MOST_ITEMS))
            ]
        case "map":
            return {
                f"{name}-{number}": _avro(of["values"], name, random, named, depth + 1)
                for number in range(random.randint(1, _MOST_ITEMS))
            }
        case "null":
            return None
        case _:
            return scalar(str(kind), name, random)


def _logical(of: Mapping[str, Any], kind: str, random: Random) -> Any:
    """Returns a value of a logical type as its plain type holds it; None where the plain one will do."""
    match of["logicalType"], kind:
        case "date", "int":
            return _SINCE_MS // 86_400_000 + random.randrange(365)
        case "time-millis", "int":
            return random.randrange(86_400_000)
        case "time-micros", "long":
            return random.randrange(86_400_000) * 1_000
        case (("timestamp-millis" | "local-timestamp-millis"), "long"):
            return _SINCE_MS + random.randrange(_YEAR_S) * 1_000
        case (("timestamp-micros" | "local-timestamp-micros"), "long"):
            return (_SINCE_MS + random.randrange(_YEAR_S) * 1_000) * 1_000
        case "uuid", "string":
            return str(UUID(int=random.getrandbits(128), version=4))
        case "decimal", ("bytes" | "fixed"):
            digits = random.randrange(10 ** min(int(of["precision"]), _MOST_DIGITS))
            return digits.to_bytes(of["size"] if kind == "fixed" else 8, "big")
        case _:
            return None
