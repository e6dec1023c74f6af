"""What is decided about each error, rule by rule, and that no other error is ever passed over."""

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
from runtime.slot.errors import DESCRIPTIONS, ErrorAction, ErrorDecision, ErrorPhase, decide

FETCH, INIT, ADD, PRODUCE, QUARANTINE, LEDGER, END = ErrorPhase
MOVED = (
    E.NOT_LEADER_OR_FOLLOWER,
    E.LEADER_NOT_AVAILABLE,
    E.FENCED_LEADER_EPOCH,
    E.UNKNOWN_LEADER_EPOCH,
    E.REPLICA_NOT_AVAILABLE,
    E.BROKER_NOT_AVAILABLE,
    E.KAFKA_STORAGE_ERROR,
)
GONE = (E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_ID, E.INCONSISTENT_TOPIC_ID)
TOO_LARGE = (E.MESSAGE_TOO_LARGE, E.RECORD_LIST_TOO_LARGE)
REFUSED = (E.INVALID_RECORD, E.INVALID_TIMESTAMP, E.POLICY_VIOLATION)
OLD = (E.UNSUPPORTED_FOR_MESSAGE_FORMAT, E.UNSUPPORTED_COMPRESSION_TYPE)
NO_REPLICAS = (E.NOT_ENOUGH_REPLICAS, E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, E.REQUEST_TIMED_OUT)

RETRY, ABORT, SUSPECT = ErrorAction.RETRY, ErrorAction.ABORT, ErrorAction.SUSPECT
RULES: list[tuple[tuple[ErrorPhase, ...], tuple[E, ...], ErrorDecision]] = [
    # Reading: nothing is skipped; what may be R4 is looked at.
    ((FETCH,), (*MOVED, E.OFFSET_NOT_AVAILABLE), ErrorDecision(RETRY, refresh=True)),
    ((FETCH,), (*GONE, E.OFFSET_OUT_OF_RANGE), ErrorDecision(ErrorAction.INSPECT, refresh=True)),
    ((FETCH,), (E.UNSUPPORTED_VERSION,), ErrorDecision(ErrorAction.STOP, state=State.UNSUPPORTED_VERSION)),
    ((ADD, PRODUCE), GONE, ErrorDecision(ErrorAction.INSPECT, refresh=True)),
    # Fencing 3: these can't be told from a timeout fence.
    (
        (INIT, ADD, QUARANTINE, LEDGER, END),
        (E.INVALID_PRODUCER_EPOCH, E.PRODUCER_FENCED),
        ErrorDecision(ErrorAction.END_SLOT),
    ),
    ((PRODUCE,), (E.PRODUCER_FENCED,), ErrorDecision(ErrorAction.END_SLOT)),
    # Any client that writes the partition may cause it: the coordinator says whether the lane is fenced.
    ((PRODUCE,), (E.INVALID_PRODUCER_EPOCH,), ErrorDecision(SUSPECT, refresh=True)),
    ((INIT,), (E.INVALID_TRANSACTION_TIMEOUT,), ErrorDecision(ErrorAction.END_SLOT)),
    # Fencing 4: a marker that can't be written keeps the id; a partition without replicas leaves the lane.
    ((INIT, ADD, QUARANTINE), (E.CONCURRENT_TRANSACTIONS,), ErrorDecision(ErrorAction.STUCK)),
    ((ADD, PRODUCE), (E.TOPIC_AUTHORIZATION_FAILED,), ErrorDecision(SUSPECT, refresh=True)),
    ((PRODUCE,), NO_REPLICAS, ErrorDecision(SUSPECT, refresh=True)),
    # Fencing 1: whatever goes wrong in a transaction aborts it.
    ((PRODUCE,), MOVED, ErrorDecision(ABORT, refresh=True)),
    ((LEDGER,), (*MOVED, *GONE), ErrorDecision(ABORT, refresh=True)),
    # A record that is refused stops its partition.
    ((PRODUCE, QUARANTINE), TOO_LARGE, ErrorDecision(ErrorAction.STOP, state=State.RECORD_TOO_LARGE)),
    ((PRODUCE, QUARANTINE), REFUSED, ErrorDecision(ErrorAction.STOP, state=State.RECORD_REFUSED)),
    ((PRODUCE,), OLD, ErrorDecision(ErrorAction.STOP, state=State.RECORD_REFUSED)),
]
CODES = {(phase, code): decision for phases, codes, decision in RULES for phase in phases for code in codes}
# Fencing 5: any other end is asked of the ledger, because an earlier attempt may be in the log.
OTHERWISE = {
    FETCH: ErrorDecision(RETRY),
    INIT: ErrorDecision(RETRY),
    ADD: ErrorDecision(ABORT),
    PRODUCE: ErrorDecision(SUSPECT, refresh=True),  # its neighbours go on (R7)
    QUARANTINE: ErrorDecision(SUSPECT, refresh=True),  # it stops the partition of its records alone
    LEDGER: ErrorDecision(ABORT),
    END: ErrorDecision(ErrorAction.ASK_LEDGER),
}


@pytest.mark.parametrize(("phase", "code"), CODES, ids=lambda value: value.name)
def test_a_code_is_decided(phase: ErrorPhase, code: E) -> None:
    assert decide(phase, BrokerError(code, "broker 1")) == CODES[phase, code]


@pytest.mark.parametrize("phase", ErrorPhase)
def test_a_code_that_the_table_does_not_name_is_never_ignored(phase: ErrorPhase) -> None:
    others = [code for code in (*E, E(998)) if (phase, code) not in CODES]
    assert {decide(phase, BrokerError(code, "broker 1")) for code in others} == {OTHERWISE[phase]}


@pytest.mark.parametrize(
    ("phase", "error", "action"),
    [
        (FETCH, Disconnected("b", "gone", sent=True), RETRY),
        (INIT, TimedOut("b", "late", sent=True), RETRY),
        (ADD, TimedOut("b", "late", sent=True), ABORT),
        (PRODUCE, Disconnected("b", "gone", sent=False), SUSPECT),
        (LEDGER, TimedOut("b", "late", sent=True), ABORT),
        (QUARANTINE, TimedOut("b", "late", sent=True), SUSPECT),
        (END, TimedOut("b", "late", sent=True), ErrorAction.ASK_LEDGER),
        (END, Disconnected("b", "gone", sent=False), ABORT),
        (FETCH, AuthenticationFailed("b", "refused"), RETRY),
        (PRODUCE, AuthenticationFailed("b", "refused"), SUSPECT),
        (END, Malformed("b", "odd", sent=True), ErrorAction.ASK_LEDGER),
        (FETCH, Unsupported("FETCH", "old broker"), ErrorAction.STOP),
    ],
)
def test_a_lost_connection_is_decided_by_whether_the_request_may_have_arrived(
    phase: ErrorPhase, error: WireError, action: ErrorAction
) -> None:
    assert decide(phase, error).action is action


def test_the_log_says_which_action_was_decided_on() -> None:
    assert len(set(DESCRIPTIONS.values())) == len(ErrorAction)
