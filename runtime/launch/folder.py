"""This module keeps the state of a job on the machine that supervises it: `HOME/JOB/`, readable by its
owner only.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import msgspec

from runtime.contract.spec import jobspec
from runtime.contract.spec.jobspec import JobSpec
from runtime.launch.launcher import LaunchError
from runtime.launch.processes import ProcessIdentity
from runtime.launch.references import refuse_secrets

_POLL_S = 0.05
_HINT = "make room, or make the folder writable, or name another with REPL_HOME"

Phase = Literal["starting", "running", "waiting", "stopping", "ended"]


class Supervision(msgspec.Struct, frozen=True, kw_only=True):
    """A Supervision is the state that a supervisor writes.

    `mark` is in the environment of every process of the job's current start. `host` is there because machines
    may share a folder, and a pid is meaningless on another machine.
    """

    host: str
    phase: Phase
    supervisor: ProcessIdentity | None = None
    watchman: ProcessIdentity | None = None
    application: ProcessIdentity | None = None
    mark: str = ""
    attempt: int = 0
    since_ms: int = 0
    why: str = ""


class JobFolder:
    """A JobFolder names and writes the files of one job below the home folder."""

    def __init__(self, home: Path, job: str) -> None:
        name = quote(job, safe="")  # any job name maps to a folder directly below the home
        self.path = home / (f"%2E{name[1:]}" if name.startswith(".") else name)
        self.job = job
        self.spec = self.path / "spec.json"
        self.state = self.path / "supervisor.json"
        self.log = self.path / "job.log"
        self.properties = self.path / "spark.conf"
        self.package = self.path / "runtime.zip"
        self.scratch = self.path / "scratch"
        self.lock = self.path / "lock"

    def make(self) -> None:
        """Creates the folder. Raises LaunchError."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.chmod(0o700)
        except OSError as error:
            raise LaunchError(f"{self.path} can't be made: {error.strerror or error}", _HINT) from error

    def write_spec(self, spec: JobSpec) -> None:
        """Writes the spec that every new start uses.

        Raises LaunchError where it would hold a secret or can't be written.
        """
        refuse_secrets(spec)
        try:
            write(self.spec, jobspec.encode(spec))
        except OSError as error:
            raise LaunchError(f"{self.spec} can't be written: {error.strerror or error}", _HINT) from error

    def read_spec(self) -> JobSpec:
        """Reads the spec. Raises OSError, BadJobSpec."""
        return jobspec.decode(self.spec.read_bytes())

    def note(self, state: Supervision) -> None:
        """Writes the supervisor's state. Raises OSError."""
        write(self.state, msgspec.json.format(msgspec.json.encode(state), indent=2))

    def supervision(self) -> Supervision | None:
        """Returns the supervisor's state, or None if the job was never started from here.

        Raises LaunchError.
        """
        try:
            return msgspec.json.decode(self.state.read_bytes(), type=Supervision)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, msgspec.DecodeError) as error:
            raise LaunchError(f"{self.state} can't be read: {error}", "look at the file") from error


def write(path: Path, text: bytes) -> None:
    """Writes a file atomically; from its creation it is readable by its owner only."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def hold(lock: Path, within_s: float = 0.0) -> int | None:
    """Takes the lock of the job's supervisor and returns it as a file descriptor, or None when another
    process holds it.

    A process that has or inherits the descriptor supervises the job. The kernel releases the lock with the
    last such process.
    """
    file = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + within_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                os.close(file)
                return None
            time.sleep(_POLL_S)
        except OSError:
            os.close(file)
            raise
        else:
            return file
