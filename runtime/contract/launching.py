"""What every launcher offers: one Spark application per job, found by name from any terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from runtime.contract.spec.jobspec import JobSpec

# The variable with the file that describes the pods of a driver's executors on Kubernetes.
EXECUTOR_POD = "REPL_EXECUTOR_POD"

# Why a container of Kubernetes waits that is only starting.
CONTAINER_STARTS = ("ContainerCreating", "PodInitializing")


def one_line(text: str, most: int = 500) -> str:
    """Returns the beginning of a message on one line, without what a terminal would interpret."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())[:most]


class LaunchState(StrEnum):
    """These are the states of a job as its launcher sees it."""

    RUNNING = "running"  # its processes, or its application at the master, exist
    RESTARTING = "restarting"  # it crashed; its supervisor starts it again
    ENDED = "ended"  # it ran here and has ended
    UNKNOWN = "unknown"  # never started from here, or the state can't be requested


@dataclass(frozen=True, slots=True)
class LaunchHandle:
    """A LaunchHandle tells an operator where a job runs.

    `where` is the place (`pid 4711 on host-1`), and `log` names where its log is.
    """

    job: str
    where: str
    log: str

    def __str__(self) -> str:
        return f"{self.where}, its log is {self.log}" if self.log else self.where


@dataclass(frozen=True, slots=True)
class LaunchStatus:
    """A LaunchStatus value is the state of a job as its launcher sees it."""

    state: LaunchState
    handle: LaunchHandle | None = None
    why: str = ""

    @property
    def runs(self) -> bool | None:
        """Returns whether the job's processes or its application exist; None if that is unknown."""
        if self.state is LaunchState.UNKNOWN:
            return None
        return self.state is not LaunchState.ENDED


class LaunchError(Exception):
    """A job was refused or did not start; `hint` is for the operator, `log` has the last lines of its log."""

    def __init__(self, what: str, hint: str, log: Sequence[str] = ()) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint
        self.log = tuple(log)

    @property
    def explained(self) -> str:
        """Returns the reason with the hint."""
        return f"{self.what} — {self.hint}"


class Launcher(Protocol):
    """A Launcher starts, finds and stops jobs. Every method blocks, and may raise LaunchError."""

    def launch(self, spec: JobSpec) -> LaunchHandle:
        """Starts the job, detached. A running instance is an error: it must be stopped first."""
        ...

    def update(self, spec: JobSpec) -> None:
        """Writes the spec that the job runs, where its next start reads it."""
        ...

    def find(self, job: str) -> LaunchStatus: ...

    def stop(self, job: str, grace_s: float) -> str:
        """Requests a stop, waits up to `grace_s`, then kills the job, so that nothing starts it again.

        A job that is gone already, or was not started from here, is a success. Returns what could not be
        killed; "" if nothing is left. Raises LaunchError where something may start the job again.
        """
        ...

    def tail(self, job: str, lines: int = 20) -> list[str]:
        """Returns the last lines of the job's log."""
        ...


_SAFE_PATH = "PYTHONSAFEPATH"
_OF_REPL = "repl"  # any text sets the variable


def safe_path(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the variable by which Python imports nothing from the current folder.

    Spark starts its workers by `python -m pyspark.daemon`, and the folder of a job, or the one that the user
    is in, may have files of a checkout.
    """
    return {_SAFE_PATH: environ.get(_SAFE_PATH) or _OF_REPL}


def without_safe_path(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment as the operator set it: their programs may import from their own folder."""
    return {name: value for name, value in environ.items() if (name, value) != (_SAFE_PATH, _OF_REPL)}
