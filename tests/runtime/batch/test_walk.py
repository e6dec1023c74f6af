"""From bytes to batches and back: bad bytes are named, only headers are stamped, markers decide."""

import struct

import pytest

from runtime.batch import AbortedTransactions, Codec, LegacySet, marker_type, next_sequence, stamp, walk
from tests.runtime.batch.forge import (
    HERE,
    batch_bytes,
    batches,
    control_batch,
    empty_batch,
    legacy_bytes,
    read_back,
    record,
    summed,
)

ONE = batch_bytes([record(10), record(11)])
TWO = batch_bytes([record(12)], Codec.LZ4, last=15)


def test_header_fields_are_those_of_the_wire():
    batch = batches(batch_bytes([record(40), record(41)], Codec.ZSTD, producer=(7, 2, 5), more=0x50))[0]
    assert (batch.base_offset, batch.last_offset, batch.next_offset, batch.records) == (40, 41, 42, 2)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 2, 5)
    assert (batch.codec, batch.transactional, batch.control) == (Codec.ZSTD, True, False)
    assert (batch.log_append_time, batch.leader_epoch) == (False, 7)
    assert batch.max_timestamp == record(41).timestamp
    assert batch.size == 61 + len(batch.body)


def test_bodies_are_views_not_copies():
    response = bytearray(ONE + TWO)
    assert all(
        batch.body.obj is response for batch in walk(response, HERE).sets if not isinstance(batch, LegacySet)
    )


@pytest.mark.parametrize("cut", range(1, len(TWO)))
def test_a_cut_off_last_batch_is_left_for_the_next_fetch(cut: int):
    walked = walk((ONE + TWO)[: len(ONE) + cut], HERE)
    assert [batch.base_offset for batch in walked.sets] == [10]
    assert walked.failure is None
    assert walked.needed == len(TWO) if cut >= 17 else walked.needed > 0


@pytest.mark.parametrize("cut", [1, 11, 12, 16, 17, 60, 61, len(ONE) - 1])
def test_a_cut_off_first_batch_is_a_failure_because_waiting_would_not_end(cut: int):
    walked = walk(ONE[:cut], HERE)
    assert walked.sets == []
    assert "orders-3" in str(walked.failure)
    assert "truncated" in str(walked.failure)


def test_nothing_is_nothing():
    assert walk(b"", HERE) == ([], 0, None)


def damaged(data: bytes, at: int, layout: str, value: int, *, sum_again: bool = True) -> bytes:
    copy = bytearray(data)
    struct.pack_into(layout, copy, at, value)
    return summed(copy) if sum_again else bytes(copy)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (damaged(TWO, len(TWO) - 1, ">B", 0x55, sum_again=False), "wrong checksum"),
        (damaged(TWO, 8, ">i", 48), "shorter than its header"),
        (damaged(TWO, 8, ">i", -5), "shorter than its header"),
        (damaged(TWO, 57, ">i", 5), "5 records with a last offset delta of 3"),
        (damaged(TWO, 57, ">i", -1), "-1 records"),
        (damaged(TWO, 21, ">h", 5), "unknown compression 5"),
        (damaged(TWO, 0, ">q", 11), "offsets go backwards: 12"),
        (damaged(TWO, 0, ">q", -3), "offsets go backwards"),
        (damaged(TWO, 16, ">b", 3), "unknown format 3"),
    ],
)
def test_what_is_corrupt_is_named_and_what_lies_before_it_is_good(bad: bytes, why: str):
    walked = walk(ONE + bad, HERE)
    assert [batch.base_offset for batch in walked.sets] == [10]
    assert why in str(walked.failure)
    assert str(walked.failure).startswith("orders-3 at offset ")


def test_batches_that_compaction_emptied_are_walked_over():
    assert [(batch.records, batch.next_offset) for batch in batches(empty_batch(5, 9), ONE)] == [
        (0, 10),
        (2, 12),
    ]


def test_old_formats_are_one_run_between_batches():
    old = legacy_bytes(1, Codec.NONE, [(20, record(20)), (21, record(21))])
    walked = walk(ONE + old + batch_bytes([record(30)]), HERE)
    kinds = [(type(one).__name__, one.base_offset, one.next_offset) for one in walked.sets]
    assert kinds == [("Batch", 10, 12), ("LegacySet", 20, 22), ("Batch", 30, 31)]


def test_a_damaged_old_message_is_a_failure():
    old = bytearray(legacy_bytes(0, Codec.NONE, [(20, record(20))]))
    old[-1] ^= 1
    assert "orders-3 at offset 20: wrong checksum" in str(walk(ONE + old, HERE).failure)


