"""Walks the fields in the bytes of a Protobuf message, where the library's parser can't be asked.

It bounds what a record takes in memory before the parser allocates it, and it finds unknown fields by number.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import NamedTuple

VARINT, FIXED64, SIZED, GROUP, GROUP_END, FIXED32 = range(6)  # the wire types
_FIXED = {FIXED64: 8, FIXED32: 4}
_DEEPEST = 100  # groups within one another, as for the library's parser


class MalformedMessage(ValueError):
    """The bytes are no message. The text contains nothing of them."""


class WireField(NamedTuple):
    """One field in the bytes of a message: from `begin` to `end`, its value from `at` on."""

    number: int
    wire: int
    begin: int
    at: int
    end: int


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns the number at an offset, and the offset behind it. Raises MalformedMessage."""
    value = shift = 0
    for place in range(at, min(at + 10, len(data))):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place + 1
        shift += 7
    raise MalformedMessage("it ends within a number, or a number has more than ten bytes")


def fields_of(data: bytes, begin: int = 0, end: int | None = None) -> Iterator[WireField]:
    """Yields the fields of a message in the order of the bytes. Raises MalformedMessage."""
    at, last = begin, len(data) if end is None else end
    while at < last:
        tag, value = read_varint(data, at)
        behind, value = _end(data, value, tag)
        if behind > last:
            raise MalformedMessage("it ends within a field")
        yield WireField(tag >> 3, tag & 7, at, value, behind)
        at = behind


def without(data: bytes, numbers: Set[int]) -> bytes:
    """Returns the message without the fields of these numbers, whatever their wire type."""
    return b"".join(data[field.begin : field.end] for field in fields_of(data) if field.number not in numbers)


def _end(data: bytes, at: int, tag: int, depth: int = 0) -> tuple[int, int]:
    """Returns the offset behind a value, and where the value begins. Raises MalformedMessage."""
    match tag & 7:
        case 0:
            return read_varint(data, at)[1], at
        case 2:
            size, at = read_varint(data, at)
            return at + size, at
        case 3 if depth < _DEEPEST:
            begin = at
            inner, at = read_varint(data, at)
            while inner & 7 != GROUP_END:
                at = _end(data, at, inner, depth + 1)[0]
                inner, at = read_varint(data, at)
            return at, begin
        case wire if wire in _FIXED:
            return at + _FIXED[wire], at
        case _:
            raise MalformedMessage("a field has no wire type, or too many groups are within one another")
