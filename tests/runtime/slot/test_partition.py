"""The state of a partition: its states, its queue, and its position."""

import pytest
from msgspec.structs import replace

from runtime.batch import DroppedRecords
from runtime.contract.records.job_status import OpenTransaction
from runtime.contract.records.job_status import PartitionState as State
from runtime.slot.budget import ByteBudget, ResponseMemory
from runtime.slot.partition import Cursor, PartitionCopy, SessionAnswers, SourceLog
from tests.fakes.partition import partition, queued


@pytest.fixture
def copy() -> PartitionCopy:
    return partition()


def test_the_pause_doubles_up_to_its_bound(copy: PartitionCopy) -> None:
    assert [copy.backoff_s(200, 1_000) for _ in range(5)] == [0.2, 0.4, 0.8, 1.0, 1.0]


def test_the_pause_grows_while_a_fetch_brings_only_the_record_that_waits_for_its_schema(
    copy: PartitionCopy,
) -> None:
    pauses = []
    for _ in range(3):
        copy.answered(SourceLog(0, 11, 11), SessionAnswers(), 1)
        copy.await_schema()
        pauses.append(copy.backoff_s(200, 1_000))
    assert pauses == [0.2, 0.4, 0.8]
    copy.fetched([queued((10, 1))], Cursor(11, 0), ())
    copy.answered(SourceLog(0, 12, 12), SessionAnswers(), 1)
    assert copy.backoff_s(200, 1_000) == 0.2


@pytest.mark.parametrize(
    ("stable_end", "state"), [(10, State.CAUGHT_UP), (11, State.COPYING), (-1, State.STARTING)]
)
def test_it_is_caught_up_when_all_that_may_be_read_is_committed(
    copy: PartitionCopy, stable_end: int, state: State
) -> None:
    copy.resume()
    copy.answered(SourceLog(0, stable_end, 99), SessionAnswers(), 1)
    copy.settle()
    assert copy.status().state is state
    assert (copy.status().caught_up_since_ms > 0) is (state is State.CAUGHT_UP)


def test_a_partition_whose_transactions_abort_does_not_say_that_it_copies(copy: PartitionCopy) -> None:
    copy.resume()
    copy.answered(SourceLog(0, 11, 11), SessionAnswers(), 1)
    copy.settle()
    copy.aborted("broker 3: gone")
    assert (copy.status().state, copy.status().why) == (State.RETRYING, "broker 3: gone")
    assert copy.fetchable
    copy.committed(copy.progress)
    assert copy.status().state is State.COPYING


def test_a_stopped_partition_stays_stopped_whatever_the_source_says(copy: PartitionCopy) -> None:
    copy.halt(State.DATA_LOSS, "why")
    copy.answered(SourceLog(0, 10, 10), SessionAnswers(), 1)
    copy.settle()
    assert copy.status().state is State.DATA_LOSS
    assert not copy.fetchable


@pytest.mark.parametrize(("records", "state"), [(1, State.COPYING), (0, State.BLOCKED_AT_SOURCE)])
def test_a_partition_that_a_transaction_held_back_copies_once_records_come(
    copy: PartitionCopy, records: int, state: State
) -> None:
    copy.resume()
    copy.block(None, "by a transaction")
    copy.fetched([queued((10, 1))] * records, Cursor(10 + records, 0), ())
    assert copy.status().state is state


def test_a_partition_that_is_released_is_not_fetched_or_committed(copy: PartitionCopy) -> None:
    copy.fetched([], Cursor(50, 1), ())
    copy.start_release()
    assert not copy.fetchable
    assert not copy.idle_position_moved


def test_a_rewind_discards_the_queue_and_releases_its_memory() -> None:
    copy, budget = partition(), ByteBudget(100)
    budget.take(60)
    held = ResponseMemory(budget, 60)
    batches = [queued((10 + number, 1), epoch=7, held=held) for number in range(2)]
    copy.fetched(batches, Cursor(12, 7), [DroppedRecords(12, 4)])
    assert copy.queued_bytes == sum(one.out.batch.size for one in batches) > 0
    copy.rewind()
    assert (copy.cursor, list(copy.queue), copy.queued_bytes, budget.left) == (Cursor(10, -1), [], 0, 100)
    assert (copy.rewinds, copy.dropped_before(12)) == (1, 0)


@pytest.mark.parametrize(
    "change",
    [
        {"progress": replace(partition().progress, records=7)},
        {"source": SourceLog(1, 2, 3)},
        {"state": State.DATA_LOSS},
        {"since_ms": 1},
        {"why": "a reason"},
        {"abort_reason": "broker 3: gone", "state": State.COPYING},
        {"foreign_writes": True},
        {"foreign_writes": True, "shared": True},
        {"last_commit_ms": 5},
        {"transactions": 5},
        {"aborts": 5},
        {"blocked_by": OpenTransaction(1, 2)},
    ],
)
def test_the_status_of_an_idle_partition_is_the_same_object_until_something_changes(
    copy: PartitionCopy, change: dict[str, object]
) -> None:
    before = copy.status(5)
    assert copy.status(5) is before
    assert copy.status(6).rate == 6
    for name, value in change.items():
        setattr(copy, name, value)
    assert copy.status(5) == copy._status(5)


def test_the_time_of_the_last_fetch_moves_in_a_status_that_stays_the_same(copy: PartitionCopy) -> None:
    copy.answered(SourceLog(0, 11, 11), SessionAnswers(), 1)
    before = copy.status()
    copy.answered(SourceLog(0, 11, 11), SessionAnswers(), 9)
    assert copy.status() == replace(before, last_fetch_ms=9)
