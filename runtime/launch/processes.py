"""Processes of this machine, each known by more than its number: a number is used again, a birth is not.

Linux only, as the rest of what a job stands on (a signal at a parent's death, file descriptors of processes).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

_PROC = Path("/proc")
_LOOK_S = 0.02


class Identity(msgspec.Struct, frozen=True):
    """`born` is in ticks since the machine's start, which `boot` names."""

    pid: int
    born: int
    boot: str


def identify(pid: int) -> Identity | None:
    """None when there is no such process, or it is dead and only not yet taken note of."""
    try:
        fields = _stat(pid)
    except OSError:
        return None
    return None if fields[0] in "ZX" else Identity(pid, int(fields[19]), _boot())


def alive(process: Identity | None) -> bool:
    return process is not None and identify(process.pid) == process


def send(process: Identity, number: signal.Signals) -> bool:
    """Never to another that has the number by now; false when it is gone."""
    try:
        held = os.pidfd_open(process.pid)  # from here on the number can't change its owner unseen
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
    """Direct ones, of every thread."""
    found: list[int] = []
    try:
        for listed in (_PROC / str(pid) / "task").glob("*/children"):
            found += map(int, listed.read_text().split())
    except OSError:
        return found
    return found


def words(pid: int) -> list[str]:
    """Its command line; nothing when it is gone."""
    return _list(pid, "cmdline")


def marked(mark: str) -> Iterator[Identity]:
    """Those that carry `mark`, a NAME=VALUE, in the environment they began with: a job's, whoever is left."""
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and mark in _list(int(entry.name), "environ"):
            found = identify(int(entry.name))
            if found is not None:
                yield found


def sweep(mark: str, within_s: float = 10.0) -> bool:
    """Kills all that carry `mark`; false when some would not go."""
    deadline = time.monotonic() + within_s
    while left := list(marked(mark)):
        if time.monotonic() > deadline:
            return False
        for process in left:
            send(process, signal.SIGKILL)
        time.sleep(_LOOK_S)
    return True


def _list(pid: int, name: str) -> list[str]:
    try:
        return (_PROC / str(pid) / name).read_bytes().decode(errors="replace").split("\0")
    except OSError:  # gone, or somebody else's
        return []


def _stat(pid: int) -> list[str]:
    """From the state on; what comes before may hold blanks and brackets."""
    return (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()


def _boot() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
