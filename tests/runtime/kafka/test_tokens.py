"""Where OAUTHBEARER tokens come from."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from runtime.contract.client.keys import ALLOW_INSECURE
from runtime.contract.client.settings import TokenCommand, TokenEndpoint, UnsecuredToken
from runtime.kafka.auth.oauthbearer import Tokens, fetch_token
from runtime.kafka.errors import AuthenticationFailed


def command(script: str) -> TokenCommand:
    return TokenCommand(f"{sys.executable} -c '{script}'")


@pytest.mark.parametrize(
    ("script", "text", "lifetime"),
    [
        ('print("abc")', "abc", 60.0),
        ('print("""{"access_token": "abc", "expires_in": 900}""")', "abc", 900.0),
        ('print("""{"access_token": "abc"}""")', "abc", 60.0),
    ],
    ids=["bare", "JSON", "JSON without a lifetime"],
)
def test_a_command_prints_the_token(script: str, text: str, lifetime: float) -> None:
    token = fetch_token(command(script))

    assert (token.text, token.lifetime_s) == (text, lifetime)
    assert "abc" not in repr(token)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (command('import sys; sys.exit("not logged in")'), "ended with 1: not logged in"),
        (command("pass"), "printed nothing"),
        (command('print("{}")'), "did not answer with JSON that holds an access_token"),
        (TokenCommand("/no/such/command"), "No such file"),
        (TokenCommand("an 'open quote"), "quotation"),
    ],
    ids=["failing", "silent", "no token", "missing", "unreadable"],
)
def test_a_command_that_gives_no_token_says_why(source: TokenCommand, why: str) -> None:
    with pytest.raises(AuthenticationFailed, match=why):
        fetch_token(source)


def test_a_token_is_kept_until_most_of_its_life_is_over_or_it_was_refused(tmp_path: Path) -> None:
    count = tmp_path / "count"
    script = f'open("{count}", "a").write("x"); print("""{{"access_token": "abc", "expires_in": 900}}""")'
    tokens = Tokens(command(script), fetch_token)

    async def use() -> None:
        assert await tokens.current() == await tokens.current() == "abc"
        tokens.forget()
        await tokens.current()

    asyncio.run(use())
    assert count.read_text() == "xx"


def test_an_unsecured_token_names_its_principal() -> None:
    header, claims, signature = fetch_token(UnsecuredToken("app", 60)).text.split(".")

    assert json.loads(base64.urlsafe_b64decode(header + "==")) == {"alg": "none"}
    assert json.loads(base64.urlsafe_b64decode(claims + "=="))["sub"] == "app"
    assert signature == ""


@contextmanager
def endpoint(status: int, answer: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    seen: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            seen.append((self.headers["Authorization"], body))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(answer.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the standard library's
            return

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/token", seen
        finally:
            server.shutdown()
            thread.join()


def test_an_endpoint_is_asked_with_the_clients_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOW_INSECURE, "1")
    with endpoint(200, '{"access_token": "abc", "expires_in": 30}') as (url, seen):
        token = fetch_token(TokenEndpoint(url, "me", "hush", scope="kafka"))

    assert (token.text, token.lifetime_s) == ("abc", 30.0)
    basic = base64.b64encode(b"me:hush").decode()
    assert seen == [(f"Basic {basic}", "grant_type=client_credentials&scope=kafka")]


def test_an_endpoint_that_refuses_is_named_without_the_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOW_INSECURE, "1")
    with endpoint(401, "{}") as (url, _), pytest.raises(AuthenticationFailed) as failure:
        fetch_token(TokenEndpoint(url, "me", "hush"))

    assert f"the token endpoint {url} answered 401" in str(failure.value)
    assert "hush" not in str(failure.value)
