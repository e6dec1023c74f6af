"""This module states what every launcher offers: one Spark application per job, found by name from any
terminal.

A launcher manages processes and Spark clusters. Commands reach a job through the control topic, and its
actual progress is read from the status topic and the ledger.

A launcher handles secrets by reference, and checks before a start that the referenced secrets exist. The
names are part of the spec. The values are in the environment that the supervisor inherits from its caller and
passes on to the job and to every restart, or in files that are read where they are needed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from runtime.contract.client.secrets import JOB_VARIABLES, OPERATOR_KEYS, ClientSecrets, secret_settings
from runtime.contract.client.settings import ClientSettingsError
from runtime.contract.spec.jobspec import JobSpec


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


@dataclass(frozen=True, slots=True)
class LaunchStatus:
    """A LaunchStatus value is the state of a job as its launcher sees it."""

    state: LaunchState
    handle: LaunchHandle | None = None
    why: str = ""


class LaunchError(Exception):
    """A job was refused or did not start; `hint` is the hint for the operator."""

    def __init__(self, what: str, hint: str = "", log: Sequence[str] = ()) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint
        self.log = tuple(log)


class Launcher(Protocol):
    """A Launcher starts, finds and stops jobs."""

    def launch(self, spec: JobSpec) -> LaunchHandle:
        """Starts the job, detached.

        A running instance is an error: it must be stopped first. Raises LaunchError.
        """
        ...

    def update(self, spec: JobSpec) -> None:
        """Writes the spec that the next start uses, where it is kept; the running job is not changed."""
        ...

    def find(self, job: str) -> LaunchStatus: ...

    def stop(self, job: str, grace_s: float) -> None:
        """Requests a stop, waits up to `grace_s`, then kills the job.

        A job that is gone already is a success.
        """
        ...

    def tail(self, job: str, lines: int = 20) -> list[str]:
        """Returns the last lines of the job's log."""
        ...


def references(spec: JobSpec) -> Iterator[tuple[str, str, str]]:
    """Yields (setting of a cluster or of a store, "env" or "file", name) for each reference."""
    for name, cluster in sorted(spec.clusters.items()):
        for key, value in sorted(cluster.client.items()):
            if isinstance(value, dict):
                yield from ((f"{name}: {key}", kind, what) for kind, what in value.items())
    for name, client in sorted(spec.stores.items()):
        for key, value in sorted(client.items()):
            if isinstance(value, dict):
                yield from ((f"{name}: {key}", kind, what) for kind, what in value.items())


def _check_allowed(spec: JobSpec, environ: Mapping[str, str]) -> None:
    """Raises LaunchError for settings that the job's processes would refuse, because only the job's log
    would show that.
    """
    secrets = ClientSecrets(environ)
    for name, cluster in sorted(spec.clusters.items()):
        try:
            secrets.check_all(cluster.bootstrap, cluster.client)
        except ClientSettingsError as wrong:
            raise LaunchError(f"{name}: {wrong.key}: {wrong.why}", wrong.hint) from None
    for name, client in sorted(spec.stores.items()):
        try:
            secrets.check_store(client)
        except ClientSettingsError as wrong:
            raise LaunchError(f"{name}: {wrong.key}: {wrong.why}", wrong.hint) from None


def referenced_variables(spec: JobSpec) -> list[str]:
    """Returns the names of all referenced environment variables."""
    return sorted({name for _, kind, name in references(spec) if kind == "env"})


def refuse_secrets(spec: JobSpec) -> None:
    """Raises LaunchError where the spec would contain a secret of Spark."""
    if found := secret_settings(spec.launch.conf):
        raise LaunchError(
            f"the job spec would hold the secret {', '.join(found)}",
            "keep it on the machines that run the job: in spark-defaults.conf or in the environment",
        )


def without_operator_keys(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment without the variables that only planning and applying need."""
    return {name: value for name, value in environ.items() if name not in OPERATOR_KEYS}


def job_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of a job. `REPL_JOB_ENV_X` becomes `X`, and comes before a variable X.

    So a job may log in as another principal than the apply that starts it.
    """
    others = {name: value for name, value in environ.items() if not name.startswith(JOB_VARIABLES)}
    own = {
        name.removeprefix(JOB_VARIABLES): value
        for name, value in environ.items()
        if name.startswith(JOB_VARIABLES) and name != JOB_VARIABLES
    }
    return without_operator_keys(others | own)


def check_references(spec: JobSpec, environ: Mapping[str, str]) -> None:
    """Raises LaunchError for settings that are not allowed, then for all missing references at once, by
    name.
    """
    missing: list[str] = []
    hints: set[str] = set()
    _check_allowed(spec, environ)
    for setting, kind, name in references(spec):
        if kind == "env" and name not in environ:
            missing.append(f"{setting} wants the environment variable {name}, which is not set")
            hints.add("set the variable where repl is called: the job inherits it")
        if kind == "file" and not os.access(Path(name), os.R_OK):
            missing.append(f"{setting} wants the file {name}, which can't be read")
            hints.add("put the file there, readable by who calls repl")
    if missing:
        raise LaunchError("; ".join(missing), "; ".join(sorted(hints)))
