"""This module writes and reads a job's log: one bounded file with the output of all processes below its
supervisor.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

LARGEST = 8 << 20
KEPT = 3  # older files beside the newest
_TAIL_BYTES = 256 << 10
_LINE_LENGTH = 500  # longer lines are cut
_ERRORS = ("Error:", "Exception", "Caused by:")
_FIRST_ERRORS = 3


class LogFile:
    """A LogFile writes a rotated log.

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


def tail(path: Path, lines: int, start: int = 0) -> list[str]:
    """Returns the last lines after byte `start`, across a rotation; an absent log has none."""
    text = _read_end(path, start)
    if text.count(b"\n") < lines and not start:
        text = _read_end(_rotated_path(path, 1), 0) + text
    found = [
        line[:_LINE_LENGTH].rstrip() for line in text.decode(errors="replace").splitlines() if line.strip()
    ]
    return found[-lines:]


def log_excerpt(path: Path, lines: int, start: int) -> list[str]:
    """Returns the first errors and the last lines of the output since byte `start`.

    Spark prints its error first and then a hundred lines of usage.
    """
    output = tail(path, sys.maxsize, start)
    errors = [line for line in output[:-lines] if line.startswith(_ERRORS)]
    return [*errors[:_FIRST_ERRORS], *output[-lines:]]


def size(path: Path) -> int:
    """Returns the size of the log in bytes, 0 if it is absent."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _read_end(path: Path, start: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(max(start, size(path) - _TAIL_BYTES))
            return file.read()
    except OSError:
        return b""
