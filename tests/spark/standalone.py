"""A real standalone cluster of Spark on the loopback, from the pip package: a Master and Workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from runtime.launch import processes
from runtime.launch.command import JVM, spark_home
from tests.ports import free_port
from tests.records import wait_for

_MARK = "REPL_TEST_CLUSTER"


@dataclass(frozen=True)
class Standalone:
    """`workers` are the JVMs of the Workers; what they start dies with them.

    `conf` is the SPARK_CONF_DIR that holds the cluster's `secret`: nothing connects to it without.
    """

    master: str
    ui: str
    workers: tuple[psutil.Process, ...]
    folder: Path
    conf: Path
    secret: str

    def executors(self, worker: psutil.Process) -> list[psutil.Process]:
        return worker.children(recursive=True)


def fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        text: str = answer.read().decode(errors="replace")
        return text


@contextmanager
def standalone(folder: Path, environ: Mapping[str, str], workers: int = 2) -> Iterator[Standalone]:
    """`environ` is what the workers have, and hand on to executors: there a job's secrets come from."""
    port, ui, mark = free_port(), free_port(), uuid.uuid4().hex
    secret = uuid.uuid4().hex
    conf = _conf(folder.with_name(f"{folder.name}-conf"), secret)
    variables = {
        **os.environ,
        **environ,
        _MARK: mark,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_CONF_DIR": str(conf),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": " ".join(JVM),
        "PYSPARK_PYTHON": sys.executable,
    }
    master = f"spark://127.0.0.1:{port}"
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *words: str) -> subprocess.Popen[bytes]:
        command = [str(spark_home({}) / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *words]
        with (folder / f"{len(started)}.log").open("wb") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, env=variables, cwd=folder, start_new_session=True
            )
        started.append(process)
        return process

    try:
        start("master.Master", *("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(ui)))
        own = [
            start(
                "worker.Worker",
                *("--host", "127.0.0.1", "--port", "0", "--webui-port", "0"),
                *("-c", "2", "-m", "2g", "-d", str(folder / f"worker-{number}"), master),
            )
            for number in range(workers)
        ]
        address = f"http://127.0.0.1:{ui}"
        wait_for(lambda: _alive(address) == workers, 240)
        yield Standalone(master, address, tuple(psutil.Process(one.pid) for one in own), folder, conf, secret)

    finally:
        for process in started:
            process.send_signal(signal.SIGKILL)
            process.wait(120)
        assert processes.sweep(f"{_MARK}={mark}")


def _conf(folder: Path, secret: str) -> Path:
    """As docs/launch.md says, under "Between Spark's processes"."""
    folder.mkdir(mode=0o700)
    settings = {
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.authenticate.secret": secret,
    }
    file = folder / "spark-defaults.conf"
    file.touch(0o600)
    file.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    return folder


def _alive(address: str) -> int:
    try:
        return fetched(f"{address}/json/").count('"ALIVE"') - 1  # the Master itself is one
    except OSError:
        return 0
