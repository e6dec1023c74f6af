"""A partition's share of a transaction is what was acknowledged, nothing else (R1, R4, R6)."""

import pytest
from msgspec.structs import replace

from runtime.batch import DroppedRecords
from runtime.contract.records.advance import Advance
from runtime.contract.records.ledger import BatchIdentity
from runtime.contract.records.offset_map import Run
from runtime.kafka.errors import Disconnected, ErrorCode, PartitionsRefused, WireError
from runtime.slot.offset_accounts import OffsetRange
from runtime.slot.partition import Cursor
from runtime.slot.write.transaction import SentBatch, TransactionPartition, blamed, idle_step
from tests.fakes.partition import partition, queued

MARK = BatchIdentity(1, 2, 3)


def sent(part: TransactionPartition, *source: tuple[int, int], first: int = 0) -> SentBatch:
    """Sends a batch of these source offsets."""
    return part.sent(queued(*source, first=first, epoch=7), MARK)


def acknowledge(part: TransactionPartition, source: tuple[int, int], base: int) -> str | None:
    """Sends a batch and acknowledges it, as expected or not; returns why that fails the transaction."""
    failure = part.acknowledged(sent(part, source), base)
    return None if failure is None else str(failure)


def test_the_base_offset_is_expected_behind_own_batches_and_markers() -> None:
    copy = partition()
    part = TransactionPartition(copy, 1, 4)
    assert acknowledge(part, (10, 2), 100) is None
    second = sent(part, (12, 3))
    assert second.expected == 102  # side by side in a transaction
    assert part.acknowledged(second, 102) is None
    for _ in range(2):
        copy.accounts.committed()
    part = TransactionPartition(copy, 1, 4)
    third = sent(part, (15, 1))
    assert third.expected == 107  # behind two markers
    assert sent(part, (16, 1)).expected == 108  # both are in flight
    assert part.step().runs == (Run(15, 107, 2),)  # known before the acknowledgement
    assert part.acknowledged(third, 107) is None
    copy.accounts.committed()
    assert sent(TransactionPartition(copy, 1, 4), (17, 1)).expected == 109


def test_nothing_is_expected_before_an_acknowledgement_and_after_an_abort() -> None:
    copy = partition()
    assert sent(TransactionPartition(copy, 1, 4), (10, 1)).expected is None
    acknowledge(TransactionPartition(copy, 1, 4), (10, 1), 100)
    copy.accounts.committed()
    copy.accounts.aborted()
    assert sent(TransactionPartition(copy, 1, 4), (11, 1)).expected is None


def test_after_a_wrong_expectation_nothing_is_expected_for_some_transactions() -> None:
    copy = partition()
    end, waited = 100, []
    acknowledge(TransactionPartition(copy, 1, 4), (10, 1), end)
    for _ in range(3):
        copy.accounts.committed()
        part = TransactionPartition(copy, 1, 4)
        batch = sent(part, (11, 1))
        assert batch.expected == end + 2
        failure = part.acknowledged(batch, end + 5)
        assert "another producer" in str(failure)
        assert failure is not None
        assert failure.copies == ()
        copy.accounts.aborted()
        end, count = end + 10, 0
        acknowledge(TransactionPartition(copy, 1, 4), (11, 1), end)
        while copy.next_base is None:
            copy.accounts.committed()
            end, count = end + 2, count + 1
            acknowledge(TransactionPartition(copy, 1, 4), (11, 1), end)
        waited.append(count)
    assert waited == [64, 128, 256]


def test_a_base_offset_below_the_acknowledged_end_can_not_be_true() -> None:
    copy = partition()
    acknowledge(TransactionPartition(copy, 1, 4), (10, 1), 100)
    copy.accounts.committed()
    part = TransactionPartition(copy, 1, 4)
    batch = sent(part, (11, 1))
    assert batch.expected == 102
    failure = part.acknowledged(batch, 40)
    assert "recreated or truncated" in str(failure)
    assert failure is not None
    assert failure.copies == (copy,)


def test_acknowledged_base_offsets_become_runs() -> None:
    copy = partition()
    part = TransactionPartition(copy, 1, 4)
    assert part.acknowledged(sent(part, (10, 2), (15, 1)), 100) is None
    filtered = queued((16, 3), first=1, epoch=7)
    batch = part.sent(filtered._replace(out=filtered.out._replace(tombstones=2)), MARK)
    assert part.acknowledged(batch, 103) is None
    copy.fetched([], Cursor(25, 8), ())
    assert part.step() == Advance(
        position=25,  # the tail behind the last record is decided, too
        source_epoch=8,
        runs=(Run(10, 100, 2), Run(15, 102, 4)),
        destination_epoch=4,
        records=6,
        bytes=part.bytes,
        last_timestamp=51,
        mark=MARK,
        tombstones=2,
    )


def test_queued_batches_are_not_in_the_progress() -> None:
    copy = partition()
    part = TransactionPartition(copy, 1, 4)
    acknowledge(part, (10, 2), 100)
    dropped = [DroppedRecords(11, 1), DroppedRecords(14, 2)]
    copy.fetched([queued((12, 2), epoch=7)], Cursor(14, 7), dropped)
    step = part.step()
    assert (step.position, step.dropped) == (12, 1)
    copy.committed(replace(copy.progress, position=12))
    assert (copy.dropped_before(12), copy.dropped_before(14)) == (0, 2)


@pytest.mark.parametrize(("base", "refused"), [(99, True), (0, True), (100, False), (150, False)])
def test_a_base_offset_below_the_destination_end_is_refused(base: int, refused: bool) -> None:
    part = TransactionPartition(partition(), 1, 4)
    assert (acknowledge(part, (10, 1), base) is not None) is refused


@pytest.mark.parametrize(
    ("bases", "unexplained"),
    [([100, 101], []), ([101], [OffsetRange(100, 101)]), ([150, 155], [(100, 150), (151, 155)])],
)
def test_offsets_before_and_between_own_batches_are_unexplained(
    bases: list[int], unexplained: list[OffsetRange]
) -> None:
    copy = partition(shared=True)  # no base offset is expected
    part = TransactionPartition(copy, 1, 4)
    for number, base in enumerate(bases):
        acknowledge(part, (10 + number, 1), base)
    assert copy.accounts.unexplained() == unexplained


def test_an_idle_position_is_committed_with_the_count_of_dropped_records() -> None:
    assert not partition().idle_position_moved
    copy = partition()
    copy.fetched([], Cursor(12, 7), [DroppedRecords(12, 2)])
    assert copy.idle_position_moved
    assert idle_step(copy) == Advance(12, 7, dropped=2)


REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("error", "to_blame"),
    [
        (PartitionsRefused(REFUSED, "adding orders-1", [("orders", 1)]), [1]),
        (PartitionsRefused(REFUSED, "adding the ledger", [("__repl_ledger", 0)]), []),
        (Disconnected("broker 1", "gone", sent=True), [0, 1, 2]),  # the broker names none
    ],
)
def test_the_partitions_that_a_failure_names_are_blamed(error: WireError, to_blame: list[int]) -> None:
    joining = [TransactionPartition(partition(number), 1, 4) for number in range(3)]
    assert [copy.key.partition for copy in blamed(error, joining)] == to_blame
