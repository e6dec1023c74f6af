"""Token endpoints: what is sent, what is refused, and how much a hostile one can cost."""

from __future__ import annotations

import base64
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest

from runtime.contract.client.keys import ALLOW_INSECURE, token_endpoint_problem
from runtime.contract.client.settings import TokenEndpoint
from runtime.kafka.auth.login import LoginError
from runtime.kafka.auth.oauthbearer import (
    MAX_ANSWER_BYTES,
    UNKNOWN_LIFETIME_S,
    parse_answer,
    parse_printed,
    request_token,
)

ALLOWED = {ALLOW_INSECURE: "1"}
GRANTED = b'HTTP/1.1 200 OK\r\n\r\n{"access_token": "abc", "expires_in": 30}'
Behave = Callable[[socket.socket], None]
Endpoint = Callable[[Behave], tuple[str, list[bytes]]]


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """endpoint(what it does after it read a request) → its address, and the requests that it got."""
    opened: list[socket.socket] = []

    def start(behave: Behave) -> tuple[str, list[bytes]]:
        server = socket.create_server(("127.0.0.1", 0))
        opened.append(server)
        requests: list[bytes] = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                opened.append(connection)
                with contextlib.suppress(OSError), connection:
                    requests.append(whole_request(connection))
                    behave(connection)

        threading.Thread(target=serve, daemon=True).start()
        return f"http://127.0.0.1:{server.getsockname()[1]}/token", requests

    yield start
    for one in opened:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()


def whole_request(connection: socket.socket) -> bytes:
    request = b""
    while b"\r\n\r\n" not in request:
        request += connection.recv(65_536)
    head, _, body = request.partition(b"\r\n\r\n")
    (length,) = (
        int(line[16:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")
    )
    while len(body) < length:
        body += connection.recv(65_536)
    return head + b"\r\n\r\n" + body


def answering(answer: bytes) -> Behave:
    return lambda connection: connection.sendall(answer)


def ask(url: str, timeout_s: float = 20.0) -> str:
    token = request_token(TokenEndpoint(url, "me", "hush", "kafka"), timeout_s, ALLOWED)
    assert token.lifetime_s == 30.0
    assert "abc" not in repr(token)
    return token.text


def refusal(url: str, timeout_s: float = 20.0) -> LoginError:
    with pytest.raises(LoginError) as failure:
        ask(url, timeout_s)
    told = f"{failure.value.why} {failure.value.hint}"
    assert "hush" not in told
    assert base64.b64encode(b"me:hush").decode() not in told
    assert told.isprintable()
    return failure.value


def test_the_credentials_are_sent_as_rfc_6749_says(endpoint: Endpoint) -> None:
    url, requests = endpoint(answering(GRANTED))

    assert ask(url) == "abc"
    (request,) = requests
    assert b"Authorization: Basic " + base64.b64encode(b"me:hush") in request
    assert request.endswith(b"\r\n\r\n" + b"grant_type=client_credentials&scope=kafka")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_gets_no_credentials(endpoint: Endpoint, status: int) -> None:
    other, stolen = endpoint(answering(GRANTED))
    url, _ = endpoint(answering(f"HTTP/1.1 {status} Moved\r\nLocation: {other}\r\n\r\n".encode()))

    failure = refusal(url)

    assert f"answered {status}, a redirect" in failure.why
    assert "token.endpoint.url" in failure.hint
    assert stolen == []


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 401 \x1b]52;c;aGk=\x07no\r\n\r\nyour secret was hush", "answered 401"),
        (b"HTTP/1.1 200 OK\r\n\r\nyour secret was hush", "JSON that holds an access_token"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000, "JSON that holds an access_token"),
        (b"HTTP/1.1 200 OK\r\n\r\n[]", "JSON that holds an access_token"),
        (b'HTTP/1.1 200 OK\r\n\r\n{"access_token": 7}', "JSON that holds an access_token"),
        (b'HTTP/1.1 200 OK\r\n\r\n{"access_token": "a\\u0001b"}', "characters that no token has"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b" " * (MAX_ANSWER_BYTES + 1), "more than 1048576 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}", "JSON that holds an access_token"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000 + b"\r\n", "cannot be asked"),
        (b"SSH-2.0-\x1b[2J\r\n", "cannot be asked"),
        (b"", "cannot be asked"),
    ],
    ids=lambda value: repr(value)[-20:],
)
def test_a_hostile_answer_is_one_clear_error(endpoint: Endpoint, answer: bytes, why: str) -> None:
    url, _ = endpoint(answering(answer))

    assert why in refusal(url).why


