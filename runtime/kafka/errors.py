"""This module defines the client's errors; foreign exceptions are mapped to them at the connection."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from runtime.contract.client.secrets import redacted
from runtime.kafka.codes import ErrorCode


class WireError(Exception):
    """A WireError says what happened, where, and why.

    It never holds a secret, not even one that a broker sent back.
    """

    def __str__(self) -> str:
        return redacted(super().__str__())


class Reached(Enum):
    """This is how far a connection came before it failed."""

    NOTHING = "no connection was made"
    CONNECTED = "the broker sent nothing"
    ANSWERED = "the broker sent something"


class ConnectionFailure(WireError):
    """The broker's response is unknown.

    `sent` is False only when no byte of the request can have reached the broker, so sending again is safe for
    any request. The end of a transaction must not be sent again when it is True. `reached` is set for an
    attempt to connect. The exception that made a connection fail is `__cause__`.
    """

    reached = Reached.ANSWERED

    def __init__(self, where: str, why: str, *, sent: bool) -> None:
        super().__init__(f"{where}: {why}")
        self.where = where
        self.why = why
        self.sent = sent


class Disconnected(ConnectionFailure):
    """The connection could not be made, broke, or was closed."""


class TimedOut(ConnectionFailure):
    """No response arrived in time; the connection is closed, because responses arrive in order."""


class BrokerError(WireError):
    """The broker answered with an error."""

    def __init__(self, code: ErrorCode, where: str, message: str | None = None) -> None:
        detail = f": {message}" if message else ""
        super().__init__(f"{where}: {code.name} ({int(code)}){detail}")
        self.code = code
        self.where = where
        self.message = message if message is None else redacted(message)


class PartitionsRefused(BrokerError):
    """The broker refused a whole request because of these partitions of it."""

    def __init__(self, code: ErrorCode, where: str, partitions: Iterable[tuple[str, int]]) -> None:
        super().__init__(code, where)
        self.partitions = frozenset(partitions)


class AuthenticationFailed(WireError):
    """The broker refused the login, or TLS did not verify the broker's identity."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}")
        self.where = where
        self.why = redacted(why)


class MechanismRefused(AuthenticationFailed):
    """The broker did not accept the SASL mechanism; `offered` names those that it accepts."""

    def __init__(self, where: str, code: ErrorCode, mechanism: str, offered: str) -> None:
        super().__init__(where, f"{code.name}: {mechanism} was asked for, the broker offers {offered}")
        self.code = code
        self.mechanism = mechanism
        self.offered = offered


class CredentialsRefused(AuthenticationFailed):
    """The broker refused the credentials, or the token."""


class Unsupported(WireError):
    """The broker or this client does not support the request; another attempt does not help."""

    def __init__(self, api: str, why: str) -> None:
        super().__init__(f"{api}: {why}")
        self.api = api
        self.why = why


class Malformed(ConnectionFailure):
    """The broker's bytes do not follow the protocol; the connection is closed."""


class NotKafka(Malformed):
    """The first response does not follow Kafka's protocol at all."""
