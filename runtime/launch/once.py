"""A Spark application that is run to its end, in the foreground: what it says for people is passed on."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from runtime.launch.command import HEAP, JVM, LOGGING, QUIET, ROOT, properties_file, spark_home
from runtime.launch.java import find_java
from runtime.launch.launcher import LaunchError

MASTER = "local[2]"
_PR_SET_PDEATHSIG = 1
_KEPT = 15
_GRACE_S = 10.0


def run_once(
    main: Path,
    arguments: Sequence[str],
    *,
    said: Callable[[str], None],
    prefix: str,
    environ: Mapping[str, str] = os.environ,
) -> None:
    """On this machine's cores. `said` gets the lines that begin with `prefix`, without it. LaunchError when
    it can't be started, or ends otherwise than with 0: with its last lines.
    """
    find_java(environ)
    spark = spark_home(environ)
    with tempfile.TemporaryDirectory(prefix="repl-") as scratch:
        file = Path(scratch) / "spark.conf"
        file.write_bytes(properties_file(_properties(Path(scratch))))
        command = [str(spark / "bin" / "spark-submit"), "--master", MASTER, "--properties-file", str(file)]
        parent, libc = os.getpid(), ctypes.CDLL(None)

        def bound_to_the_command() -> None:
            """Also when the command is killed, nobody goes on: driver and workers follow their JVM."""
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:  # it died before that
                os._exit(1)

        process = subprocess.Popen(
            [*command, str(main), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            preexec_fn=bound_to_the_command,
            env={**environ, **_variables(spark, Path(scratch), environ)},
        )
        try:
            code, last = _followed(process, said, prefix)
        finally:
            _end(process)
    if code:
        raise LaunchError(f"the Spark application ended with {code}", "its last lines are below", last)


def _properties(scratch: Path) -> dict[str, str]:
    options = [*JVM, f"-Dlog4j2.configurationFile={LOGGING.as_uri()}", f'"-Djava.io.tmpdir={scratch}"']
    return {
        **QUIET,
        "spark.driver.memory": HEAP,
        "spark.speculation": "false",
        "spark.driver.extraJavaOptions": " ".join(options),
    }


def _variables(spark: Path, scratch: Path, environ: Mapping[str, str]) -> dict[str, str]:
    paths = [str(ROOT), *filter(None, [environ.get("PYTHONPATH")])]
    return {
        "SPARK_HOME": str(spark),
        "SPARK_LOCAL_DIRS": str(scratch),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join(paths),
    }


def _followed(
    process: subprocess.Popen[str], said: Callable[[str], None], prefix: str
) -> tuple[int, list[str]]:
    last: deque[str] = deque(maxlen=_KEPT)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(prefix):
            said(line.removeprefix(prefix).rstrip())
        else:
            last.append(line.rstrip())
    return process.wait(), list(last)


def _end(process: subprocess.Popen[str]) -> None:
    """Whatever happened here, nothing is left behind: workers and driver follow their JVM."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout is not None:
        process.stdout.close()
