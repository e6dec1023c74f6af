"""The table of errors, row by row, and that nothing outside of it is ever passed over."""

import pytest

from runtime.contract.records.status import PartitionState as State
from runtime.kafka.codes import ErrorCode as E
from runtime.kafka.errors import (
    AuthenticationFailed,
    BrokerError,
    Disconnected,
    Malformed,
    TimedOut,
    Unsupported,
    WireError,
)
from runtime.slot.write.errors import TABLE, Decision, Do, Phase, by_code, decide

ROWS = [
    # Reading: nothing is skipped; what may be R4 is looked at.
    (Phase.FETCH, E.NOT_LEADER_OR_FOLLOWER, Do.RETRY, True),
    (Phase.FETCH, E.LEADER_NOT_AVAILABLE, Do.RETRY, True),
    (Phase.FETCH, E.FENCED_LEADER_EPOCH, Do.RETRY, True),
    (Phase.FETCH, E.UNKNOWN_LEADER_EPOCH, Do.RETRY, True),
    (Phase.FETCH, E.REPLICA_NOT_AVAILABLE, Do.RETRY, True),
    (Phase.FETCH, E.BROKER_NOT_AVAILABLE, Do.RETRY, True),
    (Phase.FETCH, E.KAFKA_STORAGE_ERROR, Do.RETRY, True),
    (Phase.FETCH, E.OFFSET_NOT_AVAILABLE, Do.RETRY, True),
    (Phase.FETCH, E.TOPIC_AUTHORIZATION_FAILED, Do.RETRY, False),
    (Phase.FETCH, E.CORRUPT_MESSAGE, Do.RETRY, False),
    (Phase.FETCH, E.OFFSET_OUT_OF_RANGE, Do.LOOK, True),
    (Phase.FETCH, E.UNKNOWN_TOPIC_ID, Do.LOOK, True),
    (Phase.FETCH, E.INCONSISTENT_TOPIC_ID, Do.LOOK, True),
    (Phase.FETCH, E.UNKNOWN_TOPIC_OR_PARTITION, Do.LOOK, True),
    # Fencing 3: these can't be told from a timeout fence.
    *((phase, code, Do.END_SLOT, False)
      for phase in (Phase.INIT, Phase.ADD, Phase.PRODUCE, Phase.LEDGER, Phase.END)
      for code in (E.INVALID_PRODUCER_EPOCH, E.PRODUCER_FENCED)),
    # Fencing 4: a marker that can't be written keeps the id.
    (Phase.INIT, E.CONCURRENT_TRANSACTIONS, Do.STUCK, False),
    (Phase.ADD, E.CONCURRENT_TRANSACTIONS, Do.STUCK, False),
    (Phase.INIT, E.INVALID_TRANSACTION_TIMEOUT, Do.END_SLOT, False),
    (Phase.INIT, E.COORDINATOR_NOT_AVAILABLE, Do.RETRY, False),
    (Phase.INIT, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Do.RETRY, False),
    (Phase.ADD, E.UNKNOWN_TOPIC_OR_PARTITION, Do.LOOK, True),
    (Phase.ADD, E.TOPIC_AUTHORIZATION_FAILED, Do.SUSPECT, True),
    # Fencing 1: whatever goes wrong in a transaction aborts it.
    (Phase.PRODUCE, E.NOT_LEADER_OR_FOLLOWER, Do.ABORT, True),
    (Phase.PRODUCE, E.OUT_OF_ORDER_SEQUENCE_NUMBER, Do.ABORT, False),
    (Phase.PRODUCE, E.DUPLICATE_SEQUENCE_NUMBER, Do.ABORT, False),
    (Phase.PRODUCE, E.INVALID_TXN_STATE, Do.ABORT, False),
    (Phase.PRODUCE, E.TRANSACTION_ABORTABLE, Do.ABORT, False),
    (Phase.PRODUCE, E.CORRUPT_MESSAGE, Do.ABORT, False),
    (Phase.PRODUCE, E.UNKNOWN_TOPIC_OR_PARTITION, Do.LOOK, True),
    (Phase.PRODUCE, E.UNKNOWN_TOPIC_ID, Do.LOOK, True),
    (Phase.PRODUCE, E.NOT_ENOUGH_REPLICAS, Do.SUSPECT, True),
    (Phase.PRODUCE, E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Do.SUSPECT, True),
    (Phase.PRODUCE, E.REQUEST_TIMED_OUT, Do.SUSPECT, True),
    (Phase.PRODUCE, E.TOPIC_AUTHORIZATION_FAILED, Do.SUSPECT, True),
    (Phase.LEDGER, E.NOT_LEADER_OR_FOLLOWER, Do.ABORT, True),
    (Phase.LEDGER, E.NOT_ENOUGH_REPLICAS, Do.ABORT, False),
    # Fencing 5: what is not surely undone is asked of the ledger.
    (Phase.END, E.TRANSACTION_ABORTABLE, Do.ABORT, False),
    (Phase.END, E.INVALID_PRODUCER_ID_MAPPING, Do.ABORT, False),
    (Phase.END, E.INVALID_TXN_STATE, Do.ASK_LEDGER, False),
    (Phase.END, E.REQUEST_TIMED_OUT, Do.ASK_LEDGER, False),
]  # fmt: skip


