"""The launchers of jobs, as an apply calls them, and the folder where this machine keeps its jobs."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from planner.apply.context import JobLauncher, Launchers, LaunchFailed
from planner.model.plan import Plan
from planner.workflows.topology import folder_of
from runtime.contract.spec.jobspec import JobSpec, LaunchSpec
from runtime.launch.launcher import Launcher, LaunchError, LaunchState

HOME = "REPL_HOME"
LAST_LINES = 15


def home_of(plan: Plan, path: Path) -> Path:
    """Returns the folder of this machine's jobs: beside the topology, wherever its plan was saved."""
    files = [one.source.file for one in plan.connections.values() if one.source is not None]
    return launcher_home(Path(files[0]) if files and Path(files[0]).exists() else path) / "jobs"


def launcher_home(path: Path) -> Path:
    """Returns REPL_HOME, else `.repl` beside the topology."""
    if os.environ.get(HOME):
        return Path(os.environ[HOME]).absolute()
    return folder_of(path).absolute() / ".repl"


def launchers(home: Path) -> Launchers:
    """Returns what chooses the launcher of a job. Its errors become LaunchFailed."""

    def choose(launch: LaunchSpec) -> JobLauncher:
        from runtime.launch.choose import launcher_for  # most applies start no job

        with _as_launch_failed():
            return LauncherAdapter(launcher_for(launch, home))

    return choose


class LauncherAdapter:
    """Adapts a launcher of the runtime to what an apply calls."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher

    def launch(self, spec: JobSpec) -> str:
        with _as_launch_failed():
            handle = self._launcher.launch(spec)
        return f"{handle.where}, its log is {handle.log}" if handle.log else handle.where

    def update(self, spec: JobSpec) -> None:
        with _as_launch_failed():
            self._launcher.update(spec)

    def runs(self, job: str) -> bool | None:
        with _as_launch_failed():
            match self._launcher.find(job).state:
                case LaunchState.RUNNING | LaunchState.RESTARTING:
                    return True
                case LaunchState.ENDED:
                    return False
                case LaunchState.UNKNOWN:
                    return None

    def stop(self, job: str, grace_s: float) -> None:
        with _as_launch_failed():
            self._launcher.stop(job, grace_s)

    def tail(self, job: str) -> Sequence[str]:
        with _as_launch_failed():
            return self._launcher.tail(job, LAST_LINES)


@contextmanager
def _as_launch_failed() -> Iterator[None]:
    try:
        yield
    except LaunchError as failure:
        raise LaunchFailed(failure.what, failure.way_out, failure.log) from failure
