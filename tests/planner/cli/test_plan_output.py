"""A plan on terminals and pipes, in files, and as an exit code; the real command, and no broker."""

import json
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
from rich.text import Text

from planner.cli.app import run
from planner.cli.console import on_one_line
from planner.cli.output import print_plan
from planner.cli.plan_output import PlanOutput, SavedPlanOutput, exit_code
from planner.model.diagnostic import ExitCode, Failure, error
from planner.model.plan import Plan
from planner.model.topology import Cluster, Topic
from planner.plan.make import with_diagnostics
from planner.state import planfile
from tests.commands import begin
from tests.fakes.replacing import replace
from tests.fakes.states import inputs, observed, topology
from tests.planner.render.scenes import drifted, errored, everything, nothing, silent
from tests.security.plans import changed, honest
from tests.terminal import shown, start

SPOKEN = Cluster("dc1", bootstrap="dc1:9092", client={"sasl.password": "canary"})
ANSI = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    planfile.write(honest(), tmp_path / "saved")
    return tmp_path / "saved"


@contextmanager
def mute_cluster(folder: Path) -> Iterator[tuple[socket.socket, Path]]:
    """A cluster that takes connections and answers nothing, and a topology with it."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        file = folder / "shop.yaml"
        file.write_text(
            f"apiVersion: repl/v1\nname: shop\nclusters: {{dc1: {{bootstrap: '127.0.0.1:{port}'}}}}\n"
            "topics: [{name: orders, cluster: dc1}]\n"
        )
        yield mute, file


def on_a_terminal(columns: int, *arguments: str, **environment: str) -> str:
    """The output of a command whose stdout is a terminal of this width."""
    env = {"COLUMNS": str(columns), "LINES": "24", **environment}
    process, terminal = start(*arguments, env=env, streams=("stdout",))
    told = b"".join(shown(terminal)).decode().replace("\r\n", "\n")
    assert process.wait(60) == 0
    return told


ALL_READ = replace(everything(), unknown={})


@pytest.mark.parametrize(
    ("plan", "code", "detailed"),
    [
        (nothing(), ExitCode.DONE, ExitCode.DONE),
        (ALL_READ, ExitCode.DONE, ExitCode.DIFFERENT),
        (everything(), ExitCode.ERROR, ExitCode.ERROR),
        (silent(), ExitCode.ERROR, ExitCode.ERROR),
        (errored(), ExitCode.ERROR, ExitCode.ERROR),
        (
            with_diagnostics(errored(), [error("no", exit=ExitCode.REFUSED)]),
            ExitCode.REFUSED,
            ExitCode.REFUSED,
        ),
        (drifted(), ExitCode.DIFFERENT, ExitCode.DIFFERENT),
        (replace(drifted(), changes=()), ExitCode.DONE, ExitCode.DONE),
    ],
)
def test_the_exit_code_and_the_detailed_one(plan: Plan, code: ExitCode, detailed: ExitCode) -> None:
    assert (exit_code(plan), exit_code(plan, detailed=True)) == (code, detailed)


def test_a_pipe_gets_no_colours_and_no_broken_lines(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", str(saved)]) == 0

    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) > 80
    assert [line.split(":")[0] for line in out.splitlines()[-2:]] == ["Plan digest", "Plan signature"]


@pytest.mark.parametrize("assumed", [["--rate", "10MB/s"], ["--outage", "1h"]])
def test_what_a_simulation_assumes_goes_with_one(
    assumed: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", str(tmp_path), *assumed]) == ExitCode.ERROR
    assert "give --simulate too" in capsys.readouterr().err


@pytest.mark.parametrize(("wish", "colours"), [("", True), ("1", False)])
def test_a_terminal_gets_colours_unless_its_user_wants_none(
    wish: str, colours: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NO_COLOR", wish)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_plan(honest())
    assert ("\x1b[" in capsys.readouterr().out) is colours


def test_a_line_stays_one_line_and_its_colours_stay_in_place() -> None:
    line = Text.assemble("a\n", ("b\x1b", "red"), "c")
    shown = on_one_line(line)
    assert shown.plain == "a\\nb\\u001bc"
    assert [shown.plain[span.start : span.end] for span in shown.spans] == ["b\\u001b"]


@pytest.mark.slow
def test_a_narrow_terminal(saved: Path) -> None:
    lines_shown = on_a_terminal(40, "show", str(saved), NO_COLOR="")

    assert "\x1b[32m" in lines_shown
    lines = [one for one in ANSI.sub("", lines_shown).splitlines() if not one.startswith("Plan digest: ")]
    words = [line for line in lines if " " in line.strip().lstrip("#+~-.? ")]
    assert max(map(len, words)) <= 40


@pytest.mark.slow
def test_a_reader_that_leaves_early(tmp_path: Path) -> None:
    topics = tuple(Topic(f"events.{number:05}", "dc1", 6) for number in range(1_600))
    planfile.write(changed(honest(), topics=topics), tmp_path / "saved")

    shown = begin("show", str(tmp_path / "saved"))
    assert shown.stdout is not None
    assert shown.stderr is not None
    assert shown.stdout.readline().startswith("shop: to make the clusters match")
    shown.stdout.close()

    assert shown.wait(60) == 0
    assert shown.stderr.read() == ""
    shown.stderr.close()


def test_reports_again_from_a_saved_plan(saved: Path, tmp_path: Path) -> None:
    assert run(["show", str(saved), "--markdown", str(tmp_path / "m"), "--html", str(tmp_path / "h")]) == 0

    assert (tmp_path / "m").read_text().startswith("### shop: Plan: ")
    assert "<svg" in (tmp_path / "h").read_text()


def test_a_report_that_has_no_place(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="can't be written"):
        PlanOutput(markdown=tmp_path / "absent" / "m").show_plan(nothing)


def test_why_there_is_no_plan_takes_the_place_of_an_older_report(tmp_path, capsys) -> None:
    topology, comment = tmp_path / "t.yaml", tmp_path / "plan.md"
    topology.write_text("apiVersion: repl/v1\nname: shop\nclusters: {dc1: {bootstrap: 'a:1'}}\ntopcs: []\n")
    comment.write_text("### shop: Plan: 5 to add")

    assert run(["plan", str(topology), "--markdown", str(comment), "--json"]) == ExitCode.ERROR

    assert len(json.loads(capsys.readouterr().out)["diagnostics"]) == 1
    text = comment.read_text()
    assert text.startswith("### No plan could be made: 1 error\n")
    assert f"{topology}:4:1" in text
    assert "did you mean" in text


def test_a_report_that_can_not_be_written_hides_no_error(tmp_path, capsys) -> None:
    assert run(["plan", str(tmp_path), "--markdown", str(tmp_path / "absent" / "m")]) == ExitCode.ERROR

    err = capsys.readouterr().err
    assert str(tmp_path) in err.splitlines()[0]
    assert "the report can't be written" in err


@pytest.mark.parametrize(
    ("made", "out", "why"),
    [
        (everything(), "absent/p", "the plan can't be written"),
        (Plan(inputs(topology(clusters=[SPOKEN]), observed())), "p", "a plan file holds no secrets"),
    ],
)
def test_a_plan_that_can_not_be_saved_is_one_document(
    made: Plan, out: str, why: str, tmp_path, capsys
) -> None:
    output = SavedPlanOutput(as_json=True, out=tmp_path / out)

    with pytest.raises(click.exceptions.Exit) as ended:
        output.show_plan(lambda: made, save=output.save)

    assert ended.value.exit_code == ExitCode.ERROR
    (diagnostic,) = json.loads(capsys.readouterr().out)["diagnostics"]
    assert why in diagnostic["summary"]


def test_a_plan_that_can_not_be_applied_removes_an_older_one(saved: Path, capsys) -> None:
    output = SavedPlanOutput(out=saved)

    output.show_plan(errored, save=output.save)

    assert not saved.exists()
    assert f"{saved} was not written, and the older plan there was removed: " in capsys.readouterr().err


def test_an_older_plan_goes_where_none_can_be_made_and_no_other_file(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("apiVersion: repl/v1\n")

    for out in (saved, tmp_path / "t.yaml"):
        assert run(["plan", str(tmp_path / "t.yaml"), "--out", str(out)]) == ExitCode.ERROR

    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.yaml"]


def test_an_empty_folder_plans_nothing_and_deletes_nothing(tmp_path, capsys) -> None:
    assert run(["plan", str(tmp_path)]) == ExitCode.ERROR

    assert capsys.readouterr().out == ""


def test_an_apply_is_taken_back_as_a_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["init", str(tmp_path)])

    code = run(["plan", "--rollback", "x", "--target", "topic.dc1.orders", str(tmp_path)])

    assert code == ExitCode.ERROR
    assert "leave out --target" in capsys.readouterr().err


@pytest.mark.slow
def test_ctrl_c_while_a_cluster_keeps_silent(tmp_path: Path) -> None:
    with mute_cluster(tmp_path) as (mute, file):
        planning = begin("plan", "--timeout", "60s", str(file))
        connection, _ = mute.accept()
        planning.send_signal(signal.SIGINT)
        out, err = planning.communicate(timeout=50)
        connection.close()

    assert planning.returncode == ExitCode.INTERRUPTED
    assert (out, err.strip()) == ("", "Interrupted.")


@pytest.mark.parametrize("command", [("plan", "--rollback", "2026"), ("history",)])
def test_the_timeout_of_a_history_is_chosen(command: tuple[str, ...], tmp_path: Path, capsys) -> None:
    with mute_cluster(tmp_path) as (_, file):
        code = run([command[0], str(file), *command[1:], "--timeout", "200ms"])

    assert code == ExitCode.ERROR
    assert "has not answered for 0.2 s" in capsys.readouterr().err
