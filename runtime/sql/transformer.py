"""Applies a transform to prepared batches: Spark answers, and the records that travel are packed anew.

All steps work on the columns of a window of batches. Only what can't be done for all records at once is done
record by record: bad records, values of Avro and Protobuf, and objects of JSON that are not flat.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec
import numpy as np
import pyarrow as pa

from runtime.batch import (
    BadRecord,
    BatchFailure,
    CorruptBatch,
    DroppedRecords,
    OutgoingBatch,
    RewriteSpec,
)
from runtime.batch.arrays import Integers, Octets
from runtime.batch.selection import QuarantinedRecord, quarantined
from runtime.batch.splice import headers_of
from runtime.batch.varint import MalformedBytes
from runtime.contract.records.provenance import HEADER
from runtime.contract.spec.transform import VALUE, TransformSpec
from runtime.sql.columns import (
    Body,
    Bytes,
    Edits,
    Flags,
    Headers,
    Part,
    RecordColumns,
    batch_of_rows,
    body_of,
    bytes_of,
    columns_of,
    cut,
    kept_of,
    packed_columns,
)
from runtime.sql.formats.dispatch import encoded_parts
from runtime.sql.formats.encoded import EncodedValues, UndecodableValue
from runtime.sql.json_columns import flat_fields
from runtime.sql.json_fields import JsonEditor, UneditableValue
from runtime.sql.query_input import PARTS, decoded_rows, read_columns
from runtime.sql.rows import (
    FILTERED,
    MISMATCH,
    NEW,
    NEXT,
    ROWS,
    TRAVELS,
    InvalidValue,
    SourceRow,
)
from runtime.sql.tombstones import UNREADABLE, tombstones_of

_PROVENANCE = HEADER.encode()
_KNOWN_HEADERS, _SHORT_HEADERS = 1_024, 256
_WINDOWS, _WINDOW_RECORDS, _WINDOW_BYTES = 2, 4 * ROWS, 4 << 20
_FAILS = "an expression of the transform fails on it"  # also where it is too large for the expressions
_NEXT, _MISMATCH, _TRAVELS, _FILTERED = (one.encode() for one in (NEXT, MISMATCH, TRAVELS, FILTERED))
_OPEN, _CLOSE = f'{{"{NEW}":'.encode(), b"}"  # around a new value
_NULL = b"null"


class Evaluates(Protocol):
    """Evaluates the transform on rows: Spark's query, or a test's own."""

    async def evaluate(self, rows: pa.RecordBatch) -> pa.Array: ...


class Transformed(NamedTuple):
    """The batches that travel, each with the index of the last prepared batch that it stands for.

    `filtered` are the records that are not copied, also not as tombstones, without those of `quarantined`;
    they are counted between the ends of the batches.
    `failure` names the first record that can't be handled; it lies behind every other record.
    """

    outgoing: list[tuple[OutgoingBatch, int]]
    filtered: list[DroppedRecords]
    failure: BatchFailure | None
    quarantined: list[QuarantinedRecord]


class _Window(NamedTuple):
    """Batches that Spark was asked about together; `first` is the number of the first one.

    `failure` is why the batch behind them can't be read.
    """

    first: int
    columns: RecordColumns
    answers: asyncio.Future[pa.Array]
    failure: BatchFailure | None


class Transformer:
    """A transformer applies one transform to the batches of any partition of its flow."""

    def __init__(self, transform: TransformSpec, evaluator: Evaluates) -> None:
        self.transform = transform
        self._evaluator = evaluator
        self._read = read_columns(transform)
        self._encoded = encoded_parts(transform)
        self._json = JsonEditor(transform.set, transform.drop) if transform.value.format == "json" else None
        self._change = _changer(transform, self._encoded, self._json)
        self._known_headers: dict[bytes, Headers] = {}

    async def apply(self, prepared: Sequence[OutgoingBatch], spec: RewriteSpec) -> Transformed:
        """Returns what of the batches travels. Raises EvaluationEnded, RegistryUnavailable.

        While Spark evaluates some batches, the next ones are unpacked.
        """
        found = Transformed([], [], None, [])
        waiting: deque[_Window] = deque()
        windows = self._windows(prepared, spec)
        try:
            while found.failure is None:
                if len(waiting) < _WINDOWS and (window := next(windows, None)) is not None:
                    waiting.append(window)
                    continue
                if not waiting:
                    break
                window = waiting.popleft()
                one = self._transformed(window, await window.answers, spec)
                found = Transformed(
                    [*found.outgoing, *one.outgoing],
                    [*found.filtered, *one.filtered],
                    one.failure or window.failure,
                    [*found.quarantined, *one.quarantined],
                )
        finally:
            for window in waiting:
                window.answers.cancel()
        return found

    def _windows(self, prepared: Sequence[OutgoingBatch], spec: RewriteSpec) -> Iterator[_Window]:
        """Unpacks neighbours and asks Spark about them together, up to the first batch that can't be read.

        What they unpack to is held in memory (R8).
        """
        bodies: list[Body] = []
        first = records = size = 0
        for index, out in enumerate(prepared):
            try:
                bodies.append(body_of(out, spec))
            except BatchFailure as failure:
                yield self._ask(first, bodies, spec, failure)
                return
            records += out.batch.records
            size += len(bodies[-1].data)
            if records >= _WINDOW_RECORDS or size >= _WINDOW_BYTES:
                yield (window := self._ask(first, bodies, spec, None))
                if window.failure is not None:
                    return
                bodies, first, records, size = [], index + 1, 0, 0
        if bodies:
            yield self._ask(first, bodies, spec, None)

    def _ask(
        self, first: int, bodies: Sequence[Body], spec: RewriteSpec, behind: BatchFailure | None
    ) -> _Window:
        """Asks Spark about batches; `behind` is why the next one can't be read."""
        columns, failure = columns_of(bodies, spec)
        try:
            rows = columns.rows(self._read, spec.where, self._decoded_headers)
        except MalformedBytes as error:
            return self._ask_before_bad_headers(first, bodies, spec, str(error))
        return _Window(first, columns, asyncio.ensure_future(self._evaluated(rows)), failure or behind)

    def _ask_before_bad_headers(
        self, first: int, bodies: Sequence[Body], spec: RewriteSpec, why: str
    ) -> _Window:
        """Asks Spark about the batches before the one that has a record with unreadable headers."""
        for count, body in enumerate(bodies):
            columns, _ = columns_of([body], spec)
            for at in range(len(columns.offsets)):
                record = columns.record(at)
                try:
                    headers_of(record.tail, record.headers_at)
                except (MalformedBytes, IndexError) as error:
                    failure = CorruptBatch(spec.where, record.offset, f"unreadable headers: {error}")
                    return self._ask(first, bodies[:count], spec, failure)
        raise AssertionError(why)

    def _decoded_headers(self, raws: Iterable[bytes]) -> list[Headers]:
        """Returns the headers of the source's records: the last value of each name, without `__repl`.

        Many records have the same headers, so some are remembered. Raises MalformedBytes.
        """
        return [self._known_headers.get(raw) or self._headers(raw) for raw in raws]

    def _headers(self, raw: bytes) -> Headers:
        try:
            last = {name: value for name, value in headers_of(raw, 0) if name != _PROVENANCE}
        except IndexError as error:
            raise MalformedBytes(str(error)) from None
        found = [
            (name.decode(errors="replace"), value.decode(errors="replace") if value is not None else None)
            for name, value in last.items()
        ]
        if len(raw) <= _SHORT_HEADERS:
            if len(self._known_headers) == _KNOWN_HEADERS:
                self._known_headers.clear()
            self._known_headers[raw] = found
        return found

    async def answers(self, rows: Sequence[SourceRow]) -> list[bytes | None]:
        """Returns Spark's answers to rows of raw bytes. Raises EvaluationEnded, RegistryUnavailable."""
        found: list[bytes | None] = (await self.evaluate(rows)).to_pylist()
        return found

    async def evaluate(self, rows: Sequence[SourceRow]) -> pa.Array:
        """Returns Spark's answers to rows of raw bytes as an array, which must be of one row at least.

        Raises EvaluationEnded, RegistryUnavailable.
        """
        return await self._evaluated(batch_of_rows(rows))

    async def _evaluated(self, rows: pa.RecordBatch) -> pa.Array:
        if not self._encoded or not rows.num_rows:
            return await self._evaluator.evaluate(rows)
        for part, values in self._encoded.items():
            await values.prepare(rows.column(PARTS[part]).to_pylist())
        pieces = decoded_rows(rows, self._encoded)
        return pa.concat_arrays([await self._evaluator.evaluate(one) for one in pieces])

    def _transformed(self, window: _Window, answers: pa.Array, spec: RewriteSpec) -> Transformed:
        """Returns what of a window travels, up to the first bad record, unless the flow quarantines."""
        columns = window.columns
        known = bytes_of(answers)
        flags = _flags(known)
        flags[answers.is_null().to_numpy(zero_copy_only=False)] = 0
        travels = columns.no_value | (flags == _TRAVELS[0])
        filtered = ~travels & (flags == _FILTERED[0])
        deleted = filtered & ~columns.no_key & (self.transform.on_filtered == "tombstone")
        filtered &= ~deleted
        tombstones = tombstones_of(columns, np.flatnonzero(deleted))
        reasons = dict.fromkeys(tombstones.unreadable.tolist(), UNREADABLE)
        rows = np.flatnonzero(travels)
        edits = None
        if self._change is not None and len(rows):
            edits = self._edits(columns, rows, known, reasons)
        bad: list[QuarantinedRecord] = []
        failure: BatchFailure | None = None
        for at in sorted({*np.flatnonzero(~travels & ~filtered & ~deleted).tolist(), *reasons}):
            travels[at] = deleted[at] = False
            value = columns.value(at) or b""
            why = reasons.get(at) or (_FAILS if flags[at] == 0 else self._mismatch(value))
            rejected = self._reject(columns, at, why, spec)
            if isinstance(rejected, BatchFailure):
                failure = rejected
                travels[at:] = filtered[at:] = deleted[at:] = False
                break
            bad.append(rejected)
        if edits is not None:
            still = travels[rows]
            edits = Edits(edits.begins[still], edits.ends[still], edits.pieces[still], edits.new)
        changed = deleted.copy()
        if edits is not None:
            changed[travels] = edits.changed
        kept = kept_of(columns, np.flatnonzero(travels), edits)
        if deleted.any():
            kept = tombstones.together(columns, kept, travels, deleted)
        parts = _parts(columns, np.flatnonzero(travels | deleted), changed, failure)
        outgoing, too_large = packed_columns(kept, parts, spec, window.first)
        if too_large is not None:
            failure = too_large
            filtered &= columns.offsets < failure.offset
            bad = [one for one in bad if one.offset < failure.offset]
        dropped = _dropped(columns.offsets[filtered], [out.position for out, _ in outgoing])
        return Transformed(outgoing, dropped, failure, bad)

    def _edits(
        self, columns: RecordColumns, rows: Integers, answers: Bytes, reasons: dict[int, str]
    ) -> Edits:
        """Returns what changes in the values of these records; `reasons` gets those that can't be edited."""
        with_value = ~columns.no_value[rows]
        values = _new_values(answers, rows, with_value, len(self.transform.set))
        if self._json is not None and self._json.flat:
            nulls = [answers.octets[np.where(end > begin, begin, 0)] == _NULL[0] for begin, end in values]
            cuts, done = _flat_cuts(self._json.flat, columns, rows, nulls, with_value)
        else:
            cuts, done = _no_cuts(columns, rows), ~with_value
        begins, ends, pieces = cuts
        data = answers.octets
        fresh: list[bytes] = []
        for at in np.flatnonzero(~done).tolist():
            row = int(rows[at])
            value = columns.value(row)
            assert value is not None
            assert self._change is not None
            new = [data[begin[at] : end[at]].tobytes() for begin, end in values]
            try:
                changed = self._change(value, new)
            except UneditableValue as error:
                reasons[row] = f"its value can't be edited: {error}"
                changed = value
            begins[at], ends[at], pieces[at] = columns.headers[row], columns.headers[row], -1
            if changed != value:
                begins[at, 0], pieces[at, 0] = columns.values[row], 2 * len(values) * len(rows) + len(fresh)
                fresh.append(changed)
        # Every second one of these is a new value; the others stand between them.
        among = np.stack([one for value in values for one in value], axis=1).reshape(-1) if values else None
        known = [cut(data, np.append(among, among[-1:]))] if among is not None else []
        return Edits(begins, ends, pieces, pa.concat_arrays([*known, pa.array(fresh, pa.binary())]))

    def _reject(
        self, columns: RecordColumns, at: int, why: str, spec: RewriteSpec
    ) -> QuarantinedRecord | BatchFailure:
        """Returns a bad record as it is quarantined, or why its partition stops."""
        record = columns.record(at)
        if spec.quarantine is None:
            return BadRecord(spec.where, record.offset, why)
        ends = np.cumsum([out.batch.records for out in columns.batches])
        codec = columns.batches[int(np.searchsorted(ends, at, side="right"))].batch.codec
        try:
            return quarantined(record, why, codec, spec, int(time.time() * 1000))
        except BatchFailure as failure:
            return failure

    def new_value(self, value: bytes, answer: bytes | None) -> bytes | None:
        """Returns the value with which a record travels; None for a record that does not.

        Raises InvalidValue for a bad record.
        """
        if answer is None:
            raise InvalidValue(_FAILS)
        flag, *new = answer.split(_NEXT)
        if flag == _MISMATCH:
            raise InvalidValue(self._mismatch(value))
        if flag == _FILTERED:
            return None
        if self._change is None:
            return value
        try:
            return self._change(value, [one[len(_OPEN) : -len(_CLOSE)] for one in new])
        except UneditableValue as error:
            raise InvalidValue(f"its value can't be edited: {error}") from None

    def _mismatch(self, value: bytes) -> str:
        if (encoded := self._encoded.get(VALUE)) is not None:
            try:
                encoded.json(value)
            except UndecodableValue as error:
                return f"its value can't be decoded: {error}"
        forms = {"value": self.transform.value, "key": self.transform.key}
        named = [f"{name} is not {one.format} of this schema" for name, one in forms.items() if one.schema]
        return f"it does not match the transform's format: {', or '.join(named)}"


