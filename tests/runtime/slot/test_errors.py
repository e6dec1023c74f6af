"""The table of errors, row by row, and that nothing outside of it is ever passed over."""

import pytest

from runtime.contract.records.job_status import PartitionState as State
from runtime.kafka.errors import (
    AuthenticationFailed,
    BrokerError,
    Disconnected,
    Malformed,
    TimedOut,
    Unsupported,
    WireError,
)
from runtime.kafka.errors import ErrorCode as E
from runtime.slot.errors import TABLE, ErrorAction, ErrorDecision, ErrorPhase, by_code, decide

ROWS = [
    # Reading: nothing is skipped; what may be R4 is looked at.
    (ErrorPhase.FETCH, E.NOT_LEADER_OR_FOLLOWER, ErrorAction.RETRY, True),
    (ErrorPhase.FETCH, E.LEADER_NOT_AVAILABLE, ErrorAction.RETRY, True),
    (ErrorPhase.FETCH, E.FENCED_LEADER_EPOCH, ErrorAction.RETRY, True),
    (ErrorPhase.FETCH, E.UNKNOWN_LEADER_EPOCH, ErrorAction.RETRY, True),
    (ErrorPhase.FETCH, E.REPLICA_NOT_AVAILABLE, ErrorAction.RETRY, True),
    (ErrorPhase.FETCH, E.BROKER_NOT_AVAILABLE, ErrorAction.RETRY, True),
    (ErrorPhase.FETCH, E.KAFKA_STORAGE_ERROR, ErrorAction.RETRY, True),
    (ErrorPhase.FETCH, E.OFFSET_NOT_AVAILABLE, ErrorAction.RETRY, True),
    (ErrorPhase.FETCH, E.TOPIC_AUTHORIZATION_FAILED, ErrorAction.RETRY, False),
    (ErrorPhase.FETCH, E.CORRUPT_MESSAGE, ErrorAction.RETRY, False),
    (ErrorPhase.FETCH, E.OFFSET_OUT_OF_RANGE, ErrorAction.INSPECT, True),
    (ErrorPhase.FETCH, E.UNKNOWN_TOPIC_ID, ErrorAction.INSPECT, True),
    (ErrorPhase.FETCH, E.INCONSISTENT_TOPIC_ID, ErrorAction.INSPECT, True),
    (ErrorPhase.FETCH, E.UNKNOWN_TOPIC_OR_PARTITION, ErrorAction.INSPECT, True),
    # Fencing 3: these can't be told from a timeout fence.
    *((phase, code, ErrorAction.END_SLOT, False)
      for phase in (ErrorPhase.INIT, ErrorPhase.ADD, ErrorPhase.PRODUCE, ErrorPhase.LEDGER, ErrorPhase.END)
      for code in (E.INVALID_PRODUCER_EPOCH, E.PRODUCER_FENCED)),
    # Fencing 4: a marker that can't be written keeps the id.
    (ErrorPhase.INIT, E.CONCURRENT_TRANSACTIONS, ErrorAction.STUCK, False),
    (ErrorPhase.ADD, E.CONCURRENT_TRANSACTIONS, ErrorAction.STUCK, False),
    (ErrorPhase.INIT, E.INVALID_TRANSACTION_TIMEOUT, ErrorAction.END_SLOT, False),
    (ErrorPhase.INIT, E.COORDINATOR_NOT_AVAILABLE, ErrorAction.RETRY, False),
    (ErrorPhase.INIT, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorAction.RETRY, False),
    (ErrorPhase.ADD, E.UNKNOWN_TOPIC_OR_PARTITION, ErrorAction.INSPECT, True),
    (ErrorPhase.ADD, E.TOPIC_AUTHORIZATION_FAILED, ErrorAction.SUSPECT, True),
    # Fencing 1: whatever goes wrong in a transaction aborts it.
    (ErrorPhase.PRODUCE, E.NOT_LEADER_OR_FOLLOWER, ErrorAction.ABORT, True),
    (ErrorPhase.PRODUCE, E.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorAction.ABORT, False),
    (ErrorPhase.PRODUCE, E.DUPLICATE_SEQUENCE_NUMBER, ErrorAction.ABORT, False),
    (ErrorPhase.PRODUCE, E.INVALID_TXN_STATE, ErrorAction.ABORT, False),
    (ErrorPhase.PRODUCE, E.TRANSACTION_ABORTABLE, ErrorAction.ABORT, False),
    (ErrorPhase.PRODUCE, E.CORRUPT_MESSAGE, ErrorAction.ABORT, False),
    (ErrorPhase.PRODUCE, E.UNKNOWN_TOPIC_OR_PARTITION, ErrorAction.INSPECT, True),
    (ErrorPhase.PRODUCE, E.UNKNOWN_TOPIC_ID, ErrorAction.INSPECT, True),
    (ErrorPhase.PRODUCE, E.NOT_ENOUGH_REPLICAS, ErrorAction.SUSPECT, True),
    (ErrorPhase.PRODUCE, E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorAction.SUSPECT, True),
    (ErrorPhase.PRODUCE, E.REQUEST_TIMED_OUT, ErrorAction.SUSPECT, True),
    (ErrorPhase.PRODUCE, E.TOPIC_AUTHORIZATION_FAILED, ErrorAction.SUSPECT, True),
    # A quarantine that can't be written stops the partition of its records alone.
    (ErrorPhase.QUARANTINE, E.NOT_LEADER_OR_FOLLOWER, ErrorAction.SUSPECT, True),
    (ErrorPhase.QUARANTINE, E.UNKNOWN_TOPIC_OR_PARTITION, ErrorAction.SUSPECT, True),
    (ErrorPhase.QUARANTINE, E.NOT_ENOUGH_REPLICAS, ErrorAction.SUSPECT, True),
    (ErrorPhase.QUARANTINE, E.CONCURRENT_TRANSACTIONS, ErrorAction.STUCK, False),
    (ErrorPhase.QUARANTINE, E.INVALID_PRODUCER_EPOCH, ErrorAction.END_SLOT, False),
    (ErrorPhase.QUARANTINE, E.PRODUCER_FENCED, ErrorAction.END_SLOT, False),
    (ErrorPhase.LEDGER, E.NOT_LEADER_OR_FOLLOWER, ErrorAction.ABORT, True),
    (ErrorPhase.LEDGER, E.NOT_ENOUGH_REPLICAS, ErrorAction.ABORT, False),
    # Fencing 5: every other answer is asked of the ledger, because an earlier attempt may be in the log.
    (ErrorPhase.END, E.TRANSACTION_ABORTABLE, ErrorAction.ASK_LEDGER, False),
    (ErrorPhase.END, E.INVALID_PRODUCER_ID_MAPPING, ErrorAction.ASK_LEDGER, False),
    (ErrorPhase.END, E.NOT_COORDINATOR, ErrorAction.ASK_LEDGER, False),
    (ErrorPhase.END, E.COORDINATOR_NOT_AVAILABLE, ErrorAction.ASK_LEDGER, False),
    (ErrorPhase.END, E.CONCURRENT_TRANSACTIONS, ErrorAction.ASK_LEDGER, False),
    (ErrorPhase.END, E.INVALID_TXN_STATE, ErrorAction.ASK_LEDGER, False),
    (ErrorPhase.END, E.REQUEST_TIMED_OUT, ErrorAction.ASK_LEDGER, False),
]  # fmt: skip


