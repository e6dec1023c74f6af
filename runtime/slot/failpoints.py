"""A failpoint kills the process at a named step, for tests.

`REPL_FAILPOINT=after_ledger:3` kills it at the third passage of `after_ledger`. Without the variable,
`failpoint` does nothing. It is chosen once for the process.
"""

import os
import signal
from collections.abc import Callable, Mapping
from typing import Final

NAMES: Final = ("before_flush", "after_flush", "before_ledger", "after_ledger", "before_end", "after_end")
VARIABLE: Final = "REPL_FAILPOINT"

Failpoint = Callable[[str], None]


def _no_failpoint(_name: str) -> None:
    """Does nothing, for every run that is not a test."""


def _from_environment(environ: Mapping[str, str]) -> Failpoint:
    """Returns the function that kills this process at the nth passage of the failpoint in the environment.

    Without one, the returned function does nothing. Raises ValueError for an unknown failpoint.
    """
    text = environ.get(VARIABLE)
    if not text:
        return _no_failpoint
    name, _, nth = text.partition(":")
    if name not in NAMES:
        raise ValueError(f"{VARIABLE}: {name} is no failpoint, they are {', '.join(NAMES)}")
    return _Killing(name, int(nth or 1))


class _Killing:
    """Kills this process with SIGKILL at the nth passage of one failpoint."""

    def __init__(self, name: str, passages: int) -> None:
        self._name = name
        self._left = passages

    def __call__(self, name: str) -> None:
        if name == self._name:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


failpoint: Final = _from_environment(os.environ)
