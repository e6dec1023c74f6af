"""Changes fields of Protobuf in the bytes of a value. Every other byte stays.

A field is cut out of the bytes or replaced in them, and nothing else is encoded again: fields that the
message does not declare travel as they came.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

from runtime.contract.spec.transform import FormatSpec
from runtime.sql.formats.encoded import NOTHING, BadSchema, Changes, UndecodableValue
from runtime.sql.formats.protobuf_reader import ProtobufReader
from runtime.sql.formats.protobuf_schema import (
    BITS,
    FIXED_FORMS,
    SIGNED,
    ZIGZAG,
    EnumType,
    MessageType,
    ProtobufField,
    ProtobufSchema,
    ProtobufType,
    read_schema,
    wire_of,
)
from runtime.sql.formats.protobuf_wire import (
    SIZED,
    VARINT,
    Budget,
    MalformedMessage,
    MessagePart,
    parts_of,
    read_varint,
    signed,
    written_varint,
)
from runtime.sql.formats.registry import FRAME, WriterSchema, WriterSchemas, schema_id
from runtime.sql.json_fields import UneditableValue

_NEW = msgspec.json.Decoder(float_hook=Decimal)

_Make = Callable[[Any], bytes]


class _Found(NamedTuple):
    """The parts of a message that may change, in one of its occurrences.

    `ends` is where the last part of each field begins, without unknown fields, and `places` is where new
    fields stand.
    """

    parts: list[MessagePart]
    ends: dict[int, int]
    places: dict[int, int]


class ProtobufEditor:
    """An editor changes the same fields in every occurrence of one message."""

    def __init__(
        self,
        schema: ProtobufSchema,
        message: MessageType,
        changes: Changes,
        place: str,
        budget: Budget | None = None,
    ) -> None:
        """Raises BadSchema where a field can't be changed. `budget` is that of the outer message."""
        self._budget = budget or Budget()
        known = {one.name: one for one in message.fields}
        for name in (*changes.drop, *changes.set, *changes.inside):
            if name not in known:
                raise BadSchema(f"{place} has no field {name}")
        self._cut = {known[name].number for name in changes.drop}
        self._set: dict[int, tuple[int, _Make]] = {}
        self._inside: dict[int, ProtobufEditor] = {}
        for name, number in changes.set.items():
            self._set[known[name].number] = (number, _maker(schema, known[name], f"{place}.{name}"))
        for name, inner in changes.inside.items():
            where = f"{place}.{name}"
            self._inside[known[name].number] = ProtobufEditor(
                schema, schema.message(known[name], where), inner, where, self._budget
            )
        self._order = sorted(self._set)
        self._own = frozenset({*self._cut, *self._set})
        oneofs: dict[int, set[int]] = {}
        for one in message.fields:
            if one.oneof is not None:
                oneofs.setdefault(one.oneof, set()).add(one.number)
        self._oneofs = [members for members in oneofs.values() if members & self._own]
        self._several = f"new values of several members of a oneof of {place}"
        self._touched = self._own.union(self._inside, *self._oneofs)
        self._wires = {one.number: _wires(one) for one in message.fields}
        self._closed = {
            one.number: of.symbols
            for one in message.fields
            if one.number in self._touched and one.type is ProtobufType.ENUM
            if (of := schema.enum(one, f"{place}.{one.name}")).closed
        }

    def edited(self, data: bytes, values: Sequence[Any]) -> bytes:
        """Returns the bytes of a message with its new values. Raises UneditableValue, MalformedMessage.

        Several occurrences of a message are one message when they are read: only the last one gets new
        values. A new field stands before the first one with a larger number, where encoders write it.
        """
        self._budget.renew()
        return self._edited([data], values)[0]

    def _edited(self, occurrences: Sequence[bytes], values: Sequence[Any]) -> list[bytes]:
        """Returns the bytes of all occurrences of one message; the last one gets the new values."""
        new = {number: make(values[index]) for number, (index, make) in self._set.items()}
        found = [self._found(data) for data in occurrences]
        gone, overwritten = self._gone(new), self._overwritten(found)
        cut = [
            {
                part.begin
                for part in one.parts
                if part.number in gone
                or (part.number not in new and (at, part.begin) < overwritten.get(part.number, (0, 0)))
            }
            for at, one in enumerate(found)
        ]
        contents: dict[int, list[bytes]] = {}
        for data, one, begins in zip(occurrences, found, cut, strict=True) if self._inside else ():
            for part in one.parts:
                if part.number in self._inside and part.begin not in begins:
                    contents.setdefault(part.number, []).append(data[part.at : part.end])
        inside = {
            number: iter(self._inside[number]._edited(some, values)) for number, some in contents.items()
        }
        none = dict.fromkeys(new, b"")
        return [
            _spliced(data, one, begins, new if at == len(found) else none, inside)
            for at, (data, one, begins) in enumerate(zip(occurrences, found, cut, strict=True), 1)
        ]

    def _found(self, data: bytes) -> _Found:
        parts: list[MessagePart] = []
        ends: dict[int, int] = {}
        waiting, places = [*self._order[::-1]], dict.fromkeys(self._order, len(data))
        for part in parts_of(data, self._budget):
            number = part.number
            while waiting and waiting[-1] < number:
                places[waiting.pop()] = part.begin
            if number in self._touched:
                if self._is_read(part, data):
                    ends[number] = part.begin
                elif number not in self._own:  # an unknown field: it travels, unless its number is removed
                    continue
                parts.append(part)
        return _Found(parts, ends, places)

    def _is_read(self, part: MessagePart, data: bytes) -> bool:
        """Returns whether readers take the part for a value of its field: any other is an unknown field."""
        if part.wire not in self._wires[part.number]:
            return False
        symbols = self._closed.get(part.number)
        return symbols is None or part.wire != VARINT or signed(read_varint(data, part.at)[0], 32) in symbols

    def _gone(self, new: Mapping[int, bytes]) -> set[int]:
        """Returns the fields that are cut out: the dropped ones, and the other members where one is set.

        Raises UneditableValue where several are set.
        """
        gone = {*self._cut}
        for members in self._oneofs:
            if chosen := {one for one in members if new.get(one)}:
                if len(chosen) > 1:
                    raise UneditableValue(self._several)
                gone |= members - chosen
        return gone

    def _overwritten(self, occurrences: Sequence[_Found]) -> dict[int, tuple[int, int]]:
        """Returns before which place the members of a oneof do not count: a later one overwrote them.

        That one is taken away. So they are, too, and do not return.
        """
        found: dict[int, tuple[int, int]] = {}
        if not self._oneofs:
            return found
        ends = {
            number: (at, begin) for at, one in enumerate(occurrences) for number, begin in one.ends.items()
        }
        for members in self._oneofs:
            if taken := [ends[one] for one in members & self._own if one in ends]:
                found |= dict.fromkeys(members, max(taken))
        return found


