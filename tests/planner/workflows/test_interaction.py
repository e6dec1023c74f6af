"""Nothing is approved by default, diagnostics are kept, and the exit code follows the result."""

import subprocess
import sys

import pytest

from planner.model.diagnostic import ExitCode, Failure, note, warning
from planner.model.plan import ApplyResult
from planner.model.step import NOTHING_DONE, ApplySummary, Result, StepResult
from planner.state.lease import LeaseHolder, LeaseState
from planner.workflows.applying.session import wait_text
from planner.workflows.interaction import (
    UNATTENDED,
    ApproveReplay,
    DiagnosticCollector,
    Interaction,
    ProgressEvent,
    approve_all,
)
from runtime.contract.results.status import PartitionWaits
from tests.commands import HERE
from tests.fakes.replacing import replace
from tests.planner.render.scenes import everything, nothing

COMPLETE = replace(nothing(), unknown={})
WAITS = (PartitionWaits(flow="one", topic="orders", partition=0, state="recreated", why="", next=""),)


def test_nothing_is_approved_by_default() -> None:
    with pytest.raises(Failure, match="not approved, so nothing was changed — add --auto-approve"):
        UNATTENDED.require(ApproveReplay("dc2"))

    Interaction(approve_all).require(ApproveReplay("dc2"))


def test_diagnostics_are_reported_and_kept_in_order() -> None:
    events: list[ProgressEvent] = []
    found = DiagnosticCollector(events.append)

    found("copied")
    found.notice(note("first"))
    found(warning("second"))

    assert events == [
        "copied",
        note("first"),
        warning("second"),
    ]
    assert found.diagnostics == (note("first"), warning("second"))


def test_the_holder_of_a_lease_is_named_and_writes_no_lines_of_its_own() -> None:
    """Its name comes from a topic that others may write."""
    holder = LeaseHolder("id", "ada\nApply complete", "ops1", 7, "shop", "a plan")

    assert wait_text("dc1", LeaseState(holder, 0, 0, 30_000)) == (
        "Waiting for another apply to dc1: ada\\nApply complete@ops1, pid 7, since 00:00:00 UTC ..."
    )


def summary(result: Result, *, interrupted: bool = False) -> ApplySummary:
    step = everything().steps[0]
    return ApplySummary({step.id: StepResult(result)}, interrupted, 1.0)


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (ApplyResult(COMPLETE, NOTHING_DONE), ExitCode.DONE),
        (ApplyResult(COMPLETE, summary(Result.DONE)), ExitCode.DONE),
        (ApplyResult(COMPLETE, summary(Result.DONE, interrupted=True)), ExitCode.DONE),
        (ApplyResult(COMPLETE, summary(Result.FAILED)), ExitCode.ERROR),
        (ApplyResult(COMPLETE, summary(Result.NOT_STARTED, interrupted=True)), ExitCode.INTERRUPTED),
        (ApplyResult(COMPLETE, NOTHING_DONE, waits=WAITS), ExitCode.ERROR),
        (ApplyResult(COMPLETE, summary(Result.DONE, interrupted=True), waits=WAITS), ExitCode.ERROR),
        (ApplyResult(replace(COMPLETE, unknown={"dc1": "silent"}), NOTHING_DONE), ExitCode.ERROR),
    ],
)
def test_the_exit_code_of_an_apply(result: ApplyResult, code: ExitCode) -> None:
    assert (result.exit_code, result.complete) == (code, code is ExitCode.DONE)


@pytest.mark.parametrize(
    ("program", "absent"),
    [
        ("import planner.workflows", ("confluent_kafka", "yaml", "click", "rich")),
        (
            "from planner.workflows import apply, failover, plan, verify",
            ("click", "rich", "jinja2", "pyspark"),
        ),
    ],
)
def test_what_an_import_does_not_load(program: str, absent: tuple[str, ...]) -> None:
    loaded = f"{program}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", loaded], cwd=HERE, capture_output=True, text=True, check=True, timeout=60
    )

    assert not set(absent) & set(done.stdout.split())
