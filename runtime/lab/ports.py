"""This module picks free ports for the lab's processes, and finds the process that holds a taken one."""

import errno
import os
import socket
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from runtime.lab.files import LabError

# This range is below the kernel's ephemeral ports, so an outgoing connection can't take one of them.
FREE_PORTS = range(12_000, 32_000)
_APART = 997  # distance between the first candidates of processes with adjacent pids
_picked: set[int] = set()
_LISTEN = "0A"


def require_free_port(host: str, port: int, hint: str, *, elsewhere: bool = False) -> None:
    """Raises LabError for a taken port, and names the process that holds it.

    `elsewhere` says that the host may be one of another network namespace, where this process can't bind.
    """
    problem = _bind_problem(host, port, elsewhere)
    if problem is None:
        return
    raise LabError(
        f"{host}:{port} is taken by {_port_holder(port)}"
        if problem.errno == errno.EADDRINUSE
        else f"{host}:{port} cannot be listened on: {problem.strerror}",
        hint,
    )


def _port_holder(port: int) -> str:
    """Returns a text for the process that listens on a port, as far as this user may see it."""
    sockets = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # another user's, or gone meanwhile
            if sockets.isdisjoint(descriptor.resolve().name for descriptor in (process / "fd").iterdir()):
                continue
            words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
            files = [word for word in words if word.endswith("server.properties")]
            line = " ".join(words)
            if files and any(word.startswith("-Drepl.lab=") for word in words):
                line = f"a broker of the lab in {Path(files[0]).parents[2]}"
            return f"process {process.name} ({line if len(line) <= 100 else f'{line[:97]}...'})"
    return "a process this user may not see"


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


def _bind_problem(host: str, port: int, elsewhere: bool) -> OSError | None:
    # A broker binds addresses in TIME_WAIT with SO_REUSEADDR, so the probe does too.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen()
        except OSError as problem:
            return None if elsewhere and problem.errno == errno.EADDRNOTAVAIL else problem
    return None


def free_ports(
    host: str = "127.0.0.1", taken: Collection[int] = (), *, elsewhere: bool = False
) -> Iterator[int]:
    """Yields free ports, each at most once in this process.

    A picked port is free for other processes until its process starts, and whenever that is dead. Therefore
    each process starts its search at another port.
    """
    start = os.getpid() * _APART
    for number in range(len(FREE_PORTS)):
        port = FREE_PORTS[(start + number) % len(FREE_PORTS)]
        if port not in taken and port not in _picked and _bind_problem(host, port, elsewhere) is None:
            _picked.add(port)
            yield port
