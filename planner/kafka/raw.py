"""kafka-python's admin client, for the requests that librdkafka lacks. Imported only when it is asked for.

It logs in as every other connection of this product does: the SASL exchanges and the TLS context are those of
`runtime.kafka.auth`, not kafka-python's own, which accept a SCRAM challenge of one iteration.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from planner.kafka.endpoint import Endpoint
from planner.kafka.token_command import NoToken, run_token_command
from runtime.contract.client import wire_settings
from runtime.contract.client_values import (
    ClientSettingsError,
    Password,
    Sasl,
    TokenCommand,
    TokenEndpoint,
    UnsecuredToken,
    WireSettings,
    bootstrap_text,
)
from runtime.contract.redaction import redacted
from runtime.kafka.auth.login import Exchange, LoginError, advance
from runtime.kafka.auth.oauthbearer import request_token, unsecured_token
from runtime.kafka.auth.sasl import exchange_of, mechanism_of
from runtime.kafka.auth.tls import tls_context


class RawFailure(Exception):
    """What kafka-python raised, in one line. `transient`: the same request may pass when it is sent again."""

    def __init__(self, why: str, *, transient: bool = False) -> None:
        super().__init__(why)
        self.transient = transient

    @classmethod
    def of(cls, failure: Exception) -> "RawFailure":
        return cls(f"{type(failure).__name__}: {failure}", transient=getattr(failure, "retriable", False))

    def __str__(self) -> str:
        return redacted(super().__str__())


class Credentials:
    """What one client logs in with, and how its last login failed. kafka-python reports a time-out only."""

    def __init__(self, settings: Sasl, token: str | None) -> None:
        self._settings = settings
        self._token = token
        self.failure: LoginError | None = None

    def exchange(self) -> Exchange:
        return exchange_of(self._settings, self._token)

    def advance(self, exchange: Exchange, answer: bytes | None) -> bytes | None:
        try:
            return advance(exchange, answer)
        except LoginError as failed:
            self.failure = failed
            raise


class SharedLogin:
    """One login as kafka-python runs it: the next message to send, then the broker's answer to it.

    kafka-python makes one for each connection. Of its settings, only the token provider reaches a mechanism
    as the value that it is, so that setting carries the credentials.
    """

    def __init__(self, sasl_oauth_token_provider: Credentials, **_: Any) -> None:
        self._credentials = sasl_oauth_token_provider
        self._exchange = self._credentials.exchange()
        self._next = self._credentials.advance(self._exchange, None)

    def auth_bytes(self) -> bytes | None:
        return self._next

    def receive(self, auth_bytes: bytes | None) -> None:
        self._next = self._credentials.advance(self._exchange, bytes(auth_bytes or b""))

    def is_done(self) -> bool:
        return self._next is None

    def is_authenticated(self) -> bool:
        return self._next is None

    def auth_details(self) -> str:
        return "logged in"


def _token(sasl: Sasl, timeout_s: float) -> str | None:
    match sasl:
        case Password():
            return None
        case TokenEndpoint():
            return request_token(sasl, timeout_s, os.environ).text
        case UnsecuredToken():
            return unsecured_token(sasl, time.time()).text
        case TokenCommand(command=command):
            return run_token_command(command, timeout_s).text


def _told(failed: LoginError) -> str:
    return f"{failed.why}; {failed.hint}" if failed.hint else failed.why


@contextmanager
def raw_admin(endpoint: Endpoint, timeout_ms: int = 10_000) -> Iterator[Any]:
    """An open client; whatever it raises inside the block comes out as RawFailure."""
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError

    try:
        settings = wire_settings(endpoint.bootstrap, endpoint.settings, endpoint.token_command)
        credentials = _credentials(settings.sasl, timeout_ms / 1000)
        keywords = _keywords(endpoint, settings, credentials, timeout_ms)
    except LoginError as failure:
        raise RawFailure(_told(failure)) from None
    except (ClientSettingsError, NoToken) as failure:
        raise RawFailure(str(failure)) from None
    try:
        client = KafkaAdminClient(**keywords)
    except KafkaError as failure:
        if credentials is not None and credentials.failure is not None:
            raise RawFailure(_told(credentials.failure)) from None
        raise RawFailure.of(failure) from failure
    try:
        yield client
    except KafkaError as failure:
        raise RawFailure.of(failure) from failure
    finally:
        client.close()


def _credentials(sasl: Sasl | None, timeout_s: float) -> Credentials | None:
    return None if sasl is None else Credentials(sasl, _token(sasl, timeout_s))


def _keywords(
    endpoint: Endpoint, settings: WireSettings, credentials: Credentials | None, timeout_ms: int
) -> dict[str, Any]:
    wanted: dict[str, Any] = {
        "bootstrap_servers": bootstrap_text(settings.bootstrap).split(","),
        "client_id": settings.client_id,
        "request_timeout_ms": timeout_ms,
        "bootstrap_timeout_ms": timeout_ms,
        "security_protocol": settings.security.value,
        "receive_message_max_bytes": settings.max_response_bytes,
    }
    if settings.tls is not None:
        wanted["ssl_context"] = tls_context(settings.tls)
    if settings.sasl is not None:
        from kafka.net.sasl import register_sasl_mechanism

        wanted["sasl_mechanism"] = mechanism_of(settings.sasl)
        wanted["sasl_oauth_token_provider"] = credentials
        register_sasl_mechanism(wanted["sasl_mechanism"], SharedLogin, overwrite=True)
    return wanted
