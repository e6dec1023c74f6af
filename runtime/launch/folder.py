"""What is kept of a job on the machine that looks after it: `HOME/JOB/`, readable by its owner only."""

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
from runtime.launch.processes import Identity
from runtime.launch.references import refuse_secrets

_LOOK_S = 0.05
_WAY_OUT = "make room, or make the folder writable, or name another with REPL_HOME"

Phase = Literal["starting", "running", "waiting", "stopping", "ended"]


class Supervision(msgspec.Struct, frozen=True, kw_only=True):
    """What a supervisor says of itself. `mark` is carried by every process of the job's present life;
    `host` because a folder may be shared by machines, and a process number tells nothing elsewhere.
    """

    host: str
    phase: Phase
    supervisor: Identity | None = None
    watchman: Identity | None = None
    application: Identity | None = None
    mark: str = ""
    attempt: int = 0
    since_ms: int = 0
    why: str = ""


class Folder:
    def __init__(self, home: Path, job: str) -> None:
        name = quote(job, safe="")  # a job may be called anything, and stays below its home
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
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.chmod(0o700)
        except OSError as error:
            raise LaunchError(f"{self.path} can't be made: {error.strerror or error}", _WAY_OUT) from error

    def write_spec(self, spec: JobSpec) -> None:
        """Write what every new start goes by; LaunchError where it would hold a secret."""
        refuse_secrets(spec)
        try:
            write(self.spec, jobspec.encode(spec))
        except OSError as error:
            raise LaunchError(f"{self.spec} can't be written: {error.strerror or error}", _WAY_OUT) from error

    def read_spec(self) -> JobSpec:
        return jobspec.decode(self.spec.read_bytes())

    def note(self, state: Supervision) -> None:
        write(self.state, msgspec.json.format(msgspec.json.encode(state), indent=2))

    def supervision(self) -> Supervision | None:
        """None: never started from here."""
        try:
            return msgspec.json.decode(self.state.read_bytes(), type=Supervision)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, msgspec.DecodeError) as error:
            raise LaunchError(f"{self.state} can't be read: {error}", "look at the file") from error


def write(path: Path, text: bytes) -> None:
    """Whole or not at all, and from its first moment readable by its owner only."""
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
    """The lock of who cares for a job, as a file descriptor: who has it, or inherits it, has the job. None
    when another holds on to it. It goes by itself with the last process that has it.
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
            time.sleep(_LOOK_S)
        except OSError:
            os.close(file)
            raise
        else:
            return file