def _changer(
    transform: TransformSpec, encoded: Mapping[str, EncodedValues], json: JsonEditor | None
) -> Callable[[bytes, list[bytes]], bytes] | None:
    """Returns the function that makes a new value, from the old one and the answers as JSON."""
    if not transform.lossy:
        return None
    match transform.value.format:
        case "json":
            assert json is not None
            return json.edited
        case "avro" | "protobuf":
            return encoded[VALUE].edited
        case "text":
            return lambda _, values: _text(values[0])
        case _:
            return lambda _, values: _binary(values[0])


def _text(value: bytes) -> bytes:
    text = msgspec.json.decode(value, type=str | None)
    if text is None:  # it would become a tombstone
        raise UneditableValue("its new value is null")
    return text.encode()


def _binary(value: bytes) -> bytes:
    return base64.b64decode(_text(value))


def _dropped(offsets: Integers, positions: Sequence[int]) -> list[DroppedRecords]:
    """Counts the records at these offsets between the positions of the outgoing batches."""
    _, first, counts = np.unique(
        np.searchsorted(positions, offsets, side="right"), return_index=True, return_counts=True
    )
    last = offsets[first + counts - 1] + 1
    return [DroppedRecords(end, records) for end, records in zip(last.tolist(), counts.tolist(), strict=True)]


