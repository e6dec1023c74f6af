"""What an apply needs of those who start jobs. The command line brings the real ones."""

from collections.abc import Callable, Sequence
from typing import Protocol

from runtime.contract.spec.jobspec import JobSpec, LaunchSpec


class LaunchFailed(Exception):
    """A job could not be started, told or stopped; `log` are the last lines of its own log."""

    def __init__(self, what: str, way_out: str = "", log: Sequence[str] = ()) -> None:
        super().__init__(what)
        self.what = what
        self.way_out = way_out
        self.log = tuple(log)


class JobLauncher(Protocol):
    """Every method may raise LaunchFailed."""

    def launch(self, spec: JobSpec) -> str:
        """Starts it, detached; where it runs, in a person's words."""
        ...

    def update(self, spec: JobSpec) -> None:
        """The spec that the next start goes by; the running job is not touched."""
        ...

    def runs(self, job: str) -> bool | None:
        """Whether its processes, or its application at the master, are there; None: that can't be told."""
        ...

    def stop(self, job: str, grace_s: float) -> None:
        """Asks, waits, then kills. Gone already is success."""
        ...

    def tail(self, job: str) -> Sequence[str]:
        """The last lines of its log."""
        ...


Launchers = Callable[[LaunchSpec], JobLauncher]


def no_launchers(launch: LaunchSpec) -> JobLauncher:
    """Where no job is ever started."""
    raise LaunchFailed(f"nothing here can start a job with launcher {launch.launcher}")
