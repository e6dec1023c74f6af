"""The saved plan: readable JSON, versioned, sealed by a digest, without a secret, known by its content."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from planner.model.address import Address
from planner.model.change import Change
from planner.model.diagnostic import Diagnostic, Failure, error
from planner.model.plan import FORMAT_VERSION, Fingerprint, Mode, Plan, PlannedFlow
from planner.model.step import Step
from planner.model.topology import Cluster, Internal
from planner.plan.plain import STEP_KINDS, literal_secrets, plain

MARK = "repl_plan"  # the first key of the file; its value is the format's version
AGAIN = "make the plan again: repl plan --out FILE"
T = TypeVar("T")


def digest(plan: Plan) -> str:
    """What names this plan in the registry and the history: the same plan has the same."""
    return _seal(_body(plan))


def write(plan: Plan, path: Path) -> str:
    """Write it whole or not at all; the digest it is sealed with."""
    if literals := literal_secrets(plan):
        raise Failure(
            error(
                f"a plan file holds no secrets, the topology writes these out: {', '.join(literals)}",
                "write each as {env: VARIABLE} or {file: PATH}",
                code="planfile-secret",
            )
        )
    body = _body(plan)
    seal = _seal(body)
    text = msgspec.json.format(
        msgspec.json.encode({MARK: FORMAT_VERSION, "digest": seal, "plan": body}), indent=1
    )
    beside = path.with_name(f"{path.name}.part")
    try:
        beside.write_bytes(text + b"\n")
        beside.replace(path)
    except OSError as wrong:
        why = wrong.strerror or str(wrong)
        raise Failure(error(f"{path}: the plan can't be written: {why}", "name another --out")) from None
    return seal


def is_plan_file(path: Path) -> bool:
    """By its first key, whatever its name."""
    try:
        with path.open("rb") as opened:
            start = opened.read(256)
    except OSError:
        return False
    return start.lstrip().startswith(b"{") and f'"{MARK}"'.encode() in start


def read(path: Path) -> Plan:
    """The plan as it was written; Failure where it is not one, is newer, or was touched since."""
    envelope = _envelope(path)
    version = envelope.get(MARK)
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise _failure(
            f"{path} was made by a newer repl (plan format {version}, this one reads {FORMAT_VERSION})",
            "install that version, or make the plan again with this one",
        )
    body = envelope.get("plan")
    if not isinstance(body, dict) or envelope.get("digest") != _seal(body):
        raise _failure(f"{path} is not as it was written: its digest does not fit", AGAIN)
    try:
        return _plan(body)
    except (msgspec.ValidationError, KeyError, ValueError) as wrong:
        raise _failure(f"{path} is no plan that can be read: {wrong}", AGAIN) from None


def _envelope(path: Path) -> dict[str, Any]:
    try:
        envelope = msgspec.json.decode(path.read_bytes())
    except OSError as wrong:
        raise _failure(
            f"{path} can't be read: {wrong.strerror}", "name a file that repl plan --out wrote"
        ) from None
    except msgspec.DecodeError as wrong:
        raise _failure(f"{path} is not whole, or no plan file: {wrong}", AGAIN) from None
    if not isinstance(envelope, dict) or MARK not in envelope:
        raise _failure(f"{path} is no plan file", "name a file that repl plan --out wrote")
    return envelope


def _failure(summary: str, way_out: str) -> Failure:
    return Failure(error(summary, way_out, code="planfile"))


def _body(plan: Plan) -> dict[str, Any]:
    body = plain(plan)
    assert isinstance(body, dict)
    return body


def _seal(body: dict[str, Any]) -> str:
    canonical = msgspec.json.encode(body, order="deterministic")
    return f"sha256:{hashlib.sha256(canonical).hexdigest()}"


def _plan(body: dict[str, Any]) -> Plan:
    return Plan(
        topology=body["topology"],
        mode=Mode(body["mode"]),
        topology_digest=body["topology_digest"],
        created_at=body["created_at"],
        clusters=msgspec.convert(body["clusters"], dict[str, str]),
        changes=tuple(_addressed(one, Change) for one in body["changes"]),
        steps=tuple(step_of(one) for one in body["steps"]),
        fingerprints=tuple(_addressed(one, Fingerprint) for one in body.get("fingerprints", ())),
        diagnostics=msgspec.convert(body.get("diagnostics", ()), tuple[Diagnostic, ...]),
        unknown=msgspec.convert(body.get("unknown", {}), dict[str, str]),
        targets=msgspec.convert(body.get("targets", ()), tuple[str, ...]),
        connections=msgspec.convert(body.get("connections", {}), dict[str, Cluster]),
        flows=msgspec.convert(body.get("flows", ()), tuple[PlannedFlow, ...]),
        internal=msgspec.convert(body.get("internal", {}), Internal),
    )


def step_of(body: Mapping[str, Any]) -> Step:
    """A step from its plain form."""
    kind = STEP_KINDS[body["step"]]
    if "entry" in body:
        body = {**body, "entry": _spelled(body["entry"])}
    step = _addressed(body, kind)
    assert isinstance(step, kind)
    return step


def _addressed(body: Mapping[str, Any], kind: type[T]) -> T:
    return msgspec.convert(_spelled(body), kind)


def _spelled(body: Mapping[str, Any]) -> dict[str, Any]:
    address = Address.parse(body["address"])
    return {**body, "address": {"kind": address.kind, "cluster": address.cluster, "name": address.name}}