def _flags(answers: Bytes) -> Octets:
    """Returns the first byte of each answer, 0 for an empty one."""
    begins, ends = answers.places[:-1], answers.places[1:]
    found = np.zeros(len(begins), np.uint8)
    some = ends > begins
    found[some] = answers.octets[begins[some]]
    return found


def _new_values(
    answers: Bytes, rows: Integers, with_value: Flags, count: int
) -> list[tuple[Integers, Integers]]:
    """Returns where the new values of each path of `set` stand in the answers to these rows.

    They are empty for tombstones.
    """
    begins, ends = answers.places[rows], answers.places[rows + 1]
    if not count:
        return []
    marks = np.flatnonzero(answers.octets == ord(NEXT))
    first = np.searchsorted(marks, begins)
    found = []
    for number in range(count):
        begin, end = ends.copy(), ends.copy()
        begin[with_value] = marks[first[with_value] + number] + len(_NEXT) + len(_OPEN)
        if number + 1 < count:
            end[with_value] = marks[first[with_value] + number + 1]
        end[with_value] -= len(_CLOSE)
        found.append((begin, end))
    return found


_Cuts = tuple[Integers, Integers, Integers]


def _no_cuts(columns: RecordColumns, rows: Integers, count: int = 1) -> _Cuts:
    """Returns empty cuts, at the ends of the values."""
    places = np.repeat(columns.headers[rows][:, None], count, axis=1)
    return places, places.copy(), np.full((len(rows), count), -1, np.int64)


