"""This module keeps a job's state and log on the machine that supervises it, readable by their owner only.

The folder is `HOME/JOB/`. The log is one bounded file with the output of all processes below the supervisor.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import msgspec

from runtime.contract.launching import LaunchError
from runtime.contract.records import record_values
from runtime.contract.records.record_values import MAX_TEXT_BYTES, UnreadableValue
from runtime.contract.spec import jobspec
from runtime.contract.spec.jobspec import JobSpec
from runtime.contract.whole_file import write_private
from runtime.launch.launcher import refuse_secrets
from runtime.launch.processes import ProcessIdentity

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


_supervision = msgspec.json.Decoder(Supervision)


def read_bounded(file: Path) -> bytes:
    """Reads no more of a file than `record_values.decode` takes: a checkout may bring any. Raises OSError."""
    with file.open("rb") as opened:
        return opened.read(MAX_TEXT_BYTES + 1)


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

    def renew_scratch(self) -> None:
        """Creates the empty folder for what Spark keeps while it runs. Raises OSError."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir(mode=0o700)

    def write_spec(self, spec: JobSpec) -> None:
        """Writes the spec that every new start uses.

        Raises LaunchError where it would hold a secret or can't be written.
        """
        refuse_secrets(spec)
        try:
            write_private(self.spec, jobspec.encode(spec))
        except OSError as error:
            raise LaunchError(f"{self.spec} can't be written: {error.strerror or error}", _HINT) from error

    def read_spec(self) -> JobSpec:
        """Reads the spec. Raises OSError, BadJobSpec."""
        return jobspec.decode(read_bounded(self.spec))

    def note(self, state: Supervision) -> None:
        """Writes the supervisor's state. Raises OSError."""
        write_private(self.state, msgspec.json.format(msgspec.json.encode(state), indent=2))

    def supervision(self) -> Supervision | None:
        """Returns the supervisor's state, or None if the job was never started from here.

        Raises LaunchError.
        """
        try:
            return record_values.decode(_supervision, read_bounded(self.state))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            hint = "call repl as the user that started the job"
            raise LaunchError(f"{self.state} can't be read: {error.strerror or error}", hint) from error
        except UnreadableValue as error:
            hint = "kill the job's supervisor if it still runs, remove the file, and apply again"
            raise LaunchError(f"{self.state} can't be read: {error}", hint) from error


LARGEST = 8 << 20
KEPT = 3  # older files beside the newest
_TAIL_BYTES = 256 << 10
_LINE_LENGTH = 500  # longer lines are cut
_ERRORS = ("Error:", "Exception", "Caused by:")
_FIRST_ERRORS = 3


class LogFile:
    """Writes a rotated log.

    With `own` it also receives this process's standard output and error.
    """

    def __init__(self, path: Path, largest: int = LARGEST, kept: int = KEPT, *, own: bool = True) -> None:
        self._path, self._largest, self._kept, self._own = path, largest, kept, own
        self._file = -1
        self._open()

    def write(self, text: bytes) -> None:
        """Appends to the log. A full disk loses lines but never stops the job."""
        try:
            if self._size and self._size + len(text) > self._largest:
                self._rotate()
            os.write(self._file, text)
            self._size += len(text)
        except OSError:
            return

    def write_line(self, text: str) -> None:
        """Appends one line of the supervisor."""
        self.write(f"{time.strftime('%H:%M:%S')} supervisor: {text}\n".encode())

    def _open(self) -> None:
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        if self._file >= 0:
            os.close(self._file)
        self._file, self._size = file, os.fstat(file).st_size
        if self._own:
            os.dup2(file, 1)
            os.dup2(file, 2)

    def _rotate(self) -> None:
        for number in range(self._kept, 0, -1):
            older = _rotated_path(self._path, number)
            newer = _rotated_path(self._path, number - 1)
            if newer.exists():
                newer.replace(older)
        self._open()


def _rotated_path(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}") if number else path


def log_tail(path: Path, lines: int, start: int = 0) -> list[str]:
    """Returns the last lines after byte `start`, across a rotation; an absent log has none."""
    text = _read_end(path, start)
    if text.count(b"\n") < lines and not start:
        text = _read_end(_rotated_path(path, 1), 0) + text
    kept = [
        line[:_LINE_LENGTH].rstrip() for line in text.decode(errors="replace").splitlines() if line.strip()
    ]
    return kept[-lines:]


def log_excerpt(path: Path, lines: int, start: int) -> list[str]:
    """Returns the first errors and the last lines of the output since byte `start`.

    Spark prints its error first and then a hundred lines of usage.
    """
    output = log_tail(path, sys.maxsize, start)
    errors = [line for line in output[:-lines] if line.startswith(_ERRORS)]
    return [*errors[:_FIRST_ERRORS], *output[-lines:]]


def log_size(path: Path) -> int:
    """Returns the size of the log in bytes, 0 if it is absent."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _read_end(path: Path, start: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(max(start, log_size(path) - _TAIL_BYTES))
            return file.read()
    except OSError:
        return b""
