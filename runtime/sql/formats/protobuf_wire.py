"""Reads the wire format of Protobuf: numbers, and the fields in the bytes of a message.

A budget bounds what one record takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

VARINT, FIXED64, SIZED, GROUP, GROUP_END, FIXED32 = range(6)  # the wire types

_MOST_TAG = (1 << 32) - 1
MOST_NUMBER = _MOST_TAG >> 3  # of a field
_DEEPEST = 100  # groups within one another
_MOST_PARTS = 500_000  # fields and items read from one record
_MOST_NAMES = 32 << 20  # bytes of JSON for the names and defaults of one record's messages


class MalformedMessage(ValueError):
    """The bytes are no message. The text contains nothing of them."""


class Budget:
    """A budget bounds the time and the memory of one record: few bytes may stand for many fields."""

    __slots__ = ("names", "parts")

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Begins the next record."""
        self.parts, self.names = _MOST_PARTS, _MOST_NAMES

    def read(self) -> None:
        """Counts a field or an item that is read. Raises MalformedMessage."""
        self.parts -= 1
        if self.parts < 0:
            raise self.exceeded()

    def exceeded(self) -> MalformedMessage:
        """Returns the error for too many fields and items."""
        return MalformedMessage(f"it has more than {_MOST_PARTS:,} fields and items")

    def create(self, size: int) -> None:
        """Counts the bytes of JSON that a message without fields has. Raises MalformedMessage."""
        self.names -= size
        if self.names < 0:
            raise MalformedMessage(f"the names of its fields take more than {_MOST_NAMES >> 20} MiB as JSON")


class MessagePart(NamedTuple):
    """One field in the bytes of a message: from `begin` to `end`, its value from `at` on."""

    number: int
    wire: int
    begin: int
    at: int
    end: int


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns the number at an offset, and the offset behind it. Raises IndexError, MalformedMessage."""
    byte = data[at]
    at += 1
    value, shift = byte & 0x7F, 7
    while byte & 0x80:
        if shift > 63:
            raise MalformedMessage("a number of more than ten bytes")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    return value & 0xFFFF_FFFF_FFFF_FFFF, at


def written_varint(value: int) -> bytes:
    """Returns the encoding of a number. A negative one takes ten bytes."""
    value &= 0xFFFF_FFFF_FFFF_FFFF
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def skipped(data: bytes, at: int, tag: int, budget: Budget | None = None, depth: int = 0) -> int:
    """Returns the offset behind the value of a field. Raises IndexError, MalformedMessage."""
    number, wire = tag >> 3, tag & 7
    if not number:
        raise MalformedMessage("a field has the number 0")
    if tag > _MOST_TAG:
        raise MalformedMessage("the number of a field is too large")
    match wire:
        case 0:
            end = read_varint(data, at)[1]
        case 1:
            end = at + 8
        case 2:
            size, at = read_varint(data, at)
            end = at + size
        case 3:
            end = _skipped_group(data, at, number, budget, depth)
        case 5:
            end = at + 4
        case _:
            raise MalformedMessage("a field has no wire type")
    if end > len(data):
        raise MalformedMessage("it ends within a field")
    return end


def _skipped_group(data: bytes, at: int, number: int, budget: Budget | None, depth: int) -> int:
    if depth >= _DEEPEST:
        raise MalformedMessage("too many groups within one another")
    inner, end = read_varint(data, at)
    while inner & 7 != GROUP_END:
        if budget is not None:
            budget.read()
        inner, end = read_varint(data, skipped(data, end, inner, budget, depth + 1))
    if inner >> 3 != number:
        raise MalformedMessage("a group ends as another one")
    return end


def parts_of(data: bytes, budget: Budget | None = None) -> Iterator[MessagePart]:
    """Yields the fields of a message, in the order of the bytes. Raises IndexError, MalformedMessage."""
    at, whole = 0, len(data)
    while at < whole:
        if budget is not None:
            budget.parts -= 1  # as Budget.read, without a call for each field
            if budget.parts < 0:
                raise budget.exceeded()
        begin = at
        tag = data[at]
        at += 1
        if tag & 0x80:
            tag, at = read_varint(data, begin)
        if tag & 7 == SIZED and SIZED < tag <= _MOST_TAG:
            size = data[at]
            at += 1
            if size & 0x80:
                size, at = read_varint(data, at - 1)
            end = at + size
            if end > whole:
                raise MalformedMessage("it ends within a field")
        else:
            end = skipped(data, at, tag, budget)
        yield MessagePart(tag >> 3, tag & 7, begin, at, end)
        at = end


def signed(value: int, bits: int) -> int:
    """Returns the number that these lowest bits stand for, as a complement of two."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value
