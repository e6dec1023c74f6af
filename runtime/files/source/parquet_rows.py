"""Reads the rows of Parquet files as records, a row group at a time, from any row on.

A Parquet file does not change once it has its footer. A file without one is not complete, and waits. The
position of a file is the number of its next row.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from runtime.batch.varint import NO_HEADERS, encode_field, varint
from runtime.contract.records.job_status import Finding, PartitionState
from runtime.files.source.known_files import NO_FINGERPRINT, FileState, Listing
from runtime.files.source.lines import READ_BYTES, ReadRecords, keyless
from runtime.files.source.open_file import OpenFile
from runtime.files.source.row_json import RowEncoder, UnreadableRows
from runtime.kafka.timing import now_ms

_MAGIC: Final = (b"PAR1", b"PARE")  # the second is that of an encrypted footer, which no reader opens
_LEAST: Final = 12  # bytes of a file without rows and columns
_HASHED: Final = 1 << 10
_HASHED_TAIL: Final = 64 << 10
_AT_ONCE: Final = 16  # files whose footers are read
_MOST_ROWS: Final = 256  # that are unpacked at a time
_UNIT_MS: Final = {"s": (1_000, 1), "ms": (1, 1), "us": (1, 1_000), "ns": (1, 1_000_000)}
# The columns of Spark's Kafka source, and those that `repl` writes.
_PLACE_COLUMNS: Final = ("topic", "partition", "offset", "timestamp_type", "timestampType")
_RECORD_COLUMNS: Final = frozenset(["key", "value", "headers", "timestamp", *_PLACE_COLUMNS])
_FAILURES: Final = (pa.ArrowException, ValueError, OverflowError, UnreadableRows)

Encode = Callable[[pa.RecordBatch], Sequence[tuple[int, bytes]]]


class Footer(NamedTuple):
    """The row behind the last one of each row group, or the reason why nothing of a file can be read."""

    ends: tuple[int, ...] = ()
    problem: Finding | None = None

    @property
    def rows(self) -> int:
        """The number of rows of the file."""
        return self.ends[-1] if self.ends else 0


def read_footer(file: OpenFile) -> Footer:
    """Returns what the footer of an open file says. Raises OSError."""
    size = file.size()
    if size < _LEAST or file.read(size - 4, 4) not in _MAGIC:
        why = "it is not complete: it does not end as a Parquet file does, with a footer"
        return Footer(problem=Finding(PartitionState.CAUGHT_UP, why))
    try:
        parquet_file = _opened(file)
        metadata = parquet_file.metadata
        rows = [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)]
        if min(rows, default=0) < 0 or sum(rows) != metadata.num_rows:
            raise UnreadableRows(f"its row groups have {sum(rows):,} rows, and it {metadata.num_rows:,}")
        _encoder_of(parquet_file)
        return Footer(tuple(accumulate(rows)))
    except (*_FAILURES, OSError) as error:
        why = f"its footer can't be read: {_reason(error)}"
        return Footer(problem=Finding(PartitionState.RECORD_CORRUPT, why))


def _digest(file: OpenFile) -> bytes:
    size = file.size()
    tail = min(size, _HASHED_TAIL)
    parts = size.to_bytes(8), file.read(0, _HASHED), file.read(size - tail, tail)
    return hashlib.blake2b(b"".join(parts), digest_size=16).digest()


@dataclass(slots=True)
class Footers:
    """Remembers the footers of files: that of a file that has not changed is read once.

    `open_file` opens a file by its name and its version. It raises OSError, EndpointUnavailable. `missing`
    gets the names of files that are not there any more.
    """

    open_file: Callable[[str, str], OpenFile]
    missing: Callable[[str], None]
    _known: dict[str, tuple[FileState, Footer]] = field(default_factory=dict)

    def look(self, listing: Listing) -> Listing:
        """Returns the listing with rows as sizes, and with the files that can't be read.

        Raises EndpointUnavailable.
        """
        files = listing.files
        footers = {
            name: cached[1]
            for name, state in files.items()
            if (cached := self._known.get(name)) is not None and cached[0] == state
        }
        if unknown := [(name, state.version) for name, state in files.items() if name not in footers]:
            with ThreadPoolExecutor(min(_AT_ONCE, len(unknown)), "footers") as pool:
                new_footers = pool.map(lambda file: self._footer_of(*file), unknown)
                footers |= {
                    name: footer
                    for (name, _), footer in zip(unknown, new_footers, strict=True)
                    if footer is not None
                }
        problems = {name: footer.problem for name, footer in footers.items() if footer.problem is not None}
        self._known = {
            name: (files[name], footer)
            for name, footer in footers.items()
            if footer.problem is None or footer.problem.state is not PartitionState.RETRYING
        }
        sizes = {name: files[name]._replace(size=footer.rows) for name, footer in footers.items()}
        return Listing(sizes, listing.ignored, problems)

    def fingerprint(self, file: OpenFile, position: int) -> bytes | None:
        """Returns the fingerprint of an open file, of which rows were read: of its size, head and footer."""
        return _digest(file) if position else NO_FINGERPRINT

    def _footer_of(self, name: str, version: str) -> Footer | None:
        """Returns the footer of a file; None where it was renamed meanwhile."""
        try:
            with self.open_file(name, version) as file:
                return read_footer(file)
        except FileNotFoundError:
            self.missing(name)
            return None
        except OSError as error:
            return Footer(problem=Finding(PartitionState.RETRYING, error.strerror or str(error)))


class _Group(NamedTuple):
    """The row group from which rows are read, and the rows `begin … end-1` of the file that it holds."""

    begin: int
    end: int
    batches: Iterator[pa.RecordBatch]
    encode: Encode


class RowReader:
    """Reads rows. A page of each column of one row group is open at a time: that bounds the memory (R8)."""

    def __init__(self, file: OpenFile) -> None:
        """Raises OSError."""
        self._file = file
        self._digest = _digest(file)
        self._modified = file.modified_ns()
        self._footer = read_footer(file)
        self._next = -1
        self._group: _Group | None = None

    @property
    def midway(self) -> bool:
        """Whether a row group is read in part."""
        return self._group is not None

    @property
    def timed(self) -> bool:
        """Whether the rows hold the timestamps of records. Raises OSError."""
        schema = _opened(self._file).schema_arrow
        return _holds_records(schema) and "timestamp" in schema.names

    def size(self) -> int:
        return self._footer.rows

    def problem(self) -> Finding | None:
        return self._footer.problem

    def fingerprint(self, position: int) -> bytes | None:
        """Returns the fingerprint at a position; None where the file was written since it was opened."""
        if self._file.modified_ns() != self._modified and _digest(self._file) != self._digest:
            return None
        return self._digest if position else NO_FINGERPRINT

    def read(self, position: int, longest: int) -> ReadRecords:
        """Returns the next rows as records, of about READ_BYTES. Raises OSError.

        A row that can't be read stops the file at the rows that were unpacked with it.
        """
        rows = self._footer.rows
        if position >= rows:
            return ReadRecords([], 0, position)
        records: list[tuple[int, bytes]] = []
        size, at = 0, position
        try:
            while at < rows and size < READ_BYTES:
                group = self._group_at(at)
                batch = next(group.batches, None)
                if batch is None or at + batch.num_rows > group.end:
                    raise UnreadableRows(
                        f"it does not hold the {group.end - group.begin:,} rows of its footer"
                    )
                for record in group.encode(batch):
                    if len(record[1]) > longest:
                        self._group = None
                        why = f"the row {at} has {len(record[1])} bytes, and the topic takes records of"
                        problem = Finding(PartitionState.RECORD_TOO_LARGE, f"{why} {longest} bytes")
                        return ReadRecords(records, size, at, problem, more=True)
                    records.append(record)
                    size += len(record[1])
                    at += 1
                self._next = at
                if at >= group.end:
                    self._group = None
        except (*_FAILURES, OSError) as error:
            self._group = None
            number = bisect_right(self._footer.ends, at)
            why = f"row group {number} can't be read from row {at} on: {_reason(error)}"
            return ReadRecords(records, size, at, Finding(PartitionState.RECORD_CORRUPT, why), more=True)
        return ReadRecords(records, size, at, more=at < rows)

    def _group_at(self, position: int) -> _Group:
        """Returns the row group of a row, with its rows from that one on."""
        if self._group is not None and self._next == position:
            return self._group
        ends = self._footer.ends
        number = bisect_right(ends, position)
        begin, end = ends[number - 1] if number else 0, ends[number]
        file = _opened(self._file)
        size = file.metadata.row_group(number).total_byte_size
        at_a_time = max(min(_MOST_ROWS, READ_BYTES * (end - begin) // max(size, 1)), 1)
        batches = file.iter_batches(at_a_time, row_groups=[number], use_threads=False)
        self._group = _Group(begin, end, _from(batches, position - begin), _encoder_of(file))
        return self._group


def _from(batches: Iterator[pa.RecordBatch], skipped: int) -> Iterator[pa.RecordBatch]:
    """Yields the rows behind those that are skipped, in parts whose values take about READ_BYTES."""
    for batch in batches:
        at = min(skipped, batch.num_rows)
        skipped -= at
        step = max(batch.num_rows * READ_BYTES // max(batch.nbytes, 1), 1)
        for begin in range(at, batch.num_rows, step):
            yield batch.slice(begin, step)


def _opened(file: OpenFile) -> pq.ParquetFile:
    """Opens Parquet on a file, which stays open. Raises OSError, and what Arrow raises."""
    return pq.ParquetFile(
        file.stream(),
        buffer_size=file.page,
        pre_buffer=False,
        coerce_int96_timestamp_unit="us",
        page_checksum_verification=True,
    )


def _reason(error: BaseException) -> str:
    """Returns what Arrow says of a damaged file. Raises an OSError of the operating system again."""
    if isinstance(error, OSError) and error.errno is not None:
        raise error
    return " ".join(str(error).split()) or type(error).__name__


def _encoder_of(file: pq.ParquetFile) -> Encode:
    """Returns what makes records of the rows of a file. Raises UnreadableRows."""
    schema = file.schema_arrow
    if _holds_records(schema):
        return _records
    instants = [file.schema.column(at).physical_type == "INT96" for at in range(len(file.schema))]
    rows = RowEncoder(schema, instants)
    return lambda batch: keyless(now_ms(), rows.encode(batch))


def _holds_records(schema: pa.Schema) -> bool:
    """Returns whether the columns are those of records: a value, and no column of anything else."""
    names = schema.names
    if "value" not in names or not _RECORD_COLUMNS.issuperset(names) or len(set(names)) < len(names):
        return False
    typed: Mapping[str, Callable[[pa.DataType], bool]] = {
        "key": _is_bytes,
        "value": _is_bytes,
        "headers": _is_headers,
        "timestamp": types.is_timestamp,
    }
    return all(fits(schema.field(name).type) for name, fits in typed.items() if name in names)


def _is_bytes(kind: pa.DataType) -> bool:
    if types.is_dictionary(kind):
        return _is_bytes(kind.value_type)
    binary = (types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_binary_view)
    return _is_text(kind) or any(fits(kind) for fits in binary)


def _is_text(kind: pa.DataType) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_headers(kind: pa.DataType) -> bool:
    if not (types.is_list(kind) or types.is_large_list(kind)) or not types.is_struct(kind.value_type):
        return False
    fields = {member.name: member.type for member in kind.value_type.fields}
    return fields.keys() == {"key", "value"} and _is_text(fields["key"]) and _is_bytes(fields["value"])


def _records(batch: pa.RecordBatch) -> Sequence[tuple[int, bytes]]:
    """Returns the records that the columns of rows hold. Raises UnreadableRows."""
    names, count = batch.schema.names, batch.num_rows
    keys = _bytes_of(batch.column("key")) if "key" in names else [None] * count
    values = _bytes_of(batch.column("value"))
    headers = batch.column("headers").to_pylist() if "headers" in names else [None] * count
    times = _times_of(batch.column("timestamp")) if "timestamp" in names else [now_ms()] * count
    return [
        (timestamp, encode_field(key) + encode_field(value) + (_headers(some) if some else NO_HEADERS))
        for timestamp, key, value, some in zip(times, keys, values, headers, strict=True)
    ]


def _bytes_of(column: pa.Array) -> list[bytes | None]:
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if _is_text(column.type):
        column = column.cast(pa.large_binary())
    values: list[bytes | None] = column.to_pylist()
    return values


def _times_of(column: pa.Array) -> list[int]:
    """Returns milliseconds since 1970; -1 of a record without a timestamp."""
    times, unit = _UNIT_MS[column.type.unit]
    milliseconds = [
        -1 if value is None else value * times // unit for value in column.cast(pa.int64()).to_pylist()
    ]
    if any(value < -1 for value in milliseconds):
        raise UnreadableRows("a record has a timestamp before 1970")
    return milliseconds


def _headers(headers: Sequence[Mapping[str, Any] | None]) -> bytes:
    parts = [varint(len(headers))]
    for header in headers:
        if header is None or header["key"] is None:
            raise UnreadableRows("a record has a header without a key")
        value = header["value"]
        content = value.encode() if isinstance(value, str) else value
        parts += encode_field(header["key"].encode()), encode_field(content)
    return b"".join(parts)
