"""What benchmarks share: clusters of their own, commands and jobs, and what these take of the processor."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from runtime.lab.cluster import LabClusterSpec
from runtime.lab.lab import Lab
from tests.labs import running_lab

REPL = Path(sys.executable).with_name("repl")


@contextmanager
def bench_lab(*clusters: LabClusterSpec) -> Iterator[tuple[Lab, Path]]:
    """Yields a lab and an empty folder. SIGTERM removes both, too: brokers and jobs would go on."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="bench-") as home:
        folder = Path(home) / "scratch"
        folder.mkdir()
        with running_lab(Path(home) / "lab", *clusters) as lab:
            yield lab, folder


def cpu_s(processes: Iterable[psutil.Process]) -> float:
    """Returns the seconds of CPU that these processes took so far."""
    times = [process.cpu_times() for process in processes]
    return sum(used.user + used.system for used in times)


class Brokers:
    """The brokers of all clusters: what they need themselves bounds how fast anything can copy."""

    def __init__(self, lab: Lab) -> None:
        found = [broker.pid for cluster in lab.status().clusters for broker in cluster.brokers]
        self._processes = [psutil.Process(pid) for pid in found if pid is not None]

    def cpu_s(self) -> float:
        return cpu_s(self._processes)


def run_repl(home: Path, within_s: float, *words: str) -> tuple[float, str]:
    """Runs a command with its own REPL_HOME. Returns its seconds and what it printed."""
    began = time.perf_counter()
    environ = {**os.environ, "REPL_HOME": str(home)}
    done = subprocess.run(
        [REPL, *words], env=environ, capture_output=True, text=True, timeout=within_s, check=False
    )
    if done.returncode:
        raise SystemExit(f"repl {' '.join(words)}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return time.perf_counter() - began, done.stdout


def job_processes(home: Path) -> dict[str, list[psutil.Process]]:
    """Returns the processes of the job that was launched with this REPL_HOME, by role."""
    (file,) = home.glob("jobs/*/supervisor.json")
    state = json.loads(file.read_text())
    jvm = psutil.Process(state["application"]["pid"])
    driver: list[psutil.Process] = []
    slots: list[psutil.Process] = []
    for process in jvm.children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # also of a process that has ended and is still listed
            is_driver = any(word.endswith("driver/main.py") for word in process.cmdline())
            (driver if is_driver else slots).append(process)
    watchers = [psutil.Process(state[role]["pid"]) for role in ("supervisor", "watchman")]
    return {"supervision": watchers, "jvm": [jvm], "driver": driver, "slots": slots}
