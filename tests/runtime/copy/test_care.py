"""How a partition is named in trouble, and how long it waits."""

import pytest

from runtime.contract.status import PartitionState as State
from runtime.copy.partition import Cursor, PartitionCopy, Source
from tests.runtime.copy.test_transaction import partition


@pytest.fixture
def copy() -> PartitionCopy:
    return partition()


def test_the_pause_doubles_up_to_its_bound(copy: PartitionCopy) -> None:
    assert [copy.backoff_s(200, 1_000) for _ in range(5)] == [0.2, 0.4, 0.8, 1.0, 1.0]


@pytest.mark.parametrize(
    ("stable_end", "state"), [(10, State.CAUGHT_UP), (11, State.COPYING), (-1, State.STARTING)]
)
def test_it_is_caught_up_when_all_that_may_be_read_is_committed(
    copy: PartitionCopy, stable_end: int, state: State
) -> None:
    copy.source = Source(0, stable_end, 99)
    copy.settle()
    assert copy.status().state is state
    assert (copy.status().caught_up_since_ms > 0) is (state is State.CAUGHT_UP)


def test_a_partition_whose_transactions_abort_does_not_say_that_it_copies(copy: PartitionCopy) -> None:
    copy.enter(State.COPYING)
    copy.trouble = "broker 3: gone"
    assert (copy.status().state, copy.status().why) == (State.RETRYING, "broker 3: gone")
    assert copy.fetchable
    copy.committed(copy.progress)
    assert copy.status().state is State.COPYING


def test_a_stopped_partition_stays_stopped_whatever_the_source_says(copy: PartitionCopy) -> None:
    copy.enter(State.DATA_LOSS, "why")
    copy.source = Source(0, 10, 10)
    copy.settle()
    assert copy.status().state is State.DATA_LOSS
    assert not copy.fetchable


def test_one_that_is_being_released_is_left_alone(copy: PartitionCopy) -> None:
    copy.cursor = Cursor(50, 1)
    copy.releasing = True
    assert not copy.fetchable
    assert not copy.tail_moved


@pytest.mark.parametrize("state", list(State))
def test_what_needs_someone_is_never_a_state_that_moves(state: State) -> None:
    fresh = partition()
    fresh.enter(state)
    assert not (state.needs_someone and fresh.fetchable)
