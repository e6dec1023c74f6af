"""How an apply ends on a terminal and for programs: complete is what is done and was read, nothing less."""

import json
from dataclasses import replace

import pytest

from planner.cli.view import TerminalView
from planner.model.plan import Plan
from planner.model.step import DONE, NOTHING_DONE, ApplySummary, StepOutcome
from planner.workflows.interaction import ApplyEnded
from tests.planner.render.scenes import everything, nothing


@pytest.fixture(autouse=True)
def command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["repl", "apply", "shop.yaml"])


def ended(
    plan: Plan, capsys: pytest.CaptureFixture[str], summary: ApplySummary, *, as_json: bool = False
) -> str:
    TerminalView(as_json=as_json)(ApplyEnded(plan, summary))
    return capsys.readouterr().out.strip()


def all_done(plan: Plan) -> ApplySummary:
    outcomes = {step.id: StepOutcome(step, DONE.result) for step in plan.steps}
    return ApplySummary(outcomes, interrupted=False, seconds=1.5, requests=2)


def test_what_could_not_be_read_is_not_complete(capsys: pytest.CaptureFixture[str]) -> None:
    unread = {"dc1": "silent"}
    for plan, summary in (
        (replace(nothing(), unknown=unread), NOTHING_DONE),
        (replace(everything(), unknown=unread), all_done(everything())),
    ):
        said = ended(plan, capsys, summary)
        assert said.startswith("Apply not complete.")
        assert said.endswith("To finish the rest: repl apply shop.yaml")
        assert json.loads(ended(plan, capsys, summary, as_json=True))["complete"] is False


def test_nothing_to_do_is_told_as_every_end_is(capsys: pytest.CaptureFixture[str]) -> None:
    nobody, everybody = (
        json.loads(ended(replace(plan, unknown={}), capsys, summary, as_json=True))
        for plan, summary in ((nothing(), NOTHING_DONE), (everything(), all_done(everything())))
    )
    assert nobody.keys() == everybody.keys()
    assert nobody == {
        "version": 1,
        "event": "finished",
        "id": None,
        "complete": True,
        "interrupted": False,
        "resources": {"added": 0, "changed": 0, "destroyed": 0},
        "steps": {},
        "requests": 0,
        "seconds": 0.0,
        "waiting": [],
    }
