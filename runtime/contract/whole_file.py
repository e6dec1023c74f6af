"""Writes files so that a crash leaves the old content or the new one."""

import os
from pathlib import Path


def write_private(path: Path, text: bytes) -> None:
    """Writes a file as `write_whole` does. Only its owner can ever read it."""
    write_whole(path, text, 0o600)


def write_whole(path: Path, text: bytes, mode: int = 0o666) -> None:
    """Writes a file atomically, even if the machine goes down meanwhile. The umask applies to its mode.

    Raises OSError, after which no part of the new file is left.
    """
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
