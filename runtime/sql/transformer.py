"""Applies a transform to prepared batches: Spark answers, and the records that travel are packed anew.

All steps work on the columns of a window of batches. Only what can't be done for all records at once is done
record by record: bad records, and the new values of those that change.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Literal, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute

from runtime.batch import (
    BadRecord,
    BatchFailure,
    CorruptBatch,
    DroppedRecords,
    OutgoingBatch,
    RewriteSpec,
)
from runtime.batch.arrays import Integers, IrregularError
from runtime.batch.selection import QuarantinedRecord, quarantined
from runtime.batch.splice import headers_of
from runtime.batch.varint import MalformedBytes
from runtime.contract.records.consumer_record import ConsumerRecord
from runtime.contract.records.provenance import HEADER
from runtime.contract.spec.transform import FIELDS, VALUE, TransformSpec
from runtime.kafka.timing import now_ms
from runtime.sql.columns import (
    Flags,
    Headers,
    Part,
    RecordColumns,
    body_of,
    columns_of,
    columns_up_to_failure,
    gathered,
    rows_of,
)
from runtime.sql.formats.dispatch import values_of
from runtime.sql.formats.encoded import Changes, UndecodableValue, UneditableValue
from runtime.sql.query_input import PARTS, decoded_rows, read_columns
from runtime.sql.rows import (
    FILTERED,
    MISMATCH,
    NEW,
    NEXT,
    ROWS,
    TRAVELS,
)
from runtime.sql.tombstones import UNREADABLE, RecordHeaders, tombstone_headers, tombstones_of

_PROVENANCE = HEADER.encode()
_KNOWN_HEADERS, _SHORT_HEADERS = 1_024, 256
_WINDOWS, _WINDOW_RECORDS, _WINDOW_BYTES = 2, 4 * ROWS, 4 << 20
_FAILS = "an expression of the transform fails on it"  # also where it is too large for the expressions
_NEXT, _MISMATCH, _TRAVELS, _FILTERED = (text.encode() for text in (NEXT, MISMATCH, TRAVELS, FILTERED))
_OPEN, _CLOSE = f'{{"{NEW}":'.encode(), b"}"  # around a new value


class Evaluates(Protocol):
    """Evaluates the transform on rows: Spark's query, or a test's own."""

    async def evaluate(self, rows: pa.RecordBatch) -> pa.Array: ...


class Outcome(NamedTuple):
    """What becomes of a record, and the value and the headers with which it travels or leaves a tombstone.

    `why` says why a record is bad. It contains nothing of the value.
    """

    decision: Literal["travels", "tombstone", "filtered", "bad"]
    value: bytes | None = None
    headers: RecordHeaders = ()
    why: str = ""


class Transformed(NamedTuple):
    """The batches that travel, in the order of their positions.

    `filtered` are the records that are not copied, also not as tombstones, without those of `quarantined`;
    they are counted between the ends of the batches.
    `failure` names the first record that can't be handled; it lies behind every other record.
    """

    outgoing: list[OutgoingBatch]
    filtered: list[DroppedRecords]
    failure: BatchFailure | None
    quarantined: list[QuarantinedRecord]


@dataclass(slots=True)
class _Share:
    """What a window has of a partition: batches, and what they unpack to.

    `partition` is its place among those of the caller. `failure` is why the batch behind them can't be read.
    """

    partition: int
    spec: RewriteSpec
    batches: list[OutgoingBatch] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    failure: BatchFailure | None = None

    @property
    def records(self) -> int:
        return sum(out.batch.records for out in self.batches)

    def stop_before(self, count: int, failure: BatchFailure) -> None:
        """Leaves the first batches alone: the next one can't be read."""
        del self.batches[count:], self.bodies[count:]
        self.failure = failure


class _Window(NamedTuple):
    """Batches that Spark was asked about together."""

    shares: Sequence[_Share]
    columns: RecordColumns
    answers: asyncio.Future[pa.Array]


