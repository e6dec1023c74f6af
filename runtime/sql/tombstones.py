"""Makes tombstones of the records that `where` leaves out, for `on_filtered: tombstone`.

A tombstone has the key and the timestamp of its record, and stands at its place: it is the image of the
record's offset in the offset map (R6). It has no header of the record, because any of them could hold what
must not be copied. The header `__repl` alone stays, without which a record could return to its origin (R5).
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from runtime.batch.arrays import Integers
from runtime.batch.splice import headers_of
from runtime.batch.varint import NO_FIELD, MalformedBytes, encode_field, varint
from runtime.contract.records.provenance import HEADER, decode
from runtime.sql.columns import RecordColumns, gathered

UNREADABLE: Final = "its headers can't be read"
_NAME: Final = HEADER.encode()
_NAMED: Final = encode_field(_NAME)

RecordHeaders = tuple[tuple[str, bytes | None], ...]


def tombstone_headers(headers: RecordHeaders) -> RecordHeaders:
    """Returns the headers that a filtered record's tombstone has."""
    return tuple((name, value) for name, value in headers if name == HEADER and decode(value) is not None)


def tombstones_of(columns: RecordColumns, rows: Integers) -> pa.Array:
    """Returns what follows the key in the tombstones of these records: no value, and the headers that stay.

    It is null where the headers can't be read. Many records have the same ones, so each is looked at once.
    """
    raw = gathered(columns.data, columns.headers[rows], columns.stops[rows]).dictionary_encode()
    return pa.array([_end(headers) for headers in raw.dictionary.to_pylist()], pa.binary()).take(raw.indices)


def _end(headers: bytes) -> bytes | None:
    """Returns a null value and the headers that stay of these; None where they can't be read."""
    kept: list[bytes] = []
    if _NAMED in headers:
        try:
            pairs = headers_of(headers, 0)
        except (MalformedBytes, IndexError):
            return None
        kept = [value for name, value in pairs if name == _NAME and value and decode(value) is not None]
    return b"".join([NO_FIELD, varint(len(kept)), *(_NAMED + encode_field(value) for value in kept)])
