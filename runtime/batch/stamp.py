"""This module stamps a batch before it is sent: with producer, sequence and checksum."""

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
    """Holds what a produce request sends, in this order.

    The body is still the fetched view.
    """

    header: bytes
    body: memoryview

    @property
    def size(self) -> int:
        return HEADER_SIZE + len(self.body)


def stamp(batch: Batch, producer_id: int, producer_epoch: int, sequence: int) -> StampedBatch:
    """Returns the batch as this producer's transaction sends it.

    Of the source's attributes only the compression is kept. A broker would keep the delete-horizon bit and
    therefore remove tombstones early, and it keeps unknown bits. It clears the log-append-time bit silently:
    those batches are rewritten before this step.
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
    """Returns the sequence after a batch of this many records; sequences wrap past the largest int32 to 0."""
    following = sequence + records
    return following if following <= MAX_INT32 else following - MAX_INT32 - 1
