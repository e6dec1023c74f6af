"""This module selects the SASL exchange for a cluster's settings."""

from __future__ import annotations

from typing import assert_never

from runtime.contract.client.values import Password, Sasl, TokenCommand, TokenEndpoint, UnsecuredToken
from runtime.kafka.auth.login import Exchange, LoginError
from runtime.kafka.auth.oauthbearer import oauthbearer
from runtime.kafka.auth.scram import scram


def mechanism_of(settings: Sasl) -> str:
    return settings.mechanism if isinstance(settings, Password) else "OAUTHBEARER"


def exchange_of(settings: Sasl, token: str | None) -> Exchange:
    """Returns the exchange that logs in by these settings. OAUTHBEARER needs the token's text."""
    match settings:
        case Password("PLAIN", username, password):
            return plain(username, password)
        case Password(mechanism, username, password):
            return scram(mechanism, username, password)
        case TokenCommand() | TokenEndpoint() | UnsecuredToken():
            assert token is not None, "OAUTHBEARER needs a token"
            return oauthbearer(token, settings.extensions)
        case _:
            assert_never(settings)


def plain(username: str, password: str) -> Exchange:
    """Sends the user name and the password unencrypted (RFC 4616); only TLS protects them."""
    if "\0" in username or "\0" in password:
        raise LoginError(
            "sasl.username or sasl.password holds a NUL character, which SASL PLAIN cannot send",
            "change the user name or the password",
        )
    yield f"\0{username}\0{password}".encode()
