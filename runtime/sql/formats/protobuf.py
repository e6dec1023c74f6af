"""Changes fields of Protobuf in the bytes of a value. Every other byte stays.

A field is cut out of the bytes or replaced in them, and nothing else is encoded again: fields that the
message does not declare travel as they came.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import msgspec

from runtime.contract.spec.transform import FormatSpec, fields_of
from runtime.sql.formats.encoded import NOTHING, BadSchema
from runtime.sql.formats.protobuf_reader import ProtobufReader
from runtime.sql.formats.protobuf_schema import (
    BITS,
    FIXED_FORMS,
    SIGNED,
    SIZED,
    ZIGZAG,
    EnumType,
    Field,
    FieldType,
    MalformedMessage,
    MessageType,
    ProtobufSchema,
    parts_of,
    signed,
    wire_of,
    written_varint,
)
from runtime.sql.json_fields import UneditableValue

_NEW = msgspec.json.Decoder(float_hook=Decimal)

_Make = Callable[[Any], bytes]


@dataclass(slots=True)
class _Changed:
    """The fields of one message that change: dropped, set by the number of the value, or changed inside."""

    drop: set[str] = field(default_factory=set)
    set: dict[str, int] = field(default_factory=dict)
    inside: dict[str, _Changed] = field(default_factory=dict)

    def at(self, names: Sequence[str]) -> _Changed:
        """Returns the changes of the message that these fields lead to."""
        found = self
        for name in names:
            found = found.inside.setdefault(name, _Changed())
        return found


class ProtobufEditor:
    """An editor changes the same fields in every occurrence of one message."""

    def __init__(self, schema: ProtobufSchema, message: MessageType, changed: _Changed, place: str) -> None:
        """Raises BadSchema where a field can't be changed in this message."""
        self._cut: set[int] = set()
        self._set: dict[int, tuple[int, _Make, frozenset[int]]] = {}
        self._inside: dict[int, ProtobufEditor] = {}
        known = {one.name: one for one in message.fields}
        for name in (*changed.drop, *changed.set, *changed.inside):
            if name not in known:
                raise BadSchema(f"{place} has no field {name}")
        for name in changed.drop:
            self._cut.add(known[name].number)
        for name, number in changed.set.items():
            one = known[name]
            others = frozenset(
                each.number
                for each in message.fields
                if one.oneof is not None and each.oneof == one.oneof and each.number != one.number
            )
            self._set[one.number] = (number, _maker(schema, one, f"{place}.{name}"), others)
        for name, inner in changed.inside.items():
            where = f"{place}.{name}"
            self._inside[known[name].number] = ProtobufEditor(
                schema, schema.message(known[name], where), inner, where
            )

    def edited(self, data: bytes, values: Sequence[Any], *, last: bool = True) -> bytes:
        """Returns the bytes of a message with its new values. Raises UneditableValue, MalformedMessage.

        Several occurrences of a message are merged when they are read: only the last one gets new values. A
        new field stands before the first one with a larger number, where encoders write it.
        """
        new: dict[int, bytes] = {}
        gone = {*self._cut}
        for number, (index, make, others) in self._set.items():
            if encoded := make(values[index]):
                gone |= others
                new[number] = encoded
        parts = list(parts_of(data))
        ends = {one.number: at for at, one in enumerate(parts)}  # the last occurrence of each
        inner_ends = {one.number: at for at, one in enumerate(parts) if one.wire == SIZED}
        waiting = sorted(number for number in new if number not in ends) if last else []
        pieces: list[bytes] = []
        for at, one in enumerate(parts):
            while waiting and waiting[0] < one.number:
                pieces.append(new[waiting.pop(0)])
            if one.number in gone:
                continue
            if one.number in self._set:
                if last and ends[one.number] == at:
                    pieces.append(new.get(one.number, b""))
                continue
            inner = self._inside.get(one.number)
            if inner is None or one.wire != SIZED:
                pieces.append(data[one.begin : one.end])
                continue
            content = data[one.at : one.end]
            changed = inner.edited(content, values, last=last and inner_ends[one.number] == at)
            if changed == content:
                pieces.append(data[one.begin : one.end])
            else:
                pieces += (written_varint(one.number << 3 | SIZED), written_varint(len(changed)), changed)
        pieces += (new[number] for number in waiting)
        return b"".join(pieces)


def _maker(schema: ProtobufSchema, one: Field, place: str) -> _Make:
    """Returns the function that encodes a field from its new JSON value: nothing for an absent one."""
    if one.repeated or one.type in (FieldType.MESSAGE, FieldType.GROUP):
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


def _encoder(schema: ProtobufSchema, one: Field, place: str) -> _Make:
    match one.type:
        case FieldType.STRING:
            return lambda value: _sized(value.encode())
        case FieldType.BYTES:
            return lambda value: _sized(base64.b64decode(value, validate=True))
        case FieldType.BOOL:
            return lambda value: b"\x01" if value else b"\x00"
        case FieldType.ENUM:
            known = schema.enum(one, place)
            return lambda value: written_varint(_enum_number(known, value))
        case FieldType.DOUBLE | FieldType.FLOAT as kind:
            form = FIXED_FORMS[kind][1]
            return lambda value: form.pack(float(value))  # Spark writes NaN and the infinities as text
        case kind if kind in FIXED_FORMS:
            form = FIXED_FORMS[kind][1]
            return lambda value: form.pack(_whole(value))
        case kind:
            return _varint_encoder(kind)


def _varint_encoder(kind: FieldType) -> _Make:
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
        if signed(number, 32) != number:
            raise ValueError("no number of an enum")
    return number


def _sized(content: bytes) -> bytes:
    return written_varint(len(content)) + content


class ProtobufValues:
    """The values of Protobuf in one part of a flow's records."""

    def __init__(
        self, form: FormatSpec, paths: Mapping[str, str] = NOTHING, drop: Sequence[str] = ()
    ) -> None:
        """Raises BadSchema."""
        schema = ProtobufSchema(form.schema or "")
        self._reader = ProtobufReader(schema, schema.root, "value")
        changed = _Changed()
        for path in drop:
            *outer, last = fields_of(path)
            changed.at(outer).drop.add(last)
        for number, path in enumerate(sorted(paths)):
            *outer, last = fields_of(path)
            changed.at(outer).set[last] = number
        self._editor = ProtobufEditor(schema, schema.root, changed, "value")

    async def prepare(self, values: Iterable[bytes | None]) -> None:
        """Fetches the schemas of these values that are not known. Raises RegistryUnavailable."""

    def json(self, data: bytes) -> bytes:
        """Returns a value as JSON. Raises UndecodableValue."""
        return self._reader.json(data)

    def edited(self, data: bytes, values: Sequence[bytes]) -> bytes:
        """Returns a value with its new fields. Raises UneditableValue."""
        try:
            return self._editor.edited(data, [_NEW.decode(value) for value in values])
        except (IndexError, MalformedMessage) as error:
            raise UneditableValue(str(error)) from None
