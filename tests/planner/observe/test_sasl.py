"""Our side of the SASL exchanges, against the RFCs' own examples."""

import pytest

from planner.observe.wire.failure import Refused
from planner.observe.wire.sasl import oauthbearer, plain, scram

# RFC 7677, section 3
NONCE = "rOprNGfwEbeRWgbNEkqO"
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def rfc_exchange(password: str = "pencil"):
    exchange = scram("SCRAM-SHA-256", "user", password, nonce=lambda: NONCE)
    assert next(exchange) == b"n,,n=user,r=" + NONCE.encode()
    return exchange


def test_scram_says_what_the_rfc_says() -> None:
    exchange = rfc_exchange()
    assert exchange.send(CHALLENGE) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    with pytest.raises(StopIteration):
        exchange.send(FINAL)


def test_scram_does_not_believe_a_broker_that_does_not_know_the_password() -> None:
    exchange = rfc_exchange()
    exchange.send(CHALLENGE)
    with pytest.raises(Refused, match="does not know the password"):
        exchange.send(b"v=" + b"A" * 43 + b"=")


@pytest.mark.parametrize(
    "challenge", [b"r=another,s=W22Z,i=4096", b"r=" + NONCE.encode() + b"x,s=W22Z,i=9999999", b""]
)
def test_scram_refuses_a_challenge_that_makes_no_sense(challenge: bytes) -> None:
    with pytest.raises(Refused, match="makes no sense"):
        rfc_exchange().send(challenge)


def test_scram_escapes_a_name() -> None:
    assert next(scram("SCRAM-SHA-512", "a=b,c", "x", nonce=lambda: "n")) == b"n,,n=a=3Db=2Cc,r=n"


def test_plain_is_one_message() -> None:
    exchange = plain("user", "päss")
    assert next(exchange) == "\0user\0päss".encode()
    with pytest.raises(StopIteration):
        exchange.send(b"")


def test_oauthbearer_hears_the_reason_of_a_refusal() -> None:
    exchange = oauthbearer("TOKEN", (("logicalCluster", "lkc-1"),))
    assert next(exchange) == b"n,,\x01auth=Bearer TOKEN\x01logicalCluster=lkc-1\x01\x01"
    assert exchange.send(b'{"status":"invalid_token"}') == b"\x01"
