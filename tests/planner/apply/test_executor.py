"""An exception that no handler expects fails its own steps, keeps its traceback, and stops nothing else."""

import asyncio
import os
import stat
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from planner.apply.executor import Interruption, execute
from planner.cli.output import guarded
from planner.cli.view import TerminalView
from planner.kafka import ClusterEndpoint, run
from planner.kafka.changes import MAX_STEPS
from planner.kafka.failures import NoAnswer
from planner.kafka.log import Appended
from planner.model.address import Address, topic_address
from planner.model.diagnostic import Failure, error
from planner.model.observed import Observed, RegistryEntry
from planner.model.step import ApplySummary, Event, Result, Step, StepResult, StepsEnded
from planner.plan.steps.registry import Disown, Own
from planner.state.history import Journal
from planner.state.internal_topics import decode
from planner.workflows.applying.session import recorded
from planner.workflows.interaction import ProgressEvent, silent, traceback_reporter
from runtime.contract.client.secrets import remember
from tests.planner.apply.handling import context
from tests.planner.plan.jobs import record_of


async def broken_registry(own: Sequence[RegistryEntry], _disown: Sequence[Address]) -> None:
    """Takes what is disowned; a defect hits every entry."""
    if own:
        raise ZeroDivisionError("a defect\nof two lines")


A, B = topic_address("dc1", "a"), topic_address("dc1", "b")
STEPS = (
    Own("own", A, "dc1", RegistryEntry(A, "shop", {"id": "1"})),
    Disown("after", A, "dc1", "shop", needs=("own",)),
    Disown("disown", B, "dc1", "shop"),
)


@pytest.mark.parametrize(
    "failure",
    [
        ZeroDivisionError("a defect shows hush-hush"),
        NoAnswer("dc1 said hush-hush"),
        Failure(error("hush-hush is no right")),
    ],
)
def test_a_secret_is_in_no_result_and_in_no_traceback(failure: Exception, tmp_path: Path) -> None:
    async def revealing_registry(_own: Sequence[RegistryEntry], _disown: Sequence[Address]) -> None:
        raise failure

    remember("hush-hush")
    revealing = context(ClusterEndpoint("dc1", "127.0.0.1:1"), revealing_registry)

    async def notify(_event: Event) -> None: ...

    report = traceback_reporter(tmp_path, "apply1", print)
    summary = run(execute(STEPS[2:], {"dc1": revealing}, notify, Interruption(), report))
    assert "(sensitive value)" in summary.outcomes["disown"].why
    assert "hush-hush" not in summary.outcomes["disown"].why
    assert not any("hush-hush" in file.read_text() for file in tmp_path.iterdir())


class JournalLog:
    """The log of one cluster's journal. It takes so many batches of records, and answers after `slow_s`."""

    def __init__(self, takes: int = 1_000, slow_s: float = 0.0) -> None:
        self.events: list[dict[str, Any]] = []
        self._left = takes
        self._slow_s = slow_s

    async def append(self, _topic: str, records: Iterable[tuple[bytes, bytes]], *_: object) -> list[Appended]:
        await asyncio.sleep(self._slow_s)
        if self._left == 0:
            raise NoAnswer("dc1 takes no records")
        self._left -= 1
        self.events += [decode("the history", value) for _key, value in records]
        return []


def journal(steps: Sequence[Step], **logs: JournalLog) -> Journal:
    return Journal(record_of(steps), logs)  # type: ignore[arg-type]  # all that it uses


NO_JOURNAL = "the journal of dc1 was not written: dc1 takes no records"


@pytest.mark.parametrize(
    ("takes", "interrupted", "ended"),
    [
        (9, True, dict.fromkeys(("make", "after", "disown"), (Result.NOT_STARTED, "interrupted"))),
        (
            0,
            False,
            {
                "make": (Result.FAILED, NO_JOURNAL),
                "disown": (Result.FAILED, NO_JOURNAL),
                "after": (Result.SKIPPED, "because forget topic.dc1.a was not done"),
            },
        ),
        (
            1,
            False,
            {
                "make": (Result.DONE, ""),
                "disown": (Result.DONE, ""),
                "after": (Result.FAILED, NO_JOURNAL),
            },
        ),
    ],
    ids=["interrupted", "the journal takes nothing", "the journal takes no end"],
)
def test_the_end_of_every_step_is_an_event(
    takes: int, interrupted: bool, ended: Mapping[str, tuple[Result, str]]
) -> None:
    steps = (
        Disown("make", A, "dc1", "shop"),
        Disown("disown", B, "dc1", "shop"),
        Disown("after", A, "dc1", "shop", needs=("make",)),
    )
    working = context(ClusterEndpoint("dc1", "127.0.0.1:1"), broken_registry)
    interruption = Interruption()
    interruption.happened = interrupted
    events: list[ProgressEvent] = []

    summary = run(
        execute(
            steps,
            {"dc1": working},
            recorded(journal(steps, dc1=JournalLog(takes)), events.append),
            interruption,
            str,
        )
    )

    results = [result for event in events if isinstance(event, StepsEnded) for result in event.results]
    assert {step.id: (result.result, result.why) for step, result in results} == ended
    assert len(results) == len(steps)
    assert summary.outcomes == {step.id: result for step, result in results}


