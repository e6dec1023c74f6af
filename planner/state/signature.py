"""The signature of a saved plan: an HMAC-SHA256 with a key that only the operator has.

A digest proves no origin: after a change to the file, it can be computed again. A signature needs the key.
The key comes from the environment alone, never from a topology or a plan file.
"""

import hashlib
import hmac
import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from planner.model.diagnostic import Failure, error
from runtime.contract.client.redaction import PLAN_KEY as KEY
from runtime.contract.client.redaction import PLAN_KEY_FILE as KEY_FILE

__all__ = ["KEY", "KEY_FILE", "Signature", "check", "key_of", "sign"]

SHORTEST = 16  # bytes: a shorter key can be guessed
LONGEST = 4_096
PREFIX = "hmac-sha256:"
_MAKE_ONE = "make one with: openssl rand -hex 32"


class Signature(StrEnum):
    """The result of checking a plan's signature."""

    NOT_SIGNED = "not signed"
    VALID = "signed with this key"
    OTHER_KEY = "signed with another key"
    NOT_CHECKED = "signed, and not checked: no key is set"


def key_of(environment: Mapping[str, str] | None = None) -> bytes | None:
    """Returns the operator's key; None if neither variable is set. Raises Failure if it can't be used."""
    variables = os.environ if environment is None else environment
    text, file = variables.get(KEY), variables.get(KEY_FILE)
    if text is not None and file is not None:
        raise Failure(error(f"{KEY} and {KEY_FILE} are both set", "unset one of them", code="plan-key"))
    if file is not None:
        return _usable(_from_file(Path(file)), f"the file that {KEY_FILE} names")
    return None if text is None else _usable(text.encode("utf-8", "surrogateescape"), KEY)


def _from_file(path: Path) -> bytes:
    try:
        with path.open("rb") as opened:
            return opened.read(LONGEST + 1).rstrip(b"\r\n")
    except OSError as wrong:
        why = wrong.strerror or str(wrong)
        raise Failure(
            error(f"{KEY_FILE} names {path}, which can't be read: {why}", _MAKE_ONE, code="plan-key")
        ) from None


def _usable(key: bytes, where: str) -> bytes:
    if not SHORTEST <= len(key) <= LONGEST:
        what = f"{where} holds a key of {len(key)} bytes: it must have {SHORTEST} to {LONGEST}"
        raise Failure(error(what, _MAKE_ONE, code="plan-key"))
    return key


def sign(key: bytes, content: bytes) -> str:
    """Returns the signature of the content."""
    return PREFIX + hmac.new(key, content, hashlib.sha256).hexdigest()


def check(signature: str | None, content: bytes, key: bytes | None) -> Signature:
    """Returns the result of the check. The comparison takes constant time, so it leaks nothing."""
    if signature is None:
        return Signature.NOT_SIGNED
    if key is None:
        return Signature.NOT_CHECKED
    fits = hmac.compare_digest(signature.encode("utf-8", "surrogatepass"), sign(key, content).encode())
    return Signature.VALID if fits else Signature.OTHER_KEY
