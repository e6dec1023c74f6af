"""Makes tombstones of the records that `where` leaves out, for `on_filtered: tombstone`.

A tombstone has the key and the timestamp of its record, and stands at its place: it is the image of the
record's offset in the offset map (R6). It has no header of the record, because any of them could hold what
must not be copied. The header `__repl` alone stays, without which a record could return to its origin (R5).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from runtime.batch.arrays import Integers
from runtime.batch.splice import headers_of
from runtime.batch.varint import MalformedBytes, varint
from runtime.contract.records.provenance import HEADER, decode
from runtime.sql.columns import Flags, Kept, RecordColumns, bytes_of, cut, gathered

UNREADABLE: Final = "its headers can't be read"
_NAME: Final = HEADER.encode()
_NAMED: Final = varint(len(_NAME)) + _NAME
_NULL: Final = varint(-1)  # the length of a null value


class Tombstones(NamedTuple):
    """The tails of the tombstones of some records. Those of `unreadable` have headers that can't be read."""

    rows: Integers
    tails: pa.Array
    unreadable: Integers

    def together(self, columns: RecordColumns, live: Kept, travels: Flags, deleted: Flags) -> Kept:
        """Returns the records that travel, `live`, and the tombstones of the deleted ones, in their order."""
        rows = np.flatnonzero(travels | deleted)
        gone = deleted[rows]
        tails = pa.concat_arrays([live.tails, self.tails.filter(pa.array(deleted[self.rows]))])
        order = np.where(gone, len(live.tails) + np.cumsum(gone), np.cumsum(~gone)) - 1
        return Kept(columns.offsets[rows], columns.timestamps[rows], tails.take(pa.array(order)), gone)


def tombstones_of(columns: RecordColumns, rows: Integers) -> Tombstones:
    """Returns the tombstones of the records: the key, no value, and the headers that stay.

    Many records have the same headers, so the different ones are looked at once.
    """
    raw = gathered(columns.data, columns.headers[rows], columns.stops[rows]).dictionary_encode()
    ends = [_end(one) for one in raw.dictionary.to_pylist()]
    unreadable = np.array([one is None for one in ends], np.bool_)[raw.indices.to_numpy()]
    different = pa.array([one or b"" for one in ends], pa.binary())
    keys = gathered(columns.data, columns.tails[rows], columns.sizes[rows])
    order = np.stack((np.arange(len(rows)), len(rows) + np.arange(len(rows))), axis=1).reshape(-1)
    known = bytes_of(pa.concat_arrays([keys, different.take(raw.indices)]).take(pa.array(order)))
    return Tombstones(rows, cut(known.octets, known.places[::2]), rows[unreadable])


def _end(headers: bytes) -> bytes | None:
    """Returns a null value and the headers that stay of these; None where they can't be read."""
    kept: list[bytes] = []
    if _NAMED in headers:
        try:
            found = headers_of(headers, 0)
        except (MalformedBytes, IndexError):
            return None
        kept = [value for name, value in found if name == _NAME and value and decode(value) is not None]
    return b"".join([_NULL, varint(len(kept)), *(_NAMED + varint(len(value)) + value for value in kept)])
