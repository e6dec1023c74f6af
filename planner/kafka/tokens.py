"""The operator's command that prints OAUTHBEARER tokens, run where the control plane opens a connection."""

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
    """Why the command gave no token. What it printed is never repeated."""


def run_token_command(command: str, timeout_s: float) -> Token:
    """The command prints the token itself, or JSON with `access_token` and `expires_in`. Raises NoToken."""
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
