"""A job's log: one file that everything below its supervisor writes to, bounded, and its last lines."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

LARGEST = 8 << 20
KEPT = 3  # older ones beside the newest
_TAIL_BYTES = 256 << 10
_SHOWN = 500  # of a line
_ERRORS = ("Error:", "Exception", "Caused by:")
_FIRST_ERRORS = 3


class LogFile:
    """Standard output and error of this process are led into it too, so that nothing it says is lost."""

    def __init__(self, path: Path, largest: int = LARGEST, kept: int = KEPT, *, own: bool = True) -> None:
        self._path, self._largest, self._kept, self._own = path, largest, kept, own
        self._file = -1
        self._open()

    def write(self, text: bytes) -> None:
        """A full disk costs lines, never the job."""
        try:
            if self._size and self._size + len(text) > self._largest:
                self._rotate()
            os.write(self._file, text)
            self._size += len(text)
        except OSError:
            return

    def say(self, text: str) -> None:
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
            older = _numbered(self._path, number)
            newer = _numbered(self._path, number - 1)
            if newer.exists():
                newer.replace(older)
        self._open()


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}") if number else path


def tail(path: Path, lines: int, start: int = 0) -> list[str]:
    """The last lines after byte `start`, over a rotation too; nothing where there is no log."""
    text = _end(path, start)
    if text.count(b"\n") < lines and not start:
        text = _end(_numbered(path, 1), 0) + text
    told = [line[:_SHOWN].rstrip() for line in text.decode(errors="replace").splitlines() if line.strip()]
    return told[-lines:]


def last_words(path: Path, lines: int, start: int) -> list[str]:
    """Of what was said since byte `start`: its first errors, and its end. Spark says its error first, and
    then a hundred lines on how to use it.
    """
    said = tail(path, sys.maxsize, start)
    errors = [line for line in said[:-lines] if line.startswith(_ERRORS)]
    return [*errors[:_FIRST_ERRORS], *said[-lines:]]


def size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _end(path: Path, start: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(max(start, size(path) - _TAIL_BYTES))
            return file.read()
    except OSError:
        return b""
