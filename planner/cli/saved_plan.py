"""Opens a saved plan for an apply: it is the approved one, its signature fits, and it does what it shows."""

import re
from pathlib import Path

from planner.cli.app import show
from planner.cli.plan_output import print_steps
from planner.model.diagnostic import ExitCode, Failure, error, note
from planner.model.plan import Plan
from planner.plan.serialize import PREFIX
from planner.state import planfile
from planner.state.planfile import SavedPlan
from planner.state.signature import KEY, KEY_FILE, Signature, key_of

_DIGEST = re.compile(rf"{PREFIX}[0-9a-f]{{64}}")


def approved(path: Path, expect: str | None, *, quiet: bool) -> Plan:
    """Return the plan to execute, after its steps were shown; Failure where it is not the approved one."""
    saved = planfile.load(path)
    if expect is not None:
        _refuse_another(saved, expect)
    _refuse_unsigned(saved, key_of())
    plan = saved.agreed()
    if not quiet and plan.applyable:
        print_steps(plan)
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


def _refuse_unsigned(saved: SavedPlan, key: bytes | None) -> None:
    match saved.checked_with(key):
        case Signature.NOT_CHECKED:
            unchecked = note(
                f"{saved.path} is signed, and its signature is not checked: no key is set",
                f"set {KEY} or {KEY_FILE} to the key that it was signed with",
                code="plan-signature",
            )
            show([unchecked])
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
