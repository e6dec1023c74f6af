"""Where an OAUTHBEARER token comes from: a command, OpenID Connect, or nothing but a name."""

import os
import shlex
import subprocess
import time
from collections.abc import Callable

from planner.observe.wire.failure import Refused
from runtime.contract.client_values import TokenCommand, TokenEndpoint, UnsecuredToken
from runtime.kafka.auth.login import LoginError
from runtime.kafka.auth.oauthbearer import Token, parse_printed, request_token, unsecured_token

TokenSource = TokenCommand | TokenEndpoint | UnsecuredToken


def token_of(source: TokenSource, timeout_s: float) -> str:
    """Refused where none can be had. What a token or a secret says is never repeated."""
    match source:
        case TokenCommand():
            return _printed(source, timeout_s)
        case TokenEndpoint():
            return _of(lambda: request_token(source, timeout_s, os.environ))
        case UnsecuredToken():
            return unsecured_token(source, time.time()).text


def _printed(source: TokenCommand, timeout_s: float) -> str:
    words = shlex.split(source.command)
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=timeout_s, check=True)
    except subprocess.CalledProcessError as failed:
        raise Refused(f"the token command {words[0]} failed with exit code {failed.returncode}") from None
    except subprocess.TimeoutExpired:
        raise Refused(f"the token command {words[0]} printed nothing within {timeout_s:g} s") from None
    except OSError as wrong:
        raise Refused(f"the token command {words[0]} can't be run ({wrong.strerror})") from None
    return _of(lambda: parse_printed(done.stdout, f"the token command {words[0]}"))


def _of(obtain: Callable[[], Token]) -> str:
    """Returns the token's text; a LoginError becomes this connection's Refused."""
    try:
        return obtain().text
    except LoginError as failed:
        raise Refused(failed.why, failed.hint) from None