@pytest.mark.parametrize(("phase", "code", "do", "refresh"), ROWS)
def test_a_code_is_decided(phase: ErrorPhase, code: E, do: ErrorAction, refresh: bool) -> None:
    assert decide(phase, BrokerError(code, "broker 1")) == ErrorDecision(do, refresh)


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (E.MESSAGE_TOO_LARGE, State.RECORD_TOO_LARGE),
        (E.RECORD_LIST_TOO_LARGE, State.RECORD_TOO_LARGE),
        (E.INVALID_RECORD, State.RECORD_REFUSED),
        (E.INVALID_TIMESTAMP, State.RECORD_REFUSED),
        (E.UNSUPPORTED_FOR_MESSAGE_FORMAT, State.RECORD_REFUSED),
        (E.UNSUPPORTED_COMPRESSION_TYPE, State.RECORD_REFUSED),
        (E.POLICY_VIOLATION, State.RECORD_REFUSED),
    ],
)
def test_a_record_that_is_refused_stops_its_partition(code: E, state: State) -> None:
    assert by_code(ErrorPhase.PRODUCE, code) == ErrorDecision(ErrorAction.STOP, state=state)
    not_there = (E.UNSUPPORTED_FOR_MESSAGE_FORMAT, E.UNSUPPORTED_COMPRESSION_TYPE)
    if code not in not_there:
        assert by_code(ErrorPhase.QUARANTINE, code) == ErrorDecision(ErrorAction.STOP, state=state)


