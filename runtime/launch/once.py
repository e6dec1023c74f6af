"""This module runs a Spark application to its end in the foreground and passes on its output for the user."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from runtime.contract.spec.jobspec import JobSpec
from runtime.launch.command import (
    ROOT,
    Submission,
    check_secret,
    find_java,
    package,
    properties_file,
    spark_home,
    submission,
)
from runtime.launch.folder import JobFolder, write
from runtime.launch.launcher import LaunchError
from runtime.launch.references import without_operator_keys

HERE = JobSpec(job="", topology="", destination="", clusters={}, flows=[])  # local[2] is the default
_PR_SET_PDEATHSIG = 1
_LAST_LINES = 15
_GRACE_S = 10.0


def run_once(
    main: Path,
    arguments: Sequence[str],
    *,
    said: Callable[[str], None],
    prefix: str,
    environ: Mapping[str, str] = os.environ,
    where: JobSpec | None = None,
) -> None:
    """Runs the application on this machine's cores, or on the Spark cluster of the job `where` with that
    job's settings.

    `said` gets the lines that begin with `prefix`, without it. Raises LaunchError with the last lines when
    the application can't be started or its exit code is not 0.
    """
    find_java(environ)
    spark = spark_home(environ)
    check_secret((where or HERE).launch, spark, environ)
    with tempfile.TemporaryDirectory(prefix="repl-") as scratch:
        submitted = _prepare(Path(scratch), spark, (str(main), *arguments), where)
        parent, libc = os.getpid(), ctypes.CDLL(None)

        def end_with_command() -> None:
            """Ends the JVM when the command ends, even by SIGKILL; driver and workers end with their JVM."""
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:  # the parent ended before prctl
                os._exit(1)

        process = subprocess.Popen(
            submitted.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            preexec_fn=end_with_command,
            env={
                **without_operator_keys(environ),
                **submitted.variables,
                "PYTHONPATH": _python_path(environ),
            },
        )
        try:
            code, last = _follow_output(process, said, prefix)
        finally:
            _end(process)
    if code:
        raise LaunchError(f"the Spark application ended with {code}", "its last lines tell why", last)


def _prepare(scratch: Path, spark: Path, application: Sequence[str], where: JobSpec | None) -> Submission:
    folder = JobFolder(scratch, "once")
    folder.make()
    folder.scratch.mkdir(mode=0o700)
    submitted = submission(where or HERE, folder, spark, application)
    write(folder.properties, properties_file({**submitted.properties, "spark.speculation": "false"}))
    if submitted.packaged:
        package(folder.package)
    return submitted


def _python_path(environ: Mapping[str, str]) -> str:
    return os.pathsep.join([str(ROOT), *filter(None, [environ.get("PYTHONPATH")])])


def _follow_output(
    process: subprocess.Popen[str], said: Callable[[str], None], prefix: str
) -> tuple[int, list[str]]:
    last: deque[str] = deque(maxlen=_LAST_LINES)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(prefix):
            said(line.removeprefix(prefix).rstrip())
        else:
            last.append(line.rstrip())
    return process.wait(), list(last)


def _end(process: subprocess.Popen[str]) -> None:
    """Ends the application in any case, so that no process remains: workers and driver end with their JVM."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout is not None:
        process.stdout.close()
