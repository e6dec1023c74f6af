"""This module merges small batches, and adds one header to every record of a batch, with numpy.

Irregular input raises IrregularError, and bytes that end too soon raise IndexError: the caller then handles
the records one by one, and so also finds the reason. `splice` does that; `varint` handles one number.

The records of one batch can only be found one after the other, because a record's length stands at its
beginning. Records of different batches are independent, so a merge reads the n-th records of all batches
together.

A header is added for the headers provenance of large batches: only the lengths are read one after the other,
everything else is done for all records at once. `splice.extend` does the same record by record. It serves
small batches, and those in which a record has headers already.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from runtime.batch.spec import OffsetDeltaRun
from runtime.batch.varint import MalformedBytes, read, varint
from runtime.contract.records.provenance import OFFSET_SIZE

Integers = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]

LONGEST_ENCODED: Final = 10


class IrregularError(Exception):
    """The records can't be handled as arrays."""


def read_varints(octets: Octets, at: Integers, most: int) -> tuple[Integers, Integers]:
    """Returns the signed numbers at these places, and where they end."""
    octet = octets[at].astype(np.int64)
    value, at = octet & 0x7F, at + 1
    more = octet > 0x7F
    for place in range(1, most + 1):
        if not more.any():
            return (value >> 1) ^ -(value & 1), at
        octet = np.where(more, octets[at], 0).astype(np.int64)
        value |= (octet & 0x7F) << 7 * place
        at = at + more
        more = octet > 0x7F
    raise IrregularError


def skip_varints(octets: Octets, at: Integers) -> Integers:
    """Returns where the varints at these places end. Raises IrregularError for one that is too long."""
    at = at + 1
    more = octets[at - 1] > 0x7F
    for _ in range(LONGEST_ENCODED):
        if not more.any():
            return at
        at = at + more
        more &= octets[at - 1] > 0x7F
    raise IrregularError


def varint_widths(zigzag: Integers) -> Integers:
    """Returns how many bytes each number takes as a varint."""
    widths = np.ones(len(zigzag), np.int64)
    rest = zigzag >> 7
    while rest.any():
        if (rest < 0).any():  # a difference of timestamps that no clock makes
            raise IrregularError
        widths += rest > 0
        rest = rest >> 7
    return widths


def put_varints(flat: Octets, at: Integers, zigzag: Integers) -> Integers:
    """Writes the numbers as varints and returns where they end."""
    after = at + 1
    which = np.arange(len(at))
    while True:
        rest = zigzag >> 7
        flat[at] = (zigzag & 0x7F) | ((rest > 0) << 7)
        longer = np.flatnonzero(rest)
        if not len(longer):
            return after
        which, at, zigzag = which[longer], at[longer] + 1, rest[longer]
        after[which] += 1


_LENGTH_BYTES: Final = 3
_ONE: Final = varint(1)


def add_header(data: bytes, count: int, first: int, header: bytes) -> bytes | None:
    """Adds the header to every record and keeps the deltas; returns None where `splice.extend` must do it.

    `header` is all of the header except for the offset at its end; `first` is the offset of the first record.
    """
    starts, stops = boundaries(data, count)
    octets = np.frombuffer(data, np.uint8)
    try:
        at = skip_varints(octets, starts + 1)  # timestamp delta, behind the attributes
        at = skip_varints(octets, at)  # offset delta
        at = _header_counts(octets, at, stops)
    except (IrregularError, IndexError):
        return None
    added = _ONE + header
    lengths = stops - starts + len(header) + OFFSET_SIZE
    between = _between(added, first, lengths)
    parts = [b""] * (2 * count + 1)
    parts[0] = varint(int(lengths[0]))
    parts[1::2] = [data[start:stop] for start, stop in zip(starts.tolist(), at.tolist(), strict=True)]
    parts[2::2] = between
    return b"".join(parts)


def boundaries(data: bytes, count: int) -> tuple[Integers, Integers]:
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


def _header_counts(octets: Octets, tails: Integers, stops: Integers) -> Integers:
    """Returns where the header counts are. Raises IrregularError where a record has headers already."""
    at = _skip_sized(octets, tails, stops)  # key
    at = _skip_sized(octets, at, stops)  # value
    # A count of zero is the last byte of the record.
    if (at + 1 != stops).any() or octets[at].any():
        raise IrregularError
    return at


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


_LEAD_BYTES: Final = 20  # the longest lead: length 5, attributes 1, timestamp delta 10, offset delta 4
_TIMESTAMP_BYTES: Final = 5
_ONE_BYTE_DELTAS: Final = 64
# One step over the batches costs about as much as this many records in the loops of `splice`.
_STEP_RECORDS: Final = 100


class MergedBody(NamedTuple):
    data: bytes
    base_timestamp: int
    max_timestamp: int


def worth_merging(counts: Sequence[int]) -> bool:
    """Returns whether merging here is faster than `splice`; `counts` are the batches' numbers of records."""
    longest = max(counts)
    return longest <= _ONE_BYTE_DELTAS and sum(counts) > _STEP_RECORDS * (longest + 1)


