"""Decodes messages of Protobuf for expressions, and writes them again with fields that changed.

The library of Protobuf parses and writes the messages. Fields that the message does not declare are kept.
Spark reads the decoded message as JSON: a field with presence that a message does not have is null, any other
one is its default.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from operator import attrgetter
from typing import Any

import msgspec
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from runtime.contract.records.schema_names import WIRE_PREFIX, schema_id
from runtime.contract.spec.transform import FormatSpec
from runtime.sql.formats.encoded import BadSchema, Changes, RecordValues, UndecodableValue, UneditableValue
from runtime.sql.formats.protobuf_schema import PLAIN, TIMESTAMP, ddl_of, entry_of, is_message, read_schema
from runtime.sql.formats.protobuf_wire import SIZED, MalformedMessage, fields_of, read_varint, without
from runtime.sql.formats.registry import WriterSchemas

_MOST_NAMES = 32 << 20  # bytes of JSON for the names and defaults of one record's messages
_MOST_MEMORY = 256 << 20  # bytes that the parser takes for the messages of one record
_FIELD_SIZE, _MESSAGE_SIZE = 8, 32  # bytes in memory
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_S, _LAST_S = -62_135_596_800, 253_402_300_799  # of the years 1 to 9999
_MOST_NANOS = 999_999_999
_TEXT_NUMBER = re.compile("0|-?[1-9][0-9]*")
_NEW = msgspec.json.Decoder(float_hook=Decimal)

_Read = Callable[[Any], Any]  # from a value of the library to the one that Spark sees


class _MessageReader:
    """A reader makes the fields of one message: values that JSON has.

    `readers` has the readers of a schema by the names of their messages; a message may contain itself.
    `memory` and `names` are the bytes that a message takes once it is parsed, and those of its names as JSON.
    """

    def __init__(self, message: Descriptor, readers: dict[str, _MessageReader]) -> None:
        readers[message.full_name] = self
        self.memory = _MESSAGE_SIZE + len(message.fields) * _FIELD_SIZE
        self.names = len(msgspec.json.encode({field.name: 0 for field in message.fields}))
        self._readers = readers
        self._inner: dict[int, _MessageReader] = {}  # of the fields that hold messages, by number
        self._fields = [(field.name, self._getter(field)) for field in message.fields]

    def read(self, message: Any) -> dict[str, Any]:
        """Returns the fields. Raises MalformedMessage."""
        return {name: get(message) for name, get in self._fields}

    def messages(self, data: bytes, begin: int, end: int) -> Iterator[_MessageReader]:
        """Yields the reader of each message in the bytes. Raises MalformedMessage."""
        yield self
        for field in fields_of(data, begin, end):
            if field.wire == SIZED and (inner := self._inner.get(field.number)) is not None:
                yield from inner.messages(data, field.at, field.end)

    def _getter(self, field: FieldDescriptor) -> _Read:
        name, get, convert = field.name, attrgetter(field.name), self._converter(field)
        if (entry := entry_of(field)) is not None:
            convert = self._inner[field.number]._converter(entry.fields_by_name["value"])
            # Entries of the library have no order: copy and verify must see the same one.
            return lambda message: {
                str(key).lower() if isinstance(key, bool) else str(key): convert(value) if convert else value
                for key, value in sorted(get(message).items())
            }
        if field.is_repeated:
            return lambda message: [convert(value) if convert else value for value in get(message)]
        if field.has_presence:
            return lambda message: (
                (convert(get(message)) if convert else get(message)) if message.HasField(name) else None
            )
        return (lambda message: convert(get(message))) if convert else get

    def _converter(self, field: FieldDescriptor) -> _Read | None:
        """Returns what makes a value of JSON of one of the field; None where it is one."""
        if field.type == FieldDescriptor.TYPE_ENUM:
            # The first name of a number counts.
            symbols = {value.number: value.name for value in reversed(field.enum_type.values)}
            return lambda value: symbols.get(value) or str(value)
        if field.message_type is None:
            return None
        full = field.message_type.full_name
        inner = self._readers.get(full) or _MessageReader(field.message_type, self._readers)
        self._inner[field.number] = inner
        return _time if full == TIMESTAMP else inner.read


class _MessageEdit:
    """An edit changes the same fields in every message of a type."""

    def __init__(self, message: Descriptor, changes: Changes, place: str) -> None:
        """Raises BadSchema where a field can't be changed."""
        fields = message.fields_by_name
        for name in (*changes.drop, *changes.set, *changes.inside):
            if name not in fields:
                raise BadSchema(f"{place} has no field {name}")
        if required := [name for name in sorted(changes.drop) if fields[name].is_required]:
            raise BadSchema(f"{place}.{required[0]} is required: a record without it would not be valid")
        self._place = place
        self._drop = sorted(changes.drop)
        self._set = [_Assignment(fields[name], at, f"{place}.{name}") for name, at in changes.set.items()]
        self._inside: list[tuple[str, _MessageEdit]] = []
        for name, inner in changes.inside.items():
            of = fields[name].message_type
            if not is_message(fields[name]) or fields[name].is_repeated or of.full_name == TIMESTAMP:
                raise BadSchema(f"{place}.{name} is no single message")
            self._inside.append((name, _MessageEdit(of, inner, f"{place}.{name}")))
        self._numbers = frozenset(fields[name].number for name in (*changes.drop, *changes.set))

    def apply(self, message: Any, values: Sequence[Any]) -> None:
        """Changes the fields of a message. Raises UneditableValue."""
        if any(field.field_number in self._numbers for field in UnknownFieldSet(message)):
            # A value of another wire type, or no symbol of its enum, is an unknown field: it must not travel.
            kept = without(message.SerializePartialToString(), self._numbers)
            message.Clear()
            message.MergeFromString(kept)
        chosen = [each.oneof for each in self._set if each.oneof and values[each.index] is not None]
        if len(chosen) > len(set(chosen)):
            raise UneditableValue(f"new values of several members of a oneof of {self._place}")
        for name in self._drop:
            message.ClearField(name)
        for assignment in sorted(self._set, key=lambda each: values[each.index] is not None):
            assignment.apply(message, values[assignment.index])
        for name, edit in self._inside:
            if message.HasField(name):
                edit.apply(getattr(message, name), values)


