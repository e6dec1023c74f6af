"""SASL: the exchanges of the RFCs, where tokens come from, and how much a hostile endpoint can cost."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import shlex
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.contract.client.keys import ALLOW_INSECURE, token_endpoint_problem
from runtime.contract.client.secrets import redacted
from runtime.contract.client.settings import Password, Sasl, TokenCommand, TokenEndpoint, UnsecuredToken
from runtime.kafka.auth.login import Exchange, LoginError, advance
from runtime.kafka.auth.oauthbearer import (
    MAX_ANSWER_BYTES,
    UNKNOWN_LIFETIME_S,
    Token,
    Tokens,
    fetch_token,
    oauthbearer,
    parse_answer,
    request_token,
)
from runtime.kafka.auth.sasl import MAX_ITERATIONS, exchange_of, mechanism_of, plain
from runtime.kafka.auth.sasl import scram as scram_exchange
from runtime.kafka.errors import AuthenticationFailed

REFUSED = AuthenticationFailed("OAUTHBEARER", "the token endpoint answered 503")

# RFC 7677, section 3
USER, PASSWORD, NONCE = "user", "pencil", "rOprNGfwEbeRWgbNEkqO"
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
PROOF = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def scram() -> Exchange:
    return scram_exchange("SCRAM-SHA-256", USER, PASSWORD, NONCE)


def test_scram_is_the_rfcs_conversation() -> None:
    exchange = scram()

    assert next(exchange) == FIRST
    assert exchange.send(CHALLENGE) == FINAL
    with pytest.raises(StopIteration):
        exchange.send(PROOF)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "holds no signature"),
        (b"v=", "could not prove"),
        (b"v=AAAA", "could not prove"),
        (b"v=????", "holds no signature"),
        (b"x=" + PROOF[2:], "holds no signature"),
        (b"\xff\xfe", "not text in UTF-8"),
        (PROOF.replace(b"6", b"7", 1), "could not prove"),
        (b"e=invalid-proof", "refused the SCRAM login: invalid-proof"),
        (b"e=\x1b]52;c;aGk=\x07" + b"x" * 500, r"\?\]52;c;aGk=\?x+…$"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_a_broker_that_does_not_prove_the_password_is_not_believed(answer: bytes, why: str) -> None:
    exchange = scram()
    next(exchange)
    exchange.send(CHALLENGE)

    with pytest.raises(LoginError, match=why):
        exchange.send(answer)


@pytest.mark.parametrize(
    ("challenge", "why"),
    [
        (b"", "does not hold"),
        (b"\xff", "not text in UTF-8"),
        (CHALLENGE.replace(b"r=rOpr", b"r=another"), "does not extend"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "does not extend"),
        (CHALLENGE.replace(b"i=4096", b"i=1"), "'1' iterations; allowed are 4096 to"),
        (CHALLENGE.replace(b"i=4096", b"i=4095"), "'4095' iterations"),
        (CHALLENGE.replace(b"i=4096", b"i=%d" % (MAX_ITERATIONS + 1)), "iterations; allowed are"),
        (CHALLENGE.replace(b"i=4096", b"i=2147483648"), "iterations; allowed are"),
        (CHALLENGE.replace(b"i=4096", b"i=-4096"), "iterations; allowed are"),
        (CHALLENGE.replace(b"i=4096", b"i=04096"), "iterations; allowed are"),
        (CHALLENGE.replace(b"i=4096", "i=٤٠٩٦".encode()), "iterations; allowed are"),
        (CHALLENGE.replace(b"s=W22Z", b"s=????"), "holds no salt"),
        (CHALLENGE.replace(b"s=W22ZaJ0SNY7soEsUEjb6gQ==", b"s="), "holds no salt"),
        (CHALLENGE.replace(b"s=W22ZaJ0SNY7soEsUEjb6gQ==,", b""), "does not hold"),
        (b"m=future," + CHALLENGE, "extension"),
        (b"i=4096,s=W22Z,r=rOprNGfwEbeRWgbNEkqOx", "does not hold"),
        (b"e=other-error", "refused the SCRAM login"),
    ],
    ids=lambda value: repr(value)[-24:],
)
def test_a_challenge_that_weakens_the_exchange_is_refused(challenge: bytes, why: str) -> None:
    exchange = scram()
    next(exchange)

    with pytest.raises(LoginError, match=why) as failure:
        exchange.send(challenge)
    assert PASSWORD not in str(failure.value)


def logs_in(challenge: bytes, final: bytes) -> None:
    exchange = scram_exchange("SCRAM-SHA-256", USER, PASSWORD, "nonce")
    advance(exchange, None)
    advance(exchange, challenge)
    advance(exchange, final)


@given(challenge=st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)), final=st.binary())
def test_scram_believes_no_bytes_at_random(challenge: bytes, final: bytes) -> None:
    for first in (challenge, b"r=nonce," + challenge, b"r=nonceX,s=eA==,i=4096," + challenge):
        with pytest.raises(LoginError) as failure:
            logs_in(first, final)
        assert failure.value.why.isprintable()


def test_every_login_has_its_own_nonce() -> None:
    first, second = (next(scram_exchange("SCRAM-SHA-256", USER, PASSWORD)) for _ in range(2))

    assert first != second
    assert len(first) > 24


def test_scram_sha_512_proves_the_password_and_escapes_the_name() -> None:
    exchange = scram_exchange("SCRAM-SHA-512", "a,b=c", "pässword", "mine")
    assert next(exchange) == b"n,,n=a=2Cb=3Dc,r=mine"
    challenge = b"r=mineyours,s=" + base64.b64encode(b"salt") + b",i=4096"

    final = exchange.send(challenge)

    salted = hashlib.pbkdf2_hmac("sha512", "pässword".encode(), b"salt", 4096)
    message = b"n=a=2Cb=3Dc,r=mine," + challenge + b"," + final.rpartition(b",p=")[0]
    signature = hmac.new(hmac.new(salted, b"Server Key", "sha512").digest(), message, "sha512").digest()
    with pytest.raises(StopIteration):
        exchange.send(b"v=" + base64.b64encode(signature))


@pytest.mark.parametrize(
    ("exchange", "first"),
    [
        (plain("user", "pässword"), b"\0user\0" + "pässword".encode()),
        (oauthbearer("TOKEN", [("cluster", "dc1")]), b"n,,\x01auth=Bearer TOKEN\x01cluster=dc1\x01\x01"),
    ],
)
def test_an_exchange_of_one_message(exchange: Exchange, first: bytes) -> None:
    assert next(exchange) == first
    with pytest.raises(StopIteration):
        exchange.send(b"")


def test_oauthbearer_ends_a_refusal_as_the_rfc_wants() -> None:
    exchange = oauthbearer("TOKEN", [])
    next(exchange)
    assert exchange.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(LoginError, match="invalid_token"):
        exchange.send(b"")


@pytest.mark.parametrize(
    ("exchange", "why"),
    [
        (plain("user\0admin", "pw"), "NUL"),
        (oauthbearer("TOKEN\x01auth=other", []), "characters that no token has"),
    ],
)
def test_secrets_cannot_add_fields_to_the_message(exchange: Exchange, why: str) -> None:
    with pytest.raises(LoginError, match=why) as failure:
        next(exchange)
    assert "TOKEN" not in str(failure.value)


@pytest.mark.parametrize(
    ("settings", "mechanism", "first"),
    [
        (Password("PLAIN", "u", "p"), "PLAIN", b"\0u\0p"),
        (Password("SCRAM-SHA-512", "u", "p"), "SCRAM-SHA-512", b"n,,n=u,r="),
        (UnsecuredToken("u"), "OAUTHBEARER", b"n,,\x01auth=Bearer TOKEN"),
    ],
)
def test_the_settings_choose_the_exchange(settings: Sasl, mechanism: str, first: bytes) -> None:
    assert mechanism_of(settings) == mechanism
    sent = advance(exchange_of(settings, "broker", "TOKEN"), None)
    assert sent is not None
    assert sent.startswith(first)


# Token endpoints

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


@given(body=st.one_of(st.binary(max_size=200), st.text(max_size=200)))
def test_a_token_answer_at_random_is_refused(body: bytes | str) -> None:
    with pytest.raises(LoginError, match="did not answer with JSON"):
        parse_answer(body, "the endpoint")


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
        ("https://idp.example.org:8443/realms/x/token", None),
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
def test_an_address_may_get_the_secret_or_not(url: str, why: str | None) -> None:
    problem = token_endpoint_problem(url, {})
    assert problem is None if why is None else why in (problem or ("",))[0]


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


# Commands that print a token


def printing(text: str, then: str = "true") -> TokenCommand:
    """A command of the operator that prints this, and ends as `then` does."""
    return TokenCommand(shlex.join(["sh", "-c", f"printf '%s' '{text}'; {then}"]))


@pytest.mark.parametrize(
    ("text", "lifetime"),
    [
        ("abc\n", 60.0),
        ('{"access_token": "abc", "expires_in": 900}', 900.0),
        ('{"access_token": "abc"}', 60.0),
    ],
)
def test_a_command_prints_the_token(text: str, lifetime: float) -> None:
    token = fetch_token(printing(text))
    assert (token.text, token.lifetime_s) == ("abc", lifetime)
    assert "abc" not in repr(token)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (printing("", "echo not logged in >&2; exit 1"), "ended with 1: not logged in"),
        (printing(""), "printed nothing"),
        (printing(" \n"), "printed nothing"),
        (printing("{}"), "did not answer with JSON that holds an access_token"),
        (printing("two words"), "characters that no token has"),
        (TokenCommand("/no/such/command"), "No such file"),
        (TokenCommand("an 'open quote"), "quotation"),
    ],
)
def test_a_command_that_gives_no_token_says_why(source: TokenCommand, why: str) -> None:
    with pytest.raises(AuthenticationFailed, match=why) as failure:
        fetch_token(source)
    assert "two words" not in str(failure.value)


async def test_a_token_is_kept_until_most_of_its_life_is_over_or_it_was_refused(tmp_path: Path) -> None:
    count = tmp_path / "count"
    tokens = Tokens(
        printing('{"access_token": "abc", "expires_in": 900}', f"printf x >>{count}"), fetch_token
    )
    assert await tokens.current() == await tokens.current() == "abc"
    tokens.forget()
    await tokens.current()
    assert count.read_text() == "xx"


async def test_a_token_is_used_until_its_end_while_it_cannot_be_renewed() -> None:
    now = 0.0
    answers: list[Token | AuthenticationFailed] = [Token("old", 100), *[REFUSED] * 4, Token("new", 100)]

    def obtain(_: object) -> Token:
        answer = answers.pop(0)
        if isinstance(answer, AuthenticationFailed):
            raise answer
        return answer

    tokens = Tokens(TokenCommand("unused"), obtain, lambda: now)
    assert await tokens.current() == "old"
    now = 84.0
    assert [await tokens.current(), await tokens.current()] == ["old"] * 2
    assert len(answers) == 4  # the second call did not wait for another attempt
    now = 92.0
    assert await tokens.current() == "old"
    assert len(answers) == 3
    now = 101.0
    with pytest.raises(AuthenticationFailed):
        await tokens.current()
    tokens.forget()
    with pytest.raises(AuthenticationFailed):
        await tokens.current()
    assert await tokens.current() == "new"


async def test_a_token_that_was_refused_is_not_used_again_where_no_other_one_comes() -> None:
    answers = [Token("refused", 100)]

    def obtain(_: object) -> Token:
        if not answers:
            raise REFUSED
        return answers.pop()

    tokens = Tokens(TokenCommand("unused"), obtain)
    await tokens.current()
    tokens.forget()
    with pytest.raises(AuthenticationFailed):
        await tokens.current()


def test_tokens_that_were_renewed_often_cost_no_more_and_the_newest_is_hidden(tmp_path: Path) -> None:
    source = TokenCommand(shlex.join(["cat", f"{tmp_path}/token"]))
    for number in range(20):
        (tmp_path / "token").write_text(f"token-{number:04}")
        fetch_token(source)
    texts = [redacted(f"the broker refused token-{number:04}") for number in range(20)]
    assert texts[-2:] == ["the broker refused (sensitive value)"] * 2
    assert texts[0] == "the broker refused token-0000"


def test_an_unsecured_token_names_its_principal() -> None:
    header, claims, signature = fetch_token(UnsecuredToken("app", 60)).text.split(".")

    assert json.loads(base64.urlsafe_b64decode(header + "==")) == {"alg": "none"}
    assert json.loads(base64.urlsafe_b64decode(claims + "=="))["sub"] == "app"
    assert signature == ""
