"""What the processes of repl share on one machine: the cache folder of a user, and locks."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Final

_POLL_S: Final = 0.05


def cache_folder() -> Path:
    """Returns the cache folder of the user. Raises RuntimeError where the user has no home folder."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "repl"


def hold(lock: Path, within_s: float = 0.0) -> int | None:
    """Takes a lock and returns it as a file descriptor, or None when another process still
    holds it after `within_s` seconds.

    A process that has or inherits the descriptor holds the lock. The kernel releases the lock with the last
    such process.
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
