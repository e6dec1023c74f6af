"""Holds the records of several batches as columns: where their parts stand in the unpacked bytes.

A flow with a transform touches every record. A step that numpy or Arrow does for all records at once costs a
few percent of a loop over them. `batch/selection` does the same record by record: it reads records that the
arrays can't hold, and finds out why a batch can't be read.

The offset map stays exact (R6): each record keeps its source offset, and a batch's position lies behind every
record of the source that it stands for, also behind those that do not travel.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from runtime.batch import (
    BatchFailure,
    Codec,
    CorruptBatch,
    OutgoingBatch,
    RewriteReason,
    RewriteSpec,
    TooLarge,
)
from runtime.batch.arrays import (
    WORD,
    Integers,
    IrregularError,
    Octets,
    boundaries,
    encode_varints,
    numbered,
    read_varints,
)
from runtime.batch.codecs import UnpackedSizeExceeded, pack
from runtime.batch.layout import LOG_APPEND_TIME
from runtime.batch.rewrite import batch_of, fitting, unpacked_body, unpacks_too_large
from runtime.batch.selection import UnpackedRecord, unpacked
from runtime.batch.spec import OffsetDeltaRun
from runtime.batch.splice import Raw, join
from runtime.batch.varint import MalformedBytes
from runtime.contract.records.consumer_record import ConsumerRecord
from runtime.contract.records.provenance import HEADER
from runtime.contract.spec.naming import TopicPartition
from runtime.sql.rows import APPENDED, COLUMNS, KEY, VALUE

Flags = npt.NDArray[np.bool_]
Headers = list[tuple[str, str | None]]

_PAD = bytes(16)  # behind the records: a varint is looked for in more bytes than it has
_TIMESTAMP_BYTES, _SIZE_BYTES = 5, 4  # of varints, behind the first one
_JOINED = 512 * 1024  # bytes of records that are packed as one batch
_FEW = 128  # records of a batch
_MOST_MS = (2**63 - 1) // 1_000  # a time that a producer gave in nanoseconds is larger
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_MAPPED, _FREE = 16 << 20, 48 << 20  # bytes: larger ones are mapped alone, and so much is kept
_TYPES = {
    "BINARY": pa.binary(),
    "MAP<STRING, STRING>": pa.map_(pa.string(), pa.string()),
    "STRING": pa.string(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
}
SCHEMA = pa.schema([pa.field(name, _TYPES[kind]) for name, kind in COLUMNS])


def keep_freed_memory() -> None:
    """Lets the C library keep freed memory for the next window, up to some megabytes.

    Without it, every temporary array of a window is unmapped and faulted in again, page by page: a third of
    the time. A C library that has no such setting needs none.
    """
    with contextlib.suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, _MAPPED)
        library.mallopt(_M_TRIM_THRESHOLD, _FREE)


def cut(data: bytes | Octets, places: Integers) -> pa.Array:
    """Returns the bytes between each two neighbouring places, without copying them."""
    buffers = [None, pa.py_buffer(places.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), max(len(places) - 1, 0), buffers)


def gathered(data: bytes | Octets, begins: Integers, ends: Integers, nulls: Flags | None = None) -> pa.Array:
    """Returns the bytes of each range, null where `nulls` is set. The ranges ascend, and do not overlap."""
    if not len(begins):
        return pa.array([], pa.binary())
    places = np.stack((begins, ends), axis=1).reshape(-1)
    every_other = np.arange(0, len(places), 2, dtype=np.int32)
    return cut(data, places).take(pa.array(every_other, mask=nulls))


def lengths_of(array: pa.Array) -> Integers:
    """Returns how many bytes each value of a binary array has, 0 for null."""
    lengths = pa.compute.binary_length(array).fill_null(0)
    return cast(Integers, lengths.to_numpy(zero_copy_only=False).astype(np.int64))


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """The records of batches, with their offsets and times at the source. Those of a partition are in order.

    A record's tail (key, value and headers) stands in `data` from `tails` to `stops`. Its key ends where the
    length of its value stands (`sizes`), and its value ends where its header count stands (`headers`).
    """

    batches: Sequence[OutgoingBatch]
    data: bytes
    offsets: Integers
    timestamps: Integers
    tails: Integers
    keys: Integers
    sizes: Integers
    values: Integers
    headers: Integers
    stops: Integers
    no_key: Flags
    no_value: Flags

    def record(self, at: int) -> UnpackedRecord:
        """Returns one record."""
        begin, sizes, headers = int(self.tails[at]), int(self.sizes[at]), int(self.headers[at])
        return UnpackedRecord(
            offset=int(self.offsets[at]),
            timestamp=int(self.timestamps[at]),
            tail=self.data[begin : int(self.stops[at])],
            key=None if self.no_key[at] else self.data[int(self.keys[at]) : sizes],
            value=self.value(at),
            value_at=sizes - begin,
            headers_at=headers - begin,
        )

    def value(self, at: int) -> bytes | None:
        return None if self.no_value[at] else self.data[int(self.values[at]) : int(self.headers[at])]

    def rows(
        self,
        read: frozenset[str],
        partitions: Sequence[tuple[TopicPartition, int]],
        headers: Callable[[Iterable[bytes]], list[Headers]],
    ) -> pa.RecordBatch:
        """Returns the rows that Spark gets; columns that it does not read are null.

        `partitions` says how many records are of which partition, and `headers` decodes the different ones
        among the records' headers.
        """
        count = len(self.offsets)

        def column(name: str) -> pa.Array:
            kind = SCHEMA.field(name).type
            if name not in read:
                return pa.nulls(count, kind)
            if name == VALUE:
                return gathered(self.data, self.values, self.headers, self.no_value)
            if name == KEY:
                return gathered(self.data, self.keys, self.sizes, self.no_key)
            if name == "headers":
                raw = gathered(self.data, self.headers, self.stops).dictionary_encode()
                return map_array(headers(raw.dictionary.to_pylist())).take(raw.indices)
            if name == "timestamp":
                return _times(self.timestamps)
            if name == "offset":
                return pa.array(self.offsets)
            if name == "timestamp_type":
                kinds = [APPENDED if out.reason & RewriteReason.APPEND_TIME else 0 for out in self.batches]
                counts = [out.batch.records for out in self.batches]
                return pa.array(np.repeat(np.array(kinds, np.int32), counts))
            named = [
                (where.topic if name == "topic" else where.partition, records)
                for where, records in partitions
            ]
            return pa.concat_arrays(
                [pa.repeat(pa.scalar(constant, kind), records) for constant, records in named]
            )

        return pa.RecordBatch.from_arrays([column(name) for name in SCHEMA.names], schema=SCHEMA)

    def kept(self, rows: Integers, new: pa.Array | None, deleted: pa.Array | None) -> KeptRecords:
        """Returns the records with these numbers.

        `new` has the new value of each record, null for one that keeps its own. `deleted` has what follows
        the key in the tombstone of a filtered record, null for one that travels.
        """
        tails, stops = self.tails[rows], self.stops[rows]
        new = new.take(pa.array(rows)) if new is not None else pa.nulls(len(rows), pa.binary())
        deleted = deleted.take(pa.array(rows)) if deleted is not None else pa.nulls(len(rows), pa.binary())
        gone, edited = (each.is_valid().to_numpy(zero_copy_only=False) for each in (deleted, new))
        if not (gone | edited).any():
            joined = gathered(self.data, tails, stops)
        else:
            before = gathered(self.data, tails, np.where(gone | edited, self.sizes[rows], stops))
            behind = gathered(self.data, np.where(edited, self.headers[rows], stops), stops)
            sizes, widths = encode_varints(lengths_of(new) << 1)
            begins = np.arange(len(rows)) * WORD
            lengths = gathered(sizes.view(np.uint8), begins, begins + np.where(edited, widths, 0))
            parts = [before, deleted.fill_null(b""), lengths, new.fill_null(b""), behind]
            joined = pa.compute.binary_join_element_wise(*parts, b"")
        places = np.append(0, np.cumsum(lengths_of(joined)))
        data = np.frombuffer(joined.buffers()[2] or b"", np.uint8)
        return KeptRecords(self.offsets[rows], self.timestamps[rows], data, places, gone)


def _times(timestamps: Integers) -> pa.Array:
    """Returns the times of records, null where a record has none that Spark can hold in microseconds."""
    outside = (timestamps < 0) | (timestamps > _MOST_MS)
    return pa.array(np.where(outside, 0, timestamps) * 1_000, mask=outside).cast(_TYPES["TIMESTAMP"])


def map_array(maps: Sequence[Headers]) -> pa.Array:
    """Returns maps, built from their parts: that is much faster than from Python's."""
    ends = np.cumsum([0, *map(len, maps)])
    names = pa.array([name for headers in maps for name, _ in headers], pa.string())
    values = pa.array([value for headers in maps for _, value in headers], pa.string())
    return pa.MapArray.from_arrays(pa.array(ends, pa.int32()), names, values)


