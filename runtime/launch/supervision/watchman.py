"""Waits for its supervisor's death, and takes its place. A supervisor that ends well dismisses it first."""

from __future__ import annotations

import os
import select
import signal


def post(command: list[str], lock: int) -> tuple[int, int]:
    """A fork of this process: its number, and a descriptor that tells of its end.

    Between its birth and its first look the supervisor may die: so the descriptor it waits for is opened
    before the fork. `lock` stays open in it, and so the job stays theirs when one of the two dies.
    """
    supervisor = os.pidfd_open(os.getpid())
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    pid = os.fork()
    if pid == 0:
        try:
            _wait(supervisor, command, lock)
        finally:
            os._exit(1)
    signal.pthread_sigmask(signal.SIG_SETMASK, held)
    os.close(supervisor)
    return pid, os.pidfd_open(pid)


def _wait(supervisor: int, command: list[str], lock: int) -> None:
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