class _Assignment:
    """An assignment sets one field from its new JSON value; null clears the field."""

    def __init__(self, field: FieldDescriptor, index: int, place: str) -> None:
        """Raises BadSchema for a field that can't be set."""
        if field.is_repeated or field.type not in PLAIN:
            raise BadSchema(
                f"{place} is of a type that can't be set in Protobuf: single booleans, numbers, text, bytes"
                " and enums can"
            )
        self.index = index
        self.oneof = field.containing_oneof and field.containing_oneof.name
        self._name, self._place, self._required = field.name, place, field.is_required
        self._convert = _from_json(field)

    def apply(self, message: Any, value: Any) -> None:
        """Raises UneditableValue."""
        if value is None:
            if self._required:
                raise UneditableValue(
                    f"the new value of {self._place} is null, which its message does not allow"
                )
            message.ClearField(self._name)
            return
        try:
            setattr(message, self._name, self._convert(value))
        except (ArithmeticError, TypeError, ValueError, struct.error):
            raise UneditableValue(f"the new value of {self._place} does not fit its type") from None


class ProtobufValues(RecordValues):
    """The values of Protobuf in one part of a flow's records.

    With a registry, a value has Confluent's wire format: a zero, the id of its writer's schema in four bytes,
    the place of its message in that schema, then the value. `prepare` fetches the schemas that are not known,
    so that a value of another message is told apart. The declared message reads the fields.
    """

    def __init__(self, form: FormatSpec, changes: Changes) -> None:
        """Raises BadSchema."""
        schema = read_schema(form.schema or "")
        self._message = schema.root.full_name
        self._parse = schema.parse
        readers: dict[str, _MessageReader] = {}
        self._reader = _MessageReader(schema.root, readers)
        # A message takes two bytes at least. A record of fewer bytes is within both limits.
        self._small = 2 * min(
            _MOST_MEMORY // max(reader.memory for reader in readers.values()),
            _MOST_NAMES // max(reader.names for reader in readers.values()),
        )
        self._edit = _MessageEdit(schema.root, changes, "value")
        self._written: WriterSchemas[dict[tuple[int, ...], str]] | None = None
        if form.registry:
            self._written = WriterSchemas(form.registry, "PROTOBUF", lambda text, _: message_names(text))

    @classmethod
    def ddl(cls, schema: str) -> str:
        return ddl_of(schema)

    @classmethod
    def check(cls, schema: str, changes: Changes) -> None:
        _MessageEdit(read_schema(schema).root, changes, "value")

    async def prepare(self, values: Iterable[bytes | None]) -> None:
        if self._written is not None:
            await self._written.fetch(values)

    def json(self, data: bytes) -> bytes:
        begin = self._begin(data)
        try:
            return msgspec.json.encode(self._reader.read(self._parsed(data, begin)))
        except MalformedMessage as error:
            raise UndecodableValue(f"no message of the schema: {error}") from None

    def edited(self, data: bytes, values: Sequence[bytes]) -> bytes:
        begin = self._begin(data)
        try:
            message = self._parsed(data, begin)
        except MalformedMessage as error:
            raise UneditableValue(str(error)) from None
        self._edit.apply(message, [_NEW.decode(value) for value in values])
        # Entries of maps are written in the order of their keys: copy and verify must write the same bytes.
        written: bytes = message.SerializeToString(deterministic=True)
        return data[:begin] + written

    def _parsed(self, data: bytes, begin: int) -> Any:
        """Returns the message. Raises MalformedMessage."""
        if len(data) > self._small:
            memory = names = 0
            for reader in self._reader.messages(data, begin, len(data)):
                memory, names = memory + reader.memory, names + reader.names
            if memory > _MOST_MEMORY:
                raise MalformedMessage(f"its messages take more than {_MOST_MEMORY >> 20} MiB of memory")
            if names > _MOST_NAMES:
                raise MalformedMessage(
                    f"the names of its fields take more than {_MOST_NAMES >> 20} MiB as JSON"
                )
        try:
            message = self._parse(data[begin:])
        except DecodeError as error:
            raise MalformedMessage(str(error).rpartition(": ")[2]) from None
        if missing := message.FindInitializationErrors():
            raise MalformedMessage(f"the required field {missing[0]} is missing")
        return message

    def _begin(self, data: bytes) -> int:
        """Returns where the message begins in the bytes. Raises UndecodableValue."""
        if self._written is None:
            if data[:1] == b"\0":
                raise UndecodableValue("it begins as the wire format of a schema registry does: add registry")
            return 0
        messages = self._written.of(data)
        try:
            indexes, begin = _indexes(data)
        except MalformedMessage:
            raise UndecodableValue("it does not say which message of its schema it is") from None
        if (message := messages.get(indexes)) != self._message:
            written = f"{message or 'no message'} of schema id {schema_id(data)}"
            raise UndecodableValue(f"it is {written}, not {self._message}")
        return begin