@pytest.mark.parametrize(("phase", "code", "do", "refresh"), ROWS)
def test_a_code_is_decided(phase: Phase, code: E, do: Do, refresh: bool) -> None:
    assert decide(phase, BrokerError(code, "broker 1")) == Decision(do, refresh)


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
    assert by_code(Phase.PRODUCE, code) == Decision(Do.STOP, state=state)


@pytest.mark.parametrize(
    ("phase", "error", "do"),
    [
        (Phase.FETCH, Disconnected("b", "gone", sent=True), Do.RETRY),
        (Phase.INIT, TimedOut("b", "late", sent=True), Do.RETRY),
        (Phase.ADD, TimedOut("b", "late", sent=True), Do.ABORT),
        (Phase.PRODUCE, Disconnected("b", "gone", sent=False), Do.ABORT),
        (Phase.LEDGER, TimedOut("b", "late", sent=True), Do.ABORT),
        (Phase.END, TimedOut("b", "late", sent=True), Do.ASK_LEDGER),
        (Phase.END, Disconnected("b", "gone", sent=False), Do.ABORT),
        (Phase.FETCH, AuthenticationFailed("b", "refused"), Do.RETRY),
        (Phase.PRODUCE, AuthenticationFailed("b", "refused"), Do.ABORT),
        (Phase.END, Malformed("b", "odd", sent=True), Do.ASK_LEDGER),
        (Phase.FETCH, Unsupported("FETCH", "old broker"), Do.RETRY),
    ],
)
def test_a_connection_s_end_is_decided_by_what_may_have_arrived(
    phase: Phase, error: WireError, do: Do
) -> None:
    assert decide(phase, error).do is do


def test_every_row_of_the_table_is_tested_here() -> None:
    rows = {(phase, code) for phase, code, _, _ in ROWS}
    stops = {key for key, decision in TABLE.items() if decision.do is Do.STOP}
    elsewhere = {
        (phase, code)
        for phase in (Phase.PRODUCE, Phase.LEDGER)
        for code in E
        if TABLE.get((phase, code)) in (Decision(Do.ABORT, refresh=True), Decision(Do.LOOK, refresh=True))
    }
    gone = {(Phase.ADD, code) for code in (E.UNKNOWN_TOPIC_ID, E.INCONSISTENT_TOPIC_ID)}
    assert set(TABLE) - rows - stops - elsewhere - gone == set()


@pytest.mark.parametrize("phase", Phase)
def test_what_the_table_does_not_name_is_never_passed_over(phase: Phase) -> None:
    otherwise = {decide(phase, BrokerError(E(code), "b")).do for code in (998, E.UNKNOWN_SERVER_ERROR)}
    assert otherwise <= {Do.RETRY, Do.ABORT, Do.ASK_LEDGER}
