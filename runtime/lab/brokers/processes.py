"""This module finds the broker processes of this machine by the mark on their command line.

The process table is the only record of running brokers. No pid is stored, so none can be stale after a reboot
or belong to another process.
"""

import os
import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime.lab.cluster import ZOOKEEPER, BrokerPorts, LabKafkaCluster

# The children of this process that were not reaped yet, with their marks. During an exec the process table
# shows no command line, so `find` reads this as well.
_children: dict[int, bytes] = {}
_INTERRUPTS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


@dataclass(frozen=True, slots=True)
class BrokerProcess:
    """A BrokerProcess is a running broker."""

    pid: int
    paused: bool
    memory: int  # resident bytes


def mark(cluster: LabKafkaCluster, node: BrokerPorts) -> str:
    """Returns the mark of a broker: a Java property that no other process has."""
    return f"-Drepl.lab={cluster.cluster_id}:{node.id}"


def spawn(carried: str, command: list[str], log: Path) -> None:
    """Starts a process in its own session, so that it outlives the terminal.

    Its output goes to the log.
    """
    # Signals are blocked until the pid is noted: an interrupt would leave a broker that is never stopped.
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


def find(clusters: Iterable[LabKafkaCluster]) -> dict[tuple[str, int], BrokerProcess]:
    """Returns the running brokers, by cluster name and node id."""
    wanted = {
        mark(cluster, node).encode(): (cluster.name, node.id)
        for cluster in clusters
        for node in cluster.processes
    }
    _reap()
    born = {
        wanted[carried]: BrokerProcess(pid, False, 0)
        for pid, carried in _children.items()
        if carried in wanted
    }
    return born | {wanted[carried]: process for carried, process in _marked(wanted)}


def _marked(wanted: Mapping[bytes, object]) -> Iterable[tuple[bytes, BrokerProcess]]:
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


def _process(entry: Path) -> BrokerProcess | None:
    facts = dict(line.split(":", 1) for line in (entry / "status").read_text().splitlines() if ":" in line)
    state = facts["State"].strip()[0]
    if state in "ZX":
        return None  # a zombie, not reaped yet
    return BrokerProcess(int(entry.name), state in "Tt", int(facts.get("VmRSS", "0 kB").split()[0]) * 1024)


def send(process: BrokerProcess, number: signal.Signals) -> None:
    """Sends a signal; a process that is gone is ignored."""
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        return  # a process that is gone needs no signal


def freeze(stopped: Sequence[BrokerProcess], timeout: float = 10.0) -> None:
    """Sends SIGSTOP, and returns when all threads have stopped or the timeout has passed."""
    for process in stopped:
        send(process, signal.SIGSTOP)
    deadline = time.monotonic() + timeout
    while not all(_all_stopped(process) for process in stopped) and time.monotonic() < deadline:
        time.sleep(0.005)


def _all_stopped(process: BrokerProcess) -> bool:
    try:
        states = [
            (task / "stat").read_bytes().rpartition(b")")[2].split()[0]
            for task in Path(f"/proc/{process.pid}/task").iterdir()
        ]
    except OSError:
        return not Path(f"/proc/{process.pid}").exists()  # if it exists, a thread ended meanwhile
    return all(state in b"TtZX" for state in states)


def stop(clusters: Sequence[LabKafkaCluster], *, grace: float) -> None:
    """Sends SIGTERM to all brokers, and SIGKILL to those that are left after `grace` seconds.

    Returns when none is left.

    ZooKeeper is stopped after the brokers, because a broker needs it for a clean end.
    """
    keys = {(cluster.name, node.id) for cluster in clusters for node in cluster.processes}
    stop_some(clusters, {key for key in keys if key[1] != ZOOKEEPER}, grace=grace)
    stop_some(clusters, keys, grace=grace)


def stop_some(
    clusters: Sequence[LabKafkaCluster], keys: Collection[tuple[str, int]], *, grace: float
) -> None:
    """Stops the processes of these keys in the same way."""

    def left() -> list[BrokerProcess]:
        return [process for key, process in find(clusters).items() if key in keys]

    for process in left():
        send(process, signal.SIGTERM)
        send(process, signal.SIGCONT)
    if grace and _wait_gone(left, grace):
        return
    for process in left():
        send(process, signal.SIGKILL)
    _wait_gone(left, 30)


def _wait_gone(left: Callable[[], list[BrokerProcess]], timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while left():
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
