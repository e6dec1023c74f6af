"""What can go wrong between us and a broker, in a person's words, each with its way out."""

from runtime.contract.client.redaction import redacted
from runtime.kafka.codes import ErrorCode


class WireFailure(Exception):
    """`why` is one clause without a full stop; `way_out` may be empty.

    A secret that a broker sends back in its error is left out of `why`.
    """

    def __init__(self, why: str, way_out: str = "") -> None:
        self.why = redacted(why)
        super().__init__(self.why)
        self.way_out = way_out


class NoConnection(WireFailure):
    """Nothing to talk to: refused, unknown host, no route. Another address, or a second try, may help."""


class NoAnswer(WireFailure):
    """Connected, but silent for longer than we wait."""


class Closed(WireFailure):
    """The connection broke while we were talking."""


class Refused(WireFailure):
    """The broker, or TLS, says no: asking again changes nothing."""


class Unreadable(WireFailure):
    """The broker answers, and does not tell: for want of a right, most often. The rest can still be read."""


def meaning(code: ErrorCode, message: str | None = None) -> str:
    """Returns `topic authorization failed`, and the broker's own words where it has some."""
    words = code.name.lower().replace("_", " ")
    return f"{words}: {message}" if message else words
