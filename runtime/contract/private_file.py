"""Writes files that only their owner can read, so that a crash leaves the old content or the new one."""

import os
from pathlib import Path


def write_private(path: Path, text: bytes) -> None:
    """Writes a file atomically, also where the machine goes down; from its creation only its owner reads it.

    Raises OSError, after which no part of the new file is left.
    """
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
