"""Where an OAUTHBEARER token comes from: a command, an OpenID Connect endpoint, or (for trials) unsigned."""

from __future__ import annotations

import asyncio
import base64
import json
import shlex
import ssl
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from typing import assert_never

from runtime.contract.client_values import TokenCommand, TokenEndpoint, UnsecuredToken
from runtime.copy.wire.errors import AuthenticationFailed

TokenSource = TokenCommand | TokenEndpoint | UnsecuredToken

_TIMEOUT_S = 30.0
_UNKNOWN_LIFETIME_S = 60.0
_USABLE_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Token:
    text: str = field(repr=False)
    lifetime_s: float


class Tokens:
    """Keeps a token for most of its life. Getting one blocks, so it happens in a thread."""

    def __init__(self, source: TokenSource) -> None:
        self._source = source
        self._token: Token | None = None
        self._fresh_until = 0.0

    async def current(self) -> str:
        if self._token is None or time.monotonic() >= self._fresh_until:
            self._token = await asyncio.to_thread(fetch_token, self._source)
            self._fresh_until = time.monotonic() + self._token.lifetime_s * _USABLE_SHARE
        return self._token.text

    def forget(self) -> None:
        """After a refusal: the next one is fetched anew."""
        self._token = None


def fetch_token(source: TokenSource) -> Token:
    match source:
        case TokenCommand():
            return _from_command(source)
        case TokenEndpoint():
            return _from_endpoint(source)
        case UnsecuredToken():
            return _unsecured(source)
        case _:
            assert_never(source)


def _from_command(source: TokenCommand) -> Token:
    where = "the OAUTHBEARER token command"
    try:
        done = subprocess.run(
            shlex.split(source.command), capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
        )
    except subprocess.CalledProcessError as error:
        why = f"ended with {error.returncode}: {(error.stderr or '').strip()[:500]}"
        raise AuthenticationFailed(where, why) from None
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise AuthenticationFailed(where, str(error)) from None
    printed = done.stdout.strip()
    if printed.startswith("{"):
        return _parsed(printed, where)
    if not printed:
        raise AuthenticationFailed(where, "printed nothing")
    return Token(printed, _UNKNOWN_LIFETIME_S)


def _from_endpoint(source: TokenEndpoint) -> Token:
    where = f"the token endpoint {source.url}"
    if not source.url.startswith(("https://", "http://")):
        raise AuthenticationFailed(where, "is no http(s) address")
    form = {"grant_type": "client_credentials"} | ({"scope": source.scope} if source.scope else {})
    basic = base64.b64encode(f"{source.client_id}:{source.client_secret}".encode()).decode()
    request = urllib.request.Request(  # noqa: S310 - the scheme was looked at
        source.url,
        data=urllib.parse.urlencode(form).encode(),
        headers={"Authorization": f"Basic {basic}", "Accept": "application/json"},
    )
    try:
        trust = ssl.create_default_context(cafile=source.ca_location)
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=trust) as response:  # noqa: S310
            return _parsed(response.read().decode(), where)
    except urllib.error.HTTPError as error:
        why = f"{error.code} {error.reason}"
        error.close()
        raise AuthenticationFailed(where, why) from None
    except (OSError, ValueError) as error:
        raise AuthenticationFailed(where, str(error)) from None


def _parsed(text: str, where: str) -> Token:
    try:
        found = json.loads(text)
        return Token(str(found["access_token"]), float(found.get("expires_in", _UNKNOWN_LIFETIME_S)))
    except (ValueError, TypeError, KeyError):
        raise AuthenticationFailed(where, "the answer is not JSON with an access_token") from None


def _unsecured(source: UnsecuredToken) -> Token:
    now = time.time()
    claims = {"sub": source.principal, "iat": now, "exp": now + source.lifetime_s}
    header = _base64url(json.dumps({"alg": "none"}).encode())
    return Token(f"{header}.{_base64url(json.dumps(claims).encode())}.", source.lifetime_s)


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
