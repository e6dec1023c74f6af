"""What every launcher offers: one Spark application a job, found again by its name, from any terminal.

A launcher knows processes and clusters of Spark; what a job does with its data it is told through the
control topic, and what it really does is read from the status topic and the ledger.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from runtime.contract.spec.jobspec import JobSpec


class LaunchState(StrEnum):
    RUNNING = "running"  # its processes, or its application at the master, are there
    RESTARTING = "restarting"  # it crashed; its supervisor starts it again
    ENDED = "ended"  # it was here and is not any more
    UNKNOWN = "unknown"  # never started from here, or what could tell does not answer


@dataclass(frozen=True, slots=True)
class Handle:
    """`where` tells a person where it runs (`pid 4711 on host-1`), `log` where to read on."""

    job: str
    where: str
    log: str


@dataclass(frozen=True, slots=True)
class Found:
    state: LaunchState
    handle: Handle | None = None
    why: str = ""


class LaunchError(Exception):
    """What was refused or did not start; `way_out` says what to do about it."""

    def __init__(self, what: str, way_out: str = "", log: Sequence[str] = ()) -> None:
        super().__init__(what)
        self.what = what
        self.way_out = way_out
        self.log = tuple(log)


class Launcher(Protocol):
    def launch(self, spec: JobSpec) -> Handle:
        """Starts it, detached; an instance that is there already is an error (stop it first)."""
        ...

    def update(self, spec: JobSpec) -> None:
        """The spec that the next start goes by, where it is kept; the running job is not touched."""
        ...

    def find(self, job: str) -> Found: ...

    def stop(self, job: str, grace_s: float) -> None:
        """By the handle: asks, waits up to `grace_s`, then kills. Gone already is success."""
        ...

    def tail(self, job: str, lines: int = 20) -> list[str]:
        """The last lines of its log, for people."""
        ...
