"""A real standalone cluster of Spark from the pip package: a Master and Workers, each on a host of its own.

Without hosts all of them are on the loopback of this machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from runtime.launch.command import JVM, spark_home
from runtime.launch.processes import marked, sweep
from tests.network import Host
from tests.ports import free_port
from tests.processes import below, kill_together
from tests.records import wait_for

_MARK, _WORKER_MARK = "REPL_TEST_CLUSTER", "REPL_TEST_WORKER"
_WITHIN_S = 240.0


@dataclass
class Master:
    """`url` is what applications connect to, `ui` the address of its page."""

    url: str
    ui: str

    def workers(self) -> list[dict[str, Any]]:
        """Those that the Master takes for alive. None while it does not answer."""
        try:
            known = json.loads(fetched(f"{self.ui}/json/"))["workers"]
        except OSError:
            return []
        return [one for one in known if one["state"] == "ALIVE"]

    def wait_for_workers(self, number: int) -> None:
        """Returns when the Master takes so many Workers for alive."""
        wait_for(lambda: len(self.workers()) == number, _WITHIN_S)


@dataclass(frozen=True)
class _Daemons:
    """Starts the processes of the cluster, with `variables`; `folder` gets a log of each."""

    folder: Path
    variables: Mapping[str, str]
    started: list[subprocess.Popen[bytes]]

    def start(self, host: Host, name: str, words: Sequence[str], mark: str = "") -> subprocess.Popen[bytes]:
        command = [str(spark_home({}) / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *words]
        with (self.folder / f"{len(self.started)}.log").open("wb") as log:
            process = subprocess.Popen(
                [*host.through, *command],
                stdout=log,
                stderr=log,
                env={**self.variables, "SPARK_LOCAL_IP": host.address, _WORKER_MARK: mark},
                cwd=self.folder,
                start_new_session=True,
            )
        self.started.append(process)
        return process


class Worker:
    """A Worker on its host. All that it starts has its mark in the environment, and dies with its JVM."""

    def __init__(self, number: int, host: Host, master: Master, daemons: _Daemons) -> None:
        self.host = host
        self._mark = f"{number}-{uuid.uuid4().hex}"
        self._folder = daemons.folder / f"worker-{number}"
        self._master = master
        self._daemons = daemons
        self._process = self._start()

    def executors(self) -> list[psutil.Process]:
        """The executors and all that runs below them."""
        return [one for one in below(self._process.pid) if one.pid != self._process.pid]

    def processes(self) -> list[psutil.Process]:
        """The Worker, its executors, and the Python workers of these."""
        found = []
        for one in marked(f"{_WORKER_MARK}={self._mark}"):
            with suppress(psutil.NoSuchProcess):
                found.append(psutil.Process(one.pid))
        return found

    def kill(self) -> None:
        """Kills the Worker's JVM alone, with -9."""
        self._process.kill()
        self._process.wait(_WITHIN_S)

    def lose(self) -> None:
        """The machine loses its power: it is cut off first, so that none of its connections is closed."""
        self.host.cut()
        kill_together(self.processes())
        self._process.wait(_WITHIN_S)

    def come_back(self) -> None:
        """The machine that was lost is started again, and its Worker."""
        self.host.restore()
        self._process = self._start()

    def restart(self) -> None:
        """Stops the Worker as `stop-worker.sh` does and starts it; returns when the Master has it again."""
        others = len(self._master.workers()) - 1
        self._process.terminate()
        self._process.wait(_WITHIN_S)
        self._master.wait_for_workers(others)
        self._process = self._start()
        self._master.wait_for_workers(others + 1)

    def _start(self) -> subprocess.Popen[bytes]:
        address = ("--host", self.host.address, "--port", "0", "--webui-port", "0")
        words = (*address, "-c", "2", "-m", "2g", "-d", str(self._folder), self._master.url)
        return self._daemons.start(self.host, "worker.Worker", words, self._mark)


@dataclass(frozen=True)
class Standalone:
    """`conf` is the SPARK_CONF_DIR that holds the cluster's `secret`: nothing connects to it without."""

    master: Master
    workers: tuple[Worker, ...]
    folder: Path
    conf: Path
    secret: str


def fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        text: str = answer.read().decode(errors="replace")
        return text


@contextmanager
def standalone(
    folder: Path,
    environ: Mapping[str, str],
    workers: int = 2,
    hosts: Sequence[Host] = (),
    settings: Mapping[str, str] | None = None,
) -> Iterator[Standalone]:
    """`environ` is what the workers have, and hand on to executors: there a job's secrets come from.

    The first of the `hosts` is the Master's. `settings` are Spark's, for Master and Workers.
    """
    first, *rest = hosts or [Host()] * (workers + 1)
    port, ui, mark = free_port(), free_port(), uuid.uuid4().hex
    secret = uuid.uuid4().hex
    conf = _conf(folder.with_name(f"{folder.name}-conf"), secret, settings or {})
    variables = {
        **os.environ,
        **environ,
        _MARK: mark,
        "SPARK_CONF_DIR": str(conf),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": " ".join(JVM),
        "PYSPARK_PYTHON": sys.executable,
    }
    daemons = _Daemons(folder, variables, [])
    master = Master(f"spark://{first.address}:{port}", f"http://{first.address}:{ui}")
    try:
        address = ("--host", first.address, "--port", str(port), "--webui-port", str(ui))
        daemons.start(first, "master.Master", address)
        own = tuple(Worker(number, host, master, daemons) for number, host in enumerate(rest))
        master.wait_for_workers(len(own))
        yield Standalone(master, own, folder, conf, secret)
    finally:
        for process in daemons.started:
            process.kill()
            process.wait(120)
        assert sweep(f"{_MARK}={mark}")


def _conf(folder: Path, secret: str, settings: Mapping[str, str]) -> Path:
    """As docs/launch.md says, under "Between Spark's processes"."""
    folder.mkdir(mode=0o700)
    written = {
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.authenticate.secret": secret,
        **settings,
    }
    file = folder / "spark-defaults.conf"
    file.touch(0o600)
    file.write_text("".join(f"{key} {value}\n" for key, value in written.items()))
    return folder
