"""This module packs and unpacks the five compressions, and unpacks no more than a bound (R8)."""

import struct
from collections.abc import Callable
from typing import Final

import cramjam

from runtime.batch.layout import Codec
from runtime.batch.varint import MalformedBytes

# Only batches that must be rewritten are packed again; fast levels, as measured in docs/internals/batch.md.
_GZIP_LEVEL: Final = 1
_LZ4_LEVEL: Final = 0
_ZSTD_LEVEL: Final = 1

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK: Final = 32 * 1024
_BLOCK_SIZE: Final = struct.Struct(">i")

_FIRST_GUESS: Final = 6  # times the packed size
_SMALLEST_GUESS: Final = 1024
_GUESS_GROWTH: Final = 4
_FULL: Final = "write whole buffer"


class UnpackedSizeExceeded(Exception):
    """The records unpack to more bytes than the bound."""


def unpack(codec: Codec, packed: memoryview | bytes, limit: int) -> bytes:
    """Returns the unpacked bytes of the records. Raises MalformedBytes or UnpackedSizeExceeded."""
    match codec:
        case Codec.NONE:
            return bytes(packed)
        case Codec.GZIP:
            return _into_bounded(cramjam.gzip.decompress_into, packed, limit)
        case Codec.SNAPPY:
            return _unpack_snappy(memoryview(packed), limit)
        case Codec.LZ4:
            return _into_bounded(cramjam.lz4.decompress_into, packed, limit)
        case Codec.ZSTD:
            return _into_bounded(cramjam.zstd.decompress_into, packed, limit)


def pack(codec: Codec, records: bytes | bytearray | memoryview) -> memoryview:
    match codec:
        case Codec.NONE:
            return memoryview(records)
        case Codec.GZIP:
            return memoryview(cramjam.gzip.compress(records, level=_GZIP_LEVEL))
        case Codec.SNAPPY:
            return memoryview(_pack_snappy(records))
        case Codec.LZ4:
            # Java's reader refuses linked blocks.
            frame = cramjam.lz4.Compressor(level=_LZ4_LEVEL, content_checksum=False, block_linked=False)
            frame.compress(bytes(records))  # it takes no view
            return memoryview(frame.finish())
        case Codec.ZSTD:
            return memoryview(cramjam.zstd.compress(records, level=_ZSTD_LEVEL))


def _into_bounded(decompress_into: Callable[..., int], packed: memoryview | bytes, limit: int) -> bytes:
    """Grows the buffer until it holds all bytes or reaches the limit: frames need not state their length."""
    room = min(max(len(packed) * _FIRST_GUESS, _SMALLEST_GUESS), limit)
    while True:
        buffer = bytearray(room)
        try:
            size = decompress_into(packed, buffer)
        except cramjam.DecompressionError as error:
            if _FULL not in str(error):
                raise MalformedBytes(f"does not unpack: {error}") from None
            if room >= limit:
                raise UnpackedSizeExceeded from None
            room = min(room * _GUESS_GROWTH, limit)
        else:
            return bytes(memoryview(buffer)[:size])


def _unpack_snappy(packed: memoryview, limit: int) -> bytes:
    if bytes(packed[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _unpack_snappy_block(packed, limit)
    blocks: list[bytes] = []
    position, room = len(_XERIAL_HEADER), limit
    while position < len(packed):
        if position + _BLOCK_SIZE.size > len(packed):
            raise MalformedBytes("a snappy block without its length")
        size: int = _BLOCK_SIZE.unpack_from(packed, position)[0]
        position += _BLOCK_SIZE.size
        if size < 0 or position + size > len(packed):
            raise MalformedBytes(f"a snappy block of {size} bytes with {len(packed) - position} left")
        block = _unpack_snappy_block(packed[position : position + size], room)
        position += size
        room -= len(block)
        blocks.append(block)
    return b"".join(blocks)


def _unpack_snappy_block(block: memoryview, limit: int) -> bytes:
    try:
        if cramjam.snappy.decompress_raw_len(block) > limit:
            raise UnpackedSizeExceeded
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise MalformedBytes(f"does not unpack: {error}") from None


def _pack_snappy(records: bytes | bytearray | memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    view = memoryview(records)
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        parts += (_BLOCK_SIZE.pack(len(block)), block)
    return b"".join(parts)
