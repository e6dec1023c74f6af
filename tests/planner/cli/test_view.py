"""The terminal's side of a workflow: lines for people, one JSON event a line for programs."""

import io
import json
import os
import signal
from collections.abc import Sequence

import msgspec
import pytest
from rich.console import Console

from planner.apply.executor import Interruption
from planner.cli.console import ProgressBars
from planner.cli.view import (
    TerminalView,
    ask,
    interaction,
    interruptible,
    print_rehearsal,
    print_subscriptions,
)
from planner.model.diagnostic import (
    Diagnostic,
    Failure,
    SourceLocation,
    WorkProgress,
    error,
    warning,
)
from planner.model.plan import Plan
from planner.model.step import DONE, NOTHING_DONE, ApplySummary, Result, StepResult, StepsEnded
from planner.render.reports import applies
from planner.workflows.flows.ending import LeftToCopy, Rehearsal
from planner.workflows.interaction import (
    ApplyResult,
    ApplyStarted,
    ApproveLoss,
    ApprovePlan,
    ApproveReplay,
    FlowsEnded,
    PlanReady,
    ProgressEvent,
    StepWaits,
    UnsentRecords,
    WorkEnded,
)
from runtime.contract.records.job_status import PartitionState, PartitionStatus
from runtime.contract.results.groups import FlowLoss, GroupLoss, GroupTopics
from tests.fakes.blank import blank
from tests.fakes.replacing import replace
from tests.planner.cli.test_reading_bar import shown
from tests.planner.render.scenes import everything, nothing

PLACE = SourceLocation("a.yaml", 8, 12)
UNSENT = UnsentRecords("dc1", {"there": {"orders": 7, "refunds": 1_200}, "other": {}})
BILLING = GroupTopics(flow="there", group="billing", cluster="dc2", topics=["dc1.orders"])
MISSING = blank(FlowLoss, flow="there", source="dc1", destination="dc2", state="retrying")
ENDED = FlowsEnded((MISSING,))


def printed(
    events: Sequence[ProgressEvent], capsys: pytest.CaptureFixture[str], *, as_json: bool
) -> tuple[str, str]:
    view = TerminalView(as_json=as_json)
    for event in events:
        view(event)
    told = capsys.readouterr()
    return told.out, told.err


def test_counts_of_spark_are_few_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    begun = WorkProgress("verify", "Spark is starting")
    counts = [WorkProgress("verify", "compared", number, 2_000, "stretches") for number in range(1, 2_001)]

    out, err = printed([begun, *counts, WorkEnded("verify")], capsys, as_json=False)

    assert out == ""
    assert err == "compared 1 of 2,000 stretches\ncompared 2,000 of 2,000 stretches\n"


@pytest.fixture
def screen() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def view(screen: io.StringIO) -> TerminalView:
    """A view of a terminal that shows its bars at once."""
    bars = ProgressBars(Console(file=screen, force_terminal=True, width=100), delay_s=0)
    return TerminalView(as_json=False, bars=bars)


def test_each_apply_on_a_terminal_counts_its_own_steps(view, screen, capsys) -> None:
    plan = everything()
    visible = applies.shown(plan)
    first, second, *_ = (step for step in plan.steps if step.id in visible)

    for _ in range(2):
        view(ApplyStarted(plan))
        view(StepWaits(second, "it has not reported"))
        assert shown(screen, f"{second.address}: it has not reported")
        view(StepsEnded("dc2", ((first, DONE), (second, DONE))))
        assert shown(screen, f"2/{len(visible)}")
        view(ApplyResult(plan))
        assert screen.getvalue().endswith("\x1b[2K")  # nothing of the bars stays
        screen.seek(0)
        screen.truncate()

    assert "it has not reported" not in capsys.readouterr().err


def test_each_step_of_an_apply_and_what_failed_behind_the_scenes_is_a_line_on_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan = everything()
    visible = applies.shown(plan)
    step = next(step for step in plan.steps if step.id in visible)
    unseen = next(step for step in plan.steps if step.id not in visible)
    left, failed = (
        StepResult(Result.DONE, "a pod is left"),
        StepResult(Result.FAILED, "the broker refused it"),
    )
    events: list[ProgressEvent] = [
        ApplyStarted(plan),
        StepsEnded("dc1", ((step, left), (unseen, DONE), (unseen, failed))),
    ]
    out, err = printed(events, capsys, as_json=False)
    done, refused = err.splitlines()
    assert out == ""
    assert done.endswith(f"{step.past} (0.0 s); a pod is left")
    assert refused == applies.line(unseen, failed)


