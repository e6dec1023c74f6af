"""This module merges small neighbouring batches with numpy: each step handles one record of every batch.

The records of one batch can only be found one after the other, because a record's length stands at its
beginning. Records of different batches are independent, so the n-th records of all batches are read together.
`splice` does the same record by record, and every irregular case is left to it.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from runtime.batch.arrays.varints import (
    Integers,
    IrregularError,
    Octets,
    put_varints,
    read_varints,
    varint_widths,
)
from runtime.batch.spec import OffsetDeltaRun

_LEAD_BYTES: Final = 20  # the longest lead: length 5, attributes 1, timestamp delta 10, offset delta 4
_LENGTH_BYTES: Final = 3
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
    bodies: Sequence[bytes | memoryview], counts: Sequence[int], base_timestamps: Sequence[int]
) -> MergedBody | None:
    """Returns the records of all bodies as one body, numbered 0, 1, …; None where `splice` must do it.

    Each batch must be whole: its offset deltas are 0, 1, … records - 1.
    """
    data = b"".join(bodies)
    records = np.array(counts, np.int64)
    sizes = np.array([len(body) for body in bodies], np.int64)
    try:
        tails, stops, deltas = _scan(np.frombuffer(data, np.uint8), sizes, records)
        timestamps = deltas + np.repeat(np.array(base_timestamps, np.int64), records)
        base, latest = int(timestamps[0]), int(timestamps.max())
        leads = _leads(timestamps - base, stops - tails)
    except (IrregularError, IndexError):
        return None
    parts = [b""] * (2 * len(leads))
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


def _leads(deltas: Integers, tail_sizes: Integers) -> list[bytes]:
    """Returns what stands before the tail of each record: length, attributes, timestamp and offset delta."""
    count = len(deltas)
    zigzag = (deltas << 1) ^ (deltas >> 63)
    numbers = np.arange(count, dtype=np.int64) << 1
    lengths = 1 + varint_widths(zigzag) + varint_widths(numbers) + tail_sizes
    rows = np.zeros((count, _LEAD_BYTES), np.uint8)
    flat = rows.reshape(-1)
    at = np.arange(0, count * _LEAD_BYTES, _LEAD_BYTES, dtype=np.int64)
    at = put_varints(flat, at, lengths << 1) + 1
    at = put_varints(flat, at, zigzag)
    end = put_varints(flat, at, numbers)
    # numpy takes zeros at the end of a row for padding. Only the first record's offset delta ends in one.
    leads: list[bytes] = rows.view(f"S{_LEAD_BYTES}").reshape(-1).tolist()
    leads[0] = flat[: end[0]].tobytes()
    return leads
