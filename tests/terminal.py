"""Commands at a terminal: what a person sees, and what one types."""

import os
import pty
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tests.commands import REPL, environment


def start(
    *arguments: str,
    env: Mapping[str, str] | None = None,
    streams: Sequence[str] = ("stdin", "stdout", "stderr"),
    **more: Any,
) -> tuple[subprocess.Popen[bytes], int]:
    """Starts a command whose streams are a terminal, and returns the other end of the terminal too."""
    ours, theirs = pty.openpty()
    more |= dict.fromkeys(streams, theirs)
    process = subprocess.Popen([*REPL, *arguments], env=environment(env or {}), **more)
    os.close(theirs)
    return process, ours


def shown(terminal: int) -> Iterator[bytes]:
    """Yields what the terminal shows, until the command has closed it."""
    with suppress(OSError):  # how Linux says that the other end of a terminal is closed
        while piece := os.read(terminal, 65_536):
            yield piece
    os.close(terminal)
