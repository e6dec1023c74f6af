"""The classes that Spark loads, archived once for all JVMs of the tests: a start takes a third less work.

Until there is an archive, everything works without it, only slower.
"""

import asyncio
import os
import sys
from functools import cache

from runtime.java import find_java
from runtime.launch.command import archive_classes, class_archive, spark_home
from tests.commands import environment
from tests.processes import TEST_RUN

_LAUNCHER = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # of the JVM that only prints the command of the other


def use() -> None:
    """Makes every spark-submit from now on use the archive; begins to make it where there is none."""
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", _LAUNCHER)
    archive = class_archive(find_java(os.environ), spark_home(os.environ))
    if archive is None:
        return
    if options := archive.options:
        # Java must not print a line about an archive that does not fit into a command's output.
        wanted = (*options, "-Xlog:disable", "-Xlog:all=error:stderr")
        os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(wanted))
    else:
        _begin()


@cache
def _begin() -> None:
    """Once in each process, in the background: no test waits for it, and it outlives a short run."""
    quiet = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in range(3)]
    command = [sys.executable, "-m", "tests.spark.class_archive"]
    os.posix_spawn(command[0], command, environment({TEST_RUN: None}), file_actions=quiet, setsid=True)


if __name__ == "__main__":
    asyncio.run(archive_classes(os.environ))
