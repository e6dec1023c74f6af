"""Makes values that fit a declared schema, as JSON, Avro or Protobuf. The same seed gives the same values.

A schema in Spark's DDL is read as a type of Avro, so one function makes the values of both. Fields are never
null: a value shows what an expression makes of content. It is pure.
"""

import base64
import datetime
import io
import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from random import Random
from typing import Any
from uuid import UUID

from fastavro import parse_schema, schemaless_writer
from google.protobuf.descriptor import FieldDescriptor

from runtime.contract.spec.transform import FormatSpec
from runtime.sql.formats.encoded import BadSchema
from runtime.sql.formats.protobuf_schema import TIMESTAMP, ddl_of, entry_of, read_schema

_SINCE = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
_MOST_DIGITS = 15
_MOST_NUMBER = 1_000_000
_MOST_ITEMS = 3
_DEEPEST = 12  # types within one another; a type that contains itself ends there
_TOKEN = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)|`(?P<quoted>(?:[^`]|``)+)`|(?P<number>\d+)"
    r"|(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(?P<mark>[<>(),:]))",
    re.DOTALL,
)
# The types of Spark's DDL as types of Avro. `below` limits whole numbers.
_DDL_TYPES: Mapping[str, Any] = {
    name: type_
    for names, type_ in (
        ("boolean", {"type": "boolean"}),
        ("string varchar char character", {"type": "string"}),
        ("float real", {"type": "float"}),
        ("double", {"type": "double"}),
        ("binary", {"type": "bytes"}),
        ("byte tinyint", {"type": "int", "below": 100}),
        ("short smallint", {"type": "int", "below": 10_000}),
        ("int integer long bigint variant", {"type": "long"}),
        ("decimal dec numeric", {"type": "bytes", "logicalType": "decimal"}),
        ("date", {"type": "int", "logicalType": "date"}),
        ("timestamp timestamp_ltz", {"type": "long", "logicalType": "timestamp-millis"}),
        ("timestamp_ntz", {"type": "long", "logicalType": "local-timestamp-millis"}),
    )
    for name in names.split()
}
# The values of types that hold no others: of a type, the name of the field around it, and random numbers.
_LEAVES: Mapping[str, Callable[[Mapping[str, Any], str, Random], Any]] = {
    "null": lambda _of, _name, _random: None,
    "boolean": lambda _of, _name, random: random.random() < 0.5,
    "int": lambda of, _name, random: random.randrange(of.get("below", _MOST_NUMBER)),
    "long": lambda _of, _name, random: random.randrange(_MOST_NUMBER),
    "float": lambda _of, _name, random: random.randrange(_MOST_NUMBER) / 4,
    "double": lambda _of, _name, random: random.randrange(_MOST_NUMBER) / 4,
    "bytes": lambda _of, _name, random: random.randbytes(8),
    "string": lambda of, name, random: f"{name}-{random.randrange(100_000)}"[: of.get("longest")],
    "enum": lambda of, _name, random: random.choice(of["symbols"]),
    "fixed": lambda of, _name, random: random.randbytes(of["size"]),
}
# The type of each field of Protobuf that is no whole number.
_PROTOBUF_TYPES = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_BOOL: "boolean",
    FieldDescriptor.TYPE_FLOAT: "float",
    FieldDescriptor.TYPE_DOUBLE: "double",
}
Make = Callable[[Random], bytes]


class UnknownType(ValueError):
    """The text is no schema, or has a type of which no values are made. The error names it."""


def random_of(seed: str) -> Random:
    """Returns the same random numbers for the same seed."""
    return Random(seed)  # noqa: S311 - they make samples, and no secrets


def maker_of(form: FormatSpec) -> Make | None:
    """Returns a function that makes values of a format; None without a schema. Raises UnknownType."""
    makers = {"json": _json_maker, "avro": _avro_maker, "protobuf": _protobuf_maker}
    if form.format not in makers:
        return None
    make = makers[form.format](form.schema or "")
    make(random_of(""))  # names a type that is not known
    return make


def _json_maker(schema: str) -> Make:
    reader = _DdlReader(schema)
    record = {"type": "record", "fields": reader.fields()}
    reader.take("end")
    return lambda random: json.dumps(_value(record, "", random, {}), default=_as_json).encode()


def _as_json(value: Any) -> Any:
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case datetime.datetime():
            return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case Decimal():
            return float(value) if value.as_tuple().exponent else int(value)
        case _:
            return str(value)


def _avro_maker(schema: str) -> Make:
    named: dict[str, Any] = {}
    try:
        parsed = parse_schema(json.loads(schema), named_schemas=named)
    except Exception as wrong:  # noqa: BLE001 - any text may come, and fastavro raises what it raises
        raise UnknownType(f"no Avro schema: {wrong}") from None

    def make(random: Random) -> bytes:
        stream = io.BytesIO()
        schemaless_writer(stream, parsed, _value(parsed, "value", random, named))
        return stream.getvalue()

    return make


def _protobuf_maker(schema: str) -> Make:
    try:
        ddl_of(schema)  # names what a transform can't read, such as a message that contains itself
        parse = read_schema(schema).parse
    except BadSchema as wrong:
        raise UnknownType(f"no schema of Protobuf: {wrong}") from None

    def make(random: Random) -> bytes:
        message = parse(b"")
        _fill(message, random)
        data: bytes = message.SerializeToString(deterministic=True)
        return data

    return make


def _value(of: Any, name: str, random: Random, named: Mapping[str, Any], depth: int = 0) -> Any:
    """Returns a value of a type of Avro, as fastavro takes it. `name` is that of the field around it."""
    if depth > _DEEPEST:
        raise UnknownType(
            f"a drill makes no values of more than {_DEEPEST} types within one another, or of a type that"
            f" contains itself ({name})"
        )

    def inner(type_: Any, name: str = name) -> Any:
        return _value(type_, name, random, named, depth + 1)

    match of:
        case list():
            return inner(next((branch for branch in of if branch != "null"), "null"))
        case str():
            return inner(named.get(of, {"type": of}))
        case {"type": dict() | list() as type_}:
            return inner(type_)
        case {"type": "record" | "error", "fields": fields}:
            return {field["name"]: inner(field["type"], field["name"]) for field in fields}
        case {"type": "array", "items": items}:
            return [inner(items) for _ in range(random.randint(1, _MOST_ITEMS))]
        case {"type": "map", "values": values}:
            return {f"{name}-{number}": inner(values) for number in range(random.randint(1, _MOST_ITEMS))}
    if (logical := _logical(of, random)) is not None:
        return logical
    if of["type"] not in _LEAVES:
        raise UnknownType(f"a drill makes no values of the type {of['type']}")
    return _LEAVES[of["type"]](of, name, random)


def _logical(of: Mapping[str, Any], random: Random) -> Any:
    """Returns a value of a logical type; None where the plain type will do."""
    moment = _SINCE + datetime.timedelta(
        days=random.randrange(365), milliseconds=random.randrange(86_400_000)
    )
    match of.get("logicalType"), of["type"]:
        case "date", "int":
            return moment.date()
        case ("time-millis", "int") | ("time-micros", "long"):
            return moment.time()
        case (("timestamp-millis" | "timestamp-micros"), "long"):
            return moment
        case (("local-timestamp-millis" | "local-timestamp-micros"), "long"):
            return moment.replace(tzinfo=None)
        case "uuid", "string":
            return UUID(int=random.getrandbits(128), version=4)
        case "decimal", ("bytes" | "fixed"):
            digits = random.randrange(10 ** min(int(of["precision"]), _MOST_DIGITS))
            return Decimal(digits).scaleb(-int(of.get("scale", 0)))
        case _:
            return None


def _fill(message: Any, random: Random) -> None:
    """Sets every field of a message of Protobuf, and of a oneof the first member."""
    if message.DESCRIPTOR.full_name == TIMESTAMP:
        message.seconds = int(_SINCE.timestamp()) + random.randrange(365 * 86_400)
        return
    for field in message.DESCRIPTOR.fields:
        oneof = field.containing_oneof
        if oneof is not None and oneof.fields[0] is not field:
            continue
        value, entry = getattr(message, field.name), entry_of(field)
        for _ in range(random.randint(1, _MOST_ITEMS) if field.is_repeated else 1):
            if entry is not None:
                key, item = (entry.fields_by_name[name] for name in ("key", "value"))
                if item.message_type is None:
                    value[_plain(key, random)] = _plain(item, random)
                else:
                    _fill(value[_plain(key, random)], random)
            elif field.message_type is not None:
                inner = value.add() if field.is_repeated else value
                inner.SetInParent()
                _fill(inner, random)
            elif field.is_repeated:
                value.append(_plain(field, random))
            else:
                setattr(message, field.name, _plain(field, random))


def _plain(field: FieldDescriptor, random: Random) -> Any:
    if field.type == FieldDescriptor.TYPE_ENUM:
        return random.choice(field.enum_type.values).number
    return _value(_PROTOBUF_TYPES.get(field.type, "long"), field.name, random, {})


class _DdlReader:
    """Reads a schema in Spark's DDL, such as `id BIGINT, home STRUCT<city: STRING>`, without Spark.

    The tokens, pairs of a kind and a text, are read from left to right. Raises UnknownType.
    """

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        at, text = 0, text.rstrip()
        while at < len(text):
            token = _TOKEN.match(text, at)
            if token is None:
                raise UnknownType(f"no schema in Spark's DDL at {text[at : at + 20].strip()!r}")
            kind = str(token.lastgroup)
            self._tokens.append((kind, token[kind]))
            at = token.end()
        self._tokens.append(("end", ""))
        self._tokens.reverse()  # the next one is the last

    def fields(self) -> list[dict[str, Any]]:
        """Reads `name TYPE` or `name: TYPE`, with commas between. NOT NULL and COMMENT are passed over."""
        fields = []
        while True:
            quoted = self._tokens[-1][0] == "quoted"
            name = self.take("quoted").replace("``", "`") if quoted else self.take("name")
            self._skips(":")
            fields.append({"name": name, "type": self._type()})
            for word in ("not", "comment"):
                if self._tokens[-1][0] == "name" and self._tokens[-1][1].lower() == word:
                    del self._tokens[-min(2, len(self._tokens) - 1) :]
            if not self._skips(","):
                return fields

    def take(self, kind: str, mark: str = "") -> str:
        """Reads a token of this kind."""
        token, text = self._tokens[-1]
        if token != kind or mark not in ("", text):
            raise UnknownType(f"no schema in Spark's DDL at {text!r}, where {mark or kind} must be")
        if kind != "end":
            self._tokens.pop()
        return text

    def _type(self) -> dict[str, Any]:
        name = self.take("name").lower()
        if name in ("struct", "array", "map") and self._skips("<"):
            if name == "struct":
                made: dict[str, Any] = {"type": "record", "fields": self.fields()}
            elif name == "array":
                made = {"type": "array", "items": self._type()}
            else:
                self._type()  # keys are text in JSON
                self.take("mark", ",")
                made = {"type": "map", "values": self._type()}
            self.take("mark", ">")
            return made
        if name not in _DDL_TYPES:
            raise UnknownType(f"a drill makes no values of the type {name.upper()}")
        numbers: list[int] = []
        if self._skips("("):
            numbers.append(int(self.take("number")))
            while self._skips(","):
                numbers.append(int(self.take("number")))
            self.take("mark", ")")
        made = dict(_DDL_TYPES[name])
        if made.get("logicalType") == "decimal":
            made |= dict(zip(("precision", "scale"), numbers or (10,), strict=False))
        elif numbers:
            made["longest"] = numbers[0]
        return made

    def _skips(self, mark: str) -> bool:
        skips = self._tokens[-1] == ("mark", mark)
        if skips:
            self._tokens.pop()
        return skips
