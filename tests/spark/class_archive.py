"""The classes that Spark loads, archived once for all JVMs of the tests: a start takes a third less work.

Java ignores an archive that does not fit. Until there is one, everything works without it, only slower. An
archive takes 160 MB, and each environment has its own: those that no test has used for a week are removed.
"""

import hashlib
import os
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

from runtime.java import find_java
from runtime.lab.files import LabBusy, exclusive
from runtime.lab.kit import cache_folder
from runtime.launch.command import JVM, spark_home
from tests.commands import environment
from tests.labs import WITH_PARENT
from tests.processes import TEST_RUN

_LAUNCHER = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # of the JVM that only prints the command of the other
_WITHIN_S = 900  # many times what it takes on a quiet machine
_KEPT_S = 7 * 24 * 3600
# What loads classes in a job: a task in Python, and a query with an expression and Python.
_TRAINING = """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context = SparkContext.getOrCreate()
    context.parallelize([0], 1).mapPartitions(list).collect()
    rows = SparkSession(context).range(3).selectExpr("id", "upper(cast(id as string)) text").filter("id > 0")
    rows.mapInArrow(lambda batches: batches, rows.schema).collect()
    context.stop()
"""


def use() -> None:
    """Makes every spark-submit from now on use the archive; begins to make it where there is none."""
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", _LAUNCHER)
    archive = _archive()
    if _used(archive):
        # Java must not print a line about an archive that does not fit into a command's output.
        options = f"-XX:SharedArchiveFile={archive} -Xlog:disable -Xlog:all=error:stderr"
        os.environ.setdefault("SPARK_SUBMIT_OPTS", options)
    else:
        _begin()


def _used(archive: Path) -> bool:
    """Whether there is an archive. Its time says when it was used last."""
    try:
        os.utime(archive)
    except FileNotFoundError:
        return False
    return True


@cache
def _archive() -> Path:
    """Another Java or another Spark has an archive of its own."""
    java, jars = find_java(os.environ).resolve(), spark_home(os.environ) / "jars"
    known = [str(jars), *(f"{file} {file.stat().st_mtime_ns}" for file in (java, *sorted(jars.iterdir())))]
    return cache_folder() / f"spark-{hashlib.sha256(repr(known).encode()).hexdigest()[:12]}.jsa"


@cache
def _begin() -> subprocess.Popen[bytes]:
    """Once in each process, in the background: no test waits for it, and it outlives a short run."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.spark.class_archive"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment({TEST_RUN: None}),
        start_new_session=True,
    )


def _make(archive: Path) -> None:
    folder, spark = archive.parent, spark_home(os.environ)
    made, application = folder / f".{archive.name}", folder / f".{archive.stem}.py"
    application.write_text(textwrap.dedent(_TRAINING))
    options = " ".join((*JVM, f"-XX:ArchiveClassesAtExit={made}", "-Xlog:disable"))
    try:
        subprocess.run(
            [
                *WITH_PARENT,
                spark / "bin" / "spark-submit",
                "--master",
                "local[1]",
                "--driver-java-options",
                options,
                application,
            ],
            env={
                **os.environ,
                "SPARK_HOME": str(spark),
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            check=True,
            timeout=_WITHIN_S,
        )
        made.rename(archive)
    finally:
        made.unlink(missing_ok=True)
        application.unlink()


def remove_unused(folder: Path) -> None:
    """Removes what was not used for a week, and what a killed run of this left behind."""
    for pattern in ("spark-*.jsa", ".spark-*"):
        for file in folder.glob(pattern):
            with suppress(FileNotFoundError):  # removed by another process
                if time.time() - file.stat().st_mtime > _KEPT_S:
                    file.unlink()


def main() -> None:
    archive = _archive()
    archive.parent.mkdir(parents=True, exist_ok=True)
    remove_unused(archive.parent)
    try:
        with exclusive(archive.with_suffix(".lock"), "archiving Spark's classes"):
            if not archive.exists():
                _make(archive)
    except LabBusy:
        return  # another process is making it


if __name__ == "__main__":
    main()
