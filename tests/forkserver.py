"""Runs `repl` commands in processes that are forked from one that has imported the planner.

A new interpreter spends nine tenths of a command's CPU time on imports. A forked command is still a process
with its own arguments, environment, working directory, output and exit code. It has no command line of its
own in /proc, and it shares the hash seed of its server. Therefore there are two servers, and successive
commands alternate between them: a plan is made and applied under different hash seeds.
"""

import atexit
import gc
import importlib
import itertools
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

# Packages whose modules the commands import. An import must start no thread of Python: a fork would lose it.
IMPORTED = (
    *("planner.cli", "planner.workflows", "planner.apply", "planner.render", "planner.state"),
    *("runtime.launch", "deepdiff"),
)
# Variables that an interpreter or a module reads once, at its start.
_READ_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "TZ", "REPL_FAILPOINT")
_SERVERS = 2
_LARGEST_REQUEST = 1 << 20


def read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that a fork cannot change any more."""
    return {key: value for key, value in environment.items() if key.startswith(_READ_AT_START)}


class Request(NamedTuple):
    """A Request is one command for a server to fork."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    folder: str


class ForkServer:
    """A ForkServer is the client's side of one server process; it ends with the process that started it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.forkserver", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                # Pipes, as the output of a command is one: the streams of an interpreter know what they are.
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=environment,
                pass_fds=[theirs.fileno()],
            )

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Runs one command to its end. Raises subprocess.TimeoutExpired, and then the command is killed."""
        request = Request(arguments, environment, str(Path.cwd()))
        reply, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        (output, output_end), (errors, errors_end) = os.pipe(), os.pipe()
        with reply, os.fdopen(output, "rb") as out, os.fdopen(errors, "rb") as err:
            try:
                descriptors = [0, output_end, errors_end, theirs.fileno()]
                socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
            finally:
                theirs.close()
                os.close(output_end)
                os.close(errors_end)
            pid = int(self._receive(reply))
            try:
                found = _read_until_closed([out.fileno(), err.fileno()], timeout)
                reply.settimeout(timeout)
                code = int(self._receive(reply))
            except BaseException as problem:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                if isinstance(problem, TimeoutError):
                    raise subprocess.TimeoutExpired(["repl", *arguments], timeout) from None
                raise
        texts = [part.decode().replace("\r\n", "\n").replace("\r", "\n") for part in found]
        return subprocess.CompletedProcess(["repl", *arguments], code, *texts)

    def _receive(self, reply: socket.socket) -> bytes:
        message = reply.recv(64)
        if not message:
            raise RuntimeError(f"the fork server ended: {self._process.communicate()[1]}")
        return message

    def close(self) -> None:
        """Ends the server; commands that it has forked go on."""
        self._socket.close()
        self._process.communicate()


def _read_until_closed(descriptors: Sequence[int], timeout: float) -> list[bytes]:
    """Raises TimeoutError. A daemon that holds the output of its command open is waited for, as in a pipe."""
    deadline = time.monotonic() + timeout
    found: dict[int, list[bytes]] = {each: [] for each in descriptors}
    with selectors.DefaultSelector() as waiting:
        for each in descriptors:
            waiting.register(each, selectors.EVENT_READ)
        while waiting.get_map():
            for key, _ in waiting.select(max(0.0, deadline - time.monotonic())):
                if part := os.read(key.fd, 65_536):
                    found[key.fd].append(part)
                else:
                    waiting.unregister(key.fd)
            if time.monotonic() > deadline:
                raise TimeoutError
    return [b"".join(parts) for parts in found.values()]


_lock = threading.Lock()
_turns: Iterator[ForkServer] | None = None


def next_server(environment: Mapping[str, str]) -> ForkServer:
    """Returns the servers in turn; the first call starts them, in this environment."""
    global _turns
    with _lock:
        if _turns is None:
            started = [ForkServer(environment) for _ in range(_SERVERS)]
            for server in started:
                atexit.register(server.close)
            _turns = itertools.cycle(started)
        return next(_turns)


def main() -> None:
    """Serves until the other side of the socket is closed. Only in a forked command does it go on."""
    for package in IMPORTED:
        found = importlib.import_module(package)
        if package.startswith(("planner.", "runtime.")):
            for module in pkgutil.walk_packages(found.__path__, f"{package}."):
                importlib.import_module(module.name)
    if threading.active_count() > 1:
        raise RuntimeError(f"an import has started a thread: {threading.enumerate()}")
    gc.freeze()  # a collection in a command would copy all pages of its server
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the commands
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a parent of a command
    os.set_inheritable(int(sys.argv[1]), False)
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        request = _serve(requests)
    if request is not None:
        sys.argv = ["repl", *request.arguments]
        runpy.run_module("planner", run_name="__main__", alter_sys=True)


def _serve(requests: socket.socket) -> Request | None:
    """Returns None at the end, and in a forked command what it was asked for."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, _LARGEST_REQUEST, 4)
        if not message:
            return None
        if os.fork() == 0:
            requests.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return _fork_command(Request(*json.loads(message)), descriptors)
        for each in descriptors:
            os.close(each)


def _fork_command(request: Request, descriptors: Sequence[int]) -> Request:
    """Returns in the command. Its parent sends the command's process id and its exit code."""
    pid = os.fork()
    if pid:
        for each in descriptors[:3]:
            os.close(each)
        with socket.socket(fileno=descriptors[3]) as reply:
            with suppress(BrokenPipeError):
                reply.send(str(pid).encode())
            _, status = os.waitpid(pid, 0)
            with suppress(BrokenPipeError):
                reply.send(str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, each in enumerate(descriptors[:3]):
        os.dup2(each, number)
    for each in descriptors:
        os.close(each)
    os.environ.clear()
    os.environ.update(request.environment)
    os.chdir(request.folder)
    return request


if __name__ == "__main__":
    main()