def _time(stamp: Any) -> datetime:
    if not (_FIRST_S <= stamp.seconds <= _LAST_S and 0 <= stamp.nanos <= _MOST_NANOS):
        raise MalformedMessage("a Timestamp is out of its range")
    return _EPOCH + timedelta(seconds=stamp.seconds, microseconds=stamp.nanos // 1000)


def _from_json(field: FieldDescriptor) -> Callable[[Any], Any]:
    """Returns the function from a new JSON value to one of the library, which checks the range of numbers."""
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return lambda value: value
        case FieldDescriptor.TYPE_BYTES:
            return lambda value: base64.b64decode(value, validate=True)
        case FieldDescriptor.TYPE_BOOL:
            return bool
        case FieldDescriptor.TYPE_ENUM:
            numbers = {symbol.name: symbol.number for symbol in field.enum_type.values}
            is_closed = field.enum_type.is_closed
            return lambda value: numbers[value] if value in numbers else _enum_number(value, is_closed)
        case FieldDescriptor.TYPE_DOUBLE:
            return float  # Spark writes NaN and the infinities as text
        case FieldDescriptor.TYPE_FLOAT:
            return lambda value: struct.unpack("f", struct.pack("f", float(value)))[0]
        case _:
            return _whole


def _whole(value: Any) -> int:
    number = int(value)
    if number != value:
        raise ValueError("a fraction")
    return number


def _enum_number(text: str, is_closed: bool) -> int:
    """Returns the number of an open enum that has no symbol: it is written as it is read."""
    if is_closed or not _TEXT_NUMBER.fullmatch(text):
        raise ValueError("no symbol")
    return int(text)


def _indexes(data: bytes) -> tuple[tuple[int, ...], int]:
    """Returns the place of the message in its schema, and where the message begins.

    Each number counts a message inside its parent message; the first message alone is written as a zero.
    """
    raw, at = read_varint(data, WIRE_PREFIX)
    if raw & 1:
        raise MalformedMessage("a negative count")
    indexes = []
    for _ in range(raw >> 1):
        index, at = read_varint(data, at)
        if index & 1:
            raise MalformedMessage("a negative index")
        indexes.append(index >> 1)
    return tuple(indexes) or (0,), at


_WORD = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[\w.]+|\S""", re.DOTALL)


def message_names(text: str) -> dict[tuple[int, ...], str]:
    """Returns the full names of the messages in a .proto file, by their places as Confluent counts them."""
    words = [word for word in _WORD.findall(text) if not word.startswith(("//", "/*"))]
    names: dict[tuple[int, ...], str] = {}
    package = group = ""
    scopes: list[tuple[tuple[int, ...], str] | None] = []  # None for a block that is no message
    counts: dict[tuple[int, ...], int] = {}
    for at, word in enumerate(words):
        kind, name = words[at - 2 : at] if at >= 2 else ("", "")
        match word:
            case ";":
                package = f"{name}." if kind == "package" and not scopes else package
                group = ""
            case "=" if kind == "group":
                group = name
            case "{":
                name = name if kind == "message" and name.isidentifier() else group
                outer, group = scopes[-1] if scopes else ((), package), ""
                if not name or outer is None:
                    scopes.append(None)
                    continue
                place = (*outer[0], counts.get(outer[0], 0))
                counts[outer[0]] = place[-1] + 1
                names[place] = outer[1] + name
                scopes.append((place, f"{names[place]}."))
            case "}" if scopes:
                scopes.pop()
    return names
