"""SASL on a fresh connection: which mechanism, the exchange, and what a refusal means."""

from typing import Any, Protocol

from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from planner.observe.wire.failure import Refused
from runtime.contract.client_values import Password, Sasl
from runtime.contract.redaction import redacted
from runtime.kafka.auth.login import LoginError, advance, quoted
from runtime.kafka.auth.sasl import exchange_of, mechanism_of

UNSUPPORTED_MECHANISM = 33
ILLEGAL_STATE = 34
AUTHENTICATION_FAILED = 58


class Wire(Protocol):
    where: str

    def version(self, request: Any, at_most: int, at_least: int = 0) -> int | None: ...
    def call(self, request: Any, response: Any, version: int) -> Any: ...


def log_in(wire: Wire, settings: Sasl, token: str | None) -> None:
    """Logs in, or raises Refused with the reason and the way out."""
    mechanism = mechanism_of(settings)
    shake_version = wire.version(SaslHandshakeRequest, 1, at_least=1)
    version = wire.version(SaslAuthenticateRequest, 2)
    if shake_version is None or version is None:
        raise Refused(f"{wire.where} is too old for this SASL login", "it is older than Kafka 1.0")
    answer = wire.call(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, shake_version)
    _expect_mechanism(wire.where, mechanism, answer.error_code, answer.mechanisms)
    exchange = exchange_of(settings, token)
    try:
        ours = advance(exchange, None)
        while ours is not None:
            answer = wire.call(SaslAuthenticateRequest(auth_bytes=ours), SaslAuthenticateResponse, version)
            if answer.error_code:
                raise _refused(wire.where, settings, mechanism, answer.error_message)
            ours = advance(exchange, bytes(answer.auth_bytes or b""))
    except LoginError as failed:
        raise Refused(f"no login at {wire.where}: {failed.why}", failed.hint) from None


def _expect_mechanism(where: str, mechanism: str, code: int, offered: list[str]) -> None:
    if code == ILLEGAL_STATE:
        raise Refused(
            f"{where} asks for no SASL login", "set security.protocol to PLAINTEXT, or SSL, without SASL_"
        )
    if code == UNSUPPORTED_MECHANISM:
        names = quoted(", ".join(sorted(offered))) or "none"
        raise Refused(
            f"{where} does not take {mechanism}: it offers {names}", "set sasl.mechanism to one of them"
        )
    if code:
        raise Refused(f"{where} refused the SASL handshake (error {code})")


def _refused(where: str, settings: Sasl, mechanism: str, said: str | None) -> Refused:
    if isinstance(settings, Password):
        why = quoted(said or "no reason given")
        return Refused(
            f"{where} refused the credentials of {redacted(repr(settings.username))} ({mechanism}: {why})",
            "look at sasl.username and sasl.password",
        )
    return Refused(
        f"{where} refused the token ({quoted(said or 'no reason given')})",
        "look at the token's issuer, audience and time, and at sasl.oauthbearer.*",
    )