def test_the_end_of_an_apply_that_one_journal_does_not_take_is_written_at_the_others() -> None:
    logs = {"dc1": JournalLog(), "dc2": JournalLog(0), "dc3": JournalLog()}
    writing = journal(STEPS, **logs)

    with pytest.raises(NoAnswer):
        run(writing.begin(STEPS, Observed({})))
    with pytest.raises(NoAnswer):
        run(writing.finish("failed", 9))

    assert {name: [list(event)[-1] for event in log.events] for name, log in logs.items()} == {
        "dc1": ["started", "planned", "finished", "finished"],
        "dc2": [],
        "dc3": ["finished", "finished"],
    }
    assert logs["dc1"].events[-1]["finished"] == ["failed", 9]


@pytest.mark.parametrize("as_json", [True, False])
def test_steps_go_on_where_nobody_reads_the_output_any_more(
    as_json: bool, broken_pipe: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Disown("first", A, "dc1", "shop"), Disown("second", B, "dc1", "shop", needs=("first",))
    log = JournalLog()
    working = context(ClusterEndpoint("dc1", "127.0.0.1:1"), entries)

    with os.fdopen(os.dup(broken_pipe), "w") as stdout, os.fdopen(os.dup(broken_pipe), "w") as stderr:
        monkeypatch.setattr(sys, "stdout", stdout)
        monkeypatch.setattr(sys, "stderr", stderr)
        with guarded():
            notify = recorded(journal(steps, dc1=log), TerminalView(as_json=as_json))
            summary = run(execute(steps, {"dc1": working}, notify, Interruption(), str))

    assert summary.complete
    ends = [(step, end[0]) for event in log.events for step, end in event.get("ended", {}).items()]
    assert ends == [("first", "done"), ("second", "done")]


def test_timeouts_of_a_cluster_that_died_do_not_add_up() -> None:
    steps = [Disown(f"disown:{number}", A, "dc1", "shop") for number in range(40 * MAX_STEPS)]
    silent_log = journal(steps, dc1=JournalLog(0, slow_s=0.5))
    working = context(ClusterEndpoint("dc1", "127.0.0.1:1"), entries, "the lease is lost")

    began = time.monotonic()
    summary = run(execute(steps, {"dc1": working}, recorded(silent_log, silent), Interruption(), str))

    assert set(summary.outcomes.values()) == {StepResult(Result.NOT_STARTED, "the lease is lost")}
    assert time.monotonic() - began < 4  # each batch waits twice, and four run at once


async def entries(_own: Sequence[RegistryEntry], _disown: Sequence[Address]) -> None:
    """A registry that takes every entry."""


def test_a_write_of_the_registry_is_one_request() -> None:
    steps = Own("own", A, "dc1", RegistryEntry(A, "shop", {"id": "1"})), Disown("disown", B, "dc1", "shop")
    working = context(ClusterEndpoint("dc1", "127.0.0.1:1"), entries)
    notify = recorded(journal(steps, dc1=JournalLog()), silent)

    summary = run(execute(steps, {"dc1": working}, notify, Interruption(), str))

    assert summary.complete
    assert summary.requests == 2


def applied(folder: Path | None) -> tuple[ApplySummary, list[Event]]:
    broken = context(ClusterEndpoint("dc1", "127.0.0.1:1"), broken_registry)
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
    assert "broken_registry" not in summary.outcomes["own"].why
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


def test_where_no_file_can_be_written_it_is_on_stderr_and_no_link_is_followed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    victim = tmp_path / "victim"
    victim.touch()
    (tmp_path / "apply1.log").symlink_to(victim)

    for folder in (tmp_path, victim):  # the file is a link, and the folder is none
        summary, _ = applied(folder)
        assert "its traceback stands above" in summary.outcomes["own"].why
        assert "Traceback" in capsys.readouterr().err
    assert victim.read_text() == ""
