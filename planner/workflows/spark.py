"""What workflows need of Spark: the launchers of jobs, the spec of a flow's job, and one-off applications.

The request and the outcome of a one-off application travel as files. Each machine has a folder for its jobs.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from planner.apply.context import JobLauncher, Launchers, LaunchFailed
from planner.model.diagnostic import Failure, error
from planner.model.observed import Unreachable
from planner.model.plan import Plan
from planner.model.topology import Flow, Topology
from planner.workflows.interaction import ProgressHandler
from planner.workflows.plans import see
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


def kill_all_below(home: Path) -> None:
    """Kills every process of this machine whose REPL_HOME is `home`: commands, supervisors and Spark.

    Nothing is recorded at clusters. Failure where a process is still alive after 10 s.
    """
    from runtime.launch.processes import sweep

    if not sweep(f"{HOME}={home}"):
        raise Failure(
            error(f"processes of {home} could not be killed", "look at them with ps, and run it again")
        )


def processes_below(home: Path) -> int:
    """Returns how many processes of this machine have `home` as their REPL_HOME."""
    from runtime.launch.processes import marked

    return sum(1 for _ in marked(f"{HOME}={home}"))


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


def job_spec(topology: Topology, flow: Flow, timeout_ms: int, progress: ProgressHandler) -> JobSpec:
    """Returns the spec of the flow's job: provenance resolved, clusters pinned, no secret.

    Both clusters of the flow must answer. Failure names the one that does not.
    """
    seen = see(topology, timeout_ms, progress=progress)
    for name in (flow.source_cluster, flow.destination_cluster):
        match seen.observed.clusters[name]:
            case Unreachable(why=why, way_out=way_out):
                raise Failure(error(f"{name} can't be read, and both sides are needed: {why}", way_out))
    for job in seen.desired.jobs:
        if job.spec is not None and flow.name in job.flows:
            return job.spec
    raise Failure(error(f"the job of {flow.name} can't be made", "repl validate says why"))
