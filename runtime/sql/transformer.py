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
_WINDOWS, _WINDOW_RECORDS, _WINDOW_BYTES = 2, 8 * ROWS, 1 << 20


class Evaluates(Protocol):
    """Evaluates the transform on rows: Spark's query, or a test's own."""

    async def evaluate(self, rows: Sequence[SourceRow]) -> list[bytes | None]: ...


class Rejected(NamedTuple):
    """A record is bad: it does not match its format, or an expression fails on it.

    `why` contains no value of the record.
    """

    why: str


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

    async def apply(self, prepared: Sequence[OutgoingBatch], spec: RewriteSpec) -> Transformed:
        """Returns what of the batches travels. Raises EvaluationEnded where Spark ends the query.

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
                    waiting.append(await self._ask(batches, spec))
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

    async def _ask(self, batches: Sequence[OutgoingBatch], spec: RewriteSpec) -> _Window:
        """Unpacks batches and asks Spark about their records, up to the first batch that can't be read."""
        found: list[tuple[OutgoingBatch, list[UnpackedRecord]]] = []
        rows: list[SourceRow] = []
        failure: BatchFailure | None = None
        for out in batches:
            try:
                records = unpacked(out, spec)
                await self._prepare(records)
                rows += self._rows(records, spec.where, bool(out.reason & RewriteReason.APPEND_TIME))
            except BatchFailure as problem:
                failure = problem
                break
            found.append((out, records))
        return _Window(found, asyncio.ensure_future(self._evaluator.evaluate(rows)), failure)

    async def decisions(
        self, records: Sequence[UnpackedRecord], where: PartitionLocation, appended: bool
    ) -> list[Raw | Rejected | None]:
        """Returns what becomes of each record, as `decision` does. Raises EvaluationEnded."""
        await self._prepare(records)
        answers = await self._evaluator.evaluate(self._rows(records, where, appended))
        return [self.decision(record, answer) for record, answer in zip(records, answers, strict=True)]

    def _rows(
        self, records: Sequence[UnpackedRecord], where: PartitionLocation, appended: bool
    ) -> list[SourceRow]:
        topic, partition = where
        with_headers = "headers" in self._read
        return [
            SourceRow(
                self._readable("value", record.value),
                self._readable("key", record.key),
                _headers(record, where) if with_headers else [],
                topic,
                partition,
                record.offset,
                record.timestamp * 1000 if record.timestamp >= 0 else None,
                APPENDED if appended else 0,
            )
            for record in records
        ]

    async def _prepare(self, records: Sequence[UnpackedRecord]) -> None:
        """Fetches the schemas of records that are not known yet. Raises RegistryUnavailable."""
        for part, values in self._avro.items():
            await values.prepare(one.value if part == VALUE else one.key for one in records)

    def _readable(self, part: str, data: bytes | None) -> bytes | None:
        """Returns the bytes as Spark reads them: Avro as JSON, empty where it can't be decoded."""
        try:
            return self._readable_or_raise(part, data)
        except UndecodableValue:
            return b""  # no JSON object, so Spark answers that the record does not match its format

    def _readable_or_raise(self, part: str, data: bytes | None) -> bytes | None:
        avro = self._avro.get(part)
        return data if avro is None or data is None else avro.json(data)

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
        for record, answer in zip(records, answers, strict=False):
            found = self.decision(record, answer)
            if isinstance(found, Rejected):
                try:
                    if spec.quarantine is None:
                        raise BadRecord(spec.where, record.offset, found.why)
                    now_ms = int(time.time() * 1000)
                    rest.quarantined.append(quarantined(record, found.why, codec, spec, now_ms))
                except BatchFailure as failure:
                    return kept, failure
            elif found is None:
                rest.filtered.append(record.offset)
            else:
                kept.append(found)
        return kept, None

    def decision(self, record: UnpackedRecord, answer: bytes | None) -> Raw | Rejected | None:
        """Returns the record as it travels, why it is a bad one, or None where it does not travel."""
        if record.value is None:  # a tombstone
            return unchanged(record)
        if answer is None:
            return Rejected("an expression of the transform fails on it")
        found = self._decoder.decode(answer)
        if found.b:
            return Rejected(self._mismatch(record))
        if not found.k:
            return None
        if self._change is None:
            return unchanged(record)
        try:
            value = self._change(record.value, [bytes(getattr(found, name)) for name in self._values])
        except UneditableValue as error:
            return Rejected(f"its value can't be edited: {error}")
        return with_value(record, value)

    def _mismatch(self, record: UnpackedRecord) -> str:
        for part, data in ((VALUE, record.value), ("key", record.key)):
            try:
                self._readable_or_raise(part, data)
            except UndecodableValue as error:
                return f"its {part} can't be decoded: {error}"
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


def _headers(record: UnpackedRecord, where: PartitionLocation) -> list[tuple[str, str | None]]:
    """Returns the headers of the source's record: the last value of each name, without the product's own.

    Raises CorruptBatch.
    """
    try:
        found = {name: value for name, value in headers(record) if name != _PROVENANCE}
    except (MalformedBytes, IndexError) as error:
        raise CorruptBatch(where, record.offset, f"unreadable headers: {error}") from None
    return [
        (name.decode(errors="replace"), value.decode(errors="replace") if value is not None else None)
        for name, value in found.items()
    ]


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
