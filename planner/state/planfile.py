"""The saved plan: readable JSON, versioned, named by its digest, and signed if the operator has a key.

The file holds the inputs of a plan: the topology, what was read of the clusters, and the release. The plan is
made of them again when the file is read. So the release must be the same.

A plan file may come from an untrusted place. Its size and depth are limited, every field has its type, no key
stands twice, and nothing in it is compressed or executed. It holds no secret.

A digest proves no origin: after a change to the file, it can be computed again. The signature is an
HMAC-SHA256 with a key that only the operator has. The key comes from the environment alone, never from a
topology or a plan file.
"""

import hashlib
import hmac
import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from planner.model.change import SENSITIVE
from planner.model.diagnostic import Failure, error
from planner.model.plain import NotPlain, value_of
from planner.model.plan import MARK, Plan, PlanInputs, body_of, canonical, digest_of, release
from planner.plan.make import plan_from
from runtime.contract.client import secrets
from runtime.contract.whole_file import write_whole

KEY, KEY_FILE = secrets.PLAN_KEY, secrets.PLAN_KEY_FILE  # the environment variables with the operator's key
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


FORMAT_VERSION = 1
AGAIN = "make the plan again: repl plan --out FILE"
LARGEST = 256 << 20  # bytes; a plan that creates 10,000 topics has 9 MB
DEEPEST = 32  # levels; a plan has 12


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """What a plan file holds. `digest` is computed from the content, and `signature` is checked."""

    path: Path
    inputs: PlanInputs
    digest: str
    signature: Signature

    @property
    def signed(self) -> bool:
        return self.signature is not Signature.NOT_SIGNED

    def plan(self) -> Plan:
        """Returns the plan, made again. Raises Failure if no plan follows from what the file holds."""
        try:
            plan = plan_from(self.inputs)
        except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError) as wrong:
            what = f"no plan follows from what it holds ({type(wrong).__name__}: {wrong!s:.200})"
            raise _failure(f"{self.path} can't be read as a plan: {what}", AGAIN) from None
        if strange := {step.cluster for step in plan.steps} - plan.connections.keys():
            what = f"it does not say how {min(strange)} is reached"
            raise _failure(f"{self.path} can't be read as a plan: {what}", AGAIN)
        return plan


def write(plan: Plan, path: Path, key: bytes | None = None) -> str:
    """Writes the plan atomically, signed if there is a key, and returns its digest."""
    body = body_of(plan.inputs)
    if literals := sorted(set(_literal_secrets(body["topology"]))):
        raise Failure(
            error(
                f"a plan file holds no secrets, the topology writes these out: {', '.join(literals)}",
                "write each as {env: VARIABLE} or {file: PATH}",
                code="planfile-secret",
            )
        )
    content = canonical(body)
    seal = digest_of(content)
    envelope: dict[str, Any] = {MARK: FORMAT_VERSION, "digest": seal}
    if key is not None:
        envelope["signature"] = sign(key, content)
    text = msgspec.json.format(msgspec.json.encode({**envelope, "plan": body}), indent=1)
    try:
        write_whole(path, text + b"\n")
    except OSError as wrong:
        why = wrong.strerror or str(wrong)
        raise Failure(error(f"{path}: the plan can't be written: {why}", "name another --out")) from None
    return seal


def remove(path: Path) -> bool:
    """Removes a plan file, and no other file. Returns whether there was one."""
    if not is_plan_file(path):
        return False
    try:
        path.unlink()
    except OSError as wrong:
        why = wrong.strerror or str(wrong)
        raise Failure(error(f"{path}: the older plan can't be removed: {why}", "remove it")) from None
    return True


def _literal_secrets(tree: Any, where: str = "") -> Iterator[str]:
    """Yields `dc1: sasl.password` for each secret that is written out instead of being a reference."""
    for key, value in tree.items() if isinstance(tree, dict) else ():
        if value == SENSITIVE:
            yield f"{where}: {key}"
        else:
            yield from _literal_secrets(value, where if key in ("client", "conf") else key)