def rows_of(records: Sequence[ConsumerRecord]) -> pa.RecordBatch:
    """Returns the rows of records that were read without their batches."""
    headers = []
    for record in records:  # the last value of each header, as expressions see it
        last = {name: content for name, content in record.headers if name != HEADER}
        headers.append(
            [
                (name, content.decode(errors="replace") if content is not None else None)
                for name, content in last.items()
            ]
        )
    columns = {
        VALUE: [record.value for record in records],
        KEY: [record.key for record in records],
        "headers": map_array(headers),
        "topic": [record.topic for record in records],
        "partition": [record.partition for record in records],
        "offset": [record.offset for record in records],
        "timestamp": _times(np.array([record.timestamp for record in records], np.int64)),
        "timestamp_type": [APPENDED if record.appended else 0 for record in records],
    }
    return pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


def body_of(out: OutgoingBatch, spec: RewriteSpec) -> bytes:
    """Returns the unpacked records of a batch. Raises a BatchFailure."""
    try:
        return bytes(unpacked_body(out.batch, spec.max_unpacked))
    except UnpackedSizeExceeded:
        raise unpacks_too_large(out.batch, spec.where, spec.max_unpacked) from None
    except MalformedBytes as error:
        raise CorruptBatch(spec.where, out.batch.base_offset, f"unreadable records: {error}") from None


