"""This module unpacks the records of prepared batches one by one, and packs those that are quarantined."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from runtime.batch.codecs import UnpackedSizeExceeded
from runtime.batch.failure import CorruptBatch, QuarantineTooLarge, TooLarge
from runtime.batch.layout import Batch, Codec
from runtime.batch.rewrite import fitting, records_of, unpacks_too_large
from runtime.batch.spec import OutgoingBatch, RewriteReason, RewriteSpec
from runtime.batch.splice import Raw, headers_of, sized
from runtime.batch.varint import MalformedBytes, encode_field, read, varint
from runtime.contract.spec.naming import TopicPartition
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
        offsets = [source + at for _, source, records in out.runs for at in range(records)]
        unpacked_records: list[UnpackedRecord] = []
        for offset, (_, timestamp, tail) in zip(offsets, raw, strict=True):
            key, value_at = sized(tail, 0)
            value, at = sized(tail, value_at)
            if at >= len(tail):
                raise MalformedBytes("a key or value does not fit its record")
            unpacked_records.append(UnpackedRecord(offset, timestamp, tail, key, value, value_at, at))
    except UnpackedSizeExceeded:
        raise unpacks_too_large(batch, spec.where, spec.max_unpacked) from None
    except (MalformedBytes, IndexError) as error:
        raise CorruptBatch(spec.where, batch.base_offset, f"unreadable records: {error}") from None
    return unpacked_records


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
    encoded = [encode_field(name) + encode_field(value) for name, value in added]
    try:
        headers_of(record.tail, record.headers_at)
        count, behind = read(record.tail, record.headers_at)
    except (MalformedBytes, IndexError) as error:
        raise CorruptBatch(where, record.offset, f"unreadable headers: {error}") from None
    tail = record.tail[: record.headers_at] + varint(count + len(encoded)) + record.tail[behind:]
    quarantined_record = QuarantinedRecord((record.offset, now_ms, tail + b"".join(encoded)), codec)
    if quarantined_record.size > spec.quarantine.max_batch // 2:  # the others fit for certain
        for _ in quarantine_batches([quarantined_record], spec.quarantine.max_batch, where):
            pass
    return quarantined_record


def quarantine_batches(
    records: Iterable[QuarantinedRecord], limit: int, where: TopicPartition
) -> Iterator[Batch]:
    """Yields batches with the records, each of at most `limit` bytes. Raises QuarantineTooLarge."""
    spec = RewriteSpec(where, limit)
    for codec, group in groupby(records, lambda record: record.codec):
        kept: list[Raw] = []
        size = 0
        for record in group:
            if kept and size + record.size > _JOINED:
                yield from _quarantine_batches(kept, codec, spec)
                kept, size = [], 0
            kept.append(record.raw)
            size += record.size
        yield from _quarantine_batches(kept, codec, spec)


def _quarantine_batches(kept: Sequence[Raw], codec: Codec, spec: RewriteSpec) -> Iterator[Batch]:
    try:
        for out in fitting(kept, codec, kept[-1][0] + 1, spec, RewriteReason.TRANSFORM):
            yield out.batch
    except TooLarge as error:
        why = f"{error.why}, with the headers of the quarantine"
        raise QuarantineTooLarge(error.where, error.offset, error.size, error.limit, why) from None
