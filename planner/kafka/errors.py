"""Failures between the control plane and a broker, in words for users, and the errors of librdkafka.

Errors of librdkafka are classified: which may pass when sent again, and how to show them.
"""

from confluent_kafka import KafkaError, KafkaException

from runtime.contract.client.secrets import redacted
from runtime.kafka.errors import ErrorCode


class WireFailure(Exception):
    """`why` is one clause without a full stop; `way_out` may be empty.

    A secret that a broker repeats in its error is left out of `why`.
    """

    def __init__(self, why: str, way_out: str = "") -> None:
        self.why = redacted(why)
        super().__init__(self.why)
        self.way_out = way_out


class NoConnection(WireFailure):
    """No connection: refused, unknown host, or no route. Another address or a later try may help."""


class NoAnswer(WireFailure):
    """Connected, and no answer within the timeout."""


class Closed(WireFailure):
    """The connection broke while it was used."""


class Refused(WireFailure):
    """The broker or TLS refused. The same request is refused again."""


class Unreadable(WireFailure):
    """The broker answers and does not return the data, usually for a missing right.

    Other data can still be read.
    """


def meaning(code: ErrorCode, message: str | None = None) -> str:
    """Returns `topic authorization failed`, and the broker's own text if there is one."""
    words = code.name.lower().replace("_", " ")
    return f"{words}: {message}" if message else words


_TRANSIENT = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._WAIT_COORD,
        KafkaError._IN_PROGRESS,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NOT_CONTROLLER,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
    }
)


class Transient(Exception):
    """A request that may succeed when it is sent again."""


def error_of(failure: BaseException) -> KafkaError | None:
    """Returns the KafkaError inside an exception of confluent-kafka; None if there is none."""
    if isinstance(failure, KafkaException) and failure.args and isinstance(failure.args[0], KafkaError):
        return failure.args[0]
    return None


def is_transient(failure: BaseException) -> bool:
    """Returns whether the same request may succeed later."""
    error = error_of(failure)
    if error is None:
        return isinstance(failure, Transient | TimeoutError)
    return bool(error.retriable()) or error.code() in _TRANSIENT


def explain(failure: BaseException) -> str:
    """Returns one line for the user: the broker's text and the error's name, without any secret."""
    error = error_of(failure)
    if error is None:
        return redacted(str(failure)) or type(failure).__name__
    name, text = error.name(), redacted(error.str())
    return text if name.lstrip("_") in text else f"{text} ({name.lstrip('_')})"
