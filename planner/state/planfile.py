"""The saved plan: readable JSON, versioned, named by its digest, and signed if the operator has a key.

A plan file may come from an untrusted place. Its size and depth are limited, every field has its type, and
nothing in it is compressed or executed. It holds no secret.

A digest proves no origin: after a change to the file, it can be computed again. The signature is an
HMAC-SHA256 with a key that only the operator has. The key comes from the environment alone, never from a
topology or a plan file.
"""

import hashlib
import hmac
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from planner.model.address import Address
from planner.model.diagnostic import Diagnostic, Failure, error
from planner.model.plan import (
    FORMAT_VERSION,
    STEP_KINDS,
    Change,
    Fingerprint,
    Mode,
    Plan,
    PlannedFlow,
    body_of,
    canonical,
    digest,
    digest_of,
    literal_secrets,
)
from planner.model.step import Step
from planner.model.topology import Cluster, Internal, Policies
from planner.plan.agreement import disagreements
from runtime.contract.client.secrets import PLAN_KEY as KEY
from runtime.contract.client.secrets import PLAN_KEY_FILE as KEY_FILE

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


__all__ = [
    "KEY",
    "KEY_FILE",
    "MARK",
    "SavedPlan",
    "Signature",
    "check",
    "digest",
    "is_plan_file",
    "key_of",
    "load",
    "read",
    "step_of",
    "write",
]


MARK = "repl_plan"  # the first key of the file; its value is the format's version


AGAIN = "make the plan again: repl plan --out FILE"


LARGEST = 256 << 20  # bytes; a plan that creates 10,000 topics has less than 30 MB


DEEPEST = 32  # levels; a plan has 10


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """A plan as its file holds it. `digest` is computed from the content; `signature` is as written."""

    path: Path
    plan: Plan
    digest: str
    signature: str | None
    content: bytes  # what digest and signature are made over

    def checked_with(self, key: bytes | None) -> Signature:
        """Returns what the operator's key says about the signature."""
        return check(self.signature, self.content, key)

    def agreed(self) -> Plan:
        """Returns the plan. Raises Failure if a step is not what its change shows.

        A plan with errors is not checked: it is never applied, only shown.
        """
        found = disagreements(self.plan)
        if found and not self.plan.errored:
            raise Failure(found)
        return self.plan


def write(plan: Plan, path: Path, key: bytes | None = None) -> str:
    """Writes the plan atomically, signed if there is a key, and returns its digest."""
    if literals := literal_secrets(plan):
        raise Failure(
            error(
                f"a plan file holds no secrets, the topology writes these out: {', '.join(literals)}",
                "write each as {env: VARIABLE} or {file: PATH}",
                code="planfile-secret",
            )
        )
    body = body_of(plan)
    seal = digest_of(body)
    envelope: dict[str, Any] = {MARK: FORMAT_VERSION, "digest": seal}
    if key is not None:
        envelope["signature"] = sign(key, canonical(body))
    text = msgspec.json.format(msgspec.json.encode({**envelope, "plan": body}), indent=1)
    beside = path.with_name(f"{path.name}.part")
    try:
        beside.write_bytes(text + b"\n")
        beside.replace(path)
    except OSError as wrong:
        why = wrong.strerror or str(wrong)
        raise Failure(error(f"{path}: the plan can't be written: {why}", "name another --out")) from None
    return seal


def is_plan_file(path: Path) -> bool:
    """Returns whether the file begins like a plan file, whatever its name."""
    try:
        with _opened(path) as opened:
            start = opened.read(256)
    except OSError:
        return False
    return start.lstrip().startswith(b"{") and f'"{MARK}"'.encode() in start


def read(path: Path) -> Plan:
    """Returns the plan of a file. Raises Failure if its steps are not what its changes show."""
    return load(path).agreed()


def load(path: Path) -> SavedPlan:
    """Returns what a plan file holds. Raises Failure if it is no plan file, is newer, or was changed."""
    envelope = _envelope(path)
    version = envelope.get(MARK)
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise _failure(
            f"{path} was made by a newer repl (plan format {version}, this one reads {FORMAT_VERSION})",
            "install that version, or make the plan again with this one",
        )
    body, signature = envelope.get("plan"), envelope.get("signature")
    if not isinstance(body, dict) or envelope.get("digest") != digest_of(body):
        raise _failure(f"{path} was changed after it was written: its digest does not match", AGAIN)
    if not isinstance(signature, str | None):
        raise _failure(f"{path} can't be read as a plan: its signature is no text", AGAIN)
    try:
        plan = _plan(body)
    except (msgspec.ValidationError, KeyError, ValueError, TypeError) as wrong:
        what = f"it lacks {wrong}" if isinstance(wrong, KeyError) else str(wrong)
        raise _failure(f"{path} can't be read as a plan: {what}", AGAIN) from None
    return SavedPlan(path, plan, digest_of(body), signature, canonical(body))


