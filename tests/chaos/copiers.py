"""What copies, and is started again whenever it ended: a stand-in for the supervisor of a job."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec
import psutil

from runtime.contract.jobspec import FlowSpec, JobSpec, encode
from runtime.launch.command import JVM, MAIN
from tests.labs import WITH_PARENT
from tests.runtime.copy.world import Driver, Side, assigned
from tests.spark.job import SUBMIT

_AGAIN_S = 0.2
DAEMON = "pyspark.daemon"


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
        return [sys.executable, "-m", "tests.runtime.copy.slot_process", str(file)]

    def victims(self, root: psutil.Process) -> Mapping[str, list[psutil.Process]]:
        return {"worker": [root], "driver": [root]}


@dataclass(frozen=True, slots=True)
class SparkCopier:
    """The whole job, as `spark-submit` starts it."""

    spec: JobSpec
    file: Path
    cores: int = 2

    def command(self) -> Sequence[str]:
        self.file.write_bytes(encode(self.spec))
        return submit_command(self.file, self.cores)

    def victims(self, root: psutil.Process) -> Mapping[str, list[psutil.Process]]:
        """Workers are the forks of pyspark's daemon; the driver is the JVM or its Python process."""
        children = [one for one in root.children(recursive=True) if one.status() != psutil.STATUS_ZOMBIE]
        daemons = {one.pid for one in children if one.ppid() == root.pid and DAEMON in one.cmdline()}
        return {
            "worker": [one for one in children if one.ppid() in daemons],
            "driver": [root, *(one for one in children if str(MAIN) in one.cmdline())],
        }


def submit_command(file: Path, cores: int) -> list[str]:
    options = [
        *("--master", f"local[{cores}]"),
        *("--driver-memory", "512m"),
        *("--driver-java-options", " ".join(JVM)),
    ]
    return [str(SUBMIT), *options, *("--conf", "spark.ui.enabled=false"), str(MAIN), "--spec", str(file)]


def submit_environ() -> dict[str, str]:
    loopback = dict.fromkeys(["SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME"], "127.0.0.1")
    return {**os.environ, "PYSPARK_PYTHON": sys.executable, **loopback}


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
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Kept:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for process in self.everything():
            _kill(process)
        self._thread.join(60)
        if self._process is not None:
            self._process.wait(120)

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

    def everything(self) -> list[psutil.Process]:
        process = self._process
        if process is None:
            return []
        try:
            return [*process.children(recursive=True), process]
        except psutil.Error:
            return [process]

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
            self._process = psutil.Popen(
                [*self._prefix, *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=submit_environ(),
                start_new_session=True,
            )
        self.starts += 1
        while self._process.poll() is None and not self._stop.wait(0.05):
            continue
        if not self._stop.is_set():
            time.sleep(_AGAIN_S)


def sides_of(bootstraps: Mapping[str, str]) -> dict[str, Side]:
    return {name: Side(name, servers, {"bootstrap.servers": servers}) for name, servers in bootstraps.items()}


def _kill(process: psutil.Process) -> bool:
    try:
        process.kill()
    except psutil.Error:
        return False
    return True
