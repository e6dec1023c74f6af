"""This module ends a process when its parent ends, so that no driver or slot outlives a killed JVM.

Linux can signal a child at its parent's death, but only at the death of the *thread* that forked it. That is
certain for pyspark's worker daemon, which has one thread, but not for a JVM. Therefore the parent's pid is
polled as well.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time

_PR_SET_PDEATHSIG = 1
_EVERY_S = 0.5


def die_with_parent(*, forked_by_one_thread: bool) -> None:
    """Kills this process when its parent ends, by a signal of the kernel where that is certain, else within
    half a second.
    """
    parent = os.getppid()
    if forked_by_one_thread and hasattr(os, "pidfd_open"):  # only Linux has prctl and pidfd_open
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    threading.Thread(target=_watch, args=(parent,), name="watch-parent", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_EVERY_S)
    os.kill(os.getpid(), signal.SIGKILL)
