"""The clusters that a benchmark has for itself, and what their brokers take of the processor."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from runtime.lab.cluster import LabClusterSpec
from runtime.lab.lab import Lab
from tests.labs import running_lab


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