def _flat_cuts(
    fields: Sequence[tuple[bytes, int]],
    columns: RecordColumns,
    rows: Integers,
    nulls: Sequence[Flags],
    with_value: Flags,
) -> tuple[_Cuts, Flags]:
    """Returns the cuts in the values that are flat objects, and for which records they are complete.

    `nulls` says of the new values of each path of `set` which of them are null.
    """
    begins, ends, pieces = _no_cuts(columns, rows, len(fields))
    at = np.flatnonzero(with_value)
    if not len(at):
        return (begins, ends, pieces), ~with_value
    begin, end = columns.values[rows[at]], columns.headers[rows[at]]
    flat, found, starts, stops = flat_fields(
        columns.data, begin, end, [(name, number < 0) for name, number in fields]
    )
    numbers = np.full(found.shape, -1, np.int64)
    for column, (_, number) in enumerate(fields):
        if number >= 0:
            numbers[:, column] = np.where(found[:, column], 2 * (at * len(nulls) + number), -1)
            # A field that is not in the text is added to it, unless its new value is null.
            flat &= found[:, column] | nulls[number][at]
    order = np.argsort(starts, axis=1, kind="stable")
    starts, stops, numbers = (np.take_along_axis(one, order, axis=1) for one in (starts, stops, numbers))
    flat &= (starts[:, 1:] >= stops[:, :-1]).all(axis=1)
    begins[at], ends[at], pieces[at] = starts, stops, numbers
    done = ~with_value
    done[at] = flat
    return (begins, ends, pieces), done


def _parts(
    columns: RecordColumns, kept: Integers, changed: Flags, failure: BatchFailure | None
) -> list[Part]:
    """Returns which records of each batch are copied, up to the record that can't be handled."""
    counts = [out.batch.records for out in columns.batches]
    ends = np.cumsum(counts)
    bounds = np.searchsorted(kept, [0, *ends]).tolist()
    before = np.append(0, np.cumsum(changed[kept]))
    found: list[Part] = []
    for out, records, first, end in zip(columns.batches, counts, bounds, bounds[1:], strict=False):
        differs = end - first < records or bool(before[end] > before[first])
        if failure is not None and failure.offset < out.position:
            found.append(Part(out._replace(position=failure.offset), first, end, differs))
            break
        found.append(Part(out, first, end, differs))
    return found
