"""Decodes the keys and values of internal records within bounds of memory.

Any client with the right to write the topic may have written a record. Text that is cut off, too long, too
deeply nested or of another shape is an `UnreadableValue`, and so is compressed text that unpacks past
`MAX_TEXT_BYTES`, and a whole number that a signed one of 64 bits does not hold.
"""

import re
import zlib
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

# Brokers take records of 1 MB by default, and what the product writes packs by 10 to 20.
MAX_TEXT_BYTES: Final = 32 << 20
VERSION: Final = b"\x01"  # of every record of this release
_SHOWN_CHARACTERS: Final = 300
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
# Few texts have what may be a longer number, so few values are searched for it.
_LONG_IN_MSGPACK: Final = re.compile(rb"\xcf[\x80-\xff]")  # an unsigned one whose first bit is set
_DIGITS_AS_ZEROS: Final = bytes.maketrans(b"123456789", b"0" * 9)
_SHORTEST_IN_JSON: Final = b"0" * 19

_T_co = TypeVar("_T_co", covariant=True)
_T = TypeVar("_T")


class UnreadableValue(ValueError):
    """A record that can't be read. Its text is short and printable, whatever the record holds."""

    def __init__(self, why: str) -> None:
        super().__init__(printable(why))


class MsgspecDecoder(Protocol[_T_co]):
    """Describes a decoder of msgspec, for JSON or MessagePack."""

    def decode(self, buf: bytes, /) -> _T_co: ...


def decode(decoder: MsgspecDecoder[_T], text: bytes) -> _T:
    """Decodes text that is already unpacked. Raises UnreadableValue."""
    if len(text) > MAX_TEXT_BYTES:
        raise UnreadableValue(f"it has {len(text)} bytes, at most {MAX_TEXT_BYTES} are read")
    try:
        value = decoder.decode(text)
        if isinstance(decoder, msgspec.json.Decoder):
            # Much faster than a regex, which would take several times as long as the decoder.
            if _SHORTEST_IN_JSON in text.translate(_DIGITS_AS_ZEROS):
                refuse_long_numbers(value)
        elif _LONG_IN_MSGPACK.search(text):
            refuse_long_numbers(value)
        return value
    except RecursionError:
        raise UnreadableValue("it is nested too deeply") from None
    except ValueError as error:  # msgspec's own, and text that is not UTF-8
        raise UnreadableValue(str(error)) from None


def refuse_long_numbers(value: object) -> None:
    """Raises UnreadableValue for a whole number that no offset, time, count or id of Kafka can be."""
    left = [value]
    while left:
        match left.pop():
            case msgspec.Struct() as struct:
                left += [getattr(struct, name) for name in struct.__struct_fields__]
            case dict() as fields:
                left += fields.keys()
                left += fields.values()
            case list() | tuple() | set() | frozenset() as items:
                left += items
            case int() as number if not _LEAST <= number <= _MOST:
                raise UnreadableValue(f"a number of {number.bit_length()} bits, and 63 is the most")


def compress(text: bytes) -> bytes:
    return zlib.compress(text, 1)


def decompress(packed: bytes) -> bytes:
    """Unpacks at most `MAX_TEXT_BYTES`. Raises UnreadableValue."""
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(packed, MAX_TEXT_BYTES + 1)
    except zlib.error as error:
        raise UnreadableValue(f"it does not unpack: {error}") from None
    if len(text) > MAX_TEXT_BYTES:
        raise UnreadableValue(f"it unpacks to more than {MAX_TEXT_BYTES} bytes")
    if not unpacker.eof:
        raise UnreadableValue("it does not unpack: it is cut off")
    return text


class RecordCodec(Generic[_T]):
    """Encodes and decodes the values of one kind of record: a version byte, then JSON or MessagePack.

    JSON of at least `packed_from` bytes is compressed. `what` begins the text of an error, which is an
    `error`.
    """

    def __init__(
        self,
        what: str,
        kind: Any,
        *,
        as_msgpack: bool = False,
        packed_from: int | None = None,
        error: type[UnreadableValue] = UnreadableValue,
    ) -> None:
        self._what = what
        self._encode = msgspec.msgpack.encode if as_msgpack else msgspec.json.encode
        self._decoder: MsgspecDecoder[_T] = (msgspec.msgpack if as_msgpack else msgspec.json).Decoder(kind)
        self._packed_from = packed_from
        self._error = error

    def encode(self, value: _T) -> bytes:
        """Returns the bytes of a record's value."""
        text = self._encode(value)
        packs = self._packed_from is not None and len(text) >= self._packed_from
        return VERSION + (compress(text) if packs else text)

    def decode(self, value: bytes) -> _T:
        """Returns the value of a record. Raises the codec's error."""
        if value[:1] != VERSION:
            version = value[:1].hex() or "none"
            raise self._error(f"{self._what}: value of version {version}, this runtime reads 01")
        text = value[1:]
        try:
            packed = self._packed_from is not None and text[:1] not in (b"{", b"[")
            return decode(self._decoder, decompress(text) if packed else text)
        except UnreadableValue as error:
            raise self._error(f"{self._what}: {error}") from error


def key_parts(key: bytes | None) -> list[Any] | None:
    """Returns the parts of a record's key, which is a JSON array; None for any other key."""
    try:
        return decode(_parts, key or b"")
    except UnreadableValue:
        return None


_parts = msgspec.json.Decoder(list[Any])


def printable(text: str) -> str:
    """Returns the beginning of a text that anybody may have written, on one line."""
    shown = "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text[:_SHOWN_CHARACTERS])
    return shown + ("…" if len(text) > _SHOWN_CHARACTERS else "")
