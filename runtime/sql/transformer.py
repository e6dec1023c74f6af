"""Applies a transform to prepared batches: Spark answers, and the records that travel are packed anew."""

from __future__ import annotations

import asyncio
import base64
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from runtime.batch import (
    BadRecord,
    BatchFailure,
    Codec,
    CorruptBatch,
    OutgoingBatch,
    PartitionLocation,
    RewriteReason,
    RewriteSpec,
)
from runtime.batch.selection import (
    QuarantinedRecord,
    Selected,
    UnpackedRecord,
    headers,
    packed,
    quarantined,
    unchanged,
    unpacked,
    with_value,
)
from runtime.batch.splice import Raw
from runtime.batch.varint import MalformedBytes
from runtime.contract.records.provenance import HEADER
from runtime.contract.spec.transform import VALUE, TransformSpec
from runtime.sql.avro_schema import UndecodableValue
from runtime.sql.json_fields import JsonEditor, UneditableValue
from runtime.sql.rows import APPENDED, ROWS, SourceRow, read_columns

if TYPE_CHECKING:
    from runtime.sql.avro import AvroValues

_PROVENANCE = HEADER.encode()
_KNOWN_HEADERS, _SHORT_HEADERS = 1_024, 256
_WINDOWS, _WINDOW_RECORDS, _WINDOW_BYTES = 2, 8 * ROWS, 1 << 20


class Evaluates(Protocol):
    """Evaluates the transform on rows: Spark's query, or a test's own."""

    async def evaluate(self, rows: Sequence[SourceRow]) -> list[bytes | None]: ...


class InvalidValue(Exception):
    """The transform can't handle the value of a record: it does not match its format, or an expression fails.

    The text contains nothing of the value.
    """


class Transformed(NamedTuple):
    """The batches that travel, each with the index of the last prepared batch that it stands for.

    `filtered` counts the records that do not travel, without those of `quarantined`. `failure` names the
    first record that can't be handled; it lies behind every other record.
    """

    outgoing: list[tuple[OutgoingBatch, int]]
    filtered: int
    failure: BatchFailure | None
    quarantined: list[QuarantinedRecord]


