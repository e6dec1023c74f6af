"""This module adds the provenance header to every record of whole batches, many batches in one pass of numpy.

Only the place of each record is found one after the other, because a record's length stands at its beginning.
All else is done for the records of all batches at once. No Python object is made for a record.

The result is what `splice.extend` makes record by record. A batch gets None where only `splice` can decide:
irregular bytes, or provenance that drops some of the batch's records.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from runtime.batch.arrays import (
    LENGTH_BYTES,
    WORD,
    AddedHeader,
    Integers,
    IrregularError,
    Octets,
    blocks,
    copy_ranges,
    encode_varints,
    read_varints,
    skip_sized,
    skip_varints,
)
from runtime.batch.origin import NAME, NAMED, OriginRule
from runtime.batch.varint import MalformedBytes, read
from runtime.contract.records.provenance import (
    NEWEST_VERSION,
    OLDEST_VERSION,
    REST_SIZE,
)

_MOST_HEADERS: Final = 62  # one more still has a count of one byte


def add_header(
    bodies: Sequence[bytes | memoryview], counts: Sequence[int], firsts: Sequence[int], rule: OriginRule
) -> list[memoryview | None]:
    """Returns each unpacked body with the header added to its records; the deltas of the records stay.

    `counts` are the numbers of records, `firsts` the offsets of the first ones. A body is empty where all of
    its records are dropped, and None where `splice` must handle it.
    """
    try:
        return _add_header(bodies, np.array(counts, np.int64), np.array(firsts, np.int64), rule)
    except (IrregularError, MalformedBytes, IndexError):
        return [None] * len(bodies)


def _add_header(
    bodies: Sequence[bytes | memoryview], counts: Integers, firsts: Integers, rule: OriginRule
) -> list[memoryview | None]:
    data, octets, begins, ends = _one_buffer(bodies)
    starts, stops = _boundaries(data, octets, begins, ends, counts)
    at = skip_varints(octets, starts + 1)  # timestamp delta, behind the attributes
    at = skip_varints(octets, at)  # offset delta
    at = skip_sized(octets, at, stops)  # key
    at = skip_sized(octets, at, stops)  # value
    header_counts = octets[at]
    if (header_counts & 1).any() or (header_counts > _MOST_HEADERS << 1).any():
        raise IrregularError
    dropped = _dropped(data, octets, at, stops, rule)
    last = np.cumsum(counts)
    if dropped is not None:
        drops = np.add.reduceat(dropped, last - counts, dtype=np.int64)
        if drops.any():
            _require_ascending(octets, starts, counts)
            return _without_dropped(bodies, counts, firsts, drops, rule)
    offsets = np.repeat(firsts - (last - counts), counts) + np.arange(len(starts))
    body, ends = _extended(octets, starts, stops, AddedHeader(rule.header, at, offsets))
    cuts = [0, *ends[last - 1].tolist()]
    return [body[begin:end] for begin, end in pairwise(cuts)]


def _without_dropped(
    bodies: Sequence[bytes | memoryview],
    counts: Integers,
    firsts: Integers,
    drops: Integers,
    rule: OriginRule,
) -> list[memoryview | None]:
    """Returns the bodies where some batches lose records: all of them, or some, which `splice` handles."""
    stay = np.flatnonzero(drops == 0)
    results: list[memoryview | None] = [
        memoryview(b"") if gone == records else None
        for gone, records in zip(drops.tolist(), counts.tolist(), strict=True)
    ]
    if len(stay):
        extended = _add_header([bodies[index] for index in stay.tolist()], counts[stay], firsts[stay], rule)
        for index, body in zip(stay.tolist(), extended, strict=True):
            results[index] = body
    return results


def _require_ascending(octets: Octets, starts: Integers, counts: Integers) -> None:
    """Raises IrregularError unless the offset deltas of each batch are 0, 1, …, as those of a whole batch."""
    deltas, _ = read_varints(octets, skip_varints(octets, starts + 1), LENGTH_BYTES)
    if (deltas != np.arange(len(starts)) - np.repeat(np.cumsum(counts) - counts, counts)).any():
        raise IrregularError


def _one_buffer(bodies: Sequence[bytes | memoryview]) -> tuple[bytes | bytearray, Octets, Integers, Integers]:
    """Returns a buffer that holds all bodies, and where each begins and ends in it.

    Bodies that are views of one fetch response are not copied.
    """
    sizes = np.array([len(body) for body in bodies], np.int64)
    shared = bodies[0].obj if isinstance(bodies[0], memoryview) else None
    if isinstance(shared, bytes | bytearray) and all(
        isinstance(body, memoryview) and body.obj is shared for body in bodies
    ):
        octets = np.frombuffer(shared, np.uint8)
        addresses = [_address(np.frombuffer(body, np.uint8)) for body in bodies]
        begins = np.array(addresses, np.int64) - _address(octets)
        return shared, octets, begins, begins + sizes
    data, ends = b"".join(bodies), np.cumsum(sizes)
    return data, np.frombuffer(data, np.uint8), ends - sizes, ends


def _address(octets: Octets) -> int:
    return octets.ctypes.data


def _boundaries(
    data: bytes | bytearray, octets: Octets, begins: Integers, ends: Integers, counts: Integers
) -> tuple[Integers, Integers]:
    """Returns where each record begins behind its length, and where it ends."""
    if (counts > ends - begins).any():
        raise IrregularError
    positions: list[int] = []
    for begin, end, count in zip(begins.tolist(), ends.tolist(), counts.tolist(), strict=True):
        _find_records(data, begin, end, count, positions)
    places = np.array(positions, np.int64)
    stops = np.empty_like(places)
    stops[:-1] = places[1:]
    stops[np.cumsum(counts) - 1] = ends
    lengths, starts = read_varints(octets, places, LENGTH_BYTES)
    if (starts + lengths != stops).any() or (lengths <= 0).any():
        raise IrregularError
    return starts, stops


def _steps(low: int) -> list[int]:
    """Returns the sizes of the records whose length begins with this byte, by the byte behind it."""
    if low < 0x80:
        return [1 + (low >> 1)] * 256
    return [2 + ((low & 0x7F | high << 7) >> 1) if high < 0x80 else 0 for high in range(256)]


# 0: the length has more than two bytes.
_STEPS: Final = [_steps(low) for low in range(256)]


def _find_records(data: bytes | bytearray, begin: int, end: int, count: int, positions: list[int]) -> None:
    """Appends where the records of a body are; the caller checks lengths that are negative or do not fit."""
    before, add, steps, position = len(positions), positions.append, _STEPS, begin
    for _ in range(count):
        add(position)
        position += steps[data[position]][data[position + 1]]
    if position != end:  # a record of more than 8 KB
        del positions[before:]
        position = begin
        for _ in range(count):
            add(position)
            length, position = read(data, position)
            position += max(length, 0)


def _dropped(
    data: bytes | bytearray, octets: Octets, at: Integers, stops: Integers, rule: OriginRule
) -> npt.NDArray[np.bool_] | None:
    """Returns which records are dropped; None for none. `at` is where each record's header count is."""
    has_headers = at + 1 != stops
    if rule.home is None and not rule.native_only:
        return None
    if not has_headers.any() or data.find(NAMED, int(at[0]), int(stops[-1])) < 0:
        return None
    if rule.native_only or rule.home is None:
        raise IrregularError
    which = np.flatnonzero(has_headers)
    returning = _originated_at(rule.home, octets, at[which], stops[which])
    if not returning.any():
        return None
    dropped = np.zeros(len(at), np.bool_)
    dropped[which] = returning
    return dropped


