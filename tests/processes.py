"""Processes that a test looks at and stops while they may end at any moment."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from runtime.lab.processes import LabProcess
from runtime.lab.processes import freeze as stop_all
from runtime.launch.processes import identify, sweep

TEST_RUN = (
    "REPL_TEST_RUN"  # in the environment of everything that a run of the tests starts, however indirectly
)


def lives(process: psutil.Process) -> bool:
    """One that nobody has buried yet does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def words_of(process: psutil.Process) -> list[str]:
    """Its command line; nothing when it is dead."""
    try:
        return process.cmdline() if lives(process) else []
    except psutil.Error:
        return []


def parent_of(process: psutil.Process) -> int:
    """0 when it is dead."""
    try:
        return process.ppid()
    except psutil.Error:
        return 0


def share_of(process: psutil.Process) -> int:
    """Of the memory: its own, and its part of what it shares."""
    try:
        found: int = process.memory_full_info().pss
    except psutil.Error:
        return 0
    return found


def below(pid: int) -> list[psutil.Process]:
    """It and all that it started, as far as they live."""
    try:
        root = psutil.Process(pid)
        return [one for one in (root, *root.children(recursive=True)) if lives(one)]
    except psutil.NoSuchProcess:
        return []


def freeze(processes: Iterable[psutil.Process]) -> None:
    """SIGSTOP; returns when none of them runs any more."""
    stop_all([LabProcess(one.pid, paused=False, memory=0) for one in processes if lives(one)])


def thaw(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.resume()


def kill_together(processes: Iterable[psutil.Process]) -> None:
    """SIGKILL, so that none of them sees another die."""
    found = list(processes)
    freeze(found)
    for process in found:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def run_of(pid: int, tree: Path) -> str:
    """The value of TEST_RUN for the run of a tree's tests that this process leads."""
    found = identify(pid)
    assert found is not None, f"process {pid} is gone"
    return f"{found.pid}:{found.born}:{tree}"


def end_cut_runs(tree: Path) -> None:
    """Kills what a run of this tree's tests left when it was killed before it could tidy up."""
    for run in set(_runs()):
        pid, born, of = run.split(":", 2)
        leader = identify(int(pid))
        if of == str(tree) and (leader is None or leader.born != int(born)):
            sweep(f"{TEST_RUN}={run}")


def _runs() -> Iterator[str]:
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            run = process.environ().get(TEST_RUN, "")
            if run.count(":") >= 2:
                yield run
