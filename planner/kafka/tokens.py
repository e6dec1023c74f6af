"""Where an OAUTHBEARER token comes from: the operator's command, OpenID Connect, or an unsecured token."""

import os
import shlex
import subprocess
import time
from collections.abc import Callable

from planner.kafka.connections.failure import Refused
from runtime.contract.client.redaction import remember
from runtime.contract.client.values import TokenCommand, TokenEndpoint, UnsecuredToken
from runtime.kafka.auth.login import LoginError
from runtime.kafka.auth.oauthbearer import Token, parse_printed, request_token, unsecured_token


class TokenCommandFailed(Exception):
    """The command returned no token. The message never repeats what the command printed."""


def run_token_command(command: str, timeout_s: float) -> Token:
    """Runs the command and returns the token. Raises TokenCommandFailed.

    The command prints the token itself, or JSON with `access_token` and `expires_in`.
    """
    try:
        words = shlex.split(command)
    except ValueError as wrong:
        raise TokenCommandFailed(f"the token command can't be split into words ({wrong})") from None
    where = f"the token command {words[0]}"
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=timeout_s, check=True)
    except subprocess.CalledProcessError as failed:
        raise TokenCommandFailed(f"{where} failed with exit code {failed.returncode}") from None
    except subprocess.TimeoutExpired:
        raise TokenCommandFailed(f"{where} printed nothing within {timeout_s:g} s") from None
    except UnicodeDecodeError:
        raise TokenCommandFailed(f"{where} printed no text") from None
    except OSError as wrong:
        raise TokenCommandFailed(f"{where} can't be run ({wrong.strerror})") from None
    try:
        token = parse_printed(done.stdout, where)
    except LoginError as failed:
        raise TokenCommandFailed(failed.why) from None
    remember(token.text)
    return token


TokenSource = TokenCommand | TokenEndpoint | UnsecuredToken


def token_of(source: TokenSource, timeout_s: float) -> Token:
    """Returns a token from its source. Raises Refused; no token or secret is ever repeated."""
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
    """Returns the token, and maps a LoginError to the connection's Refused."""
    try:
        return obtain()
    except LoginError as failed:
        raise Refused(failed.why, failed.hint) from None
