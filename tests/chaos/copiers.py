"""What copies, and is started again whenever it ended: a stand-in for the supervisor of a job."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec
import psutil

from runtime.contract.spec.jobspec import FlowSpec, JobSpec, encode
from runtime.launch.command import MAIN, java_options, spark_home
from tests.labs import WITH_PARENT
from tests.processes import below, freeze, kill_together, parent_of, thaw, words_of
from tests.runtime.slot.world import Driver, Side, assigned
from tests.spark.job import SUBMIT

_AGAIN_S = 0.2
DAEMON = "pyspark.worker"
EXECUTOR = "CoarseGrainedExecutorBackend"
LOCAL = "local[2]"
EXECUTORS = "local-cluster[2,1,512]"  # Spark's own: two Workers in the driver, executors in processes


class Copier(Protocol):
    """`topics` are copied from the start; `victims` are the processes that a blow may fall on, by role."""

    def command(self) -> Sequence[str]: ...
    def victims(self, root: psutil.Process) -> Mapping[str, list[psutil.Process]]: ...


@dataclass(frozen=True, slots=True)
class SlotCopier:
    """One slot in a process of its own, without Spark; each start takes over anew, as a driver would."""

    driver: Driver
    flow: FlowSpec
    topic: str
    partitions: int
    folder: Path

    def command(self) -> Sequence[str]:
        partitions = assigned(self.flow.name, self.topic, self.partitions, max_message_bytes=8_000_000)
        assignment = asyncio.run(self.driver.take_over(self.flow, partitions))
        file = self.folder / f"{self.flow.name}-{assignment.version}.json"
        file.write_bytes(msgspec.json.encode([self.driver.spec(), assignment]))
        return [sys.executable, "-m", "tests.runtime.slot.slot_process", str(file)]

    def victims(self, root: psutil.Process) -> Mapping[str, list[psutil.Process]]:
        return {"worker": [root], "driver": [root]}


@dataclass(frozen=True, slots=True)
class SparkCopier:
    """The whole job, as `spark-submit` starts it."""

    spec: JobSpec
    file: Path
    master: str = LOCAL

    def command(self) -> Sequence[str]:
        self.file.write_bytes(encode(self.spec))
        return submit_command(self.spec, self.file, self.master)

    def victims(self, root: psutil.Process) -> Mapping[str, list[psutil.Process]]:
        return processes_of(root)


def processes_of(root: psutil.Process) -> dict[str, list[psutil.Process]]:
    """Returns the processes of a job by role. `root` is the JVM of its driver.

    Workers are the forks of pyspark's daemon, which the driver's JVM or an executor started. The driver is
    that JVM or its Python process.
    """
    children = [one for one in below(root.pid) if one.pid != root.pid]
    words = {one.pid: words_of(one) for one in children}
    executors = [one for one in children if any(word.endswith(EXECUTOR) for word in words[one.pid])]
    runs_daemons = {root.pid, *(one.pid for one in executors)}
    daemons = {one.pid for one in children if parent_of(one) in runs_daemons and DAEMON in words[one.pid]}
    return {
        "worker": [one for one in children if parent_of(one) in daemons],
        "executor": executors,
        "driver": [root, *(one for one in children if str(MAIN) in words[one.pid])],
    }


def submit_command(spec: JobSpec, file: Path, master: str) -> list[str]:
    options = [
        *("--master", master),
        *("--driver-memory", "512m"),
        *("--conf", "spark.executor.memory=512m"),
        *("--driver-java-options", " ".join(java_options(spec))),
    ]
    return [str(SUBMIT), *options, *("--conf", "spark.ui.enabled=false"), str(MAIN), "--spec", str(file)]


def submit_environ(folder: Path) -> dict[str, str]:
    """Spark's Workers leave what they wrote below its home: that becomes one in `folder`."""
    home, installed = folder / "spark", spark_home({})
    if not home.exists():
        home.mkdir()
        for part in ("bin", "jars", "python", "sbin"):
            (home / part).symlink_to(installed / part)
    loopback = dict.fromkeys(["SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME"], "127.0.0.1")
    return {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable, **loopback}


class Kept:
    """Runs a copier in a thread of its own, again and again, until the block ends."""

    def __init__(self, copier: Copier, prefix: Sequence[str], log: Path) -> None:
        self.starts = 0
        self.failures: list[str] = []
        self._copier = copier
        self._prefix = [*prefix, *WITH_PARENT]
        self._log = log
        self._stop = threading.Event()
        self._process: psutil.Popen | None = None
        self._left: list[psutil.Popen] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Kept:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        every = [*self._left, *([self._process] if self._process else [])]
        kill_together(one for process in every for one in below(process.pid))
        for process in every:
            process.wait(120)

    def victims(self, role: str) -> list[psutil.Process]:
        process = self._process
        if process is None or process.poll() is not None:
            return []
        try:
            return self._copier.victims(process).get(role, [])
        except psutil.Error:
            return []

    def kill(self, role: str, choose: Callable[[list[psutil.Process]], psutil.Process]) -> bool:
        """SIGKILL for one of that role; whether there was one."""
        found = self.victims(role)
        return bool(found) and _kill(choose(found))

    def leave_behind(self, *, frozen: bool) -> Callable[[], None] | None:
        """Another one is started beside it, which hangs meanwhile if it is frozen. How to wake it; None where
        nothing copies now, or one left behind has not ended yet.
        """
        process = self._process
        if process is None or self.outlived() or not self.victims("worker"):
            return None
        asleep = below(process.pid) if frozen else []
        freeze(asleep)
        self._left.append(process)
        self._process = None
        return lambda: thaw(asleep)

    def outlived(self) -> list[psutil.Popen]:
        """Left behind, and still there."""
        return [process for process in self._left if process.poll() is None]

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                command = self._copier.command()
            except Exception as error:  # noqa: BLE001 - a cluster may be down: that is what chaos is for
                self.failures.append(repr(error))
                self._stop.wait(_AGAIN_S)
                continue
            self._once(command)

    def _once(self, command: Sequence[str]) -> None:
        with self._log.open("ab") as out:
            process = psutil.Popen(
                [*self._prefix, *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=submit_environ(self._log.parent),
                start_new_session=True,
            )
        self._process = process
        self.starts += 1
        while process is self._process and process.poll() is None and not self._stop.wait(0.05):
            continue
        self._stop.wait(_AGAIN_S)


def sides_of(bootstraps: Mapping[str, str]) -> dict[str, Side]:
    return {name: Side(name, servers, {"bootstrap.servers": servers}) for name, servers in bootstraps.items()}


def _kill(process: psutil.Process) -> bool:
    try:
        process.kill()
    except psutil.Error:
        return False
    return True