def test_people_read_lines(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = printed([UNSENT, ENDED], capsys, as_json=False)
    print_subscriptions([BILLING], as_json=False)

    assert (out + capsys.readouterr().out).splitlines()[:10] == [
        "Records that dc1 never sent, and that stay only there:",
        "  flow.there  up to 1,207 records (refunds 1,200, orders 7); repl salvage there shows them",
        "  flow.other  none: all of them had arrived",
        "",
        "",
        "What did not arrive:",
        "  flow.there  not known: dc2 does not answer, and nothing can be done there",
        "",
        "What the consumers of each group subscribe to at the destination:",
        "  billing  at dc2: dc1.orders",
    ]


def test_programs_read_events(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = printed([UNSENT, ENDED], capsys, as_json=True)
    print_subscriptions([BILLING], as_json=True)

    assert [json.loads(line) for line in (out + capsys.readouterr().out).splitlines()] == [
        {
            "version": 1,
            "event": "left",
            "flow": "there",
            "records": 1_207,
            "topics": {"orders": 7, "refunds": 1_200},
        },
        {"version": 1, "event": "left", "flow": "other", "records": 0, "topics": {}},
        {"version": 1, "event": "lost", **msgspec.to_builtins(MISSING)},
        {
            "version": 1,
            "event": "subscribe",
            "flow": "there",
            "group": "billing",
            "cluster": "dc2",
            "topics": ["dc1.orders"],
            "kept": 0,
            "why": "",
        },
    ]


def test_a_rehearsal_tells_programs_what_it_tells_people(capsys: pytest.CaptureFixture[str]) -> None:
    left = LeftToCopy("there", 7, {"orders": 7}, "7 records are left to copy (orders 7)")
    loss = GroupLoss(flow="there", group="billing", exact=1, topics=["dc1.orders"])
    rehearsal = Rehearsal((loss,), (BILLING,), left=(left,), jobs=(("dc2", False),))

    print_rehearsal(rehearsal, as_json=True)
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {event["version"] for event in events} == {1}
    assert [event["event"] for event in events] == ["left_to_copy", "group", "subscribe", "job"]
    assert (events[0]["flow"], events[0]["records"], events[0]["topics"]) == ("there", 7, {"orders": 7})
    assert events[2]["topics"] == ["dc1.orders"]
    assert (events[3]["job"], events[3]["runs"]) == ("dc2", False)


@pytest.mark.parametrize("as_json", [True, False])
def test_progress_is_on_stderr_for_both(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    events: list[ProgressEvent] = [
        warning("a cluster is slow", "wait"),
        "flow.there: 7 records are left to copy (orders 7)",
        "waiting for ada\nerror: forged",
    ]
    out, err = printed(events, capsys, as_json=as_json)

    assert out == ""
    assert err.splitlines() == [
        "warning: a cluster is slow — wait",
        "flow.there: 7 records are left to copy (orders 7)",
        "waiting for ada",
        "  error: forged",
    ]


def test_a_plan_is_for_people_and_its_warnings_are_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    people, _ = printed([PlanReady(everything())], capsys, as_json=False)
    programs, warned = printed([PlanReady(everything())], capsys, as_json=True)

    assert people.startswith("shop: to make the clusters match the topology")
    assert programs == ""
    assert "warning: " in warned


LOST = PartitionStatus("there", "orders", 0, PartitionState.DATA_LOSS, since_ms=0)


@pytest.mark.parametrize(
    ("question", "hint"),
    [
        (ApprovePlan(everything()), "or apply a plan that was saved with repl plan --out"),
        (ApproveLoss("there", (LOST,)), "it continues without what orders-0 (data_loss) lost"),
        (ApproveReplay("dc2"), "add --auto-approve"),
    ],
)
def test_without_a_terminal_a_question_is_a_failure(question, hint, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)

    with pytest.raises(Failure, match="there is no terminal to ask on, so nothing was changed") as failure:
        ask(question)

    assert hint in failure.value.diagnostics[0].hint


# How an apply ends: complete is what is done and was read, nothing less.


@pytest.fixture(autouse=True)
def command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["repl", "apply", "shop.yaml"])


def ended(
    plan: Plan, capsys: pytest.CaptureFixture[str], summary: ApplySummary, *, as_json: bool = False
) -> str:
    TerminalView(as_json=as_json)(ApplyResult(plan, summary))
    return capsys.readouterr().out.strip()


def all_done(plan: Plan) -> ApplySummary:
    return ApplySummary({step.id: DONE for step in plan.steps}, interrupted=False, seconds=1.5, requests=2)


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


def test_an_apply_that_fails_leaves_no_bar(view: TerminalView, screen: io.StringIO) -> None:
    def fail() -> None:
        with interaction(view, auto_approve=True).interrupts(Interruption()):
            view(ApplyStarted(everything()))
            assert shown(screen, "apply: steps")
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        fail()
    assert screen.getvalue().endswith("\x1b[2K")


def test_ctrl_c_interrupts_steps_where_nobody_reads_stderr_any_more(broken_pipe: int) -> None:
    interruption = Interruption()
    stderr = os.dup(2)
    try:
        with interruptible(interruption):
            os.dup2(broken_pipe, 2)
            signal.raise_signal(signal.SIGINT)
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
    assert interruption.happened


@pytest.mark.parametrize(
    ("diagnostic", "line"),
    [
        (
            error("owned by 'x'", "stop it", source=PLACE, address="job.dc2"),
            "a.yaml:8:12: job.dc2: owned by 'x' — stop it",
        ),
        (
            error("flow.f and flow.g write t", source=PLACE, address="flow.f"),
            "a.yaml:8:12: flow.f and flow.g write t",
        ),
        (
            error("topic.dc1.ab holds the name", source=PLACE, address="topic.dc1.a"),
            "a.yaml:8:12: topic.dc1.a: topic.dc1.ab holds the name",
        ),
        (error("protected", address="topic.dc1.t"), "topic.dc1.t: protected"),
        (error("unknown key", source=PLACE), "a.yaml:8:12: unknown key"),
        (error("no broker answers"), "no broker answers"),
    ],
)
def test_an_error_names_its_object_once(diagnostic: Diagnostic, line: str) -> None:
    """One line of a file may declare several objects, such as a flow and the job that it needs."""
    assert str(diagnostic) == line
