"""Applies a transform to prepared batches: Spark answers, and the records that travel are packed anew."""

from __future__ import annotations

import asyncio
import base64
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from runtime.batch import (
    BadRecord,
    BatchFailure,
    CorruptBatch,
    OutgoingBatch,
    PartitionLocation,
    RewriteReason,
    RewriteSpec,
)
from runtime.batch.selection import (
    Selected,
    UnpackedRecord,
    headers,
    packed,
    unchanged,
    unpacked,
    with_value,
)
from runtime.batch.splice import Raw
from runtime.batch.varint import MalformedBytes
from runtime.contract.records.provenance import HEADER
from runtime.contract.spec.transform import TransformSpec
from runtime.sql.json_fields import JsonEditor, UneditableValue
from runtime.sql.rows import APPENDED, ROWS, SourceRow, read_columns

_PROVENANCE = HEADER.encode()
_KNOWN_HEADERS, _SHORT_HEADERS = 1_024, 256
_WINDOWS, _WINDOW_RECORDS, _WINDOW_BYTES = 2, 8 * ROWS, 1 << 20


class Evaluates(Protocol):
    """Evaluates the transform on rows: Spark's query, or a test's own."""

    async def evaluate(self, rows: Sequence[SourceRow]) -> list[bytes | None]: ...


class InvalidValue(Exception):
    """The transform can't handle the value of a record."""


class Transformed(NamedTuple):
    """The batches that travel, each with the index of the last prepared batch that it stands for.

    `filtered` counts the records that do not travel. `failure` names the first record that can't be handled;
    it lies behind every record of `outgoing`.
    """

    outgoing: list[tuple[OutgoingBatch, int]]
    filtered: int
    failure: BatchFailure | None


class _Window(NamedTuple):
    """Batches that Spark was asked about together. `failure` is why the batch behind them can't be read."""

    batches: list[tuple[OutgoingBatch, list[UnpackedRecord]]]
    answers: asyncio.Future[list[bytes | None]]
    failure: BatchFailure | None


