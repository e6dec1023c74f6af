"""This module implements OAUTHBEARER (RFC 7628): the exchange, the sources of its tokens, and their renewal.

A token endpoint gets the client's secret, so its address is https, it may not redirect, and its response is
bounded in size and time. No error quotes a secret, a token, or the body of a response.
"""

from __future__ import annotations

import base64
import http.client
import io
import json
import math
import os
import re
import shlex
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, assert_never

from runtime.contract.client.keys import token_endpoint_problem
from runtime.contract.client.secrets import remember_token
from runtime.contract.client.settings import (
    MSK_IAM,
    MskIam,
    Tls,
    TokenCommand,
    TokenEndpoint,
    TokenSource,
    UnsecuredToken,
)
from runtime.contract.launching import without_safe_path
from runtime.kafka.auth.login import Exchange, LoginError, quoted
from runtime.kafka.auth.msk_iam import msk_iam_token
from runtime.kafka.auth.tls import tls_context
from runtime.kafka.errors import AuthenticationFailed
from runtime.kafka.timing import Shared, in_own_thread

UNKNOWN_LIFETIME_S = 60.0
MAX_ANSWER_BYTES = 1 << 20

_TOKEN = re.compile(r"[\x21-\x7e]+")
_CREDENTIALS = "check sasl.oauthbearer.client.id, sasl.oauthbearer.client.secret and sasl.oauthbearer.scope"
_ADDRESS = "check sasl.oauthbearer.token.endpoint.url"
_COMMAND = "check REPL_OAUTHBEARER_TOKEN_COMMAND"


@dataclass(frozen=True, slots=True)
class Token:
    """A Token has a lifetime, `lifetime_s`, that counts from the moment when it was received."""

    text: str = field(repr=False)
    lifetime_s: float


def oauthbearer(token: str, extensions: Sequence[tuple[str, str]]) -> Exchange:
    """Sends the token. A refusal arrives as a challenge with its reason; the client ends it with one byte."""
    _check_token(token, "OAUTHBEARER")
    more = "".join(f"\x01{name}={value}" for name, value in extensions)
    reason = yield f"n,,\x01auth=Bearer {token}{more}\x01\x01".encode()
    if reason:
        yield b"\x01"
        raise LoginError(f"the broker refused the token: {quoted(reason)}")


def unsecured_token(source: UnsecuredToken, now: float) -> Token:
    """Returns an unsigned token that names its own principal."""
    issued = int(now)
    claims = {"sub": source.principal, "iat": issued, "exp": issued + source.lifetime_s}
    header = _base64url(json.dumps({"alg": "none"}).encode())
    return Token(f"{header}.{_base64url(json.dumps(claims).encode())}.", source.lifetime_s)


def parse_printed(text: str, where: str) -> Token:
    """Reads the output of a token command: the token itself, or the JSON of a token endpoint."""
    printed = text.strip()
    if printed.startswith("{"):
        return parse_answer(printed, where)
    if not printed:
        raise LoginError(f"{where} printed nothing", "let it print a token, or JSON with access_token")
    return Token(_check_token(printed, where), UNKNOWN_LIFETIME_S)


def parse_answer(text: str | bytes, where: str) -> Token:
    """Reads a token endpoint's response (RFC 6749, section 5.1)."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        answer = None
    token = answer.get("access_token") if isinstance(answer, dict) else None
    if not isinstance(token, str):
        raise LoginError(f"{where} did not answer with JSON that holds an access_token", _ADDRESS)
    return Token(_check_token(token, where), _lifetime(answer.get("expires_in")))


def request_token(source: TokenEndpoint, timeout_s: float, environ: Mapping[str, str]) -> Token:
    """Requests a token from the endpoint (RFC 6749, section 4.4); blocks for at most `timeout_s`."""
    where = f"the token endpoint {quoted(source.url)}"
    problem = token_endpoint_problem(source.url, environ)
    if problem is not None:
        raise LoginError(f"{where} {problem[0]}", problem[1])
    deadline = time.monotonic() + timeout_s
    opener = (
        urllib.request.OpenerDirector()
    )  # it follows no redirect: the request carries the client's secret
    for handler in (
        _BoundedHandler(deadline, tls_context(Tls(ca_location=source.ca_location))),
        urllib.request.ProxyHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
    ):
        opener.add_handler(handler)
    try:
        with opener.open(_request(source), timeout=timeout_s) as answer:
            body = answer.read(MAX_ANSWER_BYTES + 1)
    except urllib.error.HTTPError as refused:
        refused.close()
        if 300 <= refused.code < 400:
            why = f"{where} answered {refused.code}, a redirect; the credentials are sent to no other address"
            raise LoginError(why, "set sasl.oauthbearer.token.endpoint.url to the final address") from None
        raise LoginError(
            f"{where} answered {refused.code} {quoted(str(refused.reason))}", _CREDENTIALS
        ) from None
    except TimeoutError:
        raise LoginError(f"{where} did not answer completely within {timeout_s:g} s", _ADDRESS) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            raise LoginError(f"{where} did not answer completely within {timeout_s:g} s", _ADDRESS) from None
        why = quoted(str(reason)) or type(error).__name__
        raise LoginError(f"{where} cannot be asked: {why}", _ADDRESS) from None
    if len(body) > MAX_ANSWER_BYTES:
        raise LoginError(f"{where} answered with more than {MAX_ANSWER_BYTES} bytes", _ADDRESS)
    return parse_answer(body, where)


def _request(source: TokenEndpoint) -> urllib.request.Request:
    form = {"grant_type": "client_credentials"} | ({"scope": source.scope} if source.scope else {})
    pair = f"{source.client_id}:{source.client_secret}"
    return urllib.request.Request(  # noqa: S310 - token_endpoint_problem allows https, and http where it is allowed
        source.url,
        data=urllib.parse.urlencode(form).encode(),
        headers={
            "Authorization": "Basic " + base64.b64encode(pair.encode()).decode(),
            "Accept": "application/json",
            "User-Agent": "repl",
        },
    )


def _check_token(text: str, where: str) -> str:
    """Returns the token, unless it holds a character that could end the message's field."""
    if _TOKEN.fullmatch(text) is None:
        raise LoginError(f"{where} gave a token with characters that no token has (RFC 6750)")
    return text


