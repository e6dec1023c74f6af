"""This module encodes zigzag varints, as records use them. Encoding looks common sizes up in a list."""

from typing import Final

TABLE_REACH: Final = 1 << 14
_LONGEST: Final = 10
_LAST_SHIFT: Final = 56  # of the ninth byte
_MASK: Final = (1 << 64) - 1
_SIGN: Final = 1 << 63


class MalformedBytes(ValueError):
    """The bytes hold no valid value.

    A caller that knows partition and offset converts this to a CorruptBatch.
    """


def signed(value: int) -> int:
    """Returns a number in 64 bits, as Java adds and subtracts: a timestamp and a delta may overflow."""
    return (value + _SIGN & _MASK) - _SIGN


def encode(value: int) -> bytes:
    """Encodes any signed number of up to 64 bits."""
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def read(data: bytes | bytearray, position: int) -> tuple[int, int]:
    """Returns the value and where it ends."""
    value = shift = 0
    for at in range(position, min(position + _LONGEST, len(data))):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if shift > _LAST_SHIFT:
                value &= _MASK  # Java drops the rest of the tenth byte
            return (value >> 1) ^ -(value & 1), at + 1
        shift += 7
    raise MalformedBytes("a varint without an end")


def read_size(data: bytes, position: int) -> tuple[int, int]:
    """Returns a length or a count, and where it ends: -1 is null, less is an error."""
    value, after = read(data, position)
    if value < -1 or after + value > len(data):
        raise MalformedBytes(f"a length of {value} with {len(data) - after} bytes left")
    return value, after


# A negative index counts from the end, so one list serves both signs: -TABLE_REACH <= index < TABLE_REACH.
TABLE: Final = [encode(value) for value in (*range(TABLE_REACH), *range(-TABLE_REACH, 0))]


def varint(value: int) -> bytes:
    """Encodes as `encode` does, from the table if it holds the value."""
    return TABLE[value] if -TABLE_REACH <= value < TABLE_REACH else encode(value)


NO_FIELD: Final = varint(-1)
NO_HEADERS: Final = varint(0)


def encode_field(content: bytes | None) -> bytes:
    """Returns a key, a value or a header's value in the encoding of a record."""
    return NO_FIELD if content is None else varint(len(content)) + content