def test_any_flipped_bit_behind_the_checksum_is_noticed():
    for bit in range(17 * 8, len(TWO) * 8):
        bad = bytearray(TWO)
        bad[bit // 8] ^= 1 << bit % 8
        assert "wrong checksum" in str(walk(bad, HERE).failure)


# The header that goes out, and only the header: bodies are not copied

RECORDS = [record(90 + at, b"x" * at) for at in range(5)]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("more", [0, 0x10, 0x40, 0x4080, 0x50])
def test_only_whose_it_is_changes(codec: Codec, more: int):
    source = batches(batch_bytes(RECORDS, codec, producer=(5, 6, 7), more=more))[0]
    stamped = stamp(source, producer_id=1 << 40, producer_epoch=3, sequence=77)
    assert stamped.body is source.body
    assert stamped.size == source.size
    (sent,) = batches(stamped.header + stamped.body)
    assert (sent.base_offset, sent.leader_epoch, sent.attributes) == (0, -1, int(codec) | 0x10)
    assert (sent.producer_id, sent.producer_epoch, sent.base_sequence) == (1 << 40, 3, 77)
    assert sent[6:9] == source[6:9]
    assert read_back(bytes(stamped.header + stamped.body)) == [
        one._replace(offset=at) for at, one in enumerate(RECORDS)
    ]


def test_append_time_is_never_stamped_because_its_timestamps_would_change():
    with pytest.raises(AssertionError, match="rewrite"):
        stamp(batches(batch_bytes(RECORDS, more=0x08))[0], 1, 1, 1)


@pytest.mark.parametrize(
    ("sequence", "records", "following"),
    [
        (0, 1, 1),
        (2**31 - 2, 1, 2**31 - 1),
        (2**31 - 1, 1, 0),
        (2**31 - 2, 5, 3),
        (2**31 - 1, 2**31 - 1, 2**31 - 2),
    ],
)
def test_sequences_wrap_to_zero(sequence: int, records: int, following: int):
    assert next_sequence(sequence, records) == following


# Which batches are of committed transactions

ABORT, COMMIT = 0, 1


def data(offset: int, producer: int, *, transactional: bool = True) -> bytes:
    return batch_bytes([record(offset)], producer=(producer, 0, 0), more=0x10 if transactional else 0)


def seen(aborted: list[tuple[int, int]], *parts: bytes) -> list[int]:
    transactions = AbortedTransactions(aborted)
    return [batch.base_offset for batch in batches(*parts) if transactions.keeps(batch)]


@pytest.mark.parametrize(
    ("aborted", "parts", "expected"),
    [
        ([], [data(0, 1), control_batch(1, 1, COMMIT)], [0]),
        ([(1, 0)], [data(0, 1), data(1, 1), control_batch(2, 1, ABORT), data(3, 1)], [3]),
        # From its first offset on: what the same producer committed before it stays.
        ([(1, 2)], [data(0, 1), control_batch(1, 1, COMMIT), data(2, 1), control_batch(3, 1, ABORT)], [0]),
        # Others in between are not touched, nor is what the producer sent outside of transactions.
        ([(1, 0)], [data(0, 1), data(1, 2), data(2, 1), control_batch(3, 1, ABORT)], [1]),
        ([(1, 0)], [data(0, 1, transactional=False), data(1, 1)], [0]),
        # Two aborted transactions of one producer around a committed one, listed in any order.
        (
            [(1, 4), (1, 0)],
            [data(0, 1), control_batch(1, 1, ABORT), data(2, 1), control_batch(3, 1, COMMIT), data(4, 1)],
            [2],
        ),
        # The response begins inside an aborted transaction.
        ([(1, 3)], [data(50, 1), control_batch(51, 1, ABORT), data(52, 1)], [52]),
        # A commit marker doesn't end an aborted transaction of another producer.
        ([(1, 0)], [data(0, 1), control_batch(1, 2, COMMIT), data(2, 1)], []),
    ],
)
def test_keeps(aborted: list[tuple[int, int]], parts: list[bytes], expected: list[int]):
    assert seen(aborted, *parts) == expected


def test_a_batch_that_reaches_past_the_first_offset_is_aborted():
    long = batch_bytes([record(0), record(1), record(2)], producer=(1, 0, 0), more=0x10)
    assert seen([(1, 2)], long) == []


@pytest.mark.parametrize("kind", [ABORT, COMMIT, 2, 5])
def test_marker_type(kind: int):
    assert marker_type(batches(control_batch(1 << 40, 9, kind))[0]) == kind


def test_a_marker_whose_record_is_gone_says_nothing():
    assert marker_type(batches(empty_batch(4, 4))[0]) == -1
