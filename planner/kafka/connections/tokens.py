"""Where an OAUTHBEARER token comes from: a command, OpenID Connect, or nothing but a name."""

import os
import time
from collections.abc import Callable

from planner.kafka.connections.failure import Refused
from planner.kafka.token_command import TokenCommandFailed, run_token_command
from runtime.contract.client.values import TokenCommand, TokenEndpoint, UnsecuredToken
from runtime.kafka.auth.login import LoginError
from runtime.kafka.auth.oauthbearer import Token, request_token, unsecured_token

TokenSource = TokenCommand | TokenEndpoint | UnsecuredToken


def token_of(source: TokenSource, timeout_s: float) -> Token:
    """Refused where none can be had. What a token or a secret says is never repeated."""
    match source:
        case TokenCommand():
            return _printed(source, timeout_s)
        case TokenEndpoint():
            return _of(lambda: request_token(source, timeout_s, os.environ))
        case UnsecuredToken():
            return unsecured_token(source, time.time())


def _printed(source: TokenCommand, timeout_s: float) -> Token:
    try:
        return run_token_command(source.command, timeout_s)
    except TokenCommandFailed as failed:
        raise Refused(str(failed), "look at REPL_OAUTHBEARER_TOKEN_COMMAND") from None


def _of(obtain: Callable[[], Token]) -> Token:
    """Returns the token; a LoginError becomes this connection's Refused."""
    try:
        return obtain()
    except LoginError as failed:
        raise Refused(failed.why, failed.hint) from None
