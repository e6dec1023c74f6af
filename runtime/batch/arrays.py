"""This module handles the records of many batches with numpy, and merges small batches so.

Irregular input raises IrregularError, and bytes that end too soon raise IndexError: the caller then handles
the records one by one, and so also finds the reason. `splice` does that; `varint` handles one number.

The records of one batch can only be found one after the other, because a record's length stands at its
beginning. Records of different batches are independent, so a merge reads the n-th records of all batches
together. `headers` adds the provenance header to larger batches.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from runtime.batch.spec import OffsetDeltaRun
from runtime.batch.varint import MalformedBytes, read
from runtime.contract.records.provenance import OFFSET_SIZE

Integers = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]

LONGEST_ENCODED: Final = 10
WORD: Final = 8


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


def encode_varints(zigzag: Integers) -> tuple[npt.NDArray[np.void], Integers]:
    """Returns each number as a block of eight bytes that begins with its varint, and the varints' lengths.

    Zeros follow the varint. Raises IrregularError for a number that takes more than eight bytes.
    """
    words, lengths = zigzag & 0x7F, np.ones(len(zigzag), np.int64)
    rest, bits = zigzag >> 7, 8
    if zigzag.min(initial=0) < 0 or zigzag.max(initial=0) >> 56:
        raise IrregularError
    while rest.any():
        longer = rest > 0
        lengths += longer
        words |= longer.astype(np.int64) << (bits - 1)
        words |= (rest & 0x7F) << bits
        rest, bits = rest >> 7, bits + 8
    return words.astype("<i8").view(f"V{WORD}"), lengths


_COPIED_AT_ONCE: Final = 256 << 10  # bytes: what is copied passes through a buffer that fits into the cache


def blocks(octets: Octets, size: int) -> npt.NDArray[np.void]:
    """Returns a view of all blocks of this size, one for each byte at which a block can begin.

    An index array reads or writes blocks at any places.
    """
    return np.ndarray((len(octets) - size + 1,), f"V{size}", octets, strides=(1,))


def copy_ranges(source: Octets, starts: Integers, sizes: Integers, target: Octets, at: Integers) -> None:
    """Copies ranges of any sizes, each to its own place in the target. No range is empty.

    Ranges of about one size are copied together. A block of the largest power of two that fits is copied from
    the beginning of each range. Another one that holds what is left is copied up to the end of the range.
    """
    exponents = _exponents(sizes)
    _copy_blocks(source, starts, target, at, exponents)
    sizes = sizes - (1 << exponents)
    which = np.flatnonzero(sizes)
    if len(which):
        if len(which) < len(sizes):
            starts, sizes, at, exponents = starts[which], sizes[which], at[which], exponents[which]
        rest = _exponents(2 * sizes - 1)
        behind = sizes + (1 << exponents) - (1 << rest)
        _copy_blocks(source, starts + behind, target, at + behind, rest)


def _exponents(sizes: Integers) -> Integers:
    """Returns the exponent of the largest power of two that is not larger than the size."""
    return np.frexp(sizes)[1] - 1


def _copy_blocks(source: Octets, starts: Integers, target: Octets, at: Integers, exponents: Integers) -> None:
    """Copies blocks, each with two to the power of its exponent as its size."""
    for exponent in np.flatnonzero(np.bincount(exponents)).tolist():
        size = 1 << exponent
        from_blocks, to_blocks = blocks(source, size), blocks(target, size)
        which = np.flatnonzero(exponents == exponent)
        begins, ends = (starts, at) if len(which) == len(at) else (starts[which], at[which])
        step = max(_COPIED_AT_ONCE // size, 1)
        for first in range(0, len(which), step):
            to_blocks[ends[first : first + step]] = from_blocks[begins[first : first + step]]


LENGTH_BYTES: Final = 3


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
    at = skip_sized(octets, tails, stops)  # key
    at = skip_sized(octets, at, stops)  # value
    # A count of zero is the last byte of the record.
    if (at + 1 != stops).any() or octets[at].any():
        raise IrregularError
    return at


def skip_sized(octets: Octets, at: Integers, stops: Integers) -> Integers:
    """Returns where the keys or values at these places end; null is none."""
    size, at = read_varints(octets, at, LENGTH_BYTES)
    at = at + np.maximum(size, 0)
    if (size < -1).any() or (at >= stops).any():
        raise IrregularError
    return at


_LEAD_BYTES: Final = 20  # the longest lead: length 5, attributes 1, timestamp delta 10, offset delta 4
_TIMESTAMP_BYTES: Final = 5
_ONE_BYTE_DELTAS: Final = 64
# One step over the batches costs about as much as this many records in the loops of `splice`.
_STEP_RECORDS: Final = 100


def worth_merging(counts: Sequence[int]) -> bool:
    """Returns whether merging here is faster than `splice`; `counts` are the batches' numbers of records."""
    longest = max(counts)
    return longest <= _ONE_BYTE_DELTAS and sum(counts) > _STEP_RECORDS * (longest + 1)


