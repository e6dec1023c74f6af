"""Failures between the control plane and a broker, in words for users, each with a hint."""

from runtime.contract.client.redaction import redacted
from runtime.kafka.codes import ErrorCode


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