class Transformer:
    """A transformer applies one transform to the batches of any partition of its flow."""

    def __init__(
        self,
        transform: TransformSpec,
        evaluator: Evaluates,
        *,
        edits: bool = True,
        window_records: int = _WINDOW_RECORDS,
    ) -> None:
        """Without `edits`, values stay as they are: Spark's answers hold the new ones."""
        self.transform = transform
        self._window_records = window_records
        self._evaluator = evaluator
        self._read = read_columns(transform)
        has_fields = transform.value.format in FIELDS
        changes = Changes.of(transform.set, transform.drop) if has_fields else Changes()
        self._value = values_of(transform.value)(transform.value, changes)
        self._edits = edits and transform.lossy
        parts = {VALUE: self._value, "key": values_of(transform.key)(transform.key, Changes())}
        self._decoded = {part: values for part, values in parts.items() if values.decodes}
        self._known_headers: dict[bytes, Headers] = {}

    async def apply(
        self, partitions: Sequence[tuple[Sequence[OutgoingBatch], RewriteSpec]]
    ) -> list[Transformed]:
        """Returns the records of each partition that travel. Raises EvaluationEnded, RegistryUnavailable.

        While Spark evaluates some batches, the next ones are unpacked.
        """
        results = [Transformed([], [], None, []) for _ in partitions]
        waiting: deque[_Window] = deque()
        windows = self._windows(partitions, results)
        try:
            while True:
                if len(waiting) < _WINDOWS and (window := next(windows, None)) is not None:
                    waiting.append(window)
                    continue
                if not waiting:
                    return results
                window = waiting.popleft()
                for share, new in self._transformed(window, await window.answers):
                    before = results[share.partition]
                    if before.failure is None:
                        results[share.partition] = Transformed(
                            [*before.outgoing, *new.outgoing],
                            [*before.filtered, *new.filtered],
                            new.failure or share.failure,
                            [*before.quarantined, *new.quarantined],
                        )
        finally:
            for window in waiting:
                window.answers.cancel()

    def _windows(
        self,
        partitions: Sequence[tuple[Sequence[OutgoingBatch], RewriteSpec]],
        results: Sequence[Transformed],
    ) -> Iterator[_Window]:
        """Unpacks batches and asks Spark about them together.

        Of each partition, it goes up to the first batch that can't be read. What batches unpack to is held in
        memory (R8).
        """
        shares: list[_Share] = []
        records = size = 0
        for number, (batches, spec) in enumerate(partitions):
            share = _Share(number, spec)
            shares.append(share)
            for out in batches:
                try:
                    share.bodies.append(body_of(out, spec))
                except BatchFailure as failure:
                    share.failure = failure
                    break
                share.batches.append(out)
                records += out.batch.records
                size += len(share.bodies[-1])
                if records >= self._window_records or size >= _WINDOW_BYTES:
                    yield from self._ask(shares)
                    if share.failure is not None or results[number].failure is not None:
                        shares, records, size = [], 0, 0
                        break
                    share = _Share(number, spec)
                    shares, records, size = [share], 0, 0
        yield from self._ask(shares)

    def _ask(self, shares: Sequence[_Share]) -> Iterator[_Window]:
        """Asks Spark about batches: together, or about each partition alone where one has to be read so."""
        shares = [share for share in shares if share.batches or share.failure is not None]
        if len(shares) > 1:
            batches = [out for share in shares for out in share.batches]
            bodies = [body for share in shares for body in share.bodies]
            try:
                window = self._window(shares, columns_of(batches, bodies))
            except (IrregularError, MalformedBytes):
                yield from map(self._ask_alone, shares)
            else:
                yield window
        elif shares:
            yield self._ask_alone(*shares)

    def _ask_alone(self, share: _Share) -> _Window:
        """Asks Spark about batches of one partition, up to the first one that can't be read."""
        columns, failure = columns_up_to_failure(share.batches, share.bodies, share.spec)
        if failure is not None:
            share.stop_before(len(columns.batches), failure)
        try:
            return self._window([share], columns)
        except MalformedBytes:
            unreadable = _unreadable_headers(columns, share.spec)
            # Spark is asked about the batches before the one with this record.
            count = next(n for n, out in enumerate(share.batches) if unreadable.offset < out.position)
            share.stop_before(count, unreadable)
            return self._ask_alone(share)

    def _window(self, shares: Sequence[_Share], columns: RecordColumns) -> _Window:
        """Asks Spark about records. Raises MalformedBytes for headers that can't be read."""
        # Many records have the same headers, so some are remembered.
        rows = columns.rows(
            self._read,
            [(share.spec.where, share.records) for share in shares],
            lambda raws: [self._known_headers.get(raw) or self._headers(raw) for raw in raws],
        )
        return _Window(shares, columns, asyncio.ensure_future(self._evaluated(rows)))

    def _headers(self, raw: bytes) -> Headers:
        """Returns the last value of each header, without `__repl`. Raises MalformedBytes."""
        try:
            last = {name: value for name, value in headers_of(raw, 0) if name != _PROVENANCE}
        except IndexError as error:
            raise MalformedBytes(str(error)) from None
        headers = [
            (name.decode(errors="replace"), value.decode(errors="replace") if value is not None else None)
            for name, value in last.items()
        ]
        if len(raw) <= _SHORT_HEADERS:
            if len(self._known_headers) == _KNOWN_HEADERS:
                self._known_headers.clear()
            self._known_headers[raw] = headers
        return headers

    async def evaluate(self, records: Sequence[ConsumerRecord]) -> pa.Array:
        """Returns Spark's answers to records. Raises EvaluationEnded, RegistryUnavailable."""
        return await self._evaluated(rows_of(records))

    async def _evaluated(self, rows: pa.RecordBatch) -> pa.Array:
        if not self._decoded or not rows.num_rows:
            return await self._evaluator.evaluate(rows)
        for part, values in self._decoded.items():
            await values.prepare(rows.column(PARTS[part]).to_pylist())
        pieces = decoded_rows(rows, self._decoded)
        return pa.concat_arrays([await self._evaluator.evaluate(piece) for piece in pieces])

    def _transformed(self, window: _Window, answers: pa.Array) -> Iterator[tuple[_Share, Transformed]]:
        """Yields the records of a window that travel, by partition, up to the first bad record of each.

        It goes beyond that where the flow quarantines.
        """
        columns = window.columns
        travels = columns.no_value | _begins(answers, _TRAVELS)
        filtered = ~travels & _begins(answers, _FILTERED)
        deleted = filtered & ~columns.no_key & (self.transform.on_filtered == "tombstone")
        filtered &= ~deleted
        reasons: dict[int, str] = {}
        tombstones = new = None
        if deleted.any():
            rows = np.flatnonzero(deleted)
            ends = tombstones_of(columns, rows)
            tombstones = pa.compute.replace_with_mask(pa.nulls(len(deleted), ends.type), deleted, ends)
            reasons = dict.fromkeys(rows[ends.is_null().to_numpy(zero_copy_only=False)].tolist(), UNREADABLE)
        if self._edits and travels.any():
            new = self._new_values(columns, np.flatnonzero(travels), answers, reasons)
        bad = sorted({*np.flatnonzero(~travels & ~filtered & ~deleted).tolist(), *reasons})
        travels[bad] = deleted[bad] = False

        def why(at: int) -> str:
            value = columns.value(at) or b""
            return reasons.get(at) or (self._mismatch(value) if answers[at].is_valid else _FAILS)

        ends = np.cumsum([share.records for share in window.shares]).tolist()
        spans = [slice(end - share.records, end) for share, end in zip(window.shares, ends, strict=True)]
        rejections = []
        for share, span in zip(window.shares, spans, strict=True):
            rejected, failure = _reject(
                columns, [at for at in bad if span.start <= at < span.stop], why, share.spec
            )
            if failure is not None:
                behind = slice(
                    span.start + int(np.searchsorted(columns.offsets[span], failure.offset)), span.stop
                )
                travels[behind] = filtered[behind] = deleted[behind] = False
            rejections.append((rejected, failure))
        changed = deleted if new is None else deleted | new.is_valid().to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(travels | deleted)
        kept = columns.kept(rows, new, tombstones)
        for share, span, (rejected, failure) in zip(window.shares, spans, rejections, strict=True):
            parts = _parts(share.batches, span.start, rows, changed, failure)
            outgoing, too_large = kept.packed(parts, share.spec)
            dropped = columns.offsets[span][filtered[span]]
            if too_large is not None:
                dropped = dropped[dropped < too_large.offset]
                rejected = [record for record in rejected if record.offset < too_large.offset]
            counted = _dropped(dropped, [out.position for out in outgoing])
            yield share, Transformed(outgoing, counted, too_large or failure, rejected)

    def _new_values(
        self, columns: RecordColumns, rows: Integers, answers: pa.Array, reasons: dict[int, str]
    ) -> pa.Array:
        """Returns the new values of these records: null for one that keeps its own.

        `reasons` gets those that can't be edited.
        """
        rows = rows[~columns.no_value[rows]]
        values = gathered(columns.data, columns.values[rows], columns.headers[rows]).to_pylist()
        new: list[bytes | None] = [None] * len(columns.offsets)
        for row, value, fields in zip(
            rows.tolist(), values, self._new_fields(answers.take(pa.array(rows))), strict=True
        ):
            try:
                edited = self._value.edited(value, fields)
            except UneditableValue as error:
                reasons[row] = f"its value can't be edited: {error}"
                continue
            if edited != value:
                new[row] = edited
        return pa.array(new, pa.binary())

    def _new_fields(self, answers: pa.Array) -> Iterator[tuple[bytes, ...]]:
        """Yields the new JSON values of the paths of `set`, sorted, for each record that travels."""
        lines = pa.compute.split_pattern(answers, _NEXT).flatten()
        paths = range(len(self.transform.set))
        if not paths:
            return repeat((), len(answers))
        fields = pa.compute.binary_slice(lines, len(_OPEN), -len(_CLOSE))
        return zip(*(fields[path + 1 :: len(paths) + 1].to_pylist() for path in paths), strict=True)

    def outcome(
        self, key: bytes | None, value: bytes | None, headers: RecordHeaders, answer: bytes | None
    ) -> Outcome:
        """Returns what becomes of a record, by Spark's answer. A tombstone always travels."""
        if value is None:
            return Outcome("travels", None, headers)
        if answer is None:
            return Outcome("bad", why=_FAILS)
        if answer.startswith(_MISMATCH):
            return Outcome("bad", why=self._mismatch(value))
        if answer.startswith(_FILTERED):
            if self.transform.deletes(key):
                return Outcome("tombstone", None, tombstone_headers(headers))
            return Outcome("filtered")
        if self._edits:
            try:
                value = self._value.edited(
                    value, [line[len(_OPEN) : -len(_CLOSE)] for line in answer.split(_NEXT)[1:]]
                )
            except UneditableValue as error:
                return Outcome("bad", why=f"its value can't be edited: {error}")
        return Outcome("travels", value, headers)

    def _mismatch(self, value: bytes) -> str:
        try:
            self._value.json(value)
        except UndecodableValue as error:
            return f"its value can't be decoded: {error}"
        forms = {"value": self.transform.value, "key": self.transform.key}
        named = [f"{name} is not {form.format} of this schema" for name, form in forms.items() if form.schema]
        return f"it does not match the transform's format: {', or '.join(named)}"


