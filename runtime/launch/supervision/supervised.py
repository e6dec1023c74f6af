"""This module launches jobs with a supervisor on this machine: `local`, and Spark clusters whose driver runs
here.

A job is detached from the terminal that starts it, and found from any other through its folder below `home`.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from runtime.contract.launching import LaunchError, LaunchHandle, LaunchState, LaunchStatus
from runtime.contract.spec.jobspec import JobSpec
from runtime.java import find_java
from runtime.launch import processes
from runtime.launch.command import ROOT, check_secret, spark_home, spark_submit
from runtime.launch.folder import JobFolder, Supervision, log_excerpt, log_size, log_tail
from runtime.launch.launcher import check_references, job_environment
from runtime.launch.supervision.supervisor import marked, supervisor_command
from runtime.machine import hold

_POLL_S = 0.05
_LOCK_TIMEOUT_S = 1.0  # a lock that another command only inspects is free again by then
_START_TIMEOUT_S = 60.0
_KILL_TIMEOUT_S = 20.0
_LINES_SHOWN = 20


@dataclass(frozen=True, slots=True)
class SupervisedLauncher:
    """Launches supervised jobs below one home folder."""

    home: Path
    environ: dict[str, str] = field(default_factory=lambda: job_environment(os.environ))

    def launch(self, spec: JobSpec, *, gives_way: bool = False) -> LaunchHandle:
        """Starts the job. With `gives_way` it ends where repl stopped the job, or another driver runs it."""
        self.check(spec)
        folder = self._folder(spec.job)
        folder.make()
        lock = self._take_lock(folder)
        try:
            state = folder.supervision()
            if state is not None and state.phase != "ended" and state.host != socket.gethostname():
                raise LaunchError(f"the job {folder.job} was started on {state.host}", "run this there")
            self._kill_remaining(folder, state)
            folder.write_spec(spec)
            start = log_size(folder.log)
            self._start_supervisor(folder, lock, gives_way=gives_way)
        finally:
            os.close(lock)  # the supervisor's copy of the descriptor keeps the lock
        return self._await_up(folder, start)

    def update(self, spec: JobSpec) -> None:
        folder = self._folder(spec.job)
        folder.make()
        folder.write_spec(spec)

    def find(self, job: str) -> LaunchStatus:
        folder = self._folder(job)
        state = folder.supervision()
        if state is None:
            return LaunchStatus(LaunchState.UNKNOWN, None, "never started from here")
        handle = _handle(folder, state)
        if state.host != socket.gethostname():
            why = f"started on {state.host}: look there"
            return LaunchStatus(LaunchState.UNKNOWN, handle, why)
        return _found(state, handle)

    def stop(self, job: str, grace_s: float) -> str:
        folder = self._folder(job)
        state = folder.supervision()
        if state is not None and state.host == socket.gethostname():
            if grace_s > 0:
                _request_stop(folder, grace_s)
            self._kill(folder)
        return ""

    def tail(self, job: str, lines: int = _LINES_SHOWN) -> list[str]:
        return log_tail(self._folder(job).log, lines)

    def _folder(self, job: str) -> JobFolder:
        return JobFolder(self.home.absolute(), job)

    def check(self, spec: JobSpec) -> None:
        """Checks everything that can be checked before a process starts. Raises LaunchError."""
        if not hasattr(os, "pidfd_open"):
            raise LaunchError("jobs run on Linux 5.4 or newer", "call repl there")
        find_java(self.environ)
        spark = spark_home(self.environ)
        spark_submit(spec, self._folder(spec.job), spark)
        check_secret(spec.launch, spark, self.environ)
        check_references(spec, self.environ)
        names = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
        if spec.launch.launcher == "yarn" and not any(map(self.environ.get, names)):
            raise LaunchError(
                "neither HADOOP_CONF_DIR nor YARN_CONF_DIR is set", "set it to the folder of yarn-site.xml"
            )

    def _take_lock(self, folder: JobFolder) -> int:
        try:
            lock = hold(folder.lock, _LOCK_TIMEOUT_S)
        except OSError as error:
            raise LaunchError(
                f"{folder.lock} can't be locked: {error.strerror or error}",
                f"give this user the right to write {folder.path}, on a file system that has locks",
            ) from error
        if lock is None:
            running = self.find(folder.job)
            where = f" ({running.handle.where})" if running.handle is not None else ""
            raise LaunchError(
                f"the job {folder.job} runs already{where}",
                "wait, if another apply is starting it; else kill that process: the job stops gracefully",
            )
        return lock

    def _kill_remaining(self, folder: JobFolder, state: Supervision | None) -> None:
        """Kills remaining processes of an earlier start. The lock is held, so no supervisor owns them."""
        if state is not None and state.mark and not processes.sweep(marked(state.mark)):
            raise LaunchError(
                f"processes of an earlier start of {folder.job} can't be ended",
                _listing(state.mark),
            )
        folder.state.unlink(missing_ok=True)

    def _start_supervisor(self, folder: JobFolder, lock: int, *, gives_way: bool) -> None:
        command = supervisor_command(folder, lock)
        command += ["--gives-way"] if gives_way else []
        path = os.pathsep.join(filter(None, (str(ROOT), self.environ.get("PYTHONPATH"))))
        try:
            with folder.log.open("ab") as output:
                folder.log.chmod(0o600)
                subprocess.run(  # it forks and ends; the forked process is detached
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=folder.path,
                    env={**self.environ, "PYTHONPATH": path},
                    start_new_session=True,
                    pass_fds=(lock,),
                    check=True,
                )
        except (OSError, subprocess.CalledProcessError) as error:
            raise LaunchError(f"its supervisor can't be started: {error}", f"read {folder.log}") from error

    def _await_up(self, folder: JobFolder, start: int) -> LaunchHandle:
        """Waits until the driver runs, and returns after a minute in any case: a slow machine is not an
        error.
        """
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            state = folder.supervision()
            if state is not None and state.phase == "ended":
                self._raise_not_started(folder, state.why, start)
            if state is not None and state.phase in ("running", "waiting"):
                return _handle(folder, state)
            if (lock := hold(folder.lock)) is not None:
                os.close(lock)
                self._raise_not_started(folder, "its supervisor died", start)
            time.sleep(_POLL_S)
        return _handle(folder, folder.supervision())

    def _raise_not_started(self, folder: JobFolder, why: str, start: int) -> None:
        raise LaunchError(
            f"the job {folder.job} did not start: {why}",
            f"read {folder.log}",
            log_excerpt(folder.log, _LINES_SHOWN, start),
        )

    def _kill(self, folder: JobFolder) -> None:
        """Kills supervisor and watchman until the lock is free, because a watchman replaces a dead
        supervisor.
        """
        deadline = time.monotonic() + _KILL_TIMEOUT_S
        while (lock := hold(folder.lock)) is None:
            state = folder.supervision()
            for process in (state.watchman, state.supervisor) if state is not None else ():
                if process is not None:
                    processes.send(process, signal.SIGKILL)
            if time.monotonic() > deadline:
                raise LaunchError(f"the job {folder.job} can't be ended", f"end what {folder.state} names")
            time.sleep(_POLL_S)
        try:
            state = folder.supervision()
            if state is None:
                return
            if state.mark and not processes.sweep(marked(state.mark)):
                raise LaunchError(
                    f"some processes of the job {folder.job} can't be ended", _listing(state.mark)
                )
            if state.phase != "ended":
                ended_ms = int(time.time() * 1000)
                attempt = state.attempt
                folder.note(
                    Supervision(
                        host=state.host, phase="ended", attempt=attempt, since_ms=ended_ms, why="killed"
                    )
                )
        finally:
            os.close(lock)


def _listing(mark: str) -> str:
    """Returns the hint how the remaining processes of a start are found."""
    return f"end those that this lists: grep -ls {marked(mark)} /proc/[0-9]*/environ"


def _found(state: Supervision, handle: LaunchHandle) -> LaunchStatus:
    """Returns the job's state by the supervisor's state file and the processes that are alive."""
    supervised, watched = processes.alive(state.supervisor), processes.alive(state.watchman)
    if state.phase == "ended":  # the supervisor is about to exit
        return LaunchStatus(LaunchState.ENDED, handle, state.why)
    if supervised and state.phase == "waiting":
        return LaunchStatus(LaunchState.RESTARTING, handle, state.why)
    if supervised:
        return LaunchStatus(LaunchState.RUNNING, handle)
    if watched:
        return LaunchStatus(
            LaunchState.RESTARTING, handle, "its supervisor was killed; the watchman takes over"
        )
    return LaunchStatus(
        LaunchState.ENDED, handle, "its supervisor and watchman were killed, or the machine went down"
    )


def _request_stop(folder: JobFolder, grace_s: float) -> None:
    """Requests a stop from the current supervisor, which may be replaced meanwhile."""
    deadline, signalled = time.monotonic() + grace_s, None
    while (state := folder.supervision()) is not None and time.monotonic() < deadline:
        supervisor = state.supervisor
        if not processes.alive(supervisor) and not processes.alive(state.watchman):
            return
        if supervisor is not None and supervisor != signalled and processes.send(supervisor, signal.SIGTERM):
            signalled = supervisor
        time.sleep(_POLL_S)


def _handle(folder: JobFolder, state: Supervision | None) -> LaunchHandle:
    supervisor = state.supervisor if state is not None else None
    pid = f"pid {supervisor.pid} on " if supervisor is not None else ""
    return LaunchHandle(
        folder.job, f"{pid}{state.host if state is not None else socket.gethostname()}", str(folder.log)
    )
