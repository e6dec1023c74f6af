"""This process supervises one job: `python -m runtime.launch.supervision.supervisor --home … --job … …`.

It starts spark-submit, restarts it when it crashes, and exits after it was stopped. It is detached from the
terminal, its state is in a file, and its lock ends with it. A forked watchman only waits for its death: after
a SIGKILL of the supervisor the watchman replaces it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from runtime.contract.launching import LaunchError
from runtime.contract.spec.jobspec import FINAL_EXITS, BadJobSpec, JobExit
from runtime.java import find_java
from runtime.launch import processes
from runtime.launch.command import (
    MAIN,
    MARK,
    check_secret,
    spark_home,
    spark_submit,
    variables_of,
    write_settings,
)
from runtime.launch.folder import JobFolder, LogFile, Phase, Supervision
from runtime.launch.processes import ProcessIdentity

_CHUNK = 64 << 10


class SparkProcess:
    """Owns the processes of one start of a job.

    `output` is the descriptor of its output, to be read until it is empty; `ended_at` is readable once the
    process has ended.
    """

    def __init__(self, command: list[str], variables: Mapping[str, str], folder: Path, mark: str) -> None:
        self.mark = mark
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**os.environ, **variables, MARK: mark},
            start_new_session=True,
            preexec_fn=processes.ending_with_this_process(),  # driver and slots end with their JVM
        )
        assert self._process.stdout is not None
        self.output = self._process.stdout.fileno()
        os.set_blocking(self.output, False)
        self.ended_at = os.pidfd_open(self._process.pid)
        self.identity = processes.identify(self._process.pid)

    def read_output(self) -> bytes | None:
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


def supervisor_command(folder: JobFolder, lock: int) -> list[str]:
    """Returns the command of a job's supervisor.

    With `-P` Python imports nothing from the folder in which it starts.
    """
    command = [sys.executable, "-P", "-m", "runtime.launch.supervision.supervisor"]
    return [*command, "--home", str(folder.path.parent), "--job", folder.job, "--lock", str(lock)]


def post_watchman(command: list[str], lock: int) -> tuple[int, int]:
    """Forks the watchman; returns its pid, and a descriptor that is readable once it has ended.

    The supervisor may die between the fork and the watchman's first instruction, so the descriptor that it
    waits for is opened before the fork. `lock` stays open in the watchman, so the job stays locked when one
    of the two dies.
    """
    supervisor = os.pidfd_open(os.getpid())
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    pid = os.fork()
    if pid == 0:
        try:
            _replace_after_death(supervisor, command, lock)
        finally:
            os._exit(1)
    signal.pthread_sigmask(signal.SIG_SETMASK, held)
    os.close(supervisor)
    return pid, os.pidfd_open(pid)


def _replace_after_death(supervisor: int, command: list[str], lock: int) -> None:
    """Keeps only the lock and the supervisor's descriptor open, waits for the supervisor's death, and
    replaces this process.
    """
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    kept = sorted((supervisor, lock))
    for first, last in zip([2, *kept], [*kept, 4096], strict=True):
        os.closerange(first + 1, last)
    poll = select.poll()
    poll.register(supervisor, select.POLLIN)
    poll.poll()
    os.set_inheritable(lock, True)
    os.execv(command[0], command)  # noqa: S606 - no shell is wanted


FIRST_S = 0.2
LONGEST_S = 60.0
STEADY_S = 60.0  # a run this long resets the count of failures
_POLL_S = 0.1  # while the start or the end of the driver is awaited
_IDLE_POLL_S = 5.0
SETTLED_S = 1.5  # a driver that has run so long is up


@dataclass(frozen=True, slots=True)
class Backoff:
    """A Backoff counts failures.

    After a steady run the first restart is immediate, because it may have been a kill.
    """

    failures: int = 0

    def failed(self, lived_s: float) -> Backoff:
        """Returns the backoff after one more failure."""
        return Backoff(1 if lived_s >= STEADY_S else self.failures + 1)

    @property
    def delay_s(self) -> float:
        """The pause before the next start, in seconds."""
        return min(FIRST_S * 3.0 ** max(self.failures - 1, 0), LONGEST_S) if self.failures else 0.0


class Supervisor:
    """Runs one job until it is stopped or ends for good."""

    def __init__(self, home: Path, job: str, lock: int, *, revived: bool, gives_way: bool) -> None:
        self._lock, self._revived, self._gives_way = lock, revived, gives_way
        self._folder = JobFolder(home, job)
        self._log = LogFile(self._folder.log)
        self._events = selectors.DefaultSelector()
        self._stopping = False
        # The watchman's pid, and a descriptor that is readable once it has ended.
        self._watchman: tuple[int, int] | None = None
        self._backoff = Backoff()
        self._state = self._folder.supervision() or Supervision(host=socket.gethostname(), phase="starting")

    def run(self) -> int:
        """Supervises the job to its end and returns the exit code of this process."""
        before = self._state
        self._install_signal_handlers()
        if revived := self._revived:
            self._log.write_line("its supervisor was killed: the watchman goes on in its place")
        if before.mark and not processes.sweep(marked(before.mark)):
            self._log.write_line("some of the processes of the life before would not go")
        if revived and before.phase in ("stopping", "ended"):
            self._write_state("ended", application=None, why=before.why or "stopped")
            return 0
        self._start_watchman()
        try:
            return self._supervise()
        finally:
            self._stop_watchman()

    def _supervise(self) -> int:
        while True:
            began = time.monotonic()
            code, up = self._run_once()
            lived = time.monotonic() - began
            if (why := self._final_reason(code, up)) is not None:
                self._log.write_line(f"the job has ended: {why}")
                self._write_state("ended", application=None, why=why)
                return 0
            self._backoff = self._backoff.failed(lived)
            why = f"ended with {code} after {lived:.0f} s"
            self._log.write_line(f"{why}; it is started again in {self._backoff.delay_s:.1f} s")
            self._write_state("waiting", application=None, why=why)
            self._wait_backoff(self._backoff.delay_s)

    def _final_reason(self, code: int, up: bool) -> str | None:
        """Returns why the job must not be started again, or None."""
        if self._stopping:
            return "stopped"
        if code in FINAL_EXITS:
            return FINAL_EXITS[code]
        if not up and self._state.attempt == 1 and not self._revived:
            return f"died at its start (exit code {code})"  # reported to the command that started it
        return None

    def _run_once(self) -> tuple[int, bool]:
        """Runs the application once; returns its exit code, and whether its driver ever was up."""
        mark = new_mark()
        self._write_state("starting", mark=mark, attempt=self._state.attempt + 1, application=None)
        if self._stopping:
            return 0, False
        try:
            application = self._start(mark)
        except (OSError, LaunchError, BadJobSpec, subprocess.SubprocessError) as error:
            self._log.write_line(f"not started: {error}")
            return int(JobExit.FAILED), False
        self._write_state(self._state.phase, application=application.identity)
        try:
            return self._await_end(application)
        finally:
            if not application.sweep():
                self._log.write_line("some of its processes would not go")
            while output := application.read_output():
                self._log.write(output)
            application.close()

    def _start(self, mark: str) -> SparkProcess:
        """Starts the application by the current spec, which may have been written again since the last
        start.
        """
        folder, spec = self._folder, self._folder.read_spec()
        spark = spark_home(os.environ)
        restarted = self._gives_way or self._revived or self._state.attempt > 1
        command = spark_submit(spec, folder, spark, restarted=restarted)
        check_secret(spec.launch, spark, os.environ)
        write_settings(spec, folder, find_java(os.environ), spark)
        return SparkProcess(command, variables_of(spec, folder, spark), folder.path, mark)

    def _await_end(self, application: SparkProcess) -> tuple[int, bool]:
        """Copies the application's output and passes on a stop until it ends; returns the exit code and
        whether it was up.
        """
        up_since: float | None = None
        up, signalled = False, None
        self._events.register(application.ended_at, selectors.EVENT_READ)
        self._events.register(application.output, selectors.EVENT_READ)
        try:
            while (code := application.code()) is None:
                self._wait_for_event(_POLL_S if self._stopping or not up else _IDLE_POLL_S)
                self._copy_output(application)
                if self._stopping and signalled is None:
                    signalled = self._request_stop(application)
                if not up and (driver := application.driver()) is not None:
                    up_since = up_since or time.monotonic()
                    up = time.monotonic() - up_since >= SETTLED_S and processes.alive(driver)
                    if up and not self._stopping:
                        self._write_state("running", application=application.identity)
        finally:
            for file in (application.ended_at, application.output):
                with contextlib.suppress(KeyError):
                    self._events.unregister(file)
        return code, up

    def _request_stop(self, application: SparkProcess) -> ProcessIdentity | None:
        """Signals the driver, not the JVM, so that it ends its transactions and sends a last heartbeat."""
        driver = application.driver()
        if driver is None or not processes.send(driver, signal.SIGTERM):
            return None  # not started yet: the signal is sent once it is
        self._log.write_line("asked to stop")
        return driver

    def _copy_output(self, application: SparkProcess) -> None:
        output = application.read_output()
        if output:
            self._log.write(output)
        elif output is not None:
            with contextlib.suppress(KeyError):
                self._events.unregister(application.output)

    def _wait_backoff(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._stopping and (left := until - time.monotonic()) > 0:
            self._wait_for_event(left)

    def _wait_for_event(self, seconds: float) -> None:
        """Waits for output, an end or a signal; a dead watchman is replaced here."""
        for key, _ in self._events.select(seconds):
            if key.data == "signal":
                with contextlib.suppress(BlockingIOError):
                    os.read(key.fd, 64)
                if self._stopping:
                    self._write_state("stopping")  # from here on the watchman must not take over
            elif key.data == "watchman":
                self._log.write_line("its watchman was killed: there is a new one")
                self._stop_watchman()
                self._start_watchman()
                self._write_state(self._state.phase)

    def _install_signal_handlers(self) -> None:
        reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writing)
        signal.signal(signal.SIGTERM, self._on_sigterm)
        for number in (signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        self._events.register(reading, selectors.EVENT_READ, "signal")

    def _on_sigterm(self, *_: object) -> None:
        self._stopping = True

    def _start_watchman(self) -> None:
        command = supervisor_command(self._folder, self._lock)
        self._watchman = post_watchman([*command, "--revived"], self._lock)
        self._events.register(self._watchman[1], selectors.EVENT_READ, "watchman")

    def _stop_watchman(self) -> None:
        if self._watchman is None:
            return
        pid, ended_at = self._watchman
        self._events.unregister(ended_at)
        os.close(ended_at)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)  # not reaped yet, so the pid can't belong to another process
        os.waitpid(pid, 0)
        self._watchman = None

    def _write_state(self, phase: Phase, **changes: object) -> None:
        """Writes the state file. A full disk must not end the job: the file then keeps the previous state."""
        if self._stopping and phase != "ended":
            phase = "stopping"
        self._state = msgspec.structs.replace(
            self._state,
            host=socket.gethostname(),
            phase=phase,
            supervisor=processes.identify(os.getpid()),
            watchman=processes.identify(self._watchman[0]) if self._watchman is not None else None,
            since_ms=int(time.time() * 1000) if phase != self._state.phase else self._state.since_ms,
            **changes,
        )
        try:
            self._folder.note(self._state)
        except OSError as error:
            self._log.write_line(f"{self._folder.state} can't be written: {error}")


def main() -> int:
    """Runs the supervisor. Without `--revived` it does so in a forked child."""
    parser = argparse.ArgumentParser(description="Looks after one job.")
    parser.add_argument("--home", required=True, type=Path)
    parser.add_argument("--job", required=True)
    parser.add_argument("--lock", required=True, type=int)
    parser.add_argument("--revived", action="store_true")
    parser.add_argument("--gives-way", action="store_true")
    given = parser.parse_args()
    os.set_inheritable(given.lock, False)
    if not given.revived and os.fork():
        return 0  # the caller need not wait, and has no child to reap later
    supervisor = Supervisor(
        given.home, given.job, given.lock, revived=given.revived, gives_way=given.gives_way
    )
    return supervisor.run()


if __name__ == "__main__":
    sys.exit(main())