def _reject(
    columns: RecordColumns, bad: Sequence[int], why: Callable[[int], str], spec: RewriteSpec
) -> tuple[list[QuarantinedRecord], BatchFailure | None]:
    """Returns a partition's bad records as they are quarantined, up to one that stops it, and why it does."""
    rejected: list[QuarantinedRecord] = []
    ends = np.cumsum([out.batch.records for out in columns.batches])
    for at in bad:
        record = columns.record(at)
        if spec.quarantine is None:
            return rejected, BadRecord(spec.where, record.offset, why(at))
        codec = columns.batches[int(np.searchsorted(ends, at, side="right"))].batch.codec
        try:
            rejected.append(quarantined(record, why(at), codec, spec, now_ms()))
        except BatchFailure as failure:
            return rejected, failure
    return rejected, None


def _unreadable_headers(columns: RecordColumns, spec: RewriteSpec) -> CorruptBatch:
    """Returns the failure that names the first record with headers that can't be read."""
    for at in range(len(columns.offsets)):
        record = columns.record(at)
        try:
            headers_of(record.tail, record.headers_at)
        except (MalformedBytes, IndexError) as error:
            return CorruptBatch(spec.where, record.offset, f"unreadable headers: {error}")
    raise AssertionError("all headers can be read")


def _dropped(offsets: Integers, positions: Sequence[int]) -> list[DroppedRecords]:
    """Counts the records at these offsets between the positions of the outgoing batches."""
    if not len(offsets):
        return []
    _, first, counts = np.unique(
        np.searchsorted(positions, offsets, side="right"), return_index=True, return_counts=True
    )
    last = offsets[first + counts - 1] + 1
    return [DroppedRecords(end, records) for end, records in zip(last.tolist(), counts.tolist(), strict=True)]


def _begins(answers: pa.Array, flag: bytes) -> Flags:
    begins: Flags = pa.compute.starts_with(answers, flag).fill_null(False).to_numpy(zero_copy_only=False)
    return begins


def _parts(
    batches: Sequence[OutgoingBatch],
    begin: int,
    kept: Integers,
    changed: Flags,
    failure: BatchFailure | None,
) -> list[Part]:
    """Returns which records of each batch are copied, up to the record that can't be handled.

    The first record of the batches has the number `begin`.
    """
    counts = [out.batch.records for out in batches]
    bounds = np.searchsorted(kept, np.cumsum([begin, *counts])).tolist()
    before = np.append(0, np.cumsum(changed[kept]))
    parts: list[Part] = []
    for out, records, first, end in zip(batches, counts, bounds, bounds[1:], strict=False):
        differs = end - first < records or bool(before[end] > before[first])
        if failure is not None and failure.offset < out.position:
            parts.append(Part(out._replace(position=failure.offset), first, end, differs))
            break
        parts.append(Part(out, first, end, differs))
    return parts
