"""This module runs one start of a job's Spark application: it starts the processes, finds the driver, and
ends all of them.
"""

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
from runtime.launch.processes import ProcessIdentity

_PR_SET_PDEATHSIG = 1
_CHUNK = 64 << 10


class SparkProcess:
    """A SparkProcess owns the processes of one start of a job.

    `output` is the descriptor of its output, to be read until it is empty; `ended_at` is readable once the
    process has ended.
    """

    def __init__(
        self, command: tuple[str, ...], variables: Mapping[str, str], folder: Path, mark: str
    ) -> None:
        parent, libc = os.getpid(), ctypes.CDLL(None)

        def end_with_supervisor() -> None:
            """Lets the kernel kill the JVM when its supervisor ends; driver and slots end with their JVM."""
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:  # the supervisor ended before prctl
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
            preexec_fn=end_with_supervisor,
        )
        assert self._process.stdout is not None
        self.output = self._process.stdout.fileno()
        os.set_blocking(self.output, False)
        self.ended_at = os.pidfd_open(self._process.pid)
        self.identity = processes.identify(self._process.pid)

    def said(self) -> bytes | None:
        """Reads available output: None means none yet, empty means the end."""
        try:
            return os.read(self.output, _CHUNK)
        except BlockingIOError:
            return None

    def code(self) -> int | None:
        """Returns the exit code as a shell states it, or None while the process runs."""
        code = self._process.poll()
        return 128 - code if code is not None and code < 0 else code

    def driver(self) -> ProcessIdentity | None:
        """Returns the Python driver: the child of the JVM that runs the driver's script."""
        for pid in processes.children(self._process.pid):
            if str(MAIN) in processes.words(pid):
                return processes.identify(pid)
        return None

    def sweep(self) -> bool:
        """Kills all remaining processes of this start; returns false when some are still alive."""
        return processes.sweep(marked(self.mark))

    def close(self) -> None:
        """Closes the descriptors."""
        os.close(self.ended_at)
        if self._process.stdout is not None:
            self._process.stdout.close()


def new_mark() -> str:
    """Returns a unique mark for one start."""
    return uuid.uuid4().hex


def marked(mark: str) -> str:
    """Returns the mark as it stands in an environment."""
    return f"{MARK}={mark}"
