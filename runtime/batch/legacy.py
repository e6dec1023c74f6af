"""This module reads message formats v0 and v1, which old segments still hold.

The copies are written in v2.
"""

import struct
import zlib
from itertools import pairwise
from typing import Final, NamedTuple

from runtime.batch.codecs import UnpackedSizeExceeded, unpack
from runtime.batch.layout import CODEC_MASK, LOG_APPEND_TIME, NO_TIMESTAMP, Codec, LegacySet
from runtime.batch.spec import LEAST_RECORD
from runtime.batch.splice import Raw
from runtime.batch.varint import NO_HEADERS, MalformedBytes, encode_field

_ENTRY: Final = struct.Struct(">qiIbb")  # offset, size, checksum, magic, attributes
_TIMESTAMP: Final = struct.Struct(">q")
_SIZE: Final = struct.Struct(">i")
_LOG_OVERHEAD: Final = 12
_CRC_FROM: Final = 16


class _Message(NamedTuple):
    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None

    @property
    def codec(self) -> Codec:
        kind = self.attributes & CODEC_MASK
        if kind > Codec.LZ4:
            raise MalformedBytes(f"compression {kind} in format {self.magic}")
        return Codec(kind)


def codec_of(legacy: LegacySet) -> Codec:
    """Returns the compression of the first message, which all messages of the set have."""
    return _message(legacy.messages, 0)[0].codec


def scan_legacy(legacy: LegacySet, limit: int) -> list[Raw]:
    """Returns all records with their absolute offsets; v0 has no timestamps.

    Raises MalformedBytes, and UnpackedSizeExceeded where all of them together take more than the limit.
    """
    records: list[Raw] = []
    room = limit
    for message in _messages(legacy.messages, room):
        if message.codec == Codec.NONE:
            records.append(_raw(message.offset, message.timestamp, message))
        else:
            inner = _unwrap(message, room)
            room -= sum(max(len(tail), LEAST_RECORD) for _, _, tail in inner)
            records += inner
            if room < 0:
                raise UnpackedSizeExceeded
    for before, after in pairwise(records):
        if after[0] <= before[0]:
            raise MalformedBytes(f"offset {after[0]} behind {before[0]}")
    return records


def _unwrap(wrapper: _Message, limit: int) -> list[Raw]:
    """Returns the messages inside a compressed message.

    In v1 their offsets are relative, and the wrapper has the offset of the last one.
    """
    if wrapper.value is None:
        raise MalformedBytes("a compressed message without a value")
    packed = wrapper.value
    if wrapper.codec == Codec.LZ4 and wrapper.magic == 0:
        packed = _mend_lz4(packed)
    inner = _messages(memoryview(unpack(wrapper.codec, packed, limit)), limit, nested=True)
    if not inner:
        raise MalformedBytes("a compressed message without messages")
    shift = wrapper.offset - inner[-1].offset if wrapper.magic else 0
    appended = wrapper.timestamp if wrapper.magic and wrapper.attributes & LOG_APPEND_TIME else None
    return [
        _raw(message.offset + shift, message.timestamp if appended is None else appended, message)
        for message in inner
    ]


def _messages(view: memoryview, limit: int, *, nested: bool = False) -> list[_Message]:
    messages: list[_Message] = []
    position = 0
    while position < len(view):
        if len(messages) * LEAST_RECORD > limit:
            raise UnpackedSizeExceeded
        message, position = _message(view, position)
        if nested and message.attributes & CODEC_MASK:
            raise MalformedBytes("a compressed message inside a compressed one")
        messages.append(message)
    return messages


def _message(view: memoryview, position: int) -> tuple[_Message, int]:
    if position + _ENTRY.size > len(view):
        raise MalformedBytes("a message is cut off")
    offset, size, checksum, magic, attributes = _ENTRY.unpack_from(view, position)
    end = position + _LOG_OVERHEAD + size
    if end > len(view) or magic not in (0, 1):
        raise MalformedBytes(f"a message of format {magic} and {size} bytes")
    if zlib.crc32(view[position + _CRC_FROM : end]) != checksum:
        raise MalformedBytes("wrong checksum of a message")
    position += _ENTRY.size
    timestamp = NO_TIMESTAMP
    if magic:
        if position + _TIMESTAMP.size > end:
            raise MalformedBytes("a message is too short for its timestamp")
        (timestamp,) = _TIMESTAMP.unpack_from(view, position)
        position += _TIMESTAMP.size
    key, position = _sized(view, position, end)
    value, position = _sized(view, position, end)
    if position != end:
        raise MalformedBytes("bytes behind a message's value")
    return _Message(offset, magic, attributes, timestamp, key, value), end


def _sized(view: memoryview, position: int, end: int) -> tuple[bytes | None, int]:
    if position + _SIZE.size > end:
        raise MalformedBytes("a key or value is cut off")
    (size,) = _SIZE.unpack_from(view, position)
    position += _SIZE.size
    if size == -1:
        return None, position
    if size < 0 or position + size > end:
        raise MalformedBytes(f"a key or value of {size} bytes")
    return bytes(view[position : position + size]), position + size


def _raw(offset: int, timestamp: int, message: _Message) -> Raw:
    return offset, timestamp, encode_field(message.key) + encode_field(message.value) + NO_HEADERS


def _mend_lz4(frame: bytes) -> bytes:
    """Corrects an LZ4 frame's header checksum.

    Clients of v0 computed it over the magic number too, which no reader accepts.
    """
    if len(frame) < 7:
        raise MalformedBytes("an lz4 frame without its header")
    descriptor_end = 6 + (8 if frame[4] & 0x08 else 0)
    checksum = _xxh32(frame[4:descriptor_end]) >> 8 & 0xFF
    return frame[:descriptor_end] + bytes([checksum]) + frame[descriptor_end + 1 :]


def _xxh32(data: bytes) -> int:
    """Computes xxHash for fewer than 16 bytes, which a frame's descriptor always has."""
    mask = 0xFFFFFFFF
    prime = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
    whole = len(data) & ~3
    value = (prime[4] + len(data)) & mask
    for at in range(0, whole, 4):
        value = _rotate(value + int.from_bytes(data[at : at + 4], "little") * prime[2], 17) * prime[3] & mask
    for byte in data[whole:]:
        value = _rotate(value + byte * prime[4], 11) * prime[0] & mask
    value = (value ^ value >> 15) * prime[1] & mask
    value = (value ^ value >> 13) * prime[2] & mask
    return value ^ value >> 16


def _rotate(value: int, bits: int) -> int:
    value &= 0xFFFFFFFF
    return value << bits | value >> 32 - bits
