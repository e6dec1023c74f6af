"""This module builds batches of small records, and reads the committed records of a response.

It serves the logs that the product keeps in Kafka. What is copied stays in its batches: see `runtime.batch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from runtime.batch import AbortedTransactions, Batch, RecordSet, StampedBatch, walk
from runtime.batch import records as records_of
from runtime.batch.layout import CRC_FROM, HEADER, HEADER_SIZE, LOG_OVERHEAD, MAGIC, NO_PRODUCER
from runtime.batch.rewrite import Record
from runtime.batch.splice import Raw, join
from runtime.batch.varint import NO_HEADERS, encode_field
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.protocol.fetch import FetchedPartition
from runtime.kafka.timing import now_ms

MAX_UNPACKED: Final = 16 << 20
BATCH_BYTES: Final = 512 << 10


class InternalRecord(NamedTuple):
    """A record to write; a value of None is a tombstone."""

    key: bytes
    value: bytes | None


def build(records: Sequence[InternalRecord], now_ms: int) -> Batch:
    """Returns one uncompressed batch, which is then stamped with a producer's identity or sent `plain`."""
    raw: list[Raw] = [(at, now_ms, _tail(record)) for at, record in enumerate(records)]
    body, base, latest = join(raw)
    return Batch(
        base_offset=0,
        length=HEADER_SIZE - LOG_OVERHEAD + len(body),
        leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=len(records) - 1,
        base_timestamp=base,
        max_timestamp=latest,
        producer_id=NO_PRODUCER,
        producer_epoch=-1,
        base_sequence=-1,
        records=len(records),
        body=memoryview(body),
    )


def plain(batch: Batch) -> StampedBatch:
    """Returns the batch without a transaction, for facts that are true whether one commits or not.

    Its producer is that of the batch: none, or an idempotent one.
    """
    fields = batch[:13]
    unsummed = HEADER.pack(*fields)
    checksum = crc32c(batch.body, crc32c(unsummed[CRC_FROM:]))
    return StampedBatch(HEADER.pack(*fields[:4], checksum, *fields[5:]), batch.body)


def chunks(records: Sequence[InternalRecord], limit: int) -> list[list[InternalRecord]]:
    """Returns the records in order, in groups of about `limit` bytes, one for each batch."""
    groups: list[list[InternalRecord]] = []
    room = 0
    for record in records:
        size = len(record.key) + len(record.value or b"") + 24
        if size > room:
            groups.append([])
            room = limit
        groups[-1].append(record)
        room -= size
    return groups


def batches_of(records: Sequence[InternalRecord]) -> list[Batch]:
    """Returns the records in order, in batches of about `BATCH_BYTES`, with the time of now."""
    at_ms = now_ms()
    return [build(chunk, at_ms) for chunk in chunks(records, BATCH_BYTES)]


def read(batch: Batch, where: TopicPartition) -> list[Record]:
    """Returns the records of a batch. Raises BatchFailure."""
    return records_of(batch, where, MAX_UNPACKED)


def visible_sets(response: FetchedPartition, at: TopicPartition) -> list[tuple[RecordSet, bool]]:
    """Returns the batches of a response, also markers, and whether a read_committed reader sees each.

    Without any, the log ends, or a transaction is open. Raises BatchFailure.
    """
    walked = walk(response.records, at)
    if walked.failure is not None and not walked.sets:
        raise walked.failure
    aborted = AbortedTransactions(response.aborted)
    return [(member, not isinstance(member, Batch) or aborted.keeps(member)) for member in walked.sets]


def committed(response: FetchedPartition, at: TopicPartition, position: int) -> tuple[list[Record], int]:
    """Returns the committed records from `position` on, and the position behind what the response has.

    The response was requested with READ_COMMITTED. Raises BatchFailure.
    """
    records: list[Record] = []
    for member, visible in visible_sets(response, at):
        if visible:
            unread = records_of(member, at, MAX_UNPACKED)
            records += [record for record in unread if record.offset >= position]
        position = max(position, member.next_offset)
    return records, position


def _tail(record: InternalRecord) -> bytes:
    """Returns the encoded key, value and empty headers of a record."""
    return encode_field(record.key) + encode_field(record.value) + NO_HEADERS