def _originated_at(home: bytes, octets: Octets, at: Integers, stops: Integers) -> npt.NDArray[np.bool_]:
    """Returns which records have a provenance header that names the home."""
    matches = np.zeros(len(at), np.bool_)
    left, index, at = octets[at].astype(np.int64) >> 1, np.arange(len(at)), at + 1
    while True:
        ended = left == 0
        if (at[ended] != stops[ended]).any():
            raise IrregularError
        going_on = ~ended
        left, index, at, stops = left[going_on] - 1, index[going_on], at[going_on], stops[going_on]
        if not len(at):
            return matches
        size, at = read_varints(octets, at, LENGTH_BYTES)
        if (size < 0).any() or (at + size >= stops).any():
            raise IrregularError
        named = size == len(NAME)
        named[named] = _equal(octets, at[named], NAME)
        size, at = read_varints(octets, at + size, LENGTH_BYTES)
        if (size < -1).any() or (at + size > stops).any():
            raise IrregularError
        named &= size >= 1 + len(home) + REST_SIZE
        version = octets[at[named]]
        value = at[named] + 1
        matches[index[named]] |= (
            (version >= OLDEST_VERSION) & (version <= NEWEST_VERSION) & _equal(octets, value, home)
        )
        at = at + np.maximum(size, 0)


def _equal(octets: Octets, at: Integers, content: bytes) -> npt.NDArray[np.bool_]:
    """Returns at which places these bytes are."""
    if not len(at):
        return np.zeros(0, np.bool_)
    rows = blocks(octets, len(content))[at].view(np.uint8).reshape(len(at), len(content))
    equal: npt.NDArray[np.bool_] = (rows == np.frombuffer(content, np.uint8)).all(axis=1)
    return equal


def _extended(
    octets: Octets, starts: Integers, stops: Integers, added: AddedHeader
) -> tuple[memoryview, Integers]:
    """Returns the records with the header, and where each of them ends."""
    sizes = stops - starts
    lengths, length_sizes = encode_varints((sizes + added.size) << 1)
    ends = np.cumsum(length_sizes + sizes + added.size)
    body = np.empty(int(ends[-1]), np.uint8)
    at = ends - sizes - added.size
    blocks(body, WORD)[at - length_sizes] = lengths
    copy_ranges(octets, starts, sizes, body, at)
    added.put(octets, body, at - starts, at + sizes)
    return body.data, ends
