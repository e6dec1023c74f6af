"""Reads Protobuf descriptors: the fields of a message as Spark's DDL, and what of them can be set or dropped.

The functions are pure. A schema is the full name of a message, a blank, and a FileDescriptorSet in base64, as
`protoc --include_imports --descriptor_set_out` writes it. Errors name the place in the message.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import functools
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeVar

from runtime.sql.formats.encoded import BadSchema
from runtime.sql.formats.protobuf_wire import (
    FIXED32,
    FIXED64,
    MOST_NUMBER,
    SIZED,
    VARINT,
    MalformedMessage,
    parts_of,
    read_varint,
    signed,
)

T = TypeVar("T")

TIMESTAMP = "google.protobuf.Timestamp"

_MOST_DESCRIPTORS = 1 << 19  # bytes: the job's settings are one record of a topic
_MOST_FIELDS = 5_000  # in the DDL
_DEEPEST_TYPE = 50  # messages within one another, in the DDL and as declarations
_MOST_NAME = 255  # characters of a name
_MOST_COMPARED = 100_000  # characters of names among which similar ones are looked for
_KEPT = 8  # schemas that are not read again
_WAY_OUT = "write it with protoc --include_imports --descriptor_set_out=FILE"


class ProtobufType(IntEnum):
    """The types of fields, by the numbers that descriptors have for them."""

    DOUBLE = 1
    FLOAT = 2
    INT64 = 3
    UINT64 = 4
    INT32 = 5
    FIXED64 = 6
    FIXED32 = 7
    BOOL = 8
    STRING = 9
    GROUP = 10
    MESSAGE = 11
    BYTES = 12
    UINT32 = 13
    ENUM = 14
    SFIXED32 = 15
    SFIXED64 = 16
    SINT32 = 17
    SINT64 = 18


_PLAIN = {
    ProtobufType.DOUBLE: "DOUBLE",
    ProtobufType.FLOAT: "FLOAT",
    ProtobufType.INT64: "BIGINT",
    ProtobufType.UINT64: "DECIMAL(20, 0)",
    ProtobufType.INT32: "INT",
    ProtobufType.FIXED64: "DECIMAL(20, 0)",
    ProtobufType.FIXED32: "BIGINT",
    ProtobufType.BOOL: "BOOLEAN",
    ProtobufType.STRING: "STRING",
    ProtobufType.BYTES: "BINARY",
    ProtobufType.UINT32: "BIGINT",
    ProtobufType.ENUM: "STRING",
    ProtobufType.SFIXED32: "INT",
    ProtobufType.SFIXED64: "BIGINT",
    ProtobufType.SINT32: "INT",
    ProtobufType.SINT64: "BIGINT",
}


FIXED_FORMS = {
    ProtobufType.DOUBLE: (FIXED64, struct.Struct("<d")),
    ProtobufType.FLOAT: (FIXED32, struct.Struct("<f")),
    ProtobufType.FIXED64: (FIXED64, struct.Struct("<Q")),
    ProtobufType.FIXED32: (FIXED32, struct.Struct("<I")),
    ProtobufType.SFIXED64: (FIXED64, struct.Struct("<q")),
    ProtobufType.SFIXED32: (FIXED32, struct.Struct("<i")),
}
SIZED_TYPES = (ProtobufType.STRING, ProtobufType.BYTES, ProtobufType.MESSAGE)
BITS = {ProtobufType.INT32: 32, ProtobufType.UINT32: 32, ProtobufType.SINT32: 32}
SIGNED = (ProtobufType.INT32, ProtobufType.INT64, ProtobufType.SINT32, ProtobufType.SINT64)
ZIGZAG = (ProtobufType.SINT32, ProtobufType.SINT64)


def wire_of(kind: ProtobufType) -> int:
    """Returns the wire type of a value."""
    if kind in FIXED_FORMS:
        return FIXED_FORMS[kind][0]
    return SIZED if kind in SIZED_TYPES else VARINT


@dataclass(frozen=True, slots=True)
class EnumType:
    """An enum: its symbols by number. The first name of a number counts.

    `numbers` has every name. A closed enum, as those of proto2, has no other numbers.
    """

    symbols: dict[int, str]
    numbers: dict[str, int]
    closed: bool


@dataclass(frozen=True, slots=True)
class ProtobufField:
    """A field of a message. `oneof` is the index of the oneof that it is a member of.

    `presence` says that a message without it differs from one with its default.
    """

    name: str
    number: int
    type: ProtobufType
    of: str = ""  # the full name of its message or enum
    repeated: bool = False
    required: bool = False
    presence: bool = False
    oneof: int | None = None


@dataclass(frozen=True, slots=True)
class MessageType:
    """A message: its fields in the order of their declaration."""

    name: str
    fields: tuple[ProtobufField, ...]
    is_entry: bool = False  # of a map: its fields are the key and the value
    is_readable: bool = True  # its file has the syntax proto2 or proto3

    def field(self, name: str) -> ProtobufField | None:
        """Returns the field of a name."""
        return next((one for one in self.fields if one.name == name), None)


@dataclass(slots=True)
class _Types:
    messages: dict[str, MessageType] = field(default_factory=dict)
    enums: dict[str, EnumType] = field(default_factory=dict)


class ProtobufSchema:
    """The types of a descriptor set. `root` is the message that values have."""

    def __init__(self, text: str) -> None:
        """Raises BadSchema."""
        name, _, encoded = text.strip().partition(" ")
        if len(encoded) > _MOST_DESCRIPTORS * 4 // 3 + 4:
            raise BadSchema(
                f"the descriptor set has no message {name[:_MOST_NAME]}, or the message needs more than"
                f" {_MOST_DESCRIPTORS >> 10} KiB of it"
            )
        try:
            data = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            raise BadSchema("no name of a message and a descriptor set in base64") from None
        types = _Types()
        try:
            for one in parts_of(data):
                if (one.number, one.wire) != (1, SIZED):
                    raise MalformedMessage("it has other fields than files")
                _read_file(data[one.at : one.end], types)
        except BadSchema:
            raise
        except (IndexError, KeyError, StopIteration, ValueError):
            raise BadSchema(f"the file is no FileDescriptorSet: {_WAY_OUT}") from None
        self._types = types
        wanted = name.removeprefix(".")
        if wanted not in types.messages:
            known = sorted(one for one, of in types.messages.items() if not of.is_entry)
            ends = [one for one in known if one.endswith(f".{wanted}")]
            few = known if sum(map(len, known)) <= _MOST_COMPARED else ()
            near = ends or difflib.get_close_matches(wanted[:_MOST_NAME], few, 3, 0.5) or known[:10]
            raise BadSchema(
                f"the descriptor set has no message {wanted}: it has {', '.join(near[:10]) or 'no messages'}"
            )
        self.root = types.messages[wanted]

    def message(self, one: ProtobufField, place: str) -> MessageType:
        """Returns the message that a field holds. Raises BadSchema where the descriptor set lacks it."""
        return _known(self._types.messages.get(one.of), one, place)

    def enum(self, one: ProtobufField, place: str) -> EnumType:
        """Returns the enum of a field. Raises BadSchema where the descriptor set lacks it."""
        return _known(self._types.enums.get(one.of), one, place)

    def entry(self, one: ProtobufField, place: str) -> tuple[ProtobufField, ProtobufField] | None:
        """Returns the key and the value of a map; None for any other field."""
        if one.type is not ProtobufType.MESSAGE or not one.repeated:
            return None
        entry = self.message(one, place)
        key, value = entry.field("key"), entry.field("value")
        return (key, value) if entry.is_entry and key is not None and value is not None else None

    def check_timestamp(self, one: ProtobufField, place: str) -> None:
        """Raises BadSchema where the descriptor set lacks Timestamp, or has another one."""
        if self.message(one, place).fields != _TIMESTAMP_FIELDS:
            raise BadSchema(f"{place}: {TIMESTAMP} has other fields than int64 seconds = 1, int32 nanos = 2")


_TIMESTAMP_FIELDS = (
    ProtobufField("seconds", 1, ProtobufType.INT64),
    ProtobufField("nanos", 2, ProtobufType.INT32),
)


@functools.lru_cache(_KEPT)
def read_schema(text: str) -> ProtobufSchema:
    """Returns the types of a schema, which are read once. Raises BadSchema."""
    return ProtobufSchema(text)


def _known(found: T | None, one: ProtobufField, place: str) -> T:
    if found is None:
        raise BadSchema(f"the descriptor set lacks {one.of}, the type of {place}: {_WAY_OUT}")
    return found


def _read_file(data: bytes, types: _Types) -> None:
    """Adds the types of a file."""
    package = syntax = ""
    messages: list[bytes] = []
    enums: list[bytes] = []
    for one in parts_of(data):
        content = data[one.at : one.end]
        match one.number:
            case 2:
                package = content.decode()
            case 4:
                messages.append(content)
            case 5:
                enums.append(content)
            case 12:
                syntax = content.decode()
    space = f"{package}." if package else ""
    for each in enums:
        _read_enum(each, space, types, syntax)
    for each in messages:
        _read_message(each, space, types, syntax)


def _read_message(data: bytes, space: str, types: _Types, syntax: str, depth: int = 1) -> None:
    if depth > _DEEPEST_TYPE:
        raise BadSchema(f"more than {_DEEPEST_TYPE} messages are declared within one another")
    parts = [(one.number, data[one.at : one.end]) for one in parts_of(data)]
    name = space + _identifier(next(content for number, content in parts if number == 1), space)
    is_entry = any(
        _numbers(content).get(7, 0) for number, content in parts if number == 7
    )  # the option map_entry
    fields = tuple(_read_field(content, syntax, name) for number, content in parts if number == 2)
    for which in ("name", "number"):
        ((found, times),) = Counter(getattr(one, which) for one in fields).most_common(1) or [(None, 0)]
        if times > 1:
            raise BadSchema(f"{name} has several fields of the {which} {found}")
    types.messages[name] = MessageType(name, fields, is_entry, syntax in ("", "proto2", "proto3"))
    for number, content in parts:
        if number == 3:
            _read_message(content, f"{name}.", types, syntax, depth + 1)
        elif number == 4:
            _read_enum(content, f"{name}.", types, syntax)


def _identifier(content: bytes, place: str) -> str:
    """Returns a name. Raises BadSchema for any other text, because names become a part of the DDL."""
    name = content.decode()
    if len(name) > _MOST_NAME or not (name.isascii() and name.isidentifier()):
        raise BadSchema(
            f"{place or 'the descriptor set'} declares {name[:50]!r}, which is no name in Protobuf"
        )
    return name


def _read_field(data: bytes, syntax: str, place: str) -> ProtobufField:
    texts = {one.number: data[one.at : one.end] for one in parts_of(data) if one.wire == SIZED}
    numbers = _numbers(data)
    label, kind = numbers.get(4, 1), ProtobufType(numbers[5])
    presence = (
        syntax != "proto3"
        or 9 in numbers
        or bool(numbers.get(17))
        or kind in (ProtobufType.MESSAGE, ProtobufType.GROUP)
    )
    name = _identifier(texts[1], place)
    if not 0 < numbers[3] <= MOST_NUMBER:
        raise BadSchema(f"{place}.{name} has the number {numbers[3]}, which no field can have")
    return ProtobufField(
        name=name,
        number=numbers[3],
        type=kind,
        of=texts.get(6, b"").decode().removeprefix("."),
        repeated=label == 3,
        required=label == 2,
        presence=presence and label != 3,
        oneof=None if numbers.get(17) else numbers.get(9),
    )


def _read_enum(data: bytes, space: str, types: _Types, syntax: str) -> None:
    name = ""
    symbols: dict[int, str] = {}
    numbers: dict[str, int] = {}
    for one in parts_of(data):
        content = data[one.at : one.end]
        if one.number == 1:
            name = space + content.decode()
        elif one.number == 2:
            number = signed(_numbers(content).get(2, 0), 32)
            symbol = next(
                content[each.at : each.end] for each in parts_of(content) if each.number == 1
            ).decode()
            symbols.setdefault(number, symbol)
            numbers[symbol] = number
    types.enums[name] = EnumType(symbols, numbers, closed=syntax != "proto3")


def _numbers(data: bytes) -> dict[int, int]:
    return {one.number: read_varint(data, one.at)[0] for one in parts_of(data) if one.wire == VARINT}


def ddl_of(text: str) -> str:
    """Returns the fields of a message in Spark's DDL. Raises BadSchema for what expressions can't read."""
    schema = read_schema(text)
    if not schema.root.fields:
        raise BadSchema(f"{schema.root.name} has no fields")
    return ", ".join(_Ddl(schema).fields(schema.root, "value", (), " "))


class _Ddl:
    """It writes one DDL. A message is written again at each place, so the fields are counted."""

    def __init__(self, schema: ProtobufSchema) -> None:
        self._schema = schema
        self._count = 0

    def fields(self, message: MessageType, place: str, inside: tuple[str, ...], colon: str) -> Iterator[str]:
        if message.name in inside:
            raise BadSchema(f"{place} contains itself: expressions can't read a recursive message")
        if len(inside) >= _DEEPEST_TYPE:
            raise BadSchema(f"value has more than {_DEEPEST_TYPE} messages within one another")
        if not message.is_readable:
            raise BadSchema(
                f"{place}: {message.name} is declared with an edition: proto2 and proto3 are read"
            )
        self._count += len(message.fields)
        if self._count > _MOST_FIELDS:
            raise BadSchema(f"value has more than {_MOST_FIELDS:,} fields, with those of its messages")
        for one in message.fields:
            where = f"{place}.{one.name}"
            yield f"`{one.name}`{colon}{self._field(one, where, (*inside, message.name))}"

    def _field(self, one: ProtobufField, place: str, inside: tuple[str, ...]) -> str:
        if (entry := self._schema.entry(one, place)) is not None:
            return f"MAP<STRING, {self._type(entry[1], place, inside)}>"
        kind = self._type(one, place, inside)
        return f"ARRAY<{kind}>" if one.repeated else kind

    def _type(self, one: ProtobufField, place: str, inside: tuple[str, ...]) -> str:
        match one.type:
            case ProtobufType.GROUP:
                raise BadSchema(f"{place} is a group, which expressions can't read")
            case ProtobufType.MESSAGE if one.of == TIMESTAMP:
                self._schema.check_timestamp(one, place)
                return "TIMESTAMP"
            case ProtobufType.MESSAGE:
                inner = self.fields(self._schema.message(one, place), place, inside, ": ")
                return f"STRUCT<{', '.join(inner)}>"
            case ProtobufType.ENUM:
                self._schema.enum(one, place)
                return _PLAIN[one.type]
            case _:
                return _PLAIN[one.type]


def change_problem(text: str, path: Sequence[str], *, drop: bool) -> str | None:
    """Returns why a field of the message can't be set or dropped; None where it can."""
    schema = read_schema(text)
    message, place = schema.root, "value"
    for number, name in enumerate(path):
        one = message.field(name)
        if one is None:
            return f"{place} has no field {name}"
        place = f"{place}.{name}"
        if number < len(path) - 1:
            if one.type is not ProtobufType.MESSAGE or one.repeated or one.of == TIMESTAMP:
                return f"{place} is no single message"
            message = schema.message(one, place)
        elif drop and one.required:
            return f"{place} is required: a record without it would not be valid"
        elif not drop and (one.repeated or one.type not in _PLAIN):
            return (
                f"{place} is of a type that can't be set in Protobuf: single booleans, numbers, text, bytes"
                " and enums can"
            )
    return None
