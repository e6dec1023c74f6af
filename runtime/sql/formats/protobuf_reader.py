"""Decodes messages of Protobuf to JSON, as parsers of Protobuf read them.

A field with presence that a message does not have is null, any other one is its default. The last occurrence
of a field counts, and those of a message are merged. A field of another wire type is an unknown field.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from runtime.sql.formats.encoded import UndecodableValue
from runtime.sql.formats.protobuf_schema import (
    BITS,
    FIXED_FORMS,
    SIGNED,
    SIZED_TYPES,
    TIMESTAMP,
    ZIGZAG,
    EnumType,
    MessageType,
    ProtobufField,
    ProtobufSchema,
    ProtobufType,
    wire_of,
)
from runtime.sql.formats.protobuf_wire import (
    SIZED,
    Budget,
    MalformedMessage,
    parts_of,
    read_varint,
    signed,
    skipped,
)

_DEFAULTS: Mapping[ProtobufType, Any] = {
    ProtobufType.STRING: "",
    ProtobufType.BYTES: b"",
    ProtobufType.BOOL: False,
    ProtobufType.FLOAT: 0.0,
    ProtobufType.DOUBLE: 0.0,
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_S, _LAST_S = -62_135_596_800, 253_402_300_799  # of the years 1 to 9999
_MOST_NANOS = 999_999_999

_UNKNOWN = object()  # a number that its closed enum does not have

_Step = Callable[[bytes, int, dict[str, Any]], int]  # reads a value into the fields, returns where it ends
_Convert = Callable[[Any], Any]


class ProtobufReader:
    """A reader makes the fields of one message from its bytes: values that JSON has.

    Messages within it are decoded last: the bytes of several occurrences of a field, one behind the other,
    are those of the merged message.
    """

    def __init__(
        self, schema: ProtobufSchema, message: MessageType, place: str, budget: Budget | None = None
    ) -> None:
        """Raises BadSchema. `budget` is that of the reader which this one is within."""
        self._schema = schema
        self._budget = budget or Budget()
        self._steps: dict[int, _Step] = {}
        self._empty: dict[str, Any] = {}
        self._inner: list[tuple[str, _Convert]] = []
        self._chosen: dict[str, str] = {}  # of each oneof, the member that was read last
        self._required = [one.name for one in message.fields if one.required]
        for one in message.fields:
            self._add(one, message, f"{place}.{one.name}")
        self._size = len(msgspec.json.encode(self._empty))

    def read(self, data: bytes) -> dict[str, Any]:
        """Returns the fields. Raises IndexError, ValueError, struct.error."""
        budget = self._budget
        budget.create(self._size)
        found = self._empty.copy()
        steps, at, end = self._steps, 0, len(data)
        while at < end:
            budget.parts -= 1  # as Budget.read, without a call for each field
            if budget.parts < 0:
                raise budget.exceeded()
            tag = data[at]
            at += 1
            if tag & 0x80:
                tag, at = read_varint(data, at - 1)
            step = steps.get(tag)
            at = step(data, at, found) if step is not None else skipped(data, at, tag, budget)
        if at > end:
            raise MalformedMessage("it ends within a field")
        for oneof in self._chosen:
            del found[oneof]
        for name, convert in self._inner:
            if (pieces := found[name]) is not None:
                found[name] = convert(self._merged(pieces))
        for name in self._required:
            if found[name] is None:
                raise MalformedMessage(f"the required field {name} is missing")
        return found

    def _merged(self, pieces: Sequence[bytes]) -> bytes:
        """Returns the bytes of a message from those of its occurrences, each of which is a message."""
        for one in pieces if len(pieces) > 1 else ():
            for _ in parts_of(one, self._budget):
                pass
        return b"".join(pieces)

    def json(self, data: bytes) -> bytes:
        """Returns a message as JSON. Raises UndecodableValue."""
        self._budget.renew()
        try:
            return msgspec.json.encode(self.read(data))
        except MalformedMessage as error:
            raise UndecodableValue(f"no message of the schema: {error}") from None
        except (IndexError, ValueError, struct.error) as error:
            raise UndecodableValue(f"no message of the schema ({type(error).__name__})") from None

    def _add(self, one: ProtobufField, message: MessageType, place: str) -> None:
        if (entry := self._schema.entry(one, place)) is not None:
            self._empty[one.name] = {}
            self._steps[one.number << 3 | SIZED] = self._map(one.name, *entry, place)
            return
        convert = self._converter(one, place)
        wire = wire_of(one.type)
        if one.repeated:
            self._empty[one.name] = ()
            self._steps[one.number << 3 | wire] = _appended(one.name, one.type, convert)
            if one.type not in SIZED_TYPES:
                self._steps[one.number << 3 | SIZED] = _packed(one.name, one.type, convert, self._budget)
            return
        oneof = None if one.oneof is None else str(one.oneof)  # no field has such a name
        if oneof is not None:
            self._chosen[oneof] = self._empty[oneof] = one.name
        self._empty[one.name] = None if one.presence else self._default(one, place)
        if one.type is ProtobufType.MESSAGE:
            self._inner.append((one.name, convert))
            step = _collected(one.name, oneof)
        else:
            step = _replaced(one.name, one.type, convert, oneof)
        self._steps[one.number << 3 | wire] = step

    def _converter(self, one: ProtobufField, place: str) -> _Convert:
        """Returns the function from a value as it is read to the one that Spark sees."""
        match one.type:
            case ProtobufType.MESSAGE if one.of == TIMESTAMP:
                self._schema.check_timestamp(one, place)
                times = self._within(one, place)
                return lambda raw: _time(**times.read(raw))
            case ProtobufType.MESSAGE:
                return self._within(one, place).read
            case ProtobufType.ENUM:
                return _symbol(self._schema.enum(one, place))
            case ProtobufType.STRING:
                return bytes.decode
            case ProtobufType.BOOL:
                return bool
            case kind if kind in FIXED_FORMS or kind is ProtobufType.BYTES:
                return _same
            case kind:
                return _number(kind)

    def _within(self, one: ProtobufField, place: str) -> ProtobufReader:
        return ProtobufReader(self._schema, self._schema.message(one, place), place, self._budget)

    def _default(self, one: ProtobufField, place: str) -> Any:
        """Returns the value of a field without presence where a message does not have it."""
        if one.type is ProtobufType.ENUM:
            return next(iter(self._schema.enum(one, place).symbols.values()), "0")
        return _DEFAULTS.get(one.type, 0)

    def _map(self, name: str, key: ProtobufField, value: ProtobufField, place: str) -> _Step:
        convert_key, convert_value = self._converter(key, place), self._converter(value, place)
        key_tag, value_tag = ((one.number, wire_of(one.type)) for one in (key, value))
        is_message = value.type is ProtobufType.MESSAGE
        default_key = self._default(key, place)
        default = None if is_message else self._default(value, place)

        def step(data: bytes, at: int, found: dict[str, Any]) -> int:
            piece, end = _read_sized(data, at)
            made_key, made, pieces = default_key, default, []
            for part in parts_of(piece, self._budget):
                if (part.number, part.wire) == key_tag:
                    made_key = convert_key(_content(key.type, piece, part.at, part.end))
                elif (part.number, part.wire) == value_tag:
                    content = _content(value.type, piece, part.at, part.end)
                    if is_message:
                        pieces.append(content)
                    else:
                        made = convert_value(content)
            if is_message:
                made = convert_value(self._merged(pieces))
            if made is not _UNKNOWN:
                entries = found[name] or {}
                entries[_key_text(made_key)] = made
                found[name] = entries
            return end

        return step


def _read_sized(data: bytes, at: int) -> tuple[bytes, int]:
    size = data[at]
    at += 1
    if size & 0x80:
        size, at = read_varint(data, at - 1)
    end = at + size
    if end > len(data):
        raise MalformedMessage("it ends within a field")
    return data[at:end], end


def _reads(kind: ProtobufType) -> Callable[[bytes, int], tuple[Any, int]]:
    """Returns the function that reads a value behind its tag, and says where it ends."""
    if kind in SIZED_TYPES:
        return _read_sized
    if kind not in FIXED_FORMS:
        return read_varint
    form = FIXED_FORMS[kind][1]

    def read(data: bytes, at: int) -> tuple[Any, int]:
        return form.unpack_from(data, at)[0], at + form.size

    return read


def _content(kind: ProtobufType, data: bytes, at: int, end: int) -> Any:
    """Returns the value of a field whose place is known."""
    return data[at:end] if kind in SIZED_TYPES else _reads(kind)(data, at)[0]


def _replaced(name: str, kind: ProtobufType, convert: _Convert, oneof: str | None) -> _Step:
    """Returns the step of a single value."""
    read = _reads(kind)

    def step(data: bytes, at: int, found: dict[str, Any]) -> int:
        raw, end = read(data, at)
        value = convert(raw)
        if value is not _UNKNOWN:
            if oneof is not None:
                _choose(found, oneof, name)
            found[name] = value
        return end

    return step


def _choose(found: dict[str, Any], oneof: str, name: str) -> None:
    """Removes the value of the member that was read last, where it is another one."""
    if (last := found[oneof]) != name:
        found[last] = None
        found[oneof] = name


def _collected(name: str, oneof: str | None) -> _Step:
    """Returns the step of a message: the bytes of its occurrences."""

    def step(data: bytes, at: int, found: dict[str, Any]) -> int:
        raw, end = _read_sized(data, at)
        if oneof is not None:
            _choose(found, oneof, name)
        if found[name] is None:
            found[name] = []
        found[name].append(raw)
        return end

    return step


def _appended(name: str, kind: ProtobufType, convert: _Convert) -> _Step:
    read = _reads(kind)

    def step(data: bytes, at: int, found: dict[str, Any]) -> int:
        raw, end = read(data, at)
        value = convert(raw)
        if value is not _UNKNOWN:
            items = found[name] or []
            items.append(value)
            found[name] = items
        return end

    return step


def _packed(name: str, kind: ProtobufType, convert: _Convert, budget: Budget) -> _Step:
    append = _appended(name, kind, convert)

    def step(data: bytes, at: int, found: dict[str, Any]) -> int:
        piece, end = _read_sized(data, at)
        at = 0
        while at < len(piece):
            budget.read()
            at = append(piece, at, found)
        return end

    return step


def _same(raw: Any) -> Any:
    return raw


def _number(kind: ProtobufType) -> _Convert:
    """Returns the function from a varint to a number."""
    bits = BITS.get(kind, 64)
    if kind in ZIGZAG:
        mask = (1 << bits) - 1
        return lambda raw: ((raw & mask) >> 1) ^ -(raw & 1)
    if kind in SIGNED:
        return lambda raw: raw if raw >> (bits - 1) == 0 else signed(raw, bits)
    return lambda raw: raw & ((1 << bits) - 1)


def _symbol(of: EnumType) -> _Convert:
    """Returns the function from a number to its symbol. In an open enum, an unknown number is its text."""
    symbols = of.symbols

    def symbol(raw: int) -> Any:
        number = signed(raw, 32)
        return symbols.get(number, _UNKNOWN if of.closed else str(number))

    return symbol


def _time(seconds: int, nanos: int) -> datetime:
    if not (_FIRST_S <= seconds <= _LAST_S and 0 <= nanos <= _MOST_NANOS):
        raise MalformedMessage("a Timestamp is out of its range")
    return _EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)


def _key_text(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)
