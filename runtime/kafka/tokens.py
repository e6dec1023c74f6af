"""This module gets OAUTHBEARER tokens from a command, from a token endpoint, or unsigned ones for tests."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import time
from collections.abc import Callable
from typing import assert_never

from runtime.contract.client.values import TokenCommand, TokenEndpoint, UnsecuredToken
from runtime.kafka.auth.login import LoginError, quoted
from runtime.kafka.auth.oauthbearer import Token, parse_printed, request_token, unsecured_token
from runtime.kafka.errors import AuthenticationFailed

TokenSource = TokenCommand | TokenEndpoint | UnsecuredToken

_TIMEOUT_S = 30.0
_USABLE_SHARE = 0.8


class Tokens:
    """Tokens keeps a token for most of its lifetime. Getting one blocks, so it happens in a thread."""

    def __init__(self, source: TokenSource, obtain: Callable[[TokenSource], Token]) -> None:
        self._source = source
        self._obtain = obtain
        self._token: Token | None = None
        self._fresh_until = 0.0

    async def current(self) -> str:
        if self._token is None or time.monotonic() >= self._fresh_until:
            self._token = await asyncio.to_thread(self._obtain, self._source)
            self._fresh_until = time.monotonic() + self._token.lifetime_s * _USABLE_SHARE
        return self._token.text

    def forget(self) -> None:
        """Discards the token after a refusal; the next call gets a new one."""
        self._token = None


def fetch_token(source: TokenSource) -> Token:
    match source:
        case TokenCommand():
            return _from_command(source)
        case TokenEndpoint():
            return _obtained(lambda: request_token(source, _TIMEOUT_S, os.environ))
        case UnsecuredToken():
            return unsecured_token(source, time.time())
        case _:
            assert_never(source)


def _obtained(obtain: Callable[[], Token]) -> Token:
    """Returns the token; a LoginError becomes the wire's AuthenticationFailed."""
    try:
        return obtain()
    except LoginError as failed:
        raise AuthenticationFailed(
            "OAUTHBEARER", f"{failed.why}; {failed.hint}" if failed.hint else failed.why
        ) from None


def _from_command(source: TokenCommand) -> Token:
    where = "the OAUTHBEARER token command"
    try:
        done = subprocess.run(
            shlex.split(source.command), capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
        )
    except subprocess.CalledProcessError as error:
        why = f"ended with {error.returncode}: {quoted((error.stderr or '').strip())}"
        raise AuthenticationFailed(where, why) from None
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise AuthenticationFailed(where, str(error)) from None
    return _obtained(lambda: parse_printed(done.stdout, where))