@pytest.mark.parametrize(
    ("phase", "error", "do"),
    [
        (ErrorPhase.FETCH, Disconnected("b", "gone", sent=True), ErrorAction.RETRY),
        (ErrorPhase.INIT, TimedOut("b", "late", sent=True), ErrorAction.RETRY),
        (ErrorPhase.ADD, TimedOut("b", "late", sent=True), ErrorAction.ABORT),
        (ErrorPhase.PRODUCE, Disconnected("b", "gone", sent=False), ErrorAction.ABORT),
        (ErrorPhase.LEDGER, TimedOut("b", "late", sent=True), ErrorAction.ABORT),
        (ErrorPhase.QUARANTINE, TimedOut("b", "late", sent=True), ErrorAction.SUSPECT),
        (ErrorPhase.END, TimedOut("b", "late", sent=True), ErrorAction.ASK_LEDGER),
        (ErrorPhase.END, Disconnected("b", "gone", sent=False), ErrorAction.ABORT),
        (ErrorPhase.FETCH, AuthenticationFailed("b", "refused"), ErrorAction.RETRY),
        (ErrorPhase.PRODUCE, AuthenticationFailed("b", "refused"), ErrorAction.ABORT),
        (ErrorPhase.END, Malformed("b", "odd", sent=True), ErrorAction.ASK_LEDGER),
        (ErrorPhase.FETCH, Unsupported("FETCH", "old broker"), ErrorAction.STOP),
    ],
)
def test_a_lost_connection_is_decided_by_whether_the_request_may_have_arrived(
    phase: ErrorPhase, error: WireError, do: ErrorAction
) -> None:
    assert decide(phase, error).action is do


def test_every_row_of_the_table_is_tested_here() -> None:
    rows = {(phase, code) for phase, code, _, _ in ROWS}
    stops = {key for key, decision in TABLE.items() if decision.action is ErrorAction.STOP}
    elsewhere = {
        (phase, code)
        for phase in (ErrorPhase.PRODUCE, ErrorPhase.LEDGER)
        for code in E
        if TABLE.get((phase, code))
        in (ErrorDecision(ErrorAction.ABORT, refresh=True), ErrorDecision(ErrorAction.INSPECT, refresh=True))
    }
    gone = {(ErrorPhase.ADD, code) for code in (E.UNKNOWN_TOPIC_ID, E.INCONSISTENT_TOPIC_ID)}
    assert set(TABLE) - rows - stops - elsewhere - gone == set()


@pytest.mark.parametrize("phase", ErrorPhase)
def test_a_code_that_the_table_does_not_name_is_never_ignored(phase: ErrorPhase) -> None:
    otherwise = {decide(phase, BrokerError(E(code), "b")).action for code in (998, E.UNKNOWN_SERVER_ERROR)}
    expected = {ErrorAction.RETRY, ErrorAction.ABORT, ErrorAction.ASK_LEDGER, ErrorAction.SUSPECT}
    assert otherwise <= expected
