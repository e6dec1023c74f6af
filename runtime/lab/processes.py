"""This module finds the lab's processes on this machine by the mark on their command line.

The process table is the only record of what runs. No pid is stored, so none can be stale after a reboot
or belong to another process.
"""

import os
import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from runtime.lab.files import LabError

# The children of this process that were not reaped yet, with their marks. During an exec the process table
# shows no command line, so `find` reads this as well.
_children: dict[int, str] = {}
_INTERRUPTS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


@dataclass(frozen=True, slots=True)
class LabProcess:
    """A LabProcess is a running process of the lab, such as a broker."""

    pid: int
    paused: bool
    memory: int  # resident bytes


def spawn(mark: str, command: list[str], log: Path, environ: Mapping[str, str] = os.environ) -> None:
    """Starts a process whose command line has the mark, in its own session, so that it outlives the terminal.

    Its output goes to the log. Its locale is UTF-8, by which Java reads the names of files.
    """
    # Signals are blocked until the pid is noted: an interrupt would leave a process that is never stopped.
    held = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTS)
    try:
        _children[_spawn(command, log, environ)] = mark
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


def _spawn(command: list[str], log: Path, environ: Mapping[str, str]) -> int:
    return os.posix_spawnp(
        command[0],
        command,
        {**environ, "LC_ALL": "C.UTF-8"},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
            # A lock or a pipe of the caller's shell must not stay open as long as the lab runs.
            *((os.POSIX_SPAWN_CLOSE, descriptor) for descriptor in _inherited()),
        ],
        setsid=True,
        setsigmask=[],
        setsigdef=[signal.SIGPIPE, *_INTERRUPTS],
    )


def _inherited() -> list[int]:
    """Returns the descriptors beside the standard ones that a child would inherit."""
    inherited = []
    for entry in list(Path("/proc/self/fd").iterdir()):
        descriptor = int(entry.name)
        with suppress(OSError):  # the one that listed the folder is closed by now
            if descriptor > 2 and os.get_inheritable(descriptor):
                inherited.append(descriptor)
    return inherited


def find(marks: Collection[str]) -> dict[str, LabProcess]:
    """Returns the running processes by mark."""
    _reap()
    started = {mark: LabProcess(pid, False, 0) for pid, mark in _children.items() if mark in marks}
    return started | dict(_listed({mark.encode(): mark for mark in marks}))


def _listed(marks: Mapping[bytes, str]) -> Iterable[tuple[str, LabProcess]]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            mark = next((marks[word] for word in words if word in marks), None)
            process = _process(entry) if mark else None
        except OSError:
            continue  # gone meanwhile
        if mark and process:
            yield mark, process


def _process(entry: Path) -> LabProcess | None:
    facts = dict(line.split(":", 1) for line in (entry / "status").read_text().splitlines() if ":" in line)
    state = facts["State"].strip()[0]
    if state in "ZX":
        return None  # a zombie, not reaped yet
    return LabProcess(int(entry.name), state in "Tt", int(facts.get("VmRSS", "0 kB").split()[0]) * 1024)


def send(process: LabProcess, number: signal.Signals) -> None:
    """Sends a signal; a process that is gone is ignored. LabError for a process of another user."""
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        return  # a process that is gone needs no signal
    except PermissionError:
        raise LabError(f"process {process.pid} belongs to another user", "run this as that user") from None


def freeze(stopped: Sequence[LabProcess]) -> None:
    """Sends SIGSTOP, and returns when all threads have stopped, or after 10 s."""
    for process in stopped:
        send(process, signal.SIGSTOP)
    deadline = time.monotonic() + 10
    while not all(_all_stopped(process) for process in stopped) and time.monotonic() < deadline:
        time.sleep(0.005)


def _all_stopped(process: LabProcess) -> bool:
    try:
        states = [
            (task / "stat").read_bytes().rpartition(b")")[2].split()[0]
            for task in Path(f"/proc/{process.pid}/task").iterdir()
        ]
    except OSError:
        return not Path(f"/proc/{process.pid}").exists()  # if it exists, a thread ended meanwhile
    return all(state in b"TtZX" for state in states)


def stop(marks: Collection[str], *, grace: float) -> None:
    """Sends SIGTERM to these processes, and SIGKILL to those that are left after `grace` seconds.

    Returns when none is left.
    """

    def left() -> Collection[LabProcess]:
        return find(marks).values()

    for process in left():
        send(process, signal.SIGTERM)
        send(process, signal.SIGCONT)
    if grace and _wait_gone(left, grace):
        return
    kill(marks)


_GONE_S = 30.0


def kill(marks: Collection[str]) -> None:
    """Kills these processes with SIGKILL, and returns when they are gone, or 30 s have passed."""

    def left() -> Collection[LabProcess]:
        running = find(marks).values()
        for process in running:
            send(process, signal.SIGKILL)
        return running

    _wait_gone(left, _GONE_S)


def _wait_gone(left: Callable[[], Collection[LabProcess]], timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while left():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _reap() -> None:
    for pid in list(_children):
        try:
            done, _ = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            done = pid
        if done:
            del _children[pid]


def kill_with_variable(variable: str, *, prefix: bool = False) -> None:
    """Kills every process that has NAME=VALUE in its environment, and returns when none is left.

    With `prefix`, more characters may follow VALUE.
    """
    wanted = variable.encode()

    def has_it(words: list[bytes]) -> bool:
        return any(word.startswith(wanted) for word in words) if prefix else wanted in words

    def left() -> list[LabProcess]:
        running = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # another user's, or gone meanwhile
                words = (entry / "environ").read_bytes().split(b"\0")
                if has_it(words) and (process := _process(entry)):
                    running.append(process)
        for process in running:
            send(process, signal.SIGKILL)
        return running

    _wait_gone(left, _GONE_S)