def merge_bodies(
    bodies: Sequence[bytes | memoryview],
    counts: Sequence[int],
    base_timestamps: Sequence[int],
    bases: Sequence[int],
    header: bytes | None = None,
) -> MergedBody | None:
    """Returns the records of all bodies as one body, numbered 0, 1, …; None where `splice` must do it.

    Each batch must be whole: its offset deltas are 0, 1, … records - 1. `bases` are their base offsets. With
    a `header`, no record may have headers yet. It is added to each record where it is not empty: it is all
    of the header except for the offset at its end.
    """
    data = b"".join(bodies)
    octets = np.frombuffer(data, np.uint8)
    records = np.array(counts, np.int64)
    sizes = np.array([len(body) for body in bodies], np.int64)
    try:
        tails, stops, deltas = _scan(octets, sizes, records)
        timestamps = deltas + np.repeat(np.array(base_timestamps, np.int64), records)
        base, latest = int(timestamps[0]), int(timestamps.max())
        ends = np.zeros((len(tails), 0), np.uint8)
        if header is not None:
            at = _header_counts(octets, tails, stops)
            if header:
                ends, stops = _headers(header, bases, records), at
        leads = _leads(timestamps - base, stops - tails, ends)
    except (IrregularError, IndexError):
        return None
    parts = [b""] * (2 * len(tails) + 1)
    parts[::2] = leads
    parts[1::2] = [data[tail:stop] for tail, stop in zip(tails.tolist(), stops.tolist(), strict=True)]
    return MergedBody(b"".join(parts), base, latest)


def offset_runs(bases: Sequence[int], counts: Sequence[int]) -> tuple[OffsetDeltaRun, ...]:
    """Returns the offset map of whole batches that were merged."""
    source, records = np.array(bases, np.int64), np.array(counts, np.int64)
    deltas = np.cumsum(records) - records
    first = np.flatnonzero(source[1:] != source[:-1] + records[:-1]) + 1
    starts = [0, *first.tolist()]
    ends = [*deltas[first].tolist(), int(records.sum())]
    return tuple(
        OffsetDeltaRun(delta := int(deltas[at]), bases[at], end - delta)
        for at, end in zip(starts, ends, strict=True)
    )


def _scan(octets: Octets, sizes: Integers, counts: Integers) -> tuple[Integers, Integers, Integers]:
    """Returns for each record where its tail begins and ends, and its timestamp delta."""
    total = int(counts.sum())
    tails, stops, deltas = (np.empty(total, np.int64) for _ in range(3))
    ends = np.cumsum(sizes)
    at, index = ends - sizes, np.cumsum(counts) - counts
    for step in range(int(counts.max())):
        length, at = read_varints(octets, at, _LENGTH_BYTES)
        stop = at + length
        delta, at = read_varints(octets, at + 1, _TIMESTAMP_BYTES)  # behind the attributes
        # `splice` reports a record that is cut off or out of order.
        if (octets[at] != step << 1).any() or (stop > ends).any() or (at + 1 >= stop).any():
            raise IrregularError
        tails[index], stops[index], deltas[index] = at + 1, stop, delta
        going_on = counts > step + 1
        if (stop[~going_on] != ends[~going_on]).any():
            raise IrregularError
        at, ends, counts, index = stop[going_on], ends[going_on], counts[going_on], index[going_on] + 1
    return tails, stops, deltas


def _headers(header: bytes, bases: Sequence[int], counts: Integers) -> Octets:
    """Returns a row for each record: a header count of one, and the header with the record's offset."""
    rows = np.empty((int(counts.sum()), len(_ONE) + len(header) + OFFSET_SIZE), np.uint8)
    rows[:, :-OFFSET_SIZE] = np.frombuffer(_ONE + header, np.uint8)
    first = np.array(bases, np.int64) - (np.cumsum(counts) - counts)
    offsets = (np.repeat(first, counts) + np.arange(len(rows))).astype(">i8")
    rows[:, -OFFSET_SIZE:] = offsets.view(np.uint8).reshape(-1, OFFSET_SIZE)
    return rows


def _leads(deltas: Integers, tail_sizes: Integers, ends: Octets) -> list[bytes]:
    """Returns what stands before the tail of each record, and behind the last one.

    That is the end of the record before, then length, attributes, timestamp and offset delta.
    """
    count, width = ends.shape
    row = width + _LEAD_BYTES
    zigzag = (deltas << 1) ^ (deltas >> 63)
    numbers = np.arange(count, dtype=np.int64) << 1
    lengths = 1 + varint_widths(zigzag) + varint_widths(numbers) + tail_sizes + width
    rows = np.zeros((count, row), np.uint8)
    rows[1:, :width] = ends[:-1]
    flat = rows.reshape(-1)
    at = np.arange(width, count * row, row, dtype=np.int64)
    at = put_varints(flat, at, lengths << 1) + 1
    at = put_varints(flat, at, zigzag)
    end = put_varints(flat, at, numbers)
    # numpy takes zeros at the end of a row for padding. Only the first record's offset delta ends in one.
    leads: list[bytes] = rows.view(f"S{row}").reshape(-1).tolist()
    leads[0] = flat[width : end[0]].tobytes()
    leads.append(ends[-1].tobytes())
    return leads