def columns_up_to_failure(
    batches: Sequence[OutgoingBatch], bodies: Sequence[bytes], spec: RewriteSpec
) -> tuple[RecordColumns, BatchFailure | None]:
    """Returns the records of a partition, up to the first batch that can't be read, and why it can't."""
    with contextlib.suppress(IrregularError):
        return columns_of(batches, bodies), None
    records: list[UnpackedRecord] = []
    for index, out in enumerate(batches):
        try:
            records += unpacked(out, spec)
        except BatchFailure as failure:
            return _one_by_one(batches[:index], records), failure
    return _one_by_one(batches, records), None


def columns_of(batches: Sequence[OutgoingBatch], bodies: Sequence[bytes]) -> RecordColumns:
    """Returns the records of batches. Raises IrregularError where the arrays can't hold one of them."""
    try:
        return _columns(batches, bodies)
    except (MalformedBytes, IndexError):
        raise IrregularError from None


def _columns(batches: Sequence[OutgoingBatch], bodies: Sequence[bytes]) -> RecordColumns:
    """Returns the records of batches. Raises IrregularError, MalformedBytes and IndexError."""
    if not batches or any(out.batch.attributes & LOG_APPEND_TIME for out in batches):
        raise IrregularError
    data = b"".join([*bodies, _PAD])
    octets = np.frombuffer(data, np.uint8)
    counts = [out.batch.records for out in batches]
    inside = [boundaries(body, count) for body, count in zip(bodies, counts, strict=True)]
    shift = np.repeat(np.cumsum([0, *map(len, bodies[:-1])]), counts)
    starts = np.concatenate([begins for begins, _ in inside]) + shift
    stops = np.concatenate([ends for _, ends in inside]) + shift
    deltas, at = read_varints(octets, starts + 1, _TIMESTAMP_BYTES)
    numbers, tails = read_varints(octets, at, _SIZE_BYTES)
    key_sizes, keys = read_varints(octets, tails, _SIZE_BYTES)
    sizes = keys + np.maximum(key_sizes, 0)
    value_sizes, values = read_varints(octets, sizes, _SIZE_BYTES)
    headers = values + np.maximum(value_sizes, 0)
    due = np.arange(len(starts)) - np.repeat(np.cumsum([0, *counts[:-1]]), counts)
    # All places ascend, so the last one of a record tells whether the others are inside of it.
    if (headers >= stops).any() or (numbers != due).any() or min(key_sizes.min(), value_sizes.min()) < -1:
        raise IrregularError
    times = np.array([out.batch.base_timestamp for out in batches], np.int64)
    return RecordColumns(
        batches=batches,
        data=data,
        offsets=_offsets(batches),
        timestamps=deltas + np.repeat(times, counts),
        tails=tails,
        keys=keys,
        sizes=sizes,
        values=values,
        headers=headers,
        stops=stops,
        no_key=key_sizes < 0,
        no_value=value_sizes < 0,
    )


def _one_by_one(batches: Sequence[OutgoingBatch], records: Sequence[UnpackedRecord]) -> RecordColumns:
    ends = np.cumsum([0, *(len(record.tail) for record in records)], dtype=np.int64)
    tails, stops = ends[:-1], ends[1:]
    sizes = tails + np.array([record.value_at for record in records], np.int64)
    headers = tails + np.array([record.headers_at for record in records], np.int64)
    return RecordColumns(
        batches=batches,
        data=b"".join([*(record.tail for record in records), _PAD]),
        offsets=_offsets(batches),
        timestamps=np.array([record.timestamp for record in records], np.int64),
        tails=tails,
        keys=sizes - np.array([len(record.key or b"") for record in records], np.int64),
        sizes=sizes,
        values=headers - np.array([len(record.value or b"") for record in records], np.int64),
        headers=headers,
        stops=stops,
        no_key=np.array([record.key is None for record in records], np.bool_),
        no_value=np.array([record.value is None for record in records], np.bool_),
    )