class Transformer:
    """A transformer applies one transform to the batches of any partition of its flow."""

    def __init__(self, transform: TransformSpec, evaluator: Evaluates) -> None:
        self.transform = transform
        self._evaluator = evaluator
        self._read = read_columns(transform)
        self._change = _changer(transform)
        names = [f"s{number}" for number in range(len(transform.set))]
        fields: list[Any] = [("b", bool), ("k", bool), *((name, msgspec.Raw) for name in names)]
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(msgspec.defstruct("Answer", fields))
        self._values = names
        self._known_headers: dict[bytes, list[tuple[str, str | None]]] = {}

    async def apply(self, prepared: Sequence[OutgoingBatch], spec: RewriteSpec) -> Transformed:
        """Returns what of the batches travels. Raises EvaluationEnded where Spark ends the query.

        While Spark evaluates some batches, the next ones are unpacked.
        """
        selected: list[Selected] = []
        failure: BatchFailure | None = None
        filtered: list[int] = []
        waiting: deque[_Window] = deque()
        windows = _windows(prepared)
        try:
            while failure is None:
                if len(waiting) < _WINDOWS and (batches := next(windows, None)) is not None:
                    waiting.append(self._ask(batches, spec))
                    continue
                if not waiting:
                    break
                window = waiting.popleft()
                answers = iter(await window.answers)
                for out, records in window.batches:
                    kept, failure = self._kept(records, answers, filtered, spec.where)
                    end = failure.offset if failure is not None else out.position
                    changed = self._change is not None or len(kept) < len(records)
                    selected.append(Selected(out._replace(position=end), kept, changed))
                    if failure is not None:
                        break
                failure = failure or window.failure
        finally:
            for window in waiting:
                window.answers.cancel()
        outgoing: list[tuple[OutgoingBatch, int]] = []
        try:
            outgoing.extend(packed(selected, spec))
        except BatchFailure as too_large:
            failure = too_large
        if failure is not None:
            filtered = [offset for offset in filtered if offset < failure.offset]
        return Transformed(outgoing, len(filtered), failure)

    def _ask(self, batches: Sequence[OutgoingBatch], spec: RewriteSpec) -> _Window:
        """Unpacks batches and asks Spark about their records, up to the first batch that can't be read."""
        found: list[tuple[OutgoingBatch, list[UnpackedRecord]]] = []
        rows: list[SourceRow] = []
        failure: BatchFailure | None = None
        for out in batches:
            try:
                records = unpacked(out, spec)
                rows += self._rows(records, out, spec.where)
            except BatchFailure as problem:
                failure = problem
                break
            found.append((out, records))
        return _Window(found, asyncio.ensure_future(self._evaluator.evaluate(rows)), failure)

    def _rows(
        self, records: Sequence[UnpackedRecord], out: OutgoingBatch, where: PartitionLocation
    ) -> list[SourceRow]:
        appended = APPENDED if out.reason & RewriteReason.APPEND_TIME else 0
        topic, partition = where
        with_headers = "headers" in self._read
        return [
            SourceRow(
                record.value,
                record.key,
                self._headers(record, where) if with_headers else [],
                topic,
                partition,
                record.offset,
                record.timestamp * 1000 if record.timestamp >= 0 else None,
                appended,
            )
            for record in records
        ]

    def _headers(self, record: UnpackedRecord, where: PartitionLocation) -> list[tuple[str, str | None]]:
        """Returns the headers of the source's record: the last value of each name, without the product's own.

        Many records have the same headers, so some are remembered. Raises CorruptBatch.
        """
        raw = record.tail[record.headers_at :]
        if (known := self._known_headers.get(raw)) is not None:
            return known
        try:
            last = {name: value for name, value in headers(record) if name != _PROVENANCE}
        except (MalformedBytes, IndexError) as error:
            raise CorruptBatch(where, record.offset, f"unreadable headers: {error}") from None
        found = [
            (name.decode(errors="replace"), value.decode(errors="replace") if value is not None else None)
            for name, value in last.items()
        ]
        if len(raw) <= _SHORT_HEADERS:
            if len(self._known_headers) == _KNOWN_HEADERS:
                self._known_headers.clear()
            self._known_headers[raw] = found
        return found

    def _kept(
        self,
        records: Sequence[UnpackedRecord],
        answers: Iterator[bytes | None],
        filtered: list[int],
        where: PartitionLocation,
    ) -> tuple[list[Raw], BadRecord | None]:
        """Returns the records that travel, up to the first bad one; appends the offsets of the others."""
        kept: list[Raw] = []
        new_value = self.new_value
        for record, answer in zip(records, answers, strict=False):
            if record.value is None:  # a tombstone
                kept.append(unchanged(record))
                continue
            try:
                value = new_value(record.value, answer)
            except InvalidValue as error:
                return kept, BadRecord(where, record.offset, str(error))
            if value is None:
                filtered.append(record.offset)
            elif value is record.value:
                kept.append(unchanged(record))
            else:
                kept.append(with_value(record, value))
        return kept, None

    def new_value(self, value: bytes, answer: bytes | None) -> bytes | None:
        """Returns the value with which a record travels; None for a record that does not.

        Raises InvalidValue where the record can't be handled.
        """
        if answer is None:
            raise InvalidValue("an expression of the transform fails on it")
        found = self._decoder.decode(answer)
        if found.b:
            raise InvalidValue(self._mismatch())
        if not found.k:
            return None
        if self._change is None:
            return value
        try:
            return self._change(value, [bytes(getattr(found, name)) for name in self._values])
        except UneditableValue as error:
            raise InvalidValue(f"its value can't be edited: {error}") from None

    def _mismatch(self) -> str:
        forms = {"value": self.transform.value, "key": self.transform.key}
        named = [f"{name} is not {one.format} of this schema" for name, one in forms.items() if one.schema]
        return f"it does not match the transform's format: {', or '.join(named)}"


def _changer(transform: TransformSpec) -> Callable[[bytes, list[bytes]], bytes] | None:
    """Returns the function that makes a new value, from the old one and the answers as JSON."""
    if not transform.lossy:
        return None
    match transform.value.format:
        case "json":
            return JsonEditor(transform.set, transform.drop).edited
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


def _windows(prepared: Sequence[OutgoingBatch]) -> Iterator[list[OutgoingBatch]]:
    """Yields neighbours that are evaluated together: what they unpack to is held in memory (R8)."""
    window: list[OutgoingBatch] = []
    records = size = 0
    for out in prepared:
        if window and (
            records + out.batch.records > _WINDOW_RECORDS or size + out.batch.size > _WINDOW_BYTES
        ):
            yield window
            window, records, size = [], 0, 0
        window.append(out)
        records += out.batch.records
        size += out.batch.size
    if window:
        yield window
