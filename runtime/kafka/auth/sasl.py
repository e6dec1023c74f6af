"""This module selects the SASL exchange for a cluster's settings, and implements PLAIN and SCRAM.

In SCRAM (RFC 5802, RFC 7677) both sides prove the password, and neither sends it. The messages read here come
from a broker that is not authenticated yet. So every attribute must stand where the RFC's grammar puts it,
and the work that a broker can demand is bounded.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets

from runtime.contract.client.settings import Kerberos, Password, Sasl
from runtime.kafka.auth.kerberos import gssapi
from runtime.kafka.auth.login import Exchange, LoginError, quoted
from runtime.kafka.auth.oauthbearer import oauthbearer

MIN_ITERATIONS = 4096
"""RFC 7677 demands at least so many; fewer would make it cheap to guess the password from the proof."""

MAX_ITERATIONS = 1 << 17
"""Kafka itself allows 16,384. So many take about 0.1 s of CPU."""

_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_GS2_HEADER = b"n,,"  # "n": this client does not support channel binding, and requests no other identity
_CHALLENGE = re.compile(r"r=([\x21-\x2b\x2d-\x7e]+),s=([^,]*),i=([^,]*)(?:,.*)?", re.DOTALL)
_NUMBER = re.compile(r"[1-9][0-9]{0,9}", re.ASCII)
_BROKER = "check that the bootstrap address is this cluster's; an impostor may answer there"


def scram(mechanism: str, username: str, password: str, nonce: str | None = None) -> Exchange:
    """Proves the password to the broker, and raises LoginError unless the broker proves it too.

    `nonce` is for tests; each login makes its own.
    """
    algorithm = _HASHES[mechanism]
    ours = secrets.token_urlsafe(24) if nonce is None else nonce
    name = username.replace("=", "=3D").replace(",", "=2C")
    first_bare = f"n={name},r={ours}"
    challenge = _text((yield _GS2_HEADER + first_bare.encode()))
    theirs, salt, iterations = _challenge(challenge, ours)
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)
    final_bare = f"c={base64.b64encode(_GS2_HEADER).decode()},r={theirs}"
    message = f"{first_bare},{challenge},{final_bare}".encode()
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    signature = hmac.digest(hashlib.new(algorithm, client_key).digest(), message, algorithm)
    proof = bytes(
        key_byte ^ signature_byte for key_byte, signature_byte in zip(client_key, signature, strict=True)
    )
    final = _text((yield f"{final_bare},p={base64.b64encode(proof).decode()}".encode()))
    expected = hmac.digest(hmac.digest(salted, b"Server Key", algorithm), message, algorithm)
    _check_final(final, expected)


def _challenge(text: str, ours: str) -> tuple[str, bytes, int]:
    """Returns the broker's nonce, salt and iteration count."""
    if text.startswith("e="):
        raise LoginError(f"the broker refused the SCRAM login: {quoted(text[2:])}")
    if text.startswith("m="):
        raise LoginError("the broker demands a SCRAM extension that does not exist in RFC 5802", _BROKER)
    match = _CHALLENGE.fullmatch(text)
    if match is None:
        raise LoginError(
            "the broker's SCRAM challenge does not hold a nonce, a salt and an iteration count", _BROKER
        )
    theirs, salt, iterations = match.groups()
    if not theirs.startswith(ours) or len(theirs) == len(ours):
        raise LoginError("the broker's SCRAM nonce does not extend the nonce of this client", _BROKER)
    decoded = _base64(salt)
    if not decoded:
        raise LoginError("the broker's SCRAM challenge holds no salt", _BROKER)
    count = int(iterations) if _NUMBER.fullmatch(iterations) else 0
    if not MIN_ITERATIONS <= count <= MAX_ITERATIONS:
        raise LoginError(
            f"the broker's SCRAM challenge asks for {quoted(iterations[:20])!r} iterations; "
            f"allowed are {MIN_ITERATIONS} to {MAX_ITERATIONS}",
            f"create the user's credentials again with iterations={MIN_ITERATIONS} or more, or {_BROKER}",
        )
    return theirs, decoded, count


def _check_final(text: str, expected: bytes) -> None:
    if text.startswith("e="):
        raise LoginError(f"the broker refused the SCRAM login: {quoted(text[2:])}")
    signature = _base64(text[2:].split(",", 1)[0]) if text.startswith("v=") else None
    if signature is None:
        raise LoginError("the broker's last SCRAM message holds no signature", _BROKER)
    if not hmac.compare_digest(signature, expected):
        raise LoginError("the broker could not prove that it knows the password", _BROKER)


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise LoginError("the broker's SCRAM message is not text in UTF-8", _BROKER) from None


def _base64(text: str) -> bytes | None:
    """Returns the decoded bytes, or None where the text is not base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def mechanism_of(settings: Sasl) -> str:
    """Returns the mechanism that is asked for. Amazon MSK takes its tokens by OAUTHBEARER, too."""
    match settings:
        case Password():
            return settings.mechanism
        case Kerberos():
            return "GSSAPI"
        case _:
            return "OAUTHBEARER"


def exchange_of(settings: Sasl, host: str, token: str | None) -> Exchange:
    """Returns the exchange that logs in at this broker. OAUTHBEARER needs the token's text."""
    match settings:
        case Password("PLAIN", username, password):
            return plain(username, password)
        case Password(mechanism, username, password):
            return scram(mechanism, username, password)
        case Kerberos():
            return gssapi(settings, host)
        case _:
            assert token is not None, "OAUTHBEARER needs a token"
            return oauthbearer(token, settings.extensions)


def plain(username: str, password: str) -> Exchange:
    """Sends the user name and the password unencrypted (RFC 4616); only TLS protects them."""
    if "\0" in username or "\0" in password:
        raise LoginError(
            "sasl.username or sasl.password holds a NUL character, which SASL PLAIN cannot send",
            "change the user name or the password",
        )
    yield f"\0{username}\0{password}".encode()
