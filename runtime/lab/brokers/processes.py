"""Broker processes of this machine, found by the mark they carry.

The process table is the only truth about what runs. No pid is kept, so none can be stale after a reboot
or belong to somebody else by now."""

import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime.lab.cluster import Cluster
from runtime.lab.spec import Node

# What this process started and has not yet seen end, with its mark. In the moment of an exec the table of
# processes shows no command line, so for one's own children this is asked as well.
_children: dict[int, bytes] = {}
_INTERRUPTS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    paused: bool
    memory: int  # resident bytes


def mark(cluster: Cluster, node: Node) -> str:
    return f"-Drepl.lab={cluster.cluster_id}:{node.id}"


def spawn(carried: str, command: list[str], log: Path) -> None:
    """Start a process in a session of its own, so that it outlives the terminal; its words go to the log."""
    # No interrupt between its birth and the note of it: nobody would stop it.
    held = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTS)
    try:
        _children[_spawn(command, log)] = carried.encode()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


def _spawn(command: list[str], log: Path) -> int:
    return os.posix_spawnp(
        command[0],
        command,
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=[],
        setsigdef=[signal.SIGPIPE, *_INTERRUPTS],
    )


def find(clusters: Iterable[Cluster]) -> dict[tuple[str, int], Process]:
    """The running brokers, by cluster name and node id."""
    wanted = {
        mark(cluster, node).encode(): (cluster.name, node.id)
        for cluster in clusters
        for node in cluster.nodes
    }
    _reap()
    born = {
        wanted[carried]: Process(pid, False, 0) for pid, carried in _children.items() if carried in wanted
    }
    return born | {wanted[carried]: process for carried, process in _marked(wanted)}


def _marked(wanted: Mapping[bytes, object]) -> Iterable[tuple[bytes, Process]]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            carried = next(
                (word for word in (entry / "cmdline").read_bytes().split(b"\0") if word in wanted), None
            )
            process = _process(entry) if carried else None
        except OSError:
            continue  # gone meanwhile
        if carried and process:
            yield carried, process


def _process(entry: Path) -> Process | None:
    facts = dict(line.split(":", 1) for line in (entry / "status").read_text().splitlines() if ":" in line)
    state = facts["State"].strip()[0]
    if state in "ZX":
        return None  # dead, only not yet taken note of by its parent
    return Process(int(entry.name), state in "Tt", int(facts.get("VmRSS", "0 kB").split()[0]) * 1024)


def send(process: Process, number: signal.Signals) -> None:
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        return  # gone is what a signal was to bring about, or nothing is left to tell


def freeze(stopped: Sequence[Process], timeout: float = 10.0) -> None:
    """SIGSTOP; returns when no thread of them runs any more, which on a busy machine takes its time."""
    for process in stopped:
        send(process, signal.SIGSTOP)
    deadline = time.monotonic() + timeout
    while not all(_still(process) for process in stopped) and time.monotonic() < deadline:
        time.sleep(0.005)


def _still(process: Process) -> bool:
    try:
        states = [
            (task / "stat").read_bytes().rpartition(b")")[2].split()[0]
            for task in Path(f"/proc/{process.pid}/task").iterdir()
        ]
    except OSError:
        return not Path(f"/proc/{process.pid}").exists()  # else a thread ended meanwhile
    return all(state in b"TtZX" for state in states)


def stop(clusters: Sequence[Cluster], *, grace: float) -> None:
    """Ask all to end at once, then insist; returns when none is left."""
    for process in find(clusters).values():
        send(process, signal.SIGTERM)
        send(process, signal.SIGCONT)
    if grace and wait_gone(clusters, grace):
        return
    for process in find(clusters).values():
        send(process, signal.SIGKILL)
    wait_gone(clusters, 30)


def wait_gone(clusters: Sequence[Cluster], timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while find(clusters):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _reap() -> None:
    for pid in list(_children):
        try:
            done, _ = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            done = pid
        if done:
            del _children[pid]
