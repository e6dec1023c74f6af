"""A checkout may have a folder `.repl` beside the topology: nothing in it is run, no link in it followed."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest
from msgspec.structs import replace

from planner.cli.app import run
from planner.model.diagnostic import ExitCode, Failure
from planner.workflows.topology import launcher_home
from runtime.contract.launching import LaunchError, LaunchState
from runtime.launch import processes
from runtime.launch.folder import JobFolder, Supervision
from runtime.launch.supervision.supervised import SupervisedLauncher
from tests.fakes.spark import FakeSpark
from tests.records import wait_for
from tests.runtime.launch.specs import spec_of
from tests.runtime.launch.test_once import once
from tests.security.conftest import Command


@pytest.mark.parametrize(
    "at",
    [
        ".",
        "drill",
        "drill.lock",
        "errors",
        "errors/command-1.log",
        "verify/orders.jsonl",
        "jobs",
        "jobs/dc2",
        "jobs/dc2/job.log",
    ],
)
def test_no_link_leads_what_repl_keeps_elsewhere(
    at: str, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drill begins by removing its folder, and a job appends to its log."""
    monkeypatch.delenv("REPL_HOME", raising=False)
    (tmp_path / "victim").mkdir()
    topology = tmp_path / "topology"
    link = topology / ".repl" / at
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "victim")
    (topology / "t.yaml").write_text(
        "apiVersion: repl/v1\nname: shop\nclusters: {dc1: {bootstrap: '127.0.0.1:1'}}\n"
        "topics: [{name: orders, cluster: dc1}]\n"
    )
    with pytest.raises(Failure, match="is a link, and would lead what repl keeps"):
        launcher_home(topology)
    ended = command("drill", topology)
    assert (ended.code, f"{link} is a link" in ended.err) == (ExitCode.ERROR, True)
    monkeypatch.setenv("REPL_HOME", str(tmp_path / "home"))
    assert launcher_home(topology) == tmp_path / "home"


@pytest.mark.parametrize("at", [".repl", ".repl/errors"])
def test_no_link_leads_the_traceback_of_a_command_elsewhere(
    at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("REPL_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    victim = tmp_path / "victim"
    (victim / "errors").mkdir(parents=True)
    link = tmp_path / at
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(victim)

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("nobody expects it")

    monkeypatch.setattr("planner.cli.app.root.main", fails)
    assert run(["validate", "t.yaml"]) == ExitCode.ERROR
    assert [file for file in victim.rglob("*") if file.is_file()] == []
    assert "nobody expects it" in capsys.readouterr().err


FORGED = {
    "not UTF-8": b'{"host": "\xff", "phase": "running"}',
    "deep": b'{"host": "h", "phase": "running", "more": ' + b"[" * 100_000,
    "a long number": b'{"host": "h", "phase": "running", "since_ms": 1' + b"0" * 1_000 + b"}",
    "another shape": b"[]",
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED.keys())
def test_the_state_of_a_job_in_a_checkout_is_an_error_that_names_it(forged: bytes, tmp_path: Path) -> None:
    folder = JobFolder(tmp_path, "dc2")
    folder.make()
    folder.state.write_bytes(forged)
    with pytest.raises(LaunchError, match=r"supervisor\.json can't be read"):
        SupervisedLauncher(tmp_path).find("dc2")


def test_a_forged_state_ends_no_process_of_the_machine(tmp_path: Path) -> None:
    """It would have to name the boot of the machine and the moment in which a process began."""
    own = processes.identify(os.getpid())
    assert own is not None
    folder = JobFolder(tmp_path, "dc2")
    folder.make()
    for forged in (replace(own, boot="guessed"), replace(own, born=own.born + 1), replace(own, pid=1 << 62)):
        folder.note(
            Supervision(host=socket.gethostname(), phase="running", supervisor=forged, watchman=forged)
        )
        assert SupervisedLauncher(tmp_path).find("dc2").state is LaunchState.ENDED
        SupervisedLauncher(tmp_path).stop("dc2", 1.0)


@pytest.mark.slow
def test_no_module_in_the_folder_of_a_job_is_imported(tmp_path: Path) -> None:
    """Neither by its supervisor, nor by the watchman that replaces a supervisor, nor by a worker of Spark."""
    spark, ran = FakeSpark(tmp_path), tmp_path / "ran"
    folder = JobFolder(tmp_path / "home", "dc2")
    folder.make()
    for module in ("runtime/__init__.py", "argparse.py", "msgspec.py"):
        (folder.path / module).parent.mkdir(exist_ok=True)
        (folder.path / module).write_text(f"open({str(ran)!r}, 'w')\n")
    launcher = SupervisedLauncher(tmp_path / "home", {**os.environ, "SPARK_HOME": str(spark.home)})
    try:
        launcher.launch(spec_of())
        first = folder.supervision()
        assert first is not None
        assert first.supervisor is not None
        processes.send(first.supervisor, signal.SIGKILL)
        wait_for(lambda: (now := folder.supervision()) is not None and now.attempt > first.attempt)

        def safe() -> list[str]:
            return [" ".join(processes.words(one.pid)) for one in processes.marked("PYTHONSAFEPATH=repl")]

        wait_for(lambda: any(str(spark.home) in words for words in safe()))  # it is forked, then executed
    finally:
        launcher.stop("dc2", 0)
    assert not ran.exists()


@pytest.mark.slow
def test_a_worker_of_an_application_imports_nothing_from_the_users_folder(tmp_path: Path) -> None:
    spark, heard = FakeSpark(tmp_path), list[str]()
    spark.drivers("tell")
    environ = {**os.environ, "SPARK_HOME": str(spark.home)}
    once(heard.append, prefix="the driver has the variables ", environ=environ)
    assert "PYTHONSAFEPATH" in heard[0].split()
