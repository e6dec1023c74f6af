"""The access rules of the pages: the token, the session cookie, the Host header, and the headers of answers.

On loopback there is no token. Any other address needs one, as `Authorization: Bearer` or, after the login
page, as a cookie that is derived from it. A Host header that names another machine is refused: a hostile page
could otherwise make a browser read this server under the page's own name (DNS rebinding). A request that a
page of another site makes is refused as well: it could begin plans, without reading their answer. Browsers
mark such requests with Sec-Fetch-Site on loopback and https; elsewhere the cookie does not travel with them.
"""

import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request, cookie_parser
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from planner.model.diagnostic import Failure, error
from runtime.contract.http_host import names_this_server

COOKIE = "repl_ui"
LOGIN, OPEN_PATHS = "/login", ("/login", "/static/")
_SHORTEST, _LONGEST = 16, 4096
_TOKEN = re.compile(r"[!-~]+")
_MOST_FORM_BYTES = 8192
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_LINKED = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>repl</title>'
    '<p>A page of another site led here. <a href="{}">Open the page</a>.</p></html>\n'
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with no-referrer a form of ours would come with the Origin null
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}


def read_token(file: Path) -> str:
    """Returns the token in a file. Failure where it cannot be read, or is too short to be a secret."""
    try:
        text = file.read_bytes()[: _LONGEST + 2]
    except OSError as wrong:
        raise Failure(
            error(f"--token-file {file}: {wrong.strerror}", "name a file that holds the token alone")
        ) from None
    token = text.decode("ascii", "replace").strip()
    if not _SHORTEST <= len(token) <= _LONGEST or not _TOKEN.fullmatch(token):
        what = (
            f"--token-file {file} holds no token of {_SHORTEST} printable characters or more, without spaces"
        )
        raise Failure(error(what, f"write one: (umask 077; openssl rand -hex 24 > {file})"))
    return token


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """Decides about requests. `hosts` are names under which the server is known, beside addresses."""

    token: str | None = field(default=None, repr=False)
    hosts: Sequence[str] = ()

    def session(self) -> str:
        """Returns the value of the cookie: it proves the token without holding it."""
        assert self.token is not None
        return hmac.new(self.token.encode(), b"repl ui session", hashlib.sha256).hexdigest()

    def knows(self, headers: Headers) -> bool:
        """Returns whether a request has the token, or the cookie of a session."""
        if self.token is None:
            return True
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self.accepts(given.strip()):
            return True
        # Other servers of this host set cookies as well, some of which the standard library does not read.
        cookie = cookie_parser(headers.get("cookie", "")).get(COOKIE, "")
        return hmac.compare_digest(cookie.encode(), self.session().encode())

    def accepts(self, token: str) -> bool:
        assert self.token is not None
        return hmac.compare_digest(token.encode(), self.token.encode())


class Gate:
    """The middleware around all pages: refuses, or passes on, and adds the headers to every answer."""

    def __init__(self, app: ASGIApp, policy: AccessPolicy) -> None:
        self._app = app
        self._policy = policy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refused = self._refusal(scope)
        await (refused or self._app)(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not names_this_server(host, self._policy.hosts):
            return PlainTextResponse(
                f"This server is not known as {host[:200]!r}. If it should be, start it with --allow-host.\n",
                status_code=421,
            )
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return PlainTextResponse("These pages are read-only.\n", 405, {"allow": "GET, HEAD"})
        if _is_followed_link(scope["method"], headers):
            return HTMLResponse(_LINKED.format(escape(_target(scope))), 403)
        # Programs send no Origin, and no cookie.
        own_form = "origin" not in headers or urlsplit(headers["origin"]).netloc == host
        if not _is_own(headers) or (scope["method"] == "POST" and not own_form):
            return PlainTextResponse("The request comes from another site.\n", status_code=403)
        if self._policy.knows(headers) or scope["path"].startswith(OPEN_PATHS):
            return None
        if "text/html" in headers.get("accept", "") and scope["method"] == "GET":
            return RedirectResponse(LOGIN, status_code=303)
        return PlainTextResponse(
            "A token is needed: Authorization: Bearer TOKEN, or the page /login.\n",
            401,
            {"www-authenticate": "Bearer"},
        )


def _is_own(headers: Headers) -> bool:
    """Returns whether no other site has made the request. Programs and old browsers do not say."""
    return headers.get("sec-fetch-site", "none") in ("same-origin", "none")


def _is_followed_link(method: str, headers: Headers) -> bool:
    """Returns whether a link on another site was followed: the viewer has to follow one of ours then.

    A hostile page can navigate as well as a viewer can, so what a page does must not begin with it.
    """
    navigates = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    return method == "GET" and navigates and not _is_own(headers)


def _target(scope: Scope) -> str:
    """Returns the path and the query of a request, never the address of another server."""
    raw: bytes = scope["raw_path"]
    query: bytes = scope["query_string"]
    target = b"/" + raw.lstrip(b"/\\") + (b"?" + query if query else b"")
    return target.decode("ascii", "replace")


async def log_in(request: Request, policy: AccessPolicy) -> Response | None:
    """Answers the login form: sets the cookie, or returns None where the token is another one."""
    body = b""
    try:
        async for part in request.stream():
            body += part
            if len(body) > _MOST_FORM_BYTES:
                return PlainTextResponse("The form is too long.\n", status_code=413)
    except ClientDisconnect:
        return PlainTextResponse("The form is not complete.\n", status_code=400)
    given = parse_qs(body.decode("ascii", "replace")).get("token", [""])[0].strip()
    if policy.token is not None and not policy.accepts(given):
        return None
    answer = RedirectResponse("/", status_code=303)
    if policy.token is not None:
        behind_tls = request.headers.get("origin", "").startswith("https://")
        answer.set_cookie(
            COOKIE, policy.session(), httponly=True, samesite="strict", secure=behind_tls, path="/"
        )
    return answer


def log_out() -> Response:
    answer = RedirectResponse(LOGIN, status_code=303)
    answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return answer
