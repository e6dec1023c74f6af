"""The SASL mechanisms as exchanges of bytes; pure but for the nonce that is passed in."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Generator, Sequence

Exchange = Generator[bytes, bytes, None]
"""Yields what to send, receives what the broker answered, returns when the broker is believed."""

_FEWEST_ITERATIONS = 4096
_MOST_ITERATIONS = 1 << 20
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class Refused(Exception):
    """The exchange can't go on: what the broker said is not what the mechanism allows."""


def plain(username: str, password: str) -> Exchange:
    yield f"\0{username}\0{password}".encode()


def oauthbearer(token: str, extensions: Sequence[tuple[str, str]]) -> Exchange:
    """RFC 7628. A refusal comes as a challenge with the reason; the error follows a one-byte answer."""
    more = "".join(f"\x01{name}={value}" for name, value in extensions)
    reason = yield f"n,,\x01auth=Bearer {token}{more}\x01\x01".encode()
    if reason:
        yield b"\x01"
        raise Refused(reason.decode(errors="replace"))


def scram(mechanism: str, username: str, password: str, nonce: str) -> Exchange:
    """RFC 5802: the password is proven, never sent, and the broker must prove that it knows it too."""
    algorithm = _HASHES[mechanism]
    name = username.replace("=", "=3D").replace(",", "=2C")
    first_bare = f"n={name},r={nonce}"
    server_first = (yield f"n,,{first_bare}".encode()).decode(errors="replace")
    fields = _fields(server_first)
    if not fields.get("r", "").startswith(nonce) or len(fields["r"]) == len(nonce):
        raise Refused("the broker's nonce does not continue ours")
    salt, iterations = _salt(fields.get("s", "")), _iterations(fields.get("i", ""))
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)
    client_key = _keyed(salted, b"Client Key", algorithm)
    final_bare = f"c={base64.b64encode(b'n,,').decode()},r={fields['r']}"
    message = f"{first_bare},{server_first},{final_bare}".encode()
    signature = _keyed(hashlib.new(algorithm, client_key).digest(), message, algorithm)
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    answer = yield f"{final_bare},p={base64.b64encode(proof).decode()}".encode()
    last = _fields(answer.decode(errors="replace"))
    if "e" in last:
        raise Refused(last["e"])
    expected = _keyed(_keyed(salted, b"Server Key", algorithm), message, algorithm)
    if not hmac.compare_digest(last.get("v", ""), base64.b64encode(expected).decode()):
        raise Refused("the broker could not prove that it knows the password")


def _fields(text: str) -> dict[str, str]:
    return {part[0]: part[2:] for part in text.split(",") if part[1:2] == "="}


def _salt(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise Refused("the broker's salt is not base64") from None


def _iterations(text: str) -> int:
    if not text.isdecimal() or not _FEWEST_ITERATIONS <= int(text) <= _MOST_ITERATIONS:
        raise Refused(f"{text!r} iterations; allowed are {_FEWEST_ITERATIONS} to {_MOST_ITERATIONS}")
    return int(text)


def _keyed(key: bytes, message: bytes, algorithm: str) -> bytes:
    return hmac.new(key, message, algorithm).digest()
