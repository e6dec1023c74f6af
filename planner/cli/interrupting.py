"""Ctrl-C during an apply: once is a wish that is seen before every request, twice is the end.

A signal is noted rather than raised: an exception could fall between a request and its entry in the journal.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from planner.apply.executor import Interruption
from planner.model.diagnostic import ExitCode

_FIRST = (
    b"\nInterrupted: what is under way is finished and noted, nothing new begins. Once more stops at once.\n"
)
_SECOND = b"\nStopped at once. The leases end by themselves; repl history tells what was done.\n"
_STDERR = 2


@contextmanager
def interruptible(interruption: Interruption) -> Iterator[None]:
    """Ctrl-C, and the SIGTERM by which a pipeline is cancelled."""

    def heard(_number: int, _frame: FrameType | None) -> None:
        # os.write: the buffers above may be in use by the very line that was interrupted.
        if interruption.happened:
            os.write(_STDERR, _SECOND)
            os._exit(ExitCode.INTERRUPTED)
        interruption.happened = True
        os.write(_STDERR, _FIRST)

    before = {number: signal.signal(number, heard) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
