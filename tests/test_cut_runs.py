"""A run of the tests that is killed leaves brokers, jobs and supervisors. The next run ends them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.processes import TEST_RUN, end_cut_runs, lives, run_of

SLEEPS = [sys.executable, "-c", "import time; time.sleep(600)"]


@contextmanager
def sleeper(run: str) -> Iterator[psutil.Process]:
    """A process of its own session, as brokers and supervisors are, that a run started."""
    process = subprocess.Popen(SLEEPS, start_new_session=True, env={**os.environ, TEST_RUN: run})
    try:
        yield psutil.Process(process.pid)
    finally:
        process.kill()
        process.wait()


def test_what_a_killed_run_left_is_ended(tmp_path: Path) -> None:
    run = subprocess.Popen(SLEEPS)
    try:
        mine, other = (run_of(run.pid, tree) for tree in (tmp_path, tmp_path / "other"))
        with sleeper(mine) as left, sleeper(other) as of_another_tree:
            end_cut_runs(tmp_path)
            assert lives(left), "its run goes on"

            run.kill()
            run.wait()
            end_cut_runs(tmp_path)
            assert not lives(left)
            assert lives(of_another_tree)
    finally:
        run.kill()
        run.wait()


def test_a_run_whose_number_another_process_has_by_now_is_over(tmp_path: Path) -> None:
    pid, born, tree = run_of(os.getpid(), tmp_path).split(":", 2)
    with sleeper(f"{pid}:{int(born) - 1}:{tree}") as left:
        end_cut_runs(tmp_path)
        assert not lives(left)
