"""This module chooses and checks ports, and finds the process that holds a taken port."""

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from runtime.lab.cluster import ZOOKEEPER, BrokerPorts, KafkaVersion, LabClusterSpec
from runtime.lab.errors import LabError

# Offsets from a cluster's first port: its brokers, their controllers, further listeners.
CONTROLLERS = 100
ZOOKEEPER_PORT = 150
LISTENERS = 200
# This range is below the kernel's ephemeral ports, so an outgoing connection can't take one of them.
FREE_PORTS = range(12_000, 32_000)
_APART = 997  # distance between the first candidates of processes with adjacent pids
_picked: set[int] = set()
_LISTEN = "0A"


def assign(
    spec: LabClusterSpec, taken: frozenset[int] = frozenset()
) -> tuple[tuple[BrokerPorts, ...], BrokerPorts | None]:
    """Returns the nodes of a new cluster and its ZooKeeper, where it needs one.

    The ports follow the spec's first port, or are free ones.
    """
    free = _free_ports(spec, set(taken))
    first = spec.port

    def port(offset: int) -> int:
        return next(free) if first is None else first + offset

    nodes = tuple(
        BrokerPorts(
            id=number + 1,
            port=port(number),
            controller_port=port(CONTROLLERS + number),
            listener_ports={
                listener.name: port(LISTENERS + 10 * place + number)
                for place, listener in enumerate(spec.listeners)
            },
            version=spec.version,
        )
        for number in range(spec.brokers)
    )
    if not KafkaVersion.of(spec.version).zookeeper:
        return nodes, None
    shared = port(ZOOKEEPER_PORT)
    return nodes, BrokerPorts(ZOOKEEPER, shared, shared, version=spec.version)


def require_free(spec: LabClusterSpec, port: int) -> None:
    """Raises LabError for a taken port, and names the process that holds it."""
    host = spec.host
    problem = _bind_problem(spec, port)
    if problem is None:
        return
    raise LabError(
        f"{host}:{port} is taken by {holder(port)}"
        if problem.errno == errno.EADDRINUSE
        else f"{host}:{port} cannot be listened on: {problem.strerror}",
        "stop it, or let free ports be picked: repl lab up --ports auto",
    )


def holder(port: int) -> str:
    """Returns a text for the process that listens on a port, as far as this user may see it."""
    sockets = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    for process in Path("/proc").glob("[0-9]*"):
        if sockets & set(_open_files(process)):
            return f"process {process.name} ({_command(process)})"
    return "a process this user may not see"


def _open_files(process: Path) -> Iterator[str]:
    with suppress(OSError):  # another user's, or gone meanwhile
        for descriptor in (process / "fd").iterdir():
            with suppress(OSError):  # closed meanwhile
                yield str(descriptor.readlink())


def _command(process: Path) -> str:
    words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    files = [word for word in words if word.endswith("server.properties")]
    if files and any(word.startswith("-Drepl.lab=") for word in words):
        return f"a broker of the lab in {Path(files[0]).parents[2]}"
    line = " ".join(words)
    return line if len(line) <= 100 else f"{line[:97]}..."


def _listening_inodes(port: int) -> set[str]:
    inodes = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/net/{table}").read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            field = line.split()
            if field[3] == _LISTEN and int(field[1].rpartition(":")[2], 16) == port:
                inodes.add(field[9])
    return inodes


def _bind_problem(spec: LabClusterSpec, port: int) -> OSError | None:
    # A broker binds addresses in TIME_WAIT with SO_REUSEADDR, so the probe does too.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((spec.host, port))
            probe.listen()
        except OSError as problem:
            # With a prefix the broker may run in another network namespace, where this process can't bind.
            elsewhere = spec.prefix and problem.errno == errno.EADDRNOTAVAIL
            return None if elsewhere else problem
    return None


def _free_ports(spec: LabClusterSpec, taken: set[int]) -> Iterator[int]:
    """Yields free ports, each at most once in this process.

    A picked port is free for other processes until its broker starts, and whenever that broker is dead.
    Therefore each process starts its search at another port.
    """
    start = os.getpid() * _APART
    for number in range(len(FREE_PORTS)):
        port = FREE_PORTS[(start + number) % len(FREE_PORTS)]
        if port not in taken and port not in _picked and _bind_problem(spec, port) is None:
            _picked.add(port)
            yield port