class _Rest(NamedTuple):
    """What the records that do not travel leave behind: the offsets of filtered ones, and the bad ones."""

    filtered: list[int]
    quarantined: list[QuarantinedRecord]


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
        self._avro = _avro_values(transform)
        self._change = _changer(transform, self._avro)
        names = [f"s{number}" for number in range(len(transform.set))]
        fields: list[Any] = [("b", bool), ("k", bool), *((name, msgspec.Raw) for name in names)]
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(msgspec.defstruct("Answer", fields))
        self._values = names
        self._known_headers: dict[bytes, list[tuple[str, str | None]]] = {}

    async def apply(self, prepared: Sequence[OutgoingBatch], spec: RewriteSpec) -> Transformed:
        """Returns what of the batches travels. Raises EvaluationEnded, RegistryUnavailable.

        While Spark evaluates some batches, the next ones are unpacked.
        """
        selected: list[Selected] = []
        failure: BatchFailure | None = None
        rest = _Rest([], [])
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
                    kept, failure = self._kept(records, answers, rest, out.batch.codec, spec)
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
        filtered, bad = rest
        if failure is not None:
            filtered = [offset for offset in filtered if offset < failure.offset]
            bad = [one for one in bad if one.offset < failure.offset]
        return Transformed(outgoing, len(filtered), failure, bad)

    def _ask(self, batches: Sequence[OutgoingBatch], spec: RewriteSpec) -> _Window:
        """Unpacks batches and asks Spark about their records, up to the first batch that can't be read."""
        found: list[tuple[OutgoingBatch, list[UnpackedRecord]]] = []
        rows: list[SourceRow] = []
        failure: BatchFailure | None = None
        for out in batches:
            try:
                records = unpacked(out, spec)
                rows += self._rows(records, spec.where, bool(out.reason & RewriteReason.APPEND_TIME))
            except BatchFailure as problem:
                failure = problem
                break
            found.append((out, records))
        return _Window(found, asyncio.ensure_future(self.answers(rows)), failure)

    def _rows(
        self, records: Sequence[UnpackedRecord], where: PartitionLocation, appended: bool
    ) -> list[SourceRow]:
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
                APPENDED if appended else 0,
            )
            for record in records
        ]

    async def answers(self, rows: Sequence[SourceRow]) -> list[bytes | None]:
        """Returns Spark's answers to rows of raw bytes. Raises EvaluationEnded, RegistryUnavailable."""
        if self._avro:
            for part, values in self._avro.items():
                await values.prepare(row.value if part == VALUE else row.key for row in rows)
            rows = [
                row._replace(value=self._readable(VALUE, row.value), key=self._readable("key", row.key))
                for row in rows
            ]
        return await self._evaluator.evaluate(rows)

    def _readable(self, part: str, data: bytes | None) -> bytes | None:
        """Returns the bytes as Spark reads them: Avro as JSON, empty where it can't be decoded."""
        avro = self._avro.get(part)
        if avro is None or data is None:
            return data
        try:
            return avro.json(data)
        except UndecodableValue:
            return b""  # no JSON object, so Spark answers that the record does not match its format

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
        rest: _Rest,
        codec: Codec,
        spec: RewriteSpec,
    ) -> tuple[list[Raw], BatchFailure | None]:
        """Returns the records that travel, and appends the others to `rest`.

        It ends at the first bad record, unless the flow quarantines.
        """
        kept: list[Raw] = []
        new_value = self.new_value
        for record, answer in zip(records, answers, strict=False):
            if record.value is None:  # a tombstone
                kept.append(unchanged(record))
                continue
            try:
                value = new_value(record.value, answer)
            except InvalidValue as error:
                failure = self._reject(record, str(error), rest, codec, spec)
                if failure is not None:
                    return kept, failure
                continue
            if value is None:
                rest.filtered.append(record.offset)
            elif value is record.value:
                kept.append(unchanged(record))
            else:
                kept.append(with_value(record, value))
        return kept, None

    def _reject(
        self, record: UnpackedRecord, why: str, rest: _Rest, codec: Codec, spec: RewriteSpec
    ) -> BatchFailure | None:
        """Quarantines a bad record, or returns why its partition stops."""
        if spec.quarantine is None:
            return BadRecord(spec.where, record.offset, why)
        try:
            rest.quarantined.append(quarantined(record, why, codec, spec, int(time.time() * 1000)))
        except BatchFailure as failure:
            return failure
        return None

    def new_value(self, value: bytes, answer: bytes | None) -> bytes | None:
        """Returns the value with which a record travels; None for a record that does not.

        Raises InvalidValue for a bad record.
        """
        if answer is None:
            raise InvalidValue("an expression of the transform fails on it")
        found = self._decoder.decode(answer)
        if found.b:
            raise InvalidValue(self._mismatch(value))
        if not found.k:
            return None
        if self._change is None:
            return value
        try:
            return self._change(value, [bytes(getattr(found, name)) for name in self._values])
        except UneditableValue as error:
            raise InvalidValue(f"its value can't be edited: {error}") from None

    def _mismatch(self, value: bytes) -> str:
        if (avro := self._avro.get(VALUE)) is not None:
            try:
                avro.json(value)
            except UndecodableValue as error:
                return f"its value can't be decoded: {error}"
        forms = {"value": self.transform.value, "key": self.transform.key}
        named = [f"{name} is not {one.format} of this schema" for name, one in forms.items() if one.schema]
        return f"it does not match the transform's format: {', or '.join(named)}"


def _avro_values(transform: TransformSpec) -> dict[str, AvroValues]:
    """Returns the parts of a record that are Avro: fastavro is loaded only where one is."""
    found: dict[str, AvroValues] = {}
    if "avro" in (transform.value.format, transform.key.format):
        from runtime.sql.avro import AvroValues

        if transform.value.format == "avro":
            found[VALUE] = AvroValues(transform.value, transform.set, transform.drop)
        if transform.key.format == "avro":
            found["key"] = AvroValues(transform.key)
    return found


def _changer(
    transform: TransformSpec, avro: Mapping[str, AvroValues]
) -> Callable[[bytes, list[bytes]], bytes] | None:
    """Returns the function that makes a new value, from the old one and the answers as JSON."""
    if not transform.lossy:
        return None
    match transform.value.format:
        case "json":
            return JsonEditor(transform.set, transform.drop).edited
        case "avro":
            return avro[VALUE].edited
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
