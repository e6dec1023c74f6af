"""Who is blamed for a transaction that failed (R7)."""

from runtime.copy.errors import Phase
from runtime.copy.recovery import blaming_refused
from runtime.copy.transaction import Failure
from runtime.copy.wire.codes import ErrorCode
from runtime.copy.wire.errors import Disconnected, PartitionsRefused
from tests.runtime.copy.test_transaction import partition

COPIES = tuple(partition(number) for number in range(3))


def test_a_partition_that_is_refused_is_blamed_alone() -> None:
    error = PartitionsRefused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "adding orders-1", [("orders", 1)])
    assert blaming_refused(Failure(Phase.ADD, error, COPIES)).copies == (COPIES[1],)


def test_where_the_ledger_is_refused_no_partition_is_blamed() -> None:
    error = PartitionsRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "adding", [("__repl_ledger", 0)])
    assert blaming_refused(Failure(Phase.ADD, error, COPIES)).copies == ()


def test_where_the_broker_names_none_all_are_kept() -> None:
    failure = Failure(Phase.ADD, Disconnected("broker 1", "gone", sent=True), COPIES)
    assert blaming_refused(failure) is failure
