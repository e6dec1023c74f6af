"""A process that must not outlive the one that started it: a killed JVM leaves nobody copying, or driving.

Linux can tell a child of its parent's death at once, but only of the death of the *thread* that forked it:
sure for pyspark's worker daemon, which has one thread, not for a JVM. So besides, the parent is looked at.
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
    parent = os.getppid()
    if forked_by_one_thread and hasattr(os, "pidfd_open"):  # only Linux has both
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    threading.Thread(target=_watch, args=(parent,), name="watch-parent", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_EVERY_S)
    os.kill(os.getpid(), signal.SIGKILL)
