"""This module writes files of the lab atomically, with one writer at a time, and holds the lab's errors.

Only their owner can read secrets. An error tells what went wrong, where, and the hint.
"""

import errno
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TextIO


class LabError(Exception):
    """The lab can't do what was requested; `hint` says what to do about it."""

    def __init__(self, what: str, hint: str = "", *, where: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint
        self.where = where

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        tail = f" — {self.hint}" if self.hint else ""
        return f"{where}{self.what}{tail}"


def write(path: Path, text: str, *, secret: bool = False) -> None:
    """Writes a temporary file and renames it, so that a reader never sees a partial file."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700 if secret else 0o755)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600 if secret else 0o644)
    try:
        with os.fdopen(fd, "w") as file:
            file.write(text)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def exclusive(path: Path, what: str, *, wait_s: float = 0.0) -> Iterator[None]:
    """Holds the lock of a folder; the kernel releases it when the process ends.

    Its holder may remove the file: the next one makes another. Raises LabError after `wait_s` seconds.
    """
    deadline = time.monotonic() + wait_s
    while (file := _locked(path)) is None:
        if time.monotonic() >= deadline:
            raise LabError(
                f"{what} cannot begin: {_holder(path)} is at work there",
                "wait until it is done, or use another --home",
                where=str(path.parent),
            )
        time.sleep(0.05)
    with file:
        file.truncate(0)
        file.write(json.dumps({"pid": os.getpid(), "what": what}))
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)
            fcntl.flock(file, fcntl.LOCK_UN)


def _locked(path: Path) -> TextIO | None:
    """Returns the locked file, or None where another process holds it, or has just removed it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            file = stack.enter_context(path.open("a+"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                stack.pop_all()
                return file
        except (BlockingIOError, FileNotFoundError):
            pass
    return None


def _holder(path: Path) -> str:
    with suppress(OSError, ValueError, KeyError):
        facts = json.loads(path.read_text())
        return f"{facts['what']} (process {facts['pid']})"
    return "another process"


@contextmanager
def changing(home: Path, what: str, wait_s: float = 0.0) -> Iterator[None]:
    """Holds the lock of a lab, so that only one command at a time changes it. Raises LabError."""
    with (
        explained(home, "choose another --home (or REPL_LAB_HOME)"),
        exclusive(home / "lock", what, wait_s=wait_s),
    ):
        yield


def render_properties(properties: Mapping[str, str]) -> str:
    """Returns the settings in the format of a properties file, which Java reads as ISO-8859-1."""
    text = ""
    for key, value in properties.items():
        escaped = value.replace("\\", "\\\\").replace("\n", "\\n").encode("utf-16-be")
        units = [escaped[at : at + 2] for at in range(0, len(escaped), 2)]
        signs = [chr(unit[1]) if unit < b"\0\x80" else f"\\u{unit.hex()}" for unit in units]
        text += f"{key}={''.join(signs)}\n"
    return text


MARK = ".repl-lab"


def claim(folder: Path) -> None:
    """Empties a folder whose creation was interrupted. Raises LabError for a folder with other files."""
    if ours(folder):
        shutil.rmtree(folder)
    elif folder.exists() and any(folder.iterdir()):
        raise LabError(
            "holds other things than a part of the lab", "choose another --home", where=str(folder)
        )
    write(folder / MARK, "Made by repl lab; removed by repl lab down --purge.\n")


def ours(folder: Path) -> bool:
    """Returns whether the lab created this folder."""
    return (folder / MARK).is_file()


@contextmanager
def explained(folder: Path, hint: str) -> Iterator[None]:
    """Turns an error of the file system into a LabError of one sentence."""
    try:
        yield
    except OSError as problem:
        place = problem.filename or folder
        if problem.errno == errno.ENOSPC:
            raise LabError(f"the disk is full: {place}", "free some space", where=str(folder)) from problem
        reason = problem.strerror or str(problem)
        raise LabError(f"cannot be written to: {reason} ({place})", hint, where=str(folder)) from problem


def log4j2(level: str) -> str:
    """Returns the settings of log4j 2 by which a process writes what has this level to its console."""
    return f"""\
rootLogger.level={level}
rootLogger.appenderRef.out.ref=OUT
appender.out.type=Console
appender.out.name=OUT
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d{{ISO8601}} %p %m (%c{{1}})%n
"""


_LINES_SHOWN = 12  # of the log of a process that died


def size_of(file: Path) -> int:
    """Returns the size of a file, 0 where there is none."""
    with suppress(FileNotFoundError):
        return file.stat().st_size
    return 0


def last_lines(log: Path, start: int) -> str:
    """Returns the last lines of a log behind this position, without Java's stack traces."""
    with suppress(FileNotFoundError), log.open("rb") as file:
        file.seek(start)
        lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
        shown = [line for line in lines if not line.lstrip().startswith("at ")]
        return "\n".join(f"  {line[:300]}" for line in shown[-_LINES_SHOWN:]) or "  (nothing)"
    return "  (nothing)"
