"""Nothing is approved by default, diagnostics are kept, and the exit code follows the result."""

import subprocess
import sys
from dataclasses import replace

import pytest

from planner.model.diagnostic import ExitCode, Failure, note, warning
from planner.model.step import NOTHING_DONE, ApplySummary, Result, StepOutcome
from planner.workflows.applying.apply import ApplyResult
from planner.workflows.interaction import (
    UNATTENDED,
    ApproveReplay,
    DiagnosticCollector,
    Interaction,
    Noticed,
    ProgressEvent,
    ReadingStarted,
    approve_all,
)
from runtime.contract.results.status import PartitionWaits
from tests.commands import HERE
from tests.planner.render.scenes import everything, nothing

COMPLETE = replace(nothing(), unknown={})
WAITS = (PartitionWaits(flow="one", topic="orders", partition=0, state="recreated", why="", next=""),)


def test_nothing_is_approved_by_default() -> None:
    with pytest.raises(Failure, match="not approved, so nothing was changed"):
        UNATTENDED.require(ApproveReplay("dc2"))

    Interaction(approve_all).require(ApproveReplay("dc2"))


def test_diagnostics_are_reported_and_kept_in_order() -> None:
    events: list[ProgressEvent] = []
    found = DiagnosticCollector(events.append)

    found(ReadingStarted())
    found.notice(note("first"))
    found(Noticed(warning("second")))

    assert events == [ReadingStarted(), Noticed(note("first")), Noticed(warning("second"))]
    assert found.found == (note("first"), warning("second"))


def summary(result: Result, *, interrupted: bool = False) -> ApplySummary:
    step = everything().steps[0]
    return ApplySummary({step.id: StepOutcome(step, result)}, interrupted, 1.0)


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
