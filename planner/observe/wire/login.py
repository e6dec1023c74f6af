"""SASL on a fresh connection: which mechanism, the exchange, and what a refusal means."""

from typing import Any, Protocol

from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from planner.observe.wire import sasl
from planner.observe.wire.failure import Refused
from planner.observe.wire.tokens import token_of
from runtime.contract.client_values import Password, Sasl
from runtime.contract.redaction import redacted

UNSUPPORTED_MECHANISM = 33
ILLEGAL_STATE = 34
AUTHENTICATION_FAILED = 58


class Wire(Protocol):
    where: str

    def version(self, request: Any, at_most: int, at_least: int = 0) -> int | None: ...
    def call(self, request: Any, response: Any, version: int) -> Any: ...


def log_in(wire: Wire, settings: Sasl, timeout_s: float) -> None:
    mechanism = settings.mechanism if isinstance(settings, Password) else "OAUTHBEARER"
    shake_version = wire.version(SaslHandshakeRequest, 1, at_least=1)
    version = wire.version(SaslAuthenticateRequest, 2)
    if shake_version is None or version is None:
        raise Refused(f"{wire.where} is too old for this SASL login", "it is older than Kafka 1.0")
    answer = wire.call(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, shake_version)
    _expect_mechanism(wire.where, mechanism, answer.error_code, answer.mechanisms)
    exchange = _exchange(settings, timeout_s)
    ours: bytes | None = next(exchange)
    while ours is not None:
        answer = wire.call(SaslAuthenticateRequest(auth_bytes=ours), SaslAuthenticateResponse, version)
        if answer.error_code:
            raise _refused(wire.where, settings, mechanism, answer.error_message)
        try:
            ours = exchange.send(bytes(answer.auth_bytes or b""))
        except StopIteration:
            ours = None


def _exchange(settings: Sasl, timeout_s: float) -> sasl.Exchange:
    if isinstance(settings, Password):
        if settings.mechanism == "PLAIN":
            return sasl.plain(settings.username, settings.password)
        return sasl.scram(settings.mechanism, settings.username, settings.password)
    return sasl.oauthbearer(token_of(settings, timeout_s), settings.extensions)


def _expect_mechanism(where: str, mechanism: str, code: int, offered: list[str]) -> None:
    if code == ILLEGAL_STATE:
        raise Refused(
            f"{where} asks for no SASL login", "set security.protocol to PLAINTEXT, or SSL, without SASL_"
        )
    if code == UNSUPPORTED_MECHANISM:
        names = ", ".join(sorted(offered)) or "none"
        raise Refused(
            f"{where} does not take {mechanism}: it offers {names}", "set sasl.mechanism to one of them"
        )
    if code:
        raise Refused(f"{where} refused the SASL handshake (error {code})")


def _refused(where: str, settings: Sasl, mechanism: str, said: str | None) -> Refused:
    if isinstance(settings, Password):
        why = said or "no reason given"
        return Refused(
            f"{where} refused the credentials of {redacted(repr(settings.username))} ({mechanism}: {why})",
            "look at sasl.username and sasl.password",
        )
    return Refused(
        f"{where} refused the token ({said or 'no reason given'})",
        "look at the token's issuer, audience and time, and at sasl.oauthbearer.*",
    )
