"""One table decides how the slot handles an error, by its phase and its code. See docs/internals/slot.md.

Two rules of fencing hold throughout. A batch that failed in a transaction is not sent again in it: any
produce error aborts. An error that may mean that another writer is active ends the process (R3).
"""

from enum import Enum, StrEnum
from typing import Literal

from msgspec import Struct

from runtime.contract.records.job_status import PartitionState as State
from runtime.kafka.errors import BrokerError, ConnectionFailure, Unsupported, WireError
from runtime.kafka.errors import ErrorCode as E


class SlotEnd(Struct, frozen=True):
    """Says how a slot ended, and why. Spark passes it from the slot's process to the driver.

    stopped: on request, after its open transactions ended. fenced: another writer may be active (errors 47,
    90), or no transactional id works; the process must end and be submitted again. outdated: the ledger
    holds newer generations of all flows of the slot, so the process that assigned them is not the driver any
    more. failed: by an unexpected exception, or because Spark ended it. retried: Spark started it again by
    itself. replaced: the driver submits the next attempt, whatever became of this one.
    """

    how: Literal["stopped", "fenced", "outdated", "failed", "retried", "replaced"]
    why: str = ""


class SlotMustEnd(Exception):
    """The process must end: another writer may be active, or copying can't continue (R3)."""


class ErrorPhase(StrEnum):
    """A phase is the step of the copy loop in which an error occurred."""

    FETCH = "fetch"
    INIT = "init"
    ADD = "add"
    PRODUCE = "produce"
    QUARANTINE = "quarantine"
    LEDGER = "ledger"
    END = "end"


class ErrorAction(Enum):
    """An action is how the slot handles an error.

    RETRY: retry the request, with backoff. ABORT: abort the transaction; all partitions of the lane resume
    from the ledger. SUSPECT: abort, and retry the partition in a lane of its own. STOP: the partition stops
    with a state. INSPECT: the partition's topics are inspected, and the finding decides. STUCK: the lane
    waits for a transaction marker, and its partitions leave it. ASK_LEDGER: initialise the transactional id,
    and read from the ledger whether the transaction was committed. END_SLOT: the process ends.
    """

    RETRY = "retry"
    ABORT = "abort"
    SUSPECT = "suspect"
    STOP = "stop"
    INSPECT = "inspect"
    STUCK = "stuck"
    ASK_LEDGER = "ask_ledger"
    END_SLOT = "end_slot"


DESCRIPTIONS = {
    ErrorAction.RETRY: "abort, and retry",
    ErrorAction.ABORT: "abort, and resume from the ledger",
    ErrorAction.SUSPECT: "abort, and try the partition in a lane of its own",
    ErrorAction.STOP: "abort, and stop the partition",
    ErrorAction.INSPECT: "abort, and inspect the partition's topics",
    ErrorAction.STUCK: "abort, and wait for the markers of an earlier transaction",
    ErrorAction.ASK_LEDGER: "ask the ledger whether it was committed",
    ErrorAction.END_SLOT: "end the slot: another writer may have fenced it",
}


class ErrorDecision(Struct, frozen=True):
    """A decision is an action, with the state of a partition that stops.

    `refresh` means that the cached metadata is outdated and must be fetched again.
    """

    action: ErrorAction
    refresh: bool = False
    state: State | None = None


_RETRY = ErrorDecision(ErrorAction.RETRY)
_REFRESH_AND_RETRY = ErrorDecision(ErrorAction.RETRY, refresh=True)
_ABORT = ErrorDecision(ErrorAction.ABORT)
_ABORT_AND_REFRESH = ErrorDecision(ErrorAction.ABORT, refresh=True)
_SUSPECT = ErrorDecision(ErrorAction.SUSPECT, refresh=True)
_INSPECT = ErrorDecision(ErrorAction.INSPECT, refresh=True)
_STUCK = ErrorDecision(ErrorAction.STUCK)
_ASK = ErrorDecision(ErrorAction.ASK_LEDGER)
_END = ErrorDecision(ErrorAction.END_SLOT)
# Another producer has written to a partition of the transaction, so its ledger records would be wrong.
UNEXPECTED_BASE = _ABORT
_TOO_LARGE = ErrorDecision(ErrorAction.STOP, state=State.RECORD_TOO_LARGE)
_UNSUPPORTED = ErrorDecision(ErrorAction.STOP, state=State.UNSUPPORTED_VERSION)
_REFUSED = ErrorDecision(ErrorAction.STOP, state=State.RECORD_REFUSED)

LEADER_CHANGED = (
    E.NOT_LEADER_OR_FOLLOWER,
    E.LEADER_NOT_AVAILABLE,
    E.FENCED_LEADER_EPOCH,
    E.UNKNOWN_LEADER_EPOCH,
    E.REPLICA_NOT_AVAILABLE,
    E.BROKER_NOT_AVAILABLE,
    E.KAFKA_STORAGE_ERROR,
)
_TOPIC_GONE = (E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_ID, E.INCONSISTENT_TOPIC_ID)
_FENCED = (E.INVALID_PRODUCER_EPOCH, E.PRODUCER_FENCED)