def _spliced(
    data: bytes,
    found: _Found,
    cut: Set[int],
    new: Mapping[int, bytes],
    inside: Mapping[int, Iterator[bytes]],
) -> bytes:
    """Returns one occurrence of a message with its new fields, and with the next ones of `inside`.

    `cut` is where the parts begin that are cut out.
    """
    edits: list[tuple[int, int, bytes]] = []
    for part in found.parts:
        number = part.number
        if part.begin in cut:
            edits.append((part.begin, part.end, b""))
        elif number in new:
            is_last = found.ends.get(number) == part.begin
            edits.append((part.begin, part.end, new[number] if is_last else b""))
        elif number in inside:
            changed = next(inside[number])
            if changed != data[part.at : part.end]:
                tag = written_varint(number << 3 | SIZED)
                edits.append((part.begin, part.end, tag + _sized(changed)))
    edits += ((at, at, new[number]) for number, at in found.places.items() if number not in found.ends)
    edits.sort(key=lambda edit: edit[:2])  # a new field stands before the part that begins there
    pieces: list[bytes] = []
    at = 0
    for begin, end, piece in edits:
        pieces += (data[at:begin], piece)
        at = end
    return b"".join((*pieces, data[at:]))


def _wires(one: ProtobufField) -> tuple[int, ...]:
    """Returns the wire types of a field's values; a repeated field may be packed."""
    return (wire_of(one.type), SIZED) if one.repeated else (wire_of(one.type),)


def _maker(schema: ProtobufSchema, one: ProtobufField, place: str) -> _Make:
    """Returns the function that encodes a field from its new JSON value: nothing for an absent one."""
    if one.repeated or one.type in (ProtobufType.MESSAGE, ProtobufType.GROUP):
        raise BadSchema(f"{place} is of a type that can't be set")
    encode = _encoder(schema, one, place)
    tag = written_varint(one.number << 3 | wire_of(one.type))

    def make(value: Any) -> bytes:
        if value is None:
            if one.required:
                raise UneditableValue(f"the new value of {place} is null, which its message does not allow")
            return b""
        try:
            made = encode(value)
        except (ArithmeticError, KeyError, TypeError, ValueError, binascii.Error, struct.error):
            raise UneditableValue(f"the new value of {place} does not fit its type") from None
        return tag + made if one.presence or any(made) else b""  # a default is not written without presence

    return make


def _encoder(schema: ProtobufSchema, one: ProtobufField, place: str) -> _Make:
    match one.type:
        case ProtobufType.STRING:
            return lambda value: _sized(value.encode())
        case ProtobufType.BYTES:
            return lambda value: _sized(base64.b64decode(value, validate=True))
        case ProtobufType.BOOL:
            return lambda value: b"\x01" if value else b"\x00"
        case ProtobufType.ENUM:
            known = schema.enum(one, place)
            return lambda value: written_varint(_enum_number(known, value))
        case ProtobufType.DOUBLE | ProtobufType.FLOAT as kind:
            form = FIXED_FORMS[kind][1]
            return lambda value: form.pack(float(value))  # Spark writes NaN and the infinities as text
        case kind if kind in FIXED_FORMS:
            form = FIXED_FORMS[kind][1]
            return lambda value: form.pack(_whole(value))
        case kind:
            return _varint_encoder(kind)


