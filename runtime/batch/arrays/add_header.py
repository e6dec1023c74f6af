"""This module adds one header to every record of a batch with numpy, for headers provenance of large batches.

Only the lengths are read one after the other, because each says where the next record begins. Everything else
is done for all records at once. `splice.extend` does the same record by record. It serves small batches, and
those in which a record has headers already.
"""

from typing import Final

import numpy as np

from runtime.batch.arrays.varints import (
    Integers,
    IrregularError,
    Octets,
    put_varints,
    read_varints,
    skip_varints,
)
from runtime.batch.varint import MalformedBytes, read, varint
from runtime.contract.records.provenance import OFFSET_SIZE

_LENGTH_BYTES: Final = 3
_ONE: Final = varint(1)


def add_header(data: bytes, count: int, first: int, header: bytes) -> bytes | None:
    """Adds the header to every record and keeps the deltas; returns None where `splice.extend` must do it.

    `header` is all of the header except for the offset at its end; `first` is the offset of the first record.
    """
    starts, stops = _boundaries(data, count)
    octets = np.frombuffer(data, np.uint8)
    try:
        at = skip_varints(octets, starts + 1)  # timestamp delta, behind the attributes
        at = skip_varints(octets, at)  # offset delta
        at = _skip_sized(octets, at, stops)  # key
        at = _skip_sized(octets, at, stops)  # value
    except (IrregularError, IndexError):
        return None
    # No header yet: a count of zero is the last byte of the record.
    if (at + 1 != stops).any() or octets[at].any():
        return None
    added = _ONE + header
    lengths = stops - starts + len(header) + OFFSET_SIZE
    between = _between(added, first, lengths)
    parts = [b""] * (2 * count + 1)
    parts[0] = varint(int(lengths[0]))
    parts[1::2] = [data[start:stop] for start, stop in zip(starts.tolist(), at.tolist(), strict=True)]
    parts[2::2] = between
    return b"".join(parts)


def _boundaries(data: bytes, count: int) -> tuple[Integers, Integers]:
    """Returns where each record begins behind its length, and where it ends."""
    starts: list[int] = []
    stops: list[int] = []
    start, stop = starts.append, stops.append
    position, size = 0, len(data)
    for _ in range(count):
        length = data[position]
        if length > 0x7F:
            if (more := data[position + 1]) > 0x7F:
                length, position = read(data, position)
            else:
                length = (length & 0x7F | more << 7) >> 1 ^ -(length & 1)
                position += 2
        else:
            length = length >> 1 ^ -(length & 1)
            position += 1
        start(position)
        if length <= 0:
            raise MalformedBytes("a record's length does not fit")
        position += length
        stop(position)
    if position != size:
        raise MalformedBytes("the records do not end where the batch does")
    return np.array(starts, np.int64), np.array(stops, np.int64)


def _skip_sized(octets: Octets, at: Integers, stops: Integers) -> Integers:
    """Returns where the keys or values at these places end; null is none."""
    size, at = read_varints(octets, at, _LENGTH_BYTES)
    at = at + np.maximum(size, 0)
    if (size < -1).any() or (at >= stops).any():
        raise IrregularError
    return at


def _between(added: bytes, first: int, lengths: Integers) -> list[bytes]:
    """Returns the bytes between two records: the header of the first, and the length of the second."""
    count, width = len(lengths), len(added) + OFFSET_SIZE
    rows = np.zeros((count, width + _LENGTH_BYTES + 1), np.uint8)
    rows[:, : len(added)] = np.frombuffer(added, np.uint8)
    offsets = np.arange(first, first + count, dtype=">i8")
    rows[:, len(added) : width] = offsets.view(np.uint8).reshape(count, OFFSET_SIZE)
    at = np.arange(count - 1, dtype=np.int64) * rows.shape[1] + width
    put_varints(rows.reshape(-1), at, lengths[1:] << 1)
    # numpy takes zeros at the end of a row for padding. A length never ends in one; the last row has none.
    between: list[bytes] = rows.view(f"S{rows.shape[1]}").reshape(-1).tolist()
    between[-1] = rows[-1, :width].tobytes()
    return between
