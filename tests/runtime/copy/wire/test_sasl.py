"""The SASL exchanges, against the examples of their RFCs."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from runtime.copy.wire import sasl

# RFC 7677, section 3
USER, PASSWORD, NONCE = "user", "pencil", "rOprNGfwEbeRWgbNEkqO"
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
PROOF = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def scram() -> sasl.Exchange:
    return sasl.scram("SCRAM-SHA-256", USER, PASSWORD, NONCE)


def test_scram_is_the_rfcs_conversation() -> None:
    exchange = scram()

    assert next(exchange) == FIRST
    assert exchange.send(CHALLENGE) == FINAL
    with pytest.raises(StopIteration):
        exchange.send(PROOF)


@pytest.mark.parametrize(
    "answer", [b"", b"e=invalid-proof", b"v=AAAA", PROOF.replace(b"6", b"7", 1)], ids=repr
)
def test_a_broker_that_does_not_know_the_password_is_not_believed(answer: bytes) -> None:
    exchange = scram()
    next(exchange)
    exchange.send(CHALLENGE)

    with pytest.raises(sasl.Refused):
        exchange.send(answer)


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        CHALLENGE.replace(b"r=rOpr", b"r=another"),
        b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        CHALLENGE.replace(b"i=4096", b"i=1"),
        CHALLENGE.replace(b"i=4096", b"i=999999999"),
        CHALLENGE.replace(b"s=W22Z", b"s=????"),
    ],
    ids=["nothing", "foreign nonce", "nonce not continued", "weak", "endless", "no base64"],
)
def test_a_challenge_that_weakens_the_exchange_is_refused(challenge: bytes) -> None:
    exchange = scram()
    next(exchange)

    with pytest.raises(sasl.Refused):
        exchange.send(challenge)


def test_scram_sha_512_proves_the_password_and_escapes_the_name() -> None:
    exchange = sasl.scram("SCRAM-SHA-512", "a,b=c", "pässword", "mine")
    assert next(exchange) == b"n,,n=a=2Cb=3Dc,r=mine"
    challenge = b"r=mineyours,s=" + base64.b64encode(b"salt") + b",i=4096"

    final = exchange.send(challenge)

    salted = hashlib.pbkdf2_hmac("sha512", "pässword".encode(), b"salt", 4096)
    message = b"n=a=2Cb=3Dc,r=mine," + challenge + b"," + final.rpartition(b",p=")[0]
    signature = hmac.new(hmac.new(salted, b"Server Key", "sha512").digest(), message, "sha512").digest()
    with pytest.raises(StopIteration):
        exchange.send(b"v=" + base64.b64encode(signature))


def test_plain_says_it_all_at_once() -> None:
    exchange = sasl.plain("user", "pässword")

    assert next(exchange) == b"\0user\0" + "pässword".encode()
    with pytest.raises(StopIteration):
        exchange.send(b"")


def test_oauthbearer_carries_token_and_extensions() -> None:
    exchange = sasl.oauthbearer("TOKEN", [("cluster", "dc1")])

    assert next(exchange) == b"n,,\x01auth=Bearer TOKEN\x01cluster=dc1\x01\x01"
    with pytest.raises(StopIteration):
        exchange.send(b"")


def test_oauthbearer_ends_a_refusal_as_the_rfc_wants() -> None:
    exchange = sasl.oauthbearer("TOKEN", [])
    next(exchange)

    assert exchange.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(sasl.Refused, match="invalid_token"):
        exchange.send(b"")
