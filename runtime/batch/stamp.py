"""The last touch before a batch goes out: whose it is, in which order, and the checksum over all of it."""

from typing import Final, NamedTuple

from crc32c import crc32c

from runtime.batch.layout import (
    CODEC_MASK,
    HEADER_SIZE,
    MAGIC,
    MAX_INT32,
    SUMMED,
    TRANSACTIONAL,
    UNSUMMED,
    Batch,
)

_NO_EPOCH: Final = -1


class StampedBatch(NamedTuple):
    """What a produce request sends, in this order. The body is still the view that was fetched."""

    header: bytes
    body: memoryview

    @property
    def size(self) -> int:
        return HEADER_SIZE + len(self.body)


def stamp(batch: Batch, producer_id: int, producer_epoch: int, sequence: int) -> StampedBatch:
    """The batch as this producer's transaction sends it.

    Of the source's attributes only the compression stays. A broker would keep the delete-horizon bit, so drop
    tombstones early by it, and keep bits it doesn't know. The log-append-time bit it clears silently: those
    batches are rewritten before they come here.
    """
    assert not batch.log_append_time, "its timestamps are in the header alone: rewrite it"
    attributes = batch.attributes & CODEC_MASK | TRANSACTIONAL
    summed = SUMMED.pack(
        attributes,
        batch.last_offset_delta,
        batch.base_timestamp,
        batch.max_timestamp,
        producer_id,
        producer_epoch,
        sequence,
        batch.records,
    )
    body = batch.body
    checksum = crc32c(body, crc32c(summed))
    return StampedBatch(UNSUMMED.pack(0, batch.length, _NO_EPOCH, MAGIC, checksum) + summed, body)


def next_sequence(sequence: int, records: int) -> int:
    """The sequence after a batch of so many records; sequences wrap past the largest int32 to 0."""
    following = sequence + records
    return following if following <= MAX_INT32 else following - MAX_INT32 - 1
