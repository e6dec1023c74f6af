"""What a read_committed reader sees, as Kafka's own consumer decides it."""

import pytest

from runtime.batch import AbortedTransactions, marker_type
from tests.runtime.batch.forge import batch_bytes, batches, control_batch, empty_batch, record

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