TABLE: dict[tuple[ErrorPhase, E], ErrorDecision] = {
    **{(ErrorPhase.FETCH, code): _REFRESH_AND_RETRY for code in LEADER_CHANGED},
    **{(ErrorPhase.FETCH, code): _INSPECT for code in (*_TOPIC_GONE, E.OFFSET_OUT_OF_RANGE)},
    (ErrorPhase.FETCH, E.OFFSET_NOT_AVAILABLE): _REFRESH_AND_RETRY,
    (ErrorPhase.FETCH, E.UNSUPPORTED_VERSION): _UNSUPPORTED,
    **{(phase, code): _END for phase in ErrorPhase if phase is not ErrorPhase.FETCH for code in _FENCED},
    (ErrorPhase.INIT, E.CONCURRENT_TRANSACTIONS): _STUCK,
    (ErrorPhase.INIT, E.INVALID_TRANSACTION_TIMEOUT): _END,
    (ErrorPhase.ADD, E.CONCURRENT_TRANSACTIONS): _STUCK,
    **{(ErrorPhase.ADD, code): _INSPECT for code in _TOPIC_GONE},
    (ErrorPhase.ADD, E.TOPIC_AUTHORIZATION_FAILED): _SUSPECT,
    **{(ErrorPhase.PRODUCE, code): _ABORT_AND_REFRESH for code in LEADER_CHANGED},
    **{(ErrorPhase.PRODUCE, code): _INSPECT for code in _TOPIC_GONE},
    # A client may have written to the partition under the lane's producer id and a newer epoch: brokers check
    # neither. The coordinator knows better, so the renewal of the id tells whether the lane was fenced (R7).
    (ErrorPhase.PRODUCE, E.INVALID_PRODUCER_EPOCH): _SUSPECT,
    (ErrorPhase.PRODUCE, E.NOT_ENOUGH_REPLICAS): _SUSPECT,
    (ErrorPhase.PRODUCE, E.NOT_ENOUGH_REPLICAS_AFTER_APPEND): _SUSPECT,
    (ErrorPhase.PRODUCE, E.REQUEST_TIMED_OUT): _SUSPECT,
    (ErrorPhase.PRODUCE, E.TOPIC_AUTHORIZATION_FAILED): _SUSPECT,
    (ErrorPhase.PRODUCE, E.MESSAGE_TOO_LARGE): _TOO_LARGE,
    (ErrorPhase.PRODUCE, E.RECORD_LIST_TOO_LARGE): _TOO_LARGE,
    (ErrorPhase.PRODUCE, E.INVALID_RECORD): _REFUSED,
    (ErrorPhase.PRODUCE, E.INVALID_TIMESTAMP): _REFUSED,
    (ErrorPhase.PRODUCE, E.UNSUPPORTED_FOR_MESSAGE_FORMAT): _REFUSED,
    (ErrorPhase.PRODUCE, E.UNSUPPORTED_COMPRESSION_TYPE): _REFUSED,
    (ErrorPhase.PRODUCE, E.POLICY_VIOLATION): _REFUSED,
    (ErrorPhase.QUARANTINE, E.CONCURRENT_TRANSACTIONS): _STUCK,
    (ErrorPhase.QUARANTINE, E.MESSAGE_TOO_LARGE): _TOO_LARGE,
    (ErrorPhase.QUARANTINE, E.RECORD_LIST_TOO_LARGE): _TOO_LARGE,
    (ErrorPhase.QUARANTINE, E.INVALID_RECORD): _REFUSED,
    (ErrorPhase.QUARANTINE, E.INVALID_TIMESTAMP): _REFUSED,
    (ErrorPhase.QUARANTINE, E.POLICY_VIOLATION): _REFUSED,
    **{(ErrorPhase.LEDGER, code): _ABORT_AND_REFRESH for code in (*LEADER_CHANGED, *_TOPIC_GONE)},
}

_DEFAULTS = {
    ErrorPhase.FETCH: _RETRY,
    ErrorPhase.INIT: _RETRY,
    ErrorPhase.ADD: _ABORT,
    ErrorPhase.PRODUCE: _SUSPECT,
    ErrorPhase.QUARANTINE: _SUSPECT,
    ErrorPhase.LEDGER: _ABORT,
    ErrorPhase.END: _ASK,
}


def by_code(phase: ErrorPhase, code: E) -> ErrorDecision:
    """Returns the table's decision on an error code.

    A code that the table does not name is retried while reading, and aborts while writing. It is never
    ignored. While records are written, it makes their partition suspect (R7).
    """
    return TABLE.get((phase, code), _DEFAULTS[phase])


def decide(phase: ErrorPhase, error: WireError | None) -> ErrorDecision:
    """Returns the decision on an error, by the broker's code or by the failure of the connection.

    None stands for an acknowledged offset that can't be true: its partition is inspected (R4).
    """
    match error:
        case None:
            return _INSPECT
        case BrokerError():
            return by_code(phase, error.code)
        case Unsupported() if phase is ErrorPhase.FETCH:
            return _UNSUPPORTED
        case ConnectionFailure() if phase is ErrorPhase.END:
            return _ASK if error.sent else _ABORT
        case ConnectionFailure() if phase in (ErrorPhase.PRODUCE, ErrorPhase.QUARANTINE):
            return _SUSPECT
        case ConnectionFailure() if phase in (ErrorPhase.FETCH, ErrorPhase.INIT):
            return _REFRESH_AND_RETRY
        case ConnectionFailure():
            return _ABORT_AND_REFRESH
        case _:
            return _DEFAULTS[phase]
