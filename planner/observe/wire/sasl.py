"""SASL: our side of PLAIN, SCRAM and OAUTHBEARER, as generators: bytes out, the broker's answer in."""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Generator

from planner.observe.wire.failure import Refused

Exchange = Generator[bytes, bytes, None]

_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_MOST_ITERATIONS = 1_000_000


def plain(username: str, password: str) -> Exchange:
    yield f"\0{username}\0{password}".encode()


def oauthbearer(token: str, extensions: tuple[tuple[str, str], ...]) -> Exchange:
    more = "".join(f"{name}={value}\x01" for name, value in extensions)
    refusal = yield f"n,,\x01auth=Bearer {token}\x01{more}\x01".encode()
    if refusal:  # the broker says why, and waits for this before it ends the exchange
        yield b"\x01"


def scram(
    mechanism: str,
    username: str,
    password: str,
    nonce: Callable[[], str] = lambda: secrets.token_hex(16),
) -> Exchange:
    """RFC 5802, both sides proven: a broker that does not know the password is not believed."""
    hash_name = _HASHES[mechanism]
    ours = nonce()
    name = username.replace("=", "=3D").replace(",", "=2C")
    bare = f"n={name},r={ours}"
    challenge = (yield f"n,,{bare}".encode()).decode()
    given = _attributes(challenge)
    if not given.get("r", "").startswith(ours) or not 0 < int(given.get("i", "0")) <= _MOST_ITERATIONS:
        raise Refused("the broker's SCRAM challenge makes no sense", "is it a Kafka broker?")
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), base64.b64decode(given["s"]), int(given["i"]))
    without_proof = f"c=biws,r={given['r']}"
    signed = f"{bare},{challenge},{without_proof}".encode()
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    signature = hmac.digest(hashlib.new(hash_name, client_key).digest(), signed, hash_name)
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    verdict = yield f"{without_proof},p={base64.b64encode(proof).decode()}".encode()
    expected = hmac.digest(hmac.digest(salted, b"Server Key", hash_name), signed, hash_name)
    answered = base64.b64decode(_attributes(verdict.decode()).get("v", ""))
    if not hmac.compare_digest(answered, expected):
        raise Refused("the broker does not know the password it asks for", "is this the right cluster?")


def _attributes(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)