def is_plan_file(path: Path) -> bool:
    """Returns whether the file begins like a plan file, whatever its name."""
    try:
        with _opened(path) as opened:
            start = opened.read(256)
    except OSError:
        return False
    return start.lstrip().startswith(b"{") and f'"{MARK}"'.encode() in start


def load(path: Path, key: bytes | None = None) -> SavedPlan:
    """Returns what a plan file holds, with its signature checked by the operator's key.

    Failure: it is no plan file, of another release, or was changed.
    """
    envelope = _envelope(path)
    version = envelope.get(MARK)
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise _failure(
            f"{path} was made by a newer repl (plan format {version}, this one reads {FORMAT_VERSION})",
            "install that version, or make the plan again with this one",
        )
    body, signature = envelope.get("plan"), envelope.get("signature")
    content = canonical(body) if isinstance(body, dict) else b""
    seal = digest_of(content)
    if not isinstance(body, dict) or envelope.get("digest") != seal:
        raise _failure(f"{path} was changed after it was written: its digest does not match", AGAIN)
    if not isinstance(signature, str | None):
        raise _failure(f"{path} can't be read as a plan: its signature is no text", AGAIN)
    if isinstance(maker := body.get("release"), str) and maker != release():
        raise _failure(
            f"{path} was made by repl {maker:.40}, and this is repl {release()}, which may plan otherwise",
            f"apply it with repl {maker:.40}, or {AGAIN}",
        )
    try:
        inputs = value_of(body, PlanInputs)
    except NotPlain as wrong:
        raise _failure(f"{path} can't be read as a plan: {wrong}", AGAIN) from None
    if canonical(body_of(inputs)) != content:
        raise _failure(f"{path} can't be read as a plan: it holds what no plan of this release has", AGAIN)
    return SavedPlan(path, inputs, seal, check(signature, content, key))


def _envelope(path: Path) -> dict[str, Any]:
    content = _content(path)
    try:
        envelope = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
        raise _failure(f"{path} is incomplete, or no plan file: {wrong}", AGAIN) from None
    except RecursionError:
        raise _too_deep(path) from None
    if not isinstance(envelope, dict) or MARK not in envelope:
        raise _failure(f"{path} is no plan file", "name a file that repl plan --out wrote")
    if not _is_shallow(envelope):
        raise _too_deep(path)
    try:
        json.loads(content, object_pairs_hook=_each_key_once)
    except ValueError as wrong:
        raise _failure(f"{path} can't be read as a plan: {wrong}", AGAIN) from None
    return envelope


def _each_key_once(pairs: list[tuple[str, object]]) -> None:
    """Refuses a key that stands twice: people and programs might read another one of the two."""
    seen = set()
    for name, _ in pairs:
        if name in seen:
            raise ValueError(f"the key {name!r:.40} stands twice")
        seen.add(name)


def _content(path: Path) -> bytes:
    """Reads a regular file, up to the largest size of a plan."""
    hint = "name a file that repl plan --out wrote"
    try:
        with _opened(path) as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise _failure(f"{path} can't be read: it is not a regular file", hint)
            content = opened.read(LARGEST + 1)
    except OSError as wrong:
        raise _failure(f"{path} can't be read: {wrong.strerror}", hint) from None
    if len(content) > LARGEST:
        raise _failure(f"{path} can't be read: it is larger than {LARGEST >> 20} MiB", hint)
    return content


def _opened(path: Path) -> BinaryIO:
    """Opens the file without waiting for the writer of a pipe."""
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")


def _is_shallow(tree: object) -> bool:
    level = [tree]
    for _ in range(DEEPEST):
        level = [
            inner
            for node in level
            for inner in (node.values() if isinstance(node, dict) else node if isinstance(node, list) else ())
            if isinstance(inner, dict | list)
        ]
        if not level:
            return True
    return False


def _too_deep(path: Path) -> Failure:
    return _failure(f"{path} can't be read as a plan: it is nested too deeply", AGAIN)


def _failure(summary: str, hint: str) -> Failure:
    return Failure(error(summary, hint, code="planfile"))