def _offsets(batches: Sequence[OutgoingBatch]) -> Integers:
    runs = [np.arange(run.source, run.source + run.records) for out in batches for run in out.runs]
    return np.concatenate(runs) if runs else np.zeros(0, np.int64)


class Part(NamedTuple):
    """The records of one prepared batch that travel; `changed` is false where all of them do, as they are."""

    out: OutgoingBatch
    first: int
    end: int
    changed: bool


@dataclass(frozen=True, slots=True)
class KeptRecords:
    """Records that are copied: their offsets and times at the source, and their tails in `data`.

    Tail n stands from place n to place n + 1. `tombstones` says which records the transform filtered.
    """

    offsets: Integers
    timestamps: Integers
    data: Octets
    places: Integers
    tombstones: Flags

    def packed(
        self, parts: Sequence[Part], spec: RewriteSpec
    ) -> tuple[list[OutgoingBatch], BatchFailure | None]:
        """Returns batches with the records.

        Neighbours that became small are joined, and have the leader epoch of the last one: an epoch newer
        than that of the record before a position never makes an intact log look truncated. A batch of which
        every record travels unchanged stays as it is. The failure names a record that has become too large;
        the batches lie before it.
        """
        packed: list[OutgoingBatch] = []
        try:
            for group in _groups(parts, self.places, spec):
                if not group[0].changed:
                    packed.append(group[0].out)
                    continue
                codec = reduce(max, (part.out.batch.codec for part in group))
                codec = codec if spec.codec is None else spec.codec
                first, end = group[0].first, group[-1].end
                last = group[-1].out
                for out in self._batches(first, end, codec, last.position, spec):
                    behind = first + out.batch.records
                    tombstones = int(self.tombstones[first:behind].sum())
                    packed.append(out._replace(epoch=last.epoch, tombstones=tombstones))
                    first = behind
        except TooLarge as failure:
            return packed, failure
        return packed, None

    def _batches(
        self, first: int, end: int, codec: Codec, position: int, spec: RewriteSpec
    ) -> Iterable[OutgoingBatch]:
        """Yields a batch with these records, or several where it exceeds the limit. Raises TooLarge."""
        offsets, timestamps = self.offsets[first:end], self.timestamps[first:end]
        packed = pack(codec, self._body(first, end))
        batch = batch_of(
            int(offsets[0]), end - first, codec, packed, int(timestamps[0]), int(timestamps.max())
        )
        if batch.size <= spec.max_batch:
            yield OutgoingBatch(batch, _runs(offsets), position, RewriteReason.TRANSFORM)
            return
        yield from fitting(self._raw(first, end), codec, position, spec, RewriteReason.TRANSFORM)

    def _body(self, first: int, end: int) -> bytes | memoryview:
        """Returns the unpacked records. For few of them, arrays would cost more than the records do."""
        if end - first > _FEW:
            timestamps, places = self.timestamps[first:end], self.places[first : end + 1]
            with contextlib.suppress(IrregularError):
                return numbered(self.data, places[:-1], places[1:], timestamps - timestamps[0])
        return join(self._raw(first, end))[0]

    def _raw(self, first: int, end: int) -> list[Raw]:
        tails = cut(self.data, self.places[first : end + 1]).to_pylist()
        return list(
            zip(self.offsets[first:end].tolist(), self.timestamps[first:end].tolist(), tails, strict=True)
        )


def _groups(parts: Sequence[Part], places: Integers, spec: RewriteSpec) -> Iterable[Sequence[Part]]:
    """Yields neighbours that are packed as one batch."""
    begin, size, codec = 0, 0, Codec.NONE
    for at, part in enumerate(parts):
        part_codec = part.out.batch.codec
        grown = int(places[part.end] - places[part.first])
        differ = Codec.NONE not in (codec, part_codec) and codec is not part_codec
        if size and (differ or size + grown > min(_JOINED, spec.max_batch) or not part.changed):
            yield parts[begin:at]
            begin, size, codec = at, 0, Codec.NONE
        if not part.changed:
            yield parts[at : at + 1]
            begin = at + 1
            continue
        size += grown
        codec = max(codec, part_codec)
    if size:
        yield parts[begin:]


def _runs(offsets: Integers) -> tuple[OffsetDeltaRun, ...]:
    """Returns the offset map of records with these offsets at the source."""
    if offsets[-1] - offsets[0] == len(offsets) - 1:
        return (OffsetDeltaRun(0, int(offsets[0]), len(offsets)),)
    firsts = np.append(0, np.flatnonzero(np.diff(offsets) != 1) + 1)
    counts = np.diff(firsts, append=len(offsets))
    return tuple(map(OffsetDeltaRun, firsts.tolist(), offsets[firsts].tolist(), counts.tolist()))
