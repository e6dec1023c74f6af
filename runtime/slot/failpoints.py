"""Moments at which tests kill a slot: `REPL_FAILPOINT=after_ledger:3` dies at its third passage.

Off, `passing` is a function that does nothing: it is chosen once, when a slot is made.
"""

import os
import signal
from collections.abc import Callable, Mapping
from typing import Final

NAMES: Final = ("before_flush", "after_flush", "before_ledger", "after_ledger", "before_end", "after_end")
VARIABLE: Final = "REPL_FAILPOINT"

Passing = Callable[[str], None]


def nowhere(_name: str) -> None:
    """The failpoints of every run that is no test."""


def from_environment(environ: Mapping[str, str]) -> Passing:
    """Kills this process with SIGKILL at the nth passage of the point that the environment names."""
    text = environ.get(VARIABLE)
    if not text:
        return nowhere
    name, _, nth = text.partition(":")
    if name not in NAMES:
        raise ValueError(f"{VARIABLE}: {name} is no failpoint, they are {', '.join(NAMES)}")
    return _Killing(name, int(nth or 1))


class _Killing:
    def __init__(self, name: str, passages: int) -> None:
        self._name = name
        self._left = passages

    def __call__(self, name: str) -> None:
        if name == self._name:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
