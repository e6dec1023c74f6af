"""This module identifies processes of this machine by more than their pid, because pids are reused.

It works on Linux only, like other parts of a job (a signal at a parent's death, file descriptors of
processes).
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

_PROC = Path("/proc")
_POLL_S = 0.02
_PR_SET_PDEATHSIG = 1


class ProcessIdentity(msgspec.Struct, frozen=True):
    """A ProcessIdentity is unique for a process:

    `born` is in ticks since the boot of the machine, which `boot` names.
    """

    pid: int
    born: int
    boot: str


def identify(pid: int) -> ProcessIdentity | None:
    """Returns the identity of a process, or None when it does not exist or is a zombie."""
    try:
        # The fields from the state on; the name before it may contain blanks and brackets.
        fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    return None if fields[0] in "ZX" else ProcessIdentity(pid, int(fields[19]), boot)


def alive(process: ProcessIdentity | None) -> bool:
    """Returns whether this very process is running."""
    return process is not None and identify(process.pid) == process


def ending_with_this_process() -> Callable[[], None]:
    """Returns what a new process calls first: the kernel then kills it when this process ends, however."""
    parent, libc = os.getpid(), ctypes.CDLL(None)

    def end_with_parent() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # the parent ended before prctl
            os._exit(1)

    return end_with_parent


def send(process: ProcessIdentity, number: signal.Signals) -> bool:
    """Sends a signal, never to another process that has the pid by now.

    Returns false when the process is gone.
    """
    try:
        held = os.pidfd_open(process.pid)  # it refers to one process, even when the pid is reused
    except ProcessLookupError:
        return False
    try:
        if not alive(process):
            return False
        signal.pidfd_send_signal(held, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(held)
    return True


def children(pid: int) -> list[int]:
    """Returns the pids of the direct children of all threads of a process."""
    children: list[int] = []
    try:
        for listed in (_PROC / str(pid) / "task").glob("*/children"):
            children += map(int, listed.read_text().split())
    except OSError:
        return children
    return children


def words(pid: int) -> list[str]:
    """Returns the command line of a process; it is empty when the process is gone."""
    return _read_list(pid, "cmdline")


def marked(mark: str) -> Iterator[ProcessIdentity]:
    """Returns the processes that have `mark`, a NAME=VALUE, in their initial environment: those that
    remain of a job.
    """
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and mark in _read_list(int(entry.name), "environ"):
            process = identify(int(entry.name))
            if process is not None:
                yield process


def sweep(mark: str, within_s: float = 10.0) -> bool:
    """Kills all processes with `mark`; returns false when some are still alive after `within_s`."""
    deadline = time.monotonic() + within_s
    while left := list(marked(mark)):
        if time.monotonic() > deadline:
            return False
        for process in left:
            send(process, signal.SIGKILL)
        time.sleep(_POLL_S)
    return True


def _read_list(pid: int, name: str) -> list[str]:
    try:
        return (_PROC / str(pid) / name).read_bytes().decode(errors="replace").split("\0")
    except OSError:  # gone, or another user's
        return []