def _envelope(path: Path) -> dict[str, Any]:
    try:
        envelope = msgspec.json.decode(_content(path))
    except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
        raise _failure(f"{path} is incomplete, or no plan file: {wrong}", AGAIN) from None
    except RecursionError:
        raise _too_deep(path) from None
    if not isinstance(envelope, dict) or MARK not in envelope:
        raise _failure(f"{path} is no plan file", "name a file that repl plan --out wrote")
    if not _is_shallow(envelope):
        raise _too_deep(path)
    return envelope


def _content(path: Path) -> bytes:
    """Reads a regular file, up to the largest size of a plan."""
    way_out = "name a file that repl plan --out wrote"
    try:
        with _opened(path) as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise _failure(f"{path} can't be read: it is not a regular file", way_out)
            content = opened.read(LARGEST + 1)
    except OSError as wrong:
        raise _failure(f"{path} can't be read: {wrong.strerror}", way_out) from None
    if len(content) > LARGEST:
        raise _failure(f"{path} can't be read: it is larger than {LARGEST >> 20} MiB", way_out)
    return content


def _opened(path: Path) -> BinaryIO:
    """Opens the file without waiting for the writer of a pipe."""
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")


def _is_shallow(tree: object) -> bool:
    level = [tree]
    for _ in range(DEEPEST):
        level = [
            inner
            for one in level
            for inner in (one.values() if isinstance(one, dict) else one if isinstance(one, list) else ())
            if isinstance(inner, dict | list)
        ]
        if not level:
            return True
    return False


def _too_deep(path: Path) -> Failure:
    return _failure(f"{path} can't be read as a plan: it is nested too deeply", AGAIN)


def _failure(summary: str, way_out: str) -> Failure:
    return Failure(error(summary, way_out, code="planfile"))


def _plan(body: dict[str, Any]) -> Plan:
    def field(name: str, kind: Any, default: Any = None) -> Any:
        return msgspec.convert(body[name] if default is None else body.get(name, default), kind)

    return Plan(
        topology=field("topology", str),
        mode=field("mode", Mode),
        topology_digest=field("topology_digest", str),
        created_at=field("created_at", str),
        clusters=field("clusters", dict[str, str]),
        changes=tuple(_addressed(one, Change) for one in field("changes", list[dict[str, Any]])),
        steps=tuple(step_of(one) for one in field("steps", list[dict[str, Any]])),
        fingerprints=tuple(
            _addressed(one, Fingerprint) for one in field("fingerprints", list[dict[str, Any]], ())
        ),
        diagnostics=field("diagnostics", tuple[Diagnostic, ...], ()),
        unknown=field("unknown", dict[str, str], {}),
        targets=field("targets", tuple[str, ...], ()),
        connections=field("connections", dict[str, Cluster], {}),
        flows=field("flows", tuple[PlannedFlow, ...], ()),
        internal=field("internal", Internal, {}),
        policies=field("policies", Policies, {}),
        labels=field("labels", dict[str, dict[str, str]], {}),
    )


def step_of(body: Mapping[str, Any]) -> Step:
    """Returns a step from its plain tree. Raises ValueError for an unknown kind."""
    name = body.get("step")
    if not isinstance(name, str) or name not in STEP_KINDS:
        raise ValueError(f"it has a step of the kind {name!r}, which this release does not know")
    if "entry" in body:
        body = {**body, "entry": _spelled(body["entry"])}
    kind = STEP_KINDS[name]
    step = _addressed(body, kind)
    assert isinstance(step, kind)
    return step


def _addressed(body: Mapping[str, Any], kind: type[T]) -> T:
    return msgspec.convert(_spelled(body), kind)


def _spelled(body: Any) -> dict[str, Any]:
    given = msgspec.convert(body, dict[str, Any])
    address = Address.parse(msgspec.convert(given["address"], str))
    return {**given, "address": {"kind": address.kind, "cluster": address.cluster, "name": address.name}}
