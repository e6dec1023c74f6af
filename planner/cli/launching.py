"""Wiring: what apply asks of a launcher, asked of the real ones."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from planner.apply.context import JobLauncher, Launchers, LaunchFailed
from planner.cli.pipeline import folder_of
from planner.model.plan import Plan
from runtime.contract.spec.jobspec import JobSpec, LaunchSpec
from runtime.launch.launcher import Launcher, LaunchError, LaunchState

HOME = "REPL_HOME"
LAST_LINES = 15


def home_of(plan: Plan, path: Path) -> Path:
    """Where this machine keeps what belongs to its jobs: beside the topology, wherever its plan was saved."""
    files = [one.source.file for one in plan.connections.values() if one.source is not None]
    return home_at(Path(files[0]) if files and Path(files[0]).exists() else path) / "jobs"


def home_at(path: Path) -> Path:
    """Of a topology, where nobody named another."""
    if os.environ.get(HOME):
        return Path(os.environ[HOME]).absolute()
    return folder_of(path).absolute() / ".repl"


def launchers(home: Path) -> Launchers:
    def choose(launch: LaunchSpec) -> JobLauncher:
        from runtime.launch.choose import launcher_for  # here: most applies start no job

        with _in_our_words():
            return LauncherAdapter(launcher_for(launch, home))

    return choose


class LauncherAdapter:
    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher

    def launch(self, spec: JobSpec) -> str:
        with _in_our_words():
            handle = self._launcher.launch(spec)
        return f"{handle.where}, its log is {handle.log}" if handle.log else handle.where

    def update(self, spec: JobSpec) -> None:
        with _in_our_words():
            self._launcher.update(spec)

    def runs(self, job: str) -> bool | None:
        with _in_our_words():
            match self._launcher.find(job).state:
                case LaunchState.RUNNING | LaunchState.RESTARTING:
                    return True
                case LaunchState.ENDED:
                    return False
                case LaunchState.UNKNOWN:
                    return None

    def stop(self, job: str, grace_s: float) -> None:
        with _in_our_words():
            self._launcher.stop(job, grace_s)

    def tail(self, job: str) -> Sequence[str]:
        with _in_our_words():
            return self._launcher.tail(job, LAST_LINES)


@contextmanager
def _in_our_words() -> Iterator[None]:
    try:
        yield
    except LaunchError as failure:
        raise LaunchFailed(failure.what, failure.way_out, failure.log) from failure