def _lifetime(value: object) -> float:
    """Returns `expires_in`; a missing or invalid value counts as a short lifetime."""
    try:
        seconds = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        return UNKNOWN_LIFETIME_S
    return seconds if 0 < seconds < math.inf else UNKNOWN_LIFETIME_S


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class _ReadsUntil(io.RawIOBase):
    """This reader stops at a deadline, however slowly the bytes arrive."""

    def __init__(self, inner: io.BufferedReader, connected: socket.socket, deadline: float) -> None:
        self._inner = inner  # it closes its socket when it is garbage-collected
        self._socket = connected
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)
        return self._inner.raw.readinto(buffer)

    def close(self) -> None:
        self._inner.close()
        super().close()


class _BoundedHandler(urllib.request.HTTPSHandler):
    """This handler opens connections, with TLS or without, whose responses end at a deadline."""

    http_request = urllib.request.HTTPSHandler.do_request_

    def __init__(self, deadline: float, context: ssl.SSLContext) -> None:
        super().__init__()
        self._deadline = deadline
        self._connect_tls = partial(http.client.HTTPSConnection, context=context)

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(self._connection, http.client.HTTPConnection), req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(self._connection, self._connect_tls), req)

    def _connection(
        self, connect: Callable[..., http.client.HTTPConnection], host: str, **more: Any
    ) -> http.client.HTTPConnection:
        deadline = self._deadline

        class Response(http.client.HTTPResponse):
            def __init__(self, sock: socket.socket, *args: Any, **more: Any) -> None:
                super().__init__(sock, *args, **more)
                self.fp = io.BufferedReader(_ReadsUntil(self.fp, sock, deadline))

        connection = connect(host, **more)
        connection.response_class = Response
        return connection


_TIMEOUT_S = 30.0
_USABLE_SHARE = 0.8


class Tokens:
    """Tokens keeps a token, and renews it after most of its lifetime.

    Getting one blocks, so it happens in a thread, once for all that wait for it. Where that fails, the token
    is used until its lifetime ends.
    """

    def __init__(
        self,
        source: TokenSource,
        obtain: Callable[[TokenSource], Token],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._obtain = obtain
        self._clock = clock
        self._token: Token | None = None
        self._renew_at = 0.0
        self._ends_at = 0.0
        self._fetch: Shared[Token] = Shared()

    async def current(self) -> str:
        """Returns a token that is valid. Raises AuthenticationFailed."""
        if self._token is None or self._clock() >= self._renew_at:
            return (await self._fetch.run(self._renew)).text
        return self._token.text

    async def _renew(self) -> Token:
        try:
            token = await in_own_thread(partial(self._obtain, self._source))
        except AuthenticationFailed:
            left = self._ends_at - self._clock()
            if self._token is None or left <= 0:
                raise
            self._renew_at = self._ends_at - left / 2  # no connection waits for each failed attempt
            return self._token
        received = self._clock()
        self._token = token
        self._renew_at = received + token.lifetime_s * _USABLE_SHARE
        self._ends_at = received + token.lifetime_s
        return token

    def forget(self) -> None:
        """Discards the token after a refusal; the next call gets a new one."""
        self._token = None


def fetch_token(source: TokenSource) -> Token:
    """Returns a token. Raises AuthenticationFailed, caused by a LoginError."""
    try:
        match source:
            case TokenCommand():
                token = _from_command(source)
            case TokenEndpoint():
                token = request_token(source, _TIMEOUT_S, os.environ)
            case MskIam():
                token = Token(*msk_iam_token(source))
            case UnsecuredToken():
                return unsecured_token(source, time.time())
            case _:
                assert_never(source)
    except LoginError as failed:
        why = f"{failed.why}; {failed.hint}" if failed.hint else failed.why
        mechanism = MSK_IAM if isinstance(source, MskIam) else "OAUTHBEARER"
        raise AuthenticationFailed(mechanism, why) from failed
    remember_token(source, token.text)
    return token


def _from_command(source: TokenCommand) -> Token:
    where = "the OAUTHBEARER token command"
    try:
        done = subprocess.run(
            shlex.split(source.command),
            env=without_safe_path(os.environ),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        why = f"{where} ended with {error.returncode}: {quoted((error.stderr or '').strip())}"
        raise LoginError(why, _COMMAND) from None
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise LoginError(f"{where}: {error}", _COMMAND) from None
    return parse_printed(done.stdout, where)
