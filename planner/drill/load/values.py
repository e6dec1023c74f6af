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
_DEEPEST = 12  # types within one another; a type that contains itself ends there


def random_of(seed: str) -> Random:
    """Returns the same random numbers for the same seed."""
    return Random(seed)  # noqa: S311 - they make samples, and no secrets


def json_maker(schema: str) -> Callable[[Random], bytes]:
    """Returns a function that makes JSON objects with the fields of a schema. Raises UnknownType."""
    fields = fields_of_ddl(schema)
    _object(fields, random_of(""))  # names a type that is not known
    return lambda random: _object(fields, random).encode()


def _object(fields: tuple[DdlField, ...], random: Random) -> str:
    members = (f"{json.dumps(field.name)}: {_json(field, field.name, random)}" for field in fields)
    return f"{{{', '.join(members)}}}"


def _json(of: DdlField, name: str, random: Random) -> str:
    """Returns a value of a field's type as JSON. `name` is that of the field around it, which has a name."""
    match of.type:
        case "struct":
            return _object(of.inside, random)
        case "array":
            items = (_json(of.inside[0], name, random) for _ in range(random.randint(1, _MOST_ITEMS)))
            return f"[{', '.join(items)}]"
        case "map":
            keys = [f"{name}-{number}" for number in range(random.randint(1, _MOST_ITEMS))]
            values = (f"{json.dumps(key)}: {_json(of.inside[1], name, random)}" for key in keys)
            return f"{{{', '.join(values)}}}"
        case "decimal" | "dec" | "numeric":
            precision, scale = (*of.numbers, 0)[:2] if of.numbers else (10, 0)
            return _decimal(random.randrange(10 ** min(precision, _MOST_DIGITS)), scale)
        case "string" | "varchar" | "char" | "character":
            text = _text(name, random)
            return json.dumps(text[: of.numbers[0]] if of.numbers else text)
        case other if other in _PLAIN:
            return _PLAIN[other](random)
        case other:
            raise UnknownType(f"a drill makes no values of the type {other.upper()}")


def _whole(most: int) -> Callable[[Random], str]:
    return lambda random: str(random.randrange(most))


def _fraction(random: Random) -> str:
    return str(random.randrange(_MOST_NUMBER) / 4)


_PLAIN: Mapping[str, Callable[[Random], str]] = {
    "boolean": lambda random: random.choice(("true", "false")),
    **dict.fromkeys(("byte", "tinyint"), _whole(100)),
    **dict.fromkeys(("short", "smallint"), _whole(10_000)),
    **dict.fromkeys(("int", "integer", "long", "bigint", "variant"), _whole(_MOST_NUMBER)),
    **dict.fromkeys(("float", "real", "double"), _fraction),
    "binary": lambda random: json.dumps(base64.b64encode(random.randbytes(8)).decode()),
    "date": lambda random: json.dumps(str(_DAY + datetime.timedelta(days=random.randrange(365)))),
    **dict.fromkeys(("timestamp", "timestamp_ltz"), lambda random: json.dumps(f"{_time(random)}Z")),
    "timestamp_ntz": lambda random: json.dumps(_time(random)),
}


def _decimal(digits: int, scale: int) -> str:
    text = str(digits).rjust(scale + 1, "0")
    return f"{text[:-scale]}.{text[-scale:]}" if scale else text


def _text(name: str, random: Random) -> str:
    return f"{name}-{random.randrange(100_000)}"


def _time(random: Random) -> str:
    at = datetime.datetime.combine(_DAY, datetime.time()) + datetime.timedelta(
        seconds=random.randrange(_YEAR_S), milliseconds=random.randrange(1_000)
    )
    return at.isoformat(timespec="milliseconds")


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
        wanted = next((one for one in of if one != "null"), "null")
        return _avro(wanted, name, random, named, depth + 1)
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
                one["name"]: _avro(one["type"], one["name"], random, named, depth + 1) for one in of["fields"]
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
        case _:
            return _plain(str(kind), name, random)


def _plain(kind: str, name: str, random: Random) -> Any:
    match kind:
        case "null":
            return None
        case "boolean":
            return random.random() < 0.5
        case "int" | "long":
            return random.randrange(_MOST_NUMBER)
        case "float" | "double":
            return random.randrange(_MOST_NUMBER) / 4
        case "bytes":
            return random.randbytes(8)
        case "string":
            return _text(name, random)
        case other:
            raise UnknownType(f"a drill makes no values of the type {other}")


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