def _varint_encoder(kind: ProtobufType) -> _Make:
    bits = BITS.get(kind, 64)
    least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind in SIGNED else (0, (1 << bits) - 1)

    def encode(value: Any) -> bytes:
        number = _whole(value)
        if not least <= number <= most:
            raise ValueError(kind.name)
        if kind in ZIGZAG:
            number = (number << 1) ^ (number >> (bits - 1))
        return written_varint(number)

    return encode


def _whole(value: Any) -> int:
    number = int(value)
    if number != value:
        raise ValueError("a fraction")
    return number


def _enum_number(of: EnumType, value: str) -> int:
    number = of.numbers.get(value)
    if number is None:
        if of.closed:
            raise ValueError("no symbol")
        number = int(value)  # as it is read
        if signed(number, 32) != number or str(number) != value:
            raise ValueError("no number of an enum")
    return number


def _sized(content: bytes) -> bytes:
    return written_varint(len(content)) + content


class ProtobufValues:
    """The values of Protobuf in one part of a flow's records.

    With a registry, a value has Confluent's wire format: a zero, the id of its writer's schema in four bytes,
    the place of its message in that schema, then the value. `prepare` fetches the schemas that are not known,
    so that a value of another message is told apart. The declared message reads the fields.
    """

    def __init__(
        self, form: FormatSpec, paths: Mapping[str, str] = NOTHING, drop: Sequence[str] = ()
    ) -> None:
        """Raises BadSchema."""
        schema = read_schema(form.schema or "")
        self._message = schema.root.name
        self._reader = ProtobufReader(schema, schema.root, "value")
        changes = Changes.of(paths, drop)
        self._editor = ProtobufEditor(schema, schema.root, changes, "value")
        self._written = WriterSchemas(form.registry, "PROTOBUF", _messages) if form.registry else None

    async def prepare(self, values: Iterable[bytes | None]) -> None:
        """Fetches the schemas of these values that are not known. Raises RegistryUnavailable."""
        if self._written is not None:
            await self._written.fetch(values)

    def json(self, data: bytes) -> bytes:
        """Returns a value as JSON. Raises UndecodableValue."""
        return self._reader.json(data[self._begin(data) :])

    def edited(self, data: bytes, values: Sequence[bytes]) -> bytes:
        """Returns a value with its new fields. Raises UneditableValue."""
        begin = self._begin(data)
        try:
            new = [_NEW.decode(value) for value in values]
            return data[:begin] + self._editor.edited(data[begin:], new)
        except (IndexError, MalformedMessage) as error:
            raise UneditableValue(str(error)) from None

    def _begin(self, data: bytes) -> int:
        """Returns where the message begins in the bytes. Raises UndecodableValue."""
        if self._written is None:
            if data[:1] == b"\0":
                raise UndecodableValue("it begins as the wire format of a schema registry does: add registry")
            return 0
        messages = self._written.of(data)
        try:
            indexes, begin = _indexes(data)
        except (IndexError, MalformedMessage):
            raise UndecodableValue("it does not say which message of its schema it is") from None
        if (message := messages.get(indexes)) != self._message:
            found = f"{message or 'no message'} of schema id {schema_id(data)}"
            raise UndecodableValue(f"it is {found}, not {self._message}")
        return begin


def _messages(schema: WriterSchema) -> Mapping[tuple[int, ...], str]:
    return message_names(schema.text)


def _indexes(data: bytes) -> tuple[tuple[int, ...], int]:
    """Returns the place of the message in its schema, and where the message begins.

    Each number counts a message inside its parent message; the first message alone is written as a zero.
    """
    raw, at = read_varint(data, FRAME)
    if raw & 1:
        raise MalformedMessage("a negative count")
    found = []
    for _ in range(raw >> 1):
        one, at = read_varint(data, at)
        if one & 1:
            raise MalformedMessage("a negative index")
        found.append(one >> 1)
    return tuple(found) or (0,), at


_WORD = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[\w.]+|\S""", re.DOTALL)


def message_names(text: str) -> dict[tuple[int, ...], str]:
    """Returns the full names of the messages in a .proto file, by their places as Confluent counts them."""
    words = [one for one in _WORD.findall(text) if not one.startswith(("//", "/*"))]
    found: dict[tuple[int, ...], str] = {}
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
                found[place] = outer[1] + name
                scopes.append((place, f"{found[place]}."))
            case "}" if scopes:
                scopes.pop()
    return found
