"""This module unpacks prepared batches, and packs the records that a transform lets through or rejects.

The offset map stays exact (R6): each record keeps its source offset, and a batch's position lies behind every
record of the source that it stands for, also behind those that do not travel.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from runtime.batch.codecs import UnpackedSizeExceeded
from runtime.batch.failure import CorruptBatch, PartitionLocation, QuarantineTooLarge, TooLarge
from runtime.batch.layout import Batch, Codec
from runtime.batch.rewrite import fitting, records_of, unpacks_too_large
from runtime.batch.spec import OutgoingBatch, RewriteReason, RewriteSpec
from runtime.batch.splice import Raw, headers_of, sized
from runtime.batch.varint import MalformedBytes, read, varint
from runtime.contract.spec.transform import quarantine_headers

_JOINED: Final = 512 * 1024  # bytes of records that are packed as one batch


class UnpackedRecord(NamedTuple):
    """A record of a prepared batch, at its offset and with its timestamp at the source.

    `tail` is what follows the offset in the record: key, value and headers.
    """

    offset: int
    timestamp: int
    tail: bytes
    key: bytes | None
    value: bytes | None
    value_at: int  # in the tail, where the value's length stands
    headers_at: int


def unpacked(out: OutgoingBatch, spec: RewriteSpec) -> list[UnpackedRecord]:
    """Returns the records of a prepared batch. Raises a BatchFailure."""
    batch = out.batch
    try:
        raw = records_of(batch, spec.max_unpacked)
        offsets = _offsets(out)
        found: list[UnpackedRecord] = []
        for offset, (_, timestamp, tail) in zip(offsets, raw, strict=True):
            key, value_at = sized(tail, 0)
            value, at = sized(tail, value_at)
            if at >= len(tail):
                raise MalformedBytes("a key or value does not fit its record")
            found.append(UnpackedRecord(offset, timestamp, tail, key, value, value_at, at))
    except UnpackedSizeExceeded:
        raise unpacks_too_large(batch, spec.where, spec.max_unpacked) from None
    except (MalformedBytes, IndexError) as error:
        raise CorruptBatch(spec.where, batch.base_offset, f"unreadable records: {error}") from None
    return found


def _offsets(out: OutgoingBatch) -> list[int]:
    return [source + at for _, source, records in out.segments for at in range(records)]


def headers(record: UnpackedRecord) -> list[tuple[bytes, bytes | None]]:
    """Returns the headers of a record. Raises MalformedBytes."""
    return headers_of(record.tail, record.headers_at)


def with_value(record: UnpackedRecord, value: bytes) -> Raw:
    """Returns the record with another value."""
    offset, timestamp, tail, _, _, value_at, headers_at = record
    changed = b"".join((tail[:value_at], varint(len(value)), value, tail[headers_at:]))
    return offset, timestamp, changed


class QuarantinedRecord(NamedTuple):
    """A bad record as it is written to the quarantine topic; `raw` has its offset at the source."""

    raw: Raw
    codec: Codec

    @property
    def offset(self) -> int:
        return self.raw[0]

    @property
    def size(self) -> int:
        return len(self.raw[2])


def quarantined(
    record: UnpackedRecord, reason: str, codec: Codec, spec: RewriteSpec, now_ms: int
) -> QuarantinedRecord:
    """Returns the record with the headers of the quarantine, after its own ones.

    Raises CorruptBatch for headers that can't be read, and QuarantineTooLarge.
    """
    assert spec.quarantine is not None, "the flow quarantines"
    where = spec.where
    added = quarantine_headers(reason, spec.quarantine.flow, *where, record.offset, record.timestamp)
    encoded = [varint(len(name)) + name + varint(len(value)) + value for name, value in added]
    try:
        headers_of(record.tail, record.headers_at)
        count, behind = read(record.tail, record.headers_at)
    except (MalformedBytes, IndexError) as error:
        raise CorruptBatch(where, record.offset, f"unreadable headers: {error}") from None
    tail = record.tail[: record.headers_at] + varint(count + len(encoded)) + record.tail[behind:]
    found = QuarantinedRecord((record.offset, now_ms, tail + b"".join(encoded)), codec)
    if found.size > spec.quarantine.max_batch // 2:  # the others fit for certain
        for _ in quarantine_batches([found], spec.quarantine.max_batch, where):
            pass
    return found


def quarantine_batches(
    records: Iterable[QuarantinedRecord], limit: int, where: PartitionLocation
) -> Iterator[Batch]:
    """Yields batches with the records, each of at most `limit` bytes. Raises QuarantineTooLarge."""
    spec = RewriteSpec(where, limit)
    for codec, some in groupby(records, lambda one: one.codec):
        kept: list[Raw] = []
        size = 0
        for one in some:
            if kept and size + one.size > _JOINED:
                yield from _quarantine_batches(kept, codec, spec)
                kept, size = [], 0
            kept.append(one.raw)
            size += one.size
        yield from _quarantine_batches(kept, codec, spec)


def _quarantine_batches(kept: Sequence[Raw], codec: Codec, spec: RewriteSpec) -> Iterator[Batch]:
    try:
        for out in fitting(kept, codec, kept[-1][0] + 1, spec, RewriteReason.TRANSFORM):
            yield out.batch
    except TooLarge as error:
        why = f"{error.why}, with the headers of the quarantine"
        raise QuarantineTooLarge(error.where, error.offset, error.size, error.limit, why) from None


def unchanged(record: UnpackedRecord) -> Raw:
    """Returns the record as it is."""
    return record.offset, record.timestamp, record.tail


class Selected(NamedTuple):
    """The records of one prepared batch that travel; `changed` is false where all of them do, as they are."""

    out: OutgoingBatch
    kept: Sequence[Raw]
    changed: bool


def packed(selected: Sequence[Selected], spec: RewriteSpec) -> Iterator[tuple[OutgoingBatch, int]]:
    """Yields batches with the records that travel, each with the index of the last batch that it stands for.

    Neighbours that became small are joined. A batch of which every record travels unchanged stays as it is.
    Raises TooLarge where a record has become too large; the batches that were yielded before stay valid.
    """
    kept: list[Raw] = []
    size = 0
    codec = Codec.NONE
    last = -1
    for index, (out, records, changed) in enumerate(selected):
        own = out.batch.codec
        grown = sum(len(record[2]) for record in records)
        if kept and (_differ(codec, own) or size + grown > min(_JOINED, spec.max_batch) or not changed):
            yield from _packed(kept, codec, selected[last].out.position, spec, last)
            kept, size, codec = [], 0, Codec.NONE
        if not changed:
            yield out, index
            continue
        kept += records
        size += grown
        codec = max(codec, own)
        last = index
    if kept:
        yield from _packed(kept, codec, selected[last].out.position, spec, last)


def _packed(
    kept: Sequence[Raw], codec: Codec, position: int, spec: RewriteSpec, last: int
) -> Iterator[tuple[OutgoingBatch, int]]:
    codec = codec if spec.codec is None else spec.codec
    for out in fitting(kept, codec, position, spec, RewriteReason.TRANSFORM):
        yield out, last


def _differ(one: Codec, other: Codec) -> bool:
    return Codec.NONE not in (one, other) and one is not other