@pytest.mark.parametrize("begin", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: ", b"H"], ids=repr)
def test_an_endless_trickle_ends_at_the_deadline(endpoint: Endpoint, begin: bytes) -> None:
    ended = threading.Event()

    def trickle(connection: socket.socket) -> None:
        connection.sendall(begin)
        while not ended.wait(0.05):
            connection.sendall(b" ")

    url, _ = endpoint(trickle)
    began = time.monotonic()
    failure = refusal(url, timeout_s=0.5)
    took = time.monotonic() - began
    ended.set()

    assert "did not answer completely within 0.5 s" in failure.why
    assert took < 5


def test_only_https_gets_the_secret_unless_the_operator_allows_http(endpoint: Endpoint) -> None:
    url, requests = endpoint(answering(GRANTED))

    for environ in ({}, {ALLOW_INSECURE: "0"}, {ALLOW_INSECURE: ""}):
        with pytest.raises(LoginError, match="not https") as failure:
            request_token(TokenEndpoint(url, "me", "hush"), 5, environ)
        assert ALLOW_INSECURE in failure.value.hint
    assert requests == []
    assert ask(url) == "abc"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://idp/token", "is not an https address"),
        ("file:///etc/passwd", "is not an https address"),
        ("https:///token", "is not an https address"),
        ("token", "is not an https address"),
        ("https://[::1/token", "is not an address"),
        ("https://idp:99999/token", "is not an address"),
        ("https://me:hush@idp/token", "holds a user name or a password"),
        ("http://idp/token", "is not https"),
    ],
)
def test_an_address_that_may_not_get_the_secret(url: str, why: str) -> None:
    problem = token_endpoint_problem(url, {})

    assert problem is not None
    assert why in problem[0]


def test_an_address_that_may() -> None:
    assert token_endpoint_problem("https://idp.example.org:8443/realms/x/token", {}) is None
    assert urlsplit("https://idp.example.org:8443/realms/x/token").port == 8443


@pytest.mark.parametrize(
    ("expires_in", "lifetime"),
    [
        ("900", 900.0),
        ('"900"', 900.0),
        ("-1", UNKNOWN_LIFETIME_S),
        ("null", UNKNOWN_LIFETIME_S),
        ("NaN", UNKNOWN_LIFETIME_S),
        ("Infinity", UNKNOWN_LIFETIME_S),
        ("1" + "0" * 400, UNKNOWN_LIFETIME_S),
    ],
)
def test_a_lifetime_that_makes_no_sense_is_short(expires_in: str, lifetime: float) -> None:
    answer = f'{{"access_token": "abc", "expires_in": {expires_in}}}'

    assert parse_answer(answer, "here").lifetime_s == lifetime


def test_a_printed_token_is_taken_as_it_is_or_from_json() -> None:
    assert parse_printed("abc\n", "the command").text == "abc"
    assert parse_printed('{"access_token": "abc"}\n', "the command").text == "abc"
    with pytest.raises(LoginError, match="the command printed nothing"):
        parse_printed(" \n", "the command")
    with pytest.raises(LoginError, match="characters that no token has") as failure:
        parse_printed("two words", "the command")
    assert "two words" not in str(failure.value)
