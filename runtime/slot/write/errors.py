"""What is done about an error: one table, by where it came from and its code. See docs/copy.md.

Fencing, in short: nothing that failed in a transaction is sent again in it (any produce error aborts), and
what may mean that someone else is the writer now ends the process (R3).
"""

from dataclasses import dataclass
from enum import Enum, StrEnum

from runtime.contract.records.status import PartitionState as State
from runtime.kafka.codes import ErrorCode as E
from runtime.kafka.errors import BrokerError, ConnectionFailure, WireError


class Phase(StrEnum):
    """Where in the copy loop an error came from."""

    FETCH = "fetch"
    INIT = "init"
    ADD = "add"
    PRODUCE = "produce"
    LEDGER = "ledger"
    END = "end"


class Do(Enum):
    """RETRY: in place, with backoff. ABORT: abort, all of the lane resumes from the ledger. SUSPECT: abort,
    and the partition tries again in a lane of its own. STOP: the partition stops with a state. LOOK: the
    partition's topics are looked at, the finding decides. STUCK: the lane waits for a marker, its
    partitions leave it. ASK_LEDGER: initialise and read whether it was committed. END_SLOT: the process
    ends.
    """

    RETRY = "retry"
    ABORT = "abort"
    SUSPECT = "suspect"
    STOP = "stop"
    LOOK = "look"
    STUCK = "stuck"
    ASK_LEDGER = "ask_ledger"
    END_SLOT = "end_slot"


@dataclass(frozen=True, slots=True)
class Decision:
    """`refresh`: the cached metadata is not true any more."""

    do: Do
    refresh: bool = False
    state: State | None = None


_RETRY = Decision(Do.RETRY)
_RETRY_ELSEWHERE = Decision(Do.RETRY, refresh=True)
_ABORT = Decision(Do.ABORT)
_ABORT_ELSEWHERE = Decision(Do.ABORT, refresh=True)
_SUSPECT = Decision(Do.SUSPECT, refresh=True)
_LOOK = Decision(Do.LOOK, refresh=True)
_STUCK = Decision(Do.STUCK)
_ASK = Decision(Do.ASK_LEDGER)
_END = Decision(Do.END_SLOT)
_TOO_LARGE = Decision(Do.STOP, state=State.RECORD_TOO_LARGE)
_REFUSED = Decision(Do.STOP, state=State.RECORD_REFUSED)

_MOVED = (
    E.NOT_LEADER_OR_FOLLOWER,
    E.LEADER_NOT_AVAILABLE,
    E.FENCED_LEADER_EPOCH,
    E.UNKNOWN_LEADER_EPOCH,
    E.REPLICA_NOT_AVAILABLE,
    E.BROKER_NOT_AVAILABLE,
    E.KAFKA_STORAGE_ERROR,
)
_GONE = (E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_ID, E.INCONSISTENT_TOPIC_ID)
_FENCED = (E.INVALID_PRODUCER_EPOCH, E.PRODUCER_FENCED)

TABLE: dict[tuple[Phase, E], Decision] = {
    **{(Phase.FETCH, code): _RETRY_ELSEWHERE for code in _MOVED},
    **{(Phase.FETCH, code): _LOOK for code in (*_GONE, E.OFFSET_OUT_OF_RANGE)},
    (Phase.FETCH, E.OFFSET_NOT_AVAILABLE): _RETRY_ELSEWHERE,
    **{(phase, code): _END for phase in Phase if phase is not Phase.FETCH for code in _FENCED},
    (Phase.INIT, E.CONCURRENT_TRANSACTIONS): _STUCK,
    (Phase.INIT, E.INVALID_TRANSACTION_TIMEOUT): _END,
    (Phase.ADD, E.CONCURRENT_TRANSACTIONS): _STUCK,
    **{(Phase.ADD, code): _LOOK for code in _GONE},
    (Phase.ADD, E.TOPIC_AUTHORIZATION_FAILED): _SUSPECT,
    **{(Phase.PRODUCE, code): _ABORT_ELSEWHERE for code in _MOVED},
    **{(Phase.PRODUCE, code): _LOOK for code in _GONE},
    (Phase.PRODUCE, E.NOT_ENOUGH_REPLICAS): _SUSPECT,
    (Phase.PRODUCE, E.NOT_ENOUGH_REPLICAS_AFTER_APPEND): _SUSPECT,
    (Phase.PRODUCE, E.REQUEST_TIMED_OUT): _SUSPECT,
    (Phase.PRODUCE, E.TOPIC_AUTHORIZATION_FAILED): _SUSPECT,
    (Phase.PRODUCE, E.MESSAGE_TOO_LARGE): _TOO_LARGE,
    (Phase.PRODUCE, E.RECORD_LIST_TOO_LARGE): _TOO_LARGE,
    (Phase.PRODUCE, E.INVALID_RECORD): _REFUSED,
    (Phase.PRODUCE, E.INVALID_TIMESTAMP): _REFUSED,
    (Phase.PRODUCE, E.UNSUPPORTED_FOR_MESSAGE_FORMAT): _REFUSED,
    (Phase.PRODUCE, E.UNSUPPORTED_COMPRESSION_TYPE): _REFUSED,
    (Phase.PRODUCE, E.POLICY_VIOLATION): _REFUSED,
    **{(Phase.LEDGER, code): _ABORT_ELSEWHERE for code in (*_MOVED, *_GONE)},
    (Phase.END, E.TRANSACTION_ABORTABLE): _ABORT,
    (Phase.END, E.INVALID_PRODUCER_ID_MAPPING): _ABORT,
}

_OTHERWISE = {
    Phase.FETCH: _RETRY,
    Phase.INIT: _RETRY,
    Phase.ADD: _ABORT,
    Phase.PRODUCE: _ABORT,
    Phase.LEDGER: _ABORT,
    Phase.END: _ASK,
}


def by_code(phase: Phase, code: E) -> Decision:
    """What the table says; what it does not name is retried (reading) or aborted (writing), never passed
    over.
    """
    return TABLE.get((phase, code), _OTHERWISE[phase])


def decide(phase: Phase, error: WireError) -> Decision:
    """By the broker's code, or by what happened to the connection."""
    match error:
        case BrokerError():
            return by_code(phase, error.code)
        case ConnectionFailure() if phase is Phase.END:
            return _ASK if error.sent else _ABORT
        case ConnectionFailure() if phase in (Phase.FETCH, Phase.INIT):
            return _RETRY_ELSEWHERE
        case ConnectionFailure():
            return _ABORT_ELSEWHERE
        case _:
            return _OTHERWISE[phase]
