"""An exception that no handler expects fails its own steps, keeps its traceback, and stops nothing else."""

import stat
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from planner.apply.executor import Interruption, execute
from planner.kafka import ClusterEndpoint, run
from planner.model.address import Address, topic_address
from planner.model.observed import RegistryEntry
from planner.model.step import ApplySummary, Event, Result, StepsEnded
from planner.plan.steps.registry import Disown, Own
from planner.workflows.interaction import traceback_reporter
from tests.planner.apply.handling import context


class BrokenRegistry:
    """Takes what is disowned; a defect hits every entry."""

    async def write(self, own: Sequence[RegistryEntry] = (), disown: Sequence[Address] = ()) -> None:
        if own:
            raise ZeroDivisionError("a defect\nof two lines")


A, B = topic_address("dc1", "a"), topic_address("dc1", "b")
STEPS = (
    Own("own", A, "dc1", RegistryEntry(A, "shop", {"id": "1"})),
    Disown("after", A, "dc1", "shop", needs=("own",)),
    Disown("disown", B, "dc1", "shop"),
)


def applied(folder: Path | None) -> tuple[ApplySummary, list[Event]]:
    broken = context(ClusterEndpoint("dc1", "127.0.0.1:1"), BrokenRegistry())
    events: list[Event] = []
    report = traceback_reporter(folder, "apply1", lambda text: print(text, file=sys.stderr))

    async def notify(event: Event) -> None:
        events.append(event)

    summary = run(execute(STEPS, {"dc1": broken}, notify, Interruption(), report))
    return summary, events


def test_the_step_fails_with_one_line_and_the_rest_goes_on(tmp_path: Path) -> None:
    summary, events = applied(tmp_path / "errors")

    file = tmp_path / "errors" / "apply1.log"
    assert {step_id: ended.result for step_id, ended in summary.outcomes.items()} == {
        "own": Result.FAILED,
        "after": Result.SKIPPED,
        "disown": Result.DONE,
    }
    assert summary.outcomes["own"].why == (
        f"an error in repl itself, ZeroDivisionError: a defect; its traceback is in {file}"
    )
    assert "BrokenRegistry" not in summary.outcomes["own"].why
    assert 'raise ZeroDivisionError("a defect' in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    ended = [step.id for event in events if isinstance(event, StepsEnded) for step, _ in event.results]
    assert sorted(ended) == ["after", "disown", "own"]  # the journal and the terminal are told of each


def test_a_debug_log_shows_it_on_stderr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    applied(tmp_path)
    assert capsys.readouterr().err == ""

    monkeypatch.setenv("REPL_LOG", "debug")
    applied(tmp_path)
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_where_no_file_can_be_written_it_is_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")

    summary, _ = applied(tmp_path / "file")

    assert "its traceback stands above" in summary.outcomes["own"].why
    assert "Traceback" in capsys.readouterr().err
