"""One life of a job's Spark application: started, found driver, asked, ended, with nobody left behind."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

from runtime.launch import processes
from runtime.launch.command import MAIN, MARK
from runtime.launch.processes import Identity

_PR_SET_PDEATHSIG = 1
_CHUNK = 64 << 10


class Application:
    """`output` is what it says, to be read until it is empty; `ended_at` tells a selector of its end."""

    def __init__(
        self, command: tuple[str, ...], variables: Mapping[str, str], folder: Path, mark: str
    ) -> None:
        parent, libc = os.getpid(), ctypes.CDLL(None)

        def bound_to_the_supervisor() -> None:
            """The kernel kills the JVM when its supervisor is gone; the driver and slots follow their JVM."""
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:  # it died before that
                os._exit(1)

        self.mark = mark
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**os.environ, **variables, MARK: mark},
            start_new_session=True,
            preexec_fn=bound_to_the_supervisor,
        )
        assert self._process.stdout is not None
        self.output = self._process.stdout.fileno()
        os.set_blocking(self.output, False)
        self.ended_at = os.pidfd_open(self._process.pid)
        self.identity = processes.identify(self._process.pid)

    def said(self) -> bytes | None:
        """What there is to read: None is nothing now, empty is nothing ever again."""
        try:
            return os.read(self.output, _CHUNK)
        except BlockingIOError:
            return None

    def code(self) -> int | None:
        """As a shell tells it, or None while it runs."""
        code = self._process.poll()
        return 128 - code if code is not None and code < 0 else code

    def driver(self) -> Identity | None:
        """The Python driver: the child of the JVM that runs our program."""
        for pid in processes.children(self._process.pid):
            if str(MAIN) in processes.words(pid):
                return processes.identify(pid)
        return None

    def sweep(self) -> bool:
        """Whoever of this life is left is killed; false when somebody would not go."""
        return processes.sweep(marked(self.mark))

    def close(self) -> None:
        os.close(self.ended_at)
        if self._process.stdout is not None:
            self._process.stdout.close()


def new_mark() -> str:
    return uuid.uuid4().hex


def marked(mark: str) -> str:
    """As it stands in an environment."""
    return f"{MARK}={mark}"
