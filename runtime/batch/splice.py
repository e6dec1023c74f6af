"""This module handles single records as slices of bytes: keys and values are skipped and never decoded.

A record: length, attributes, timestamp delta, offset delta, then its tail: key, value, header count, headers.
The loops are long on purpose: a call per field would double the time of each record.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from runtime.batch.varint import TABLE, TABLE_REACH, MalformedBytes, encode, read, read_size, signed, varint
from runtime.contract.records.provenance import OFFSET_SIZE, offset_part

_NO_ATTRIBUTES: Final = b"\x00"
_ONE: Final = varint(1)
_LEAST: Final = -(1 << 63)
_MOST: Final = (1 << 63) - 1
_FAR: Final = 1 << 62  # a base timestamp beyond it may overflow with a small delta, too


# Offset and timestamp at the source, and the tail. A class would cost as much as the rest of the loop.
Raw = tuple[int, int, bytes]


def scan(data: bytes, count: int, base_offset: int, base_timestamp: int, records: list[Raw]) -> None:  # noqa: PLR0912 - one pass over bytes: calls would cost
    """Appends the records of an unpacked batch to `records`.

    Timestamps are added in 64 bits, as other readers add them: a client may write any base and any delta.
    """
    add, before = records.append, len(records)
    position, size, least = 0, len(data), base_offset
    for _ in range(count):
        length = data[position]
        position += 1
        if length > 0x7F:
            if (more := data[position]) > 0x7F:
                length, position = read(data, position - 1)
            else:
                length = (length & 0x7F | more << 7) >> 1 ^ -(length & 1)
                position += 1
        else:
            length = length >> 1 ^ -(length & 1)
        end = position + length
        position += 1
        delta = data[position]
        position += 1
        if delta > 0x7F:
            if (more := data[position]) > 0x7F:
                delta, position = read(data, position - 1)
                if not _LEAST <= base_timestamp + delta <= _MOST:
                    delta = signed(base_timestamp + delta) - base_timestamp
            else:
                delta = (delta & 0x7F | more << 7) >> 1 ^ -(delta & 1)
                position += 1
        else:
            delta = delta >> 1 ^ -(delta & 1)
        offset = data[position]
        position += 1
        if offset > 0x7F:
            if (more := data[position]) > 0x7F:
                offset, position = read(data, position - 1)
            else:
                offset = (offset & 0x7F | more << 7) >> 1 ^ -(offset & 1)
                position += 1
        else:
            offset = offset >> 1 ^ -(offset & 1)
        offset += base_offset
        if not position < end <= size or offset < least:
            raise MalformedBytes("a record's length or offset does not fit")
        add((offset, base_timestamp + delta, data[position:end]))
        position, least = end, offset + 1
    if position != size:
        raise MalformedBytes(f"{size - position} bytes behind the last record")
    if not -_FAR < base_timestamp < _FAR:
        records[before:] = [(offset, signed(timestamp), tail) for offset, timestamp, tail in records[before:]]


def header_count_at(tail: bytes) -> int:
    """Returns where the key and the value end."""
    position = 0
    for _ in range(2):
        size = tail[position]
        position += 1
        if size > 0x7F:
            if (more := tail[position]) > 0x7F:
                size, position = read_size(tail, position - 1)
                position += size
            else:
                position += ((size & 0x7F | more << 7) >> 1) + 1
        elif not size & 1:
            position += size >> 1
        elif size > 1:
            raise MalformedBytes("a key or value of negative length")
    if position >= len(tail):
        raise MalformedBytes("a key or value does not fit its record")
    return position


def with_header(tail: bytes, header: bytes) -> bytes:
    """Returns the tail with one more header, after the existing ones."""
    at = header_count_at(tail)
    if not tail[at] and at + 1 == len(tail):
        return tail[:at] + _ONE + header
    count, after = read(tail, at)
    return tail[:at] + varint(count + 1) + tail[after:] + header


def headers_of(tail: bytes, at: int) -> list[tuple[bytes, bytes | None]]:
    return [(name, value) for name, value, _ in header_places(tail, at)]


def header_places(tail: bytes, at: int) -> Iterator[tuple[bytes, bytes | None, int]]:
    """Yields the name and the value of each header, and where the value ends."""
    if not tail[at] and at + 1 == len(tail):
        return
    count, position = read(tail, at)
    if not 0 <= count <= len(tail):
        raise MalformedBytes(f"{count} headers")
    for _ in range(count):
        name, position = sized(tail, position)
        value, position = sized(tail, position)
        yield name or b"", value, position
    if position != len(tail):
        raise MalformedBytes("bytes behind the last header")


def sized(tail: bytes, position: int) -> tuple[bytes | None, int]:
    """Returns the bytes with their length before them; null differs from empty."""
    size = tail[position]
    if size < 0x80 and not size & 1:
        begin, size = position + 1, size >> 1
    elif size == 1:
        return None, position + 1
    elif size & 1 or (more := tail[position + 1]) > 0x7F:
        size, begin = read_size(tail, position)
    else:
        begin, size = position + 2, (size & 0x7F | more << 7) >> 1
    if size < 0:
        return None, begin
    end = begin + size
    if end > len(tail):
        raise MalformedBytes(f"a length of {size} with {len(tail) - begin} bytes left")
    return tail[begin:end], end


def join(records: Sequence[Raw]) -> tuple[bytes, int, int]:
    """Returns a body of records numbered 0, 1, …, and its base and maximal timestamp."""
    parts: list[bytes] = []
    add = parts.append
    table, reach = TABLE, TABLE_REACH
    base = latest = records[0][1]
    for index, (_, timestamp, tail) in enumerate(records):
        delta = timestamp - base
        if timestamp > latest:
            latest = timestamp
        lead = table[delta] if -reach <= delta < reach else encode(signed(delta))
        lead += table[index] if index < reach else encode(index)
        length = 1 + len(lead) + len(tail)
        add(table[length] if length < reach else encode(length))
        add(_NO_ATTRIBUTES)
        add(lead)
        add(tail)
    return b"".join(parts), base, latest


def extend(  # noqa: C901, PLR0912, PLR0915 - one pass over bytes: calls would cost
    data: bytes, count: int, first: int, header: bytes, drops: Callable[[bytes, int], bool]
) -> bytes | None:
    """Adds one header to every record of a whole batch and keeps the deltas; returns None if a record drops.

    `header` is all of the header except for the offset at its end, which differs.
    """
    parts: list[bytes] = []
    add = parts.append
    table, reach, pack_offset = TABLE, TABLE_REACH, offset_part
    only = _ONE + header
    grown = len(header) + OFFSET_SIZE
    position, size = 0, len(data)
    for offset in range(first, first + count):
        length = data[position]
        position += 1
        if length > 0x7F:
            if (more := data[position]) > 0x7F:
                length, position = read(data, position - 1)
            else:
                length = (length & 0x7F | more << 7) >> 1 ^ -(length & 1)
                position += 1
        else:
            length = length >> 1 ^ -(length & 1)
        start, end = position, position + length
        if end > size:
            raise MalformedBytes("a record's length does not fit")
        position += 1
        while data[position] > 0x7F:
            position += 1
        position += 1
        while data[position] > 0x7F:
            position += 1
        position += 1
        skip = data[position]
        position += 1
        if skip > 0x7F:
            if (more := data[position]) > 0x7F:
                skip, position = read(data, position - 1)
                position += skip
            elif skip & 1:
                raise MalformedBytes("a key or value of negative length")
            else:
                position += ((skip & 0x7F | more << 7) >> 1) + 1
        elif not skip & 1:
            position += skip >> 1
        elif skip > 1:
            raise MalformedBytes("a key or value of negative length")
        skip = data[position]
        position += 1
        if skip > 0x7F:
            if (more := data[position]) > 0x7F:
                skip, position = read(data, position - 1)
                position += skip
            elif skip & 1:
                raise MalformedBytes("a key or value of negative length")
            else:
                position += ((skip & 0x7F | more << 7) >> 1) + 1
        elif not skip & 1:
            position += skip >> 1
        elif skip > 1:
            raise MalformedBytes("a key or value of negative length")
        if not start < position < end:
            raise MalformedBytes("a key or value does not fit its record")
        if not data[position] and position + 1 == end:
            length += grown
            add(table[length] if length < reach else encode(length))
            add(data[start:position])
            add(only)
        else:
            if drops(data[position:end], 0):
                return None
            headers, after = read(data, position)
            counted = varint(headers + 1)
            add(varint(position - start + len(counted) + end - after + grown))
            add(data[start:position])
            add(counted)
            add(data[after:end])
            add(header)
        add(pack_offset(offset))
        position = end
    if position != size:
        raise MalformedBytes(f"{size - position} bytes behind the last record")
    return b"".join(parts)
