"""Saved plans: opened only if approved, signed as required, and in agreement with what they show."""

import re
from dataclasses import dataclass
from pathlib import Path

from planner.model.diagnostic import ExitCode, Failure, error, note
from planner.model.plan import PREFIX, Plan
from planner.state import planfile
from planner.state.planfile import KEY, KEY_FILE, SavedPlan, Signature, key_of
from planner.workflows.interaction import Noticed, ProgressHandler, SavedPlanReady, silent

_DIGEST = re.compile(rf"{PREFIX}[0-9a-f]{{64}}")


@dataclass(frozen=True, slots=True)
class OpenedPlan:
    """A saved plan as it can be shown: with its digest, and how it is signed."""

    plan: Plan
    digest: str
    signature: Signature

    @property
    def signed(self) -> bool:
        return self.signature is not Signature.NOT_SIGNED


def save_plan(plan: Plan, file: Path) -> OpenedPlan:
    """Writes a plan to a file, signed where a key is set. Failure: it can't be written or holds a secret."""
    key = key_of()
    digest = planfile.write(plan, file, key)
    return OpenedPlan(plan, digest, Signature.NOT_SIGNED if key is None else Signature.VALID)


def open_plan(file: Path) -> OpenedPlan:
    """Reads a saved plan to show it. Failure where its steps are not what its changes show."""
    saved = planfile.load(file)
    return OpenedPlan(saved.agreed(), saved.digest, saved.checked_with(key_of()))


def approved(path: Path, expect: str | None, progress: ProgressHandler = silent) -> Plan:
    """Returns the saved plan to execute and reports its steps. Failure where it is not the approved one."""
    saved = planfile.load(path)
    if expect is not None:
        _refuse_another(saved, expect)
    _refuse_unsigned(saved, key_of(), progress)
    plan = saved.agreed()
    if plan.applyable:
        progress(SavedPlanReady(plan))
    return plan


def refuse_expect_without_a_plan(expect: str | None) -> None:
    if expect is not None:
        what = "--expect names a saved plan, and this is a topology"
        raise Failure(error(what, "name the file that repl plan --out wrote", code="expect"))


def _refuse_another(saved: SavedPlan, expect: str) -> None:
    wanted = expect.strip().lower()
    if not _DIGEST.fullmatch(wanted):
        what = f"--expect {expect!r} is no digest of a plan"
        way_out = f"write {PREFIX} and 64 hex digits, as repl plan printed them"
        raise Failure(error(what, way_out, code="expect"))
    if wanted != saved.digest:
        raise Failure(
            error(
                f"{saved.path} is not the plan that was approved: its digest is {saved.digest}, "
                f"expected is {wanted}",
                "apply the file that was approved, or have this one approved (repl show FILE)",
                code="expect",
                exit=ExitCode.REFUSED,
            )
        )


def _refuse_unsigned(saved: SavedPlan, key: bytes | None, progress: ProgressHandler) -> None:
    match saved.checked_with(key):
        case Signature.NOT_CHECKED:
            unchecked = note(
                f"{saved.path} is signed, and its signature is not checked: no key is set",
                f"set {KEY} or {KEY_FILE} to the key that it was signed with",
                code="plan-signature",
            )
            progress(Noticed(unchecked))
        case Signature.NOT_SIGNED if key is not None:
            raise _refused(saved, "is not signed, and a key is set")
        case Signature.OTHER_KEY:
            raise _refused(saved, "is not signed with the key that is set")
        case _:
            pass


def _refused(saved: SavedPlan, what: str) -> Failure:
    return Failure(
        error(
            f"{saved.path} {what} ({KEY} or {KEY_FILE})",
            "make the plan again where that key is set: repl plan --out FILE",
            code="plan-signature",
            exit=ExitCode.REFUSED,
        )
    )
