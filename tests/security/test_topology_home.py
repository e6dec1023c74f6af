"""A checkout may have a folder `.repl` beside the topology: nothing in it is run, no link in it followed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from planner.model.diagnostic import ExitCode, Failure
from planner.workflows.topology import launcher_home
from runtime.launch import processes
from runtime.launch.folder import JobFolder
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
