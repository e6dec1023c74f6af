"""This module forks a process that waits for its supervisor's death and replaces it; a supervisor that
exits normally kills it first.
"""

from __future__ import annotations

import os
import select
import signal


def post(command: list[str], lock: int) -> tuple[int, int]:
    """Forks the watchman; returns its pid, and a descriptor that is readable once it has ended.

    The supervisor may die between the fork and the watchman's first instruction, so the descriptor that it
    waits for is opened before the fork. `lock` stays open in the watchman, so the job stays locked when one
    of the two dies.
    """
    supervisor = os.pidfd_open(os.getpid())
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    pid = os.fork()
    if pid == 0:
        try:
            _replace_after_death(supervisor, command, lock)
        finally:
            os._exit(1)
    signal.pthread_sigmask(signal.SIG_SETMASK, held)
    os.close(supervisor)
    return pid, os.pidfd_open(pid)


def _replace_after_death(supervisor: int, command: list[str], lock: int) -> None:
    """Keeps only the lock and the supervisor's descriptor open, waits for the supervisor's death, and
    replaces this process.
    """
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    kept = sorted((supervisor, lock))
    for first, last in zip([2, *kept], [*kept, 4096], strict=True):
        os.closerange(first + 1, last)
    poll = select.poll()
    poll.register(supervisor, select.POLLIN)
    poll.poll()
    os.set_inheritable(lock, True)
    os.execv(command[0], command)  # noqa: S606 - no shell is wanted
