"""The SASL exchanges, against the examples of their RFCs."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from runtime.contract.client.settings import Password, Sasl, UnsecuredToken
from runtime.kafka.auth.login import Exchange, LoginError, advance
from runtime.kafka.auth.oauthbearer import oauthbearer
from runtime.kafka.auth.sasl import MAX_ITERATIONS, exchange_of, mechanism_of, plain
from runtime.kafka.auth.sasl import scram as scram_exchange

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


def test_plain_says_it_all_at_once() -> None:
    exchange = plain("user", "pässword")

    assert next(exchange) == b"\0user\0" + "pässword".encode()
    with pytest.raises(StopIteration):
        exchange.send(b"")


def test_oauthbearer_carries_token_and_extensions() -> None:
    exchange = oauthbearer("TOKEN", [("cluster", "dc1")])

    assert next(exchange) == b"n,,\x01auth=Bearer TOKEN\x01cluster=dc1\x01\x01"
    with pytest.raises(StopIteration):
        exchange.send(b"")


def test_oauthbearer_ends_a_refusal_as_the_rfc_wants() -> None:
    exchange = oauthbearer("TOKEN", [])
    next(exchange)

    assert exchange.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(LoginError, match="invalid_token"):
        exchange.send(b"")


def test_plain_refuses_what_would_change_the_message() -> None:
    with pytest.raises(LoginError, match="NUL"):
        next(plain("user\0admin", "pw"))


def test_a_token_can_not_add_fields_to_the_message() -> None:
    with pytest.raises(LoginError, match="characters that no token has") as failure:
        next(oauthbearer("TOKEN\x01auth=other", []))
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
    sent = advance(exchange_of(settings, "TOKEN"), None)
    assert sent is not None
    assert sent.startswith(first)