def merge_bodies(
    bodies: Sequence[bytes | memoryview],
    counts: Sequence[int],
    base_timestamps: Sequence[int],
    bases: Sequence[int],
    header: bytes | None,
) -> tuple[memoryview, int, int] | None:
    """Returns the records of all bodies as one body, numbered 0, 1, …, with its base and maximal timestamp;
    None where `splice` must do it.

    Each batch must be whole: its offset deltas are 0, 1, … records - 1. `bases` are their base offsets. With
    a `header`, no record may have headers yet. It is added to each record where it is not empty: it is all
    of the header except for the offset at its end.
    """
    octets = np.frombuffer(b"".join(bodies), np.uint8)
    records = np.array(counts, np.int64)
    sizes = np.array([len(body) for body in bodies], np.int64)
    try:
        tails, stops, deltas = _scan(octets, sizes, records)
        timestamps = deltas + np.repeat(np.array(base_timestamps, np.int64), records)
        added = None
        if header is not None:
            at = _header_counts(octets, tails, stops)
            if header:
                first = np.array(bases, np.int64) - (np.cumsum(records) - records)
                added = AddedHeader(header, at, np.repeat(first, records) + np.arange(len(tails)))
        data = numbered(octets, tails, stops, timestamps - timestamps[0], added)
    except (IrregularError, IndexError):
        return None
    return data, int(timestamps[0]), int(timestamps.max())


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
        length, at = read_varints(octets, at, LENGTH_BYTES)
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


class AddedHeader(NamedTuple):
    """An AddedHeader is put behind the other headers of every record. No header count gets longer by it."""

    constant: bytes  # all of it, except for the offset at its end
    counts_at: Integers  # where the header counts of the records are
    offsets: Integers

    @property
    def size(self) -> int:
        return len(self.constant) + OFFSET_SIZE

    def put(self, octets: Octets, body: Octets, moved: Integers, at: Integers) -> None:
        """Writes the header at these places of the body, and the counts, which moved with their records."""
        body[self.counts_at + moved] = octets[self.counts_at] + 2
        blocks(body, len(self.constant))[at] = np.void(self.constant)
        offsets = self.offsets.astype(">i8").view(f"V{OFFSET_SIZE}")
        blocks(body, OFFSET_SIZE)[at + len(self.constant)] = offsets


def numbered(
    octets: Octets, tails: Integers, stops: Integers, deltas: Integers, added: AddedHeader | None = None
) -> memoryview:
    """Returns a body of the records with these tails and timestamp deltas, numbered 0, 1, …

    Raises IrregularError for a difference of timestamps that no clock makes.
    """
    sizes, grown = stops - tails, added.size if added is not None else 0
    zigzag, index = (deltas << 1) ^ (deltas >> 63), np.arange(len(tails), dtype=np.int64)
    times, time_sizes = encode_varints(zigzag)
    numbers, number_sizes = encode_varints(index << 1)
    contents = 1 + time_sizes + number_sizes + sizes + grown
    lengths, length_sizes = encode_varints(contents << 1)
    ends = np.cumsum(length_sizes + contents)
    body = np.zeros(int(ends[-1]), np.uint8)
    words, at = blocks(body, WORD), ends - contents - length_sizes
    if int(sizes.min()) + grown >= WORD:
        # Each write covers the zeros behind the varint before it. The first zero is the record's attributes.
        words[at] = lengths
        words[at + length_sizes + 1] = times
        at += length_sizes + 1 + time_sizes
        words[at] = numbers
        at += number_sizes
    else:  # a word would reach into the next record
        at = put_varints(body, at, contents << 1) + 1
        at = put_varints(body, at, zigzag)
        at = put_varints(body, at, index << 1)
    copy_ranges(octets, tails, sizes, body, at)
    if added is not None:
        added.put(octets, body, at - tails, at + sizes)
    return body.data
