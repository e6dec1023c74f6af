"""Measures what must not grow: memory, file handles and threads of the job, and its internal topics."""

from __future__ import annotations

import csv
import statistics
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from runtime.launch.command import MAIN
from tests import charts
from tests.chaos.copiers import processes_of
from tests.charts import Chart, Line
from tests.processes import words_of
from tests.soak.town import AWAY, SoakTown

EVERY_S = 10.0
_MB = 1024 * 1024
_ALLOWED = 1.5  # times the level of the first third
_FREE = {"memory MB": 60.0, "handles": 40.0, "threads": 20.0, "internal topics MB": 50.0}


class Sample(NamedTuple):
    """One figure of one role at a time, in seconds since the start."""

    at_s: float
    role: str
    what: str
    value: float


class Growth:
    """Takes samples in a thread of its own, until the block ends."""

    def __init__(self, town: SoakTown) -> None:
        self.samples: list[Sample] = []
        self._town = town
        self._stop = threading.Event()
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Growth:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            at_s = time.monotonic() - self._began
            for role, processes in self._roles().items():
                self.samples += _of_processes(at_s, role, processes)
            for name, size in self._internal().items():
                self.samples.append(Sample(at_s, name, "internal topics MB", size / _MB))

    def _roles(self) -> Mapping[str, list[psutil.Process]]:
        known = self._town.town.processes(AWAY)
        application = known.get("application")
        found = processes_of(application) if application is not None else {"worker": [], "driver": []}
        driver = [
            one for one in found["driver"] if str(MAIN) in words_of(one) and "java" not in words_of(one)[0]
        ]
        return {
            "supervisor": [known["supervisor"]] if "supervisor" in known else [],
            "JVM": [application] if application is not None else [],
            "driver": driver,
            "slots": found["worker"],
        }

    def _internal(self) -> Mapping[str, int]:
        """Returns the size of each internal topic at dc2 on disk, of one replica."""
        sizes: dict[str, dict[str, int]] = {}
        folder = self._town.lab.home / AWAY
        for place in folder.glob("*/data/__repl.*"):
            topic = place.name.rsplit("-", 1)[0]
            with suppress(OSError):
                size = sum(file.stat().st_blocks * 512 for file in place.iterdir())
                node = sizes.setdefault(topic, {})
                node[place.parent.parent.name] = node.get(place.parent.parent.name, 0) + size
        return {topic: max(nodes.values()) for topic, nodes in sizes.items()}


def _of_processes(at_s: float, role: str, processes: Sequence[psutil.Process]) -> list[Sample]:
    memory = handles = threads = 0
    try:
        for one in processes:
            with one.oneshot():
                memory += one.memory_info().rss
                handles += one.num_fds()
                threads += one.num_threads()
    except psutil.Error:
        return []  # it has just ended: half a sum is no sample
    if not processes:
        return []
    return [
        Sample(at_s, role, "memory MB", memory / _MB),
        Sample(at_s, role, "handles", float(handles)),
        Sample(at_s, role, "threads", float(threads)),
    ]


class Level(NamedTuple):
    """The median of a figure in the first and in the last third of a run."""

    role: str
    what: str
    first: float
    last: float

    @property
    def grows(self) -> bool:
        return self.last > self.first * _ALLOWED and self.last > self.first + _FREE[self.what]


def levels(samples: Iterable[Sample]) -> list[Level]:
    series: dict[tuple[str, str], list[Sample]] = {}
    for one in samples:
        series.setdefault((one.what, one.role), []).append(one)
    found = []
    for (what, role), some in sorted(series.items()):
        third = max(len(some) // 3, 1)
        first, last = ([one.value for one in part] for part in (some[:third], some[-third:]))
        found.append(Level(role, what, statistics.median(first), statistics.median(last)))
    return found


def write_csv(file: Path, samples: Iterable[Sample]) -> None:
    with file.open("w", newline="") as out:
        rows = csv.writer(out)
        rows.writerow(Sample._fields)
        rows.writerows((f"{one.at_s:.0f}", one.role, one.what, f"{one.value:.2f}") for one in samples)


def picture(samples: Sequence[Sample]) -> str:
    """Draws one chart for each kind of figure, one line for each role, as SVG."""
    end_s = max((sample.at_s for sample in samples), default=1.0)
    drawn: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for sample in samples:
        drawn.setdefault(sample.what, {}).setdefault(sample.role, []).append((sample.at_s, sample.value))
    ticks = {end_s: f"{end_s / 60:,.0f} min"}
    return charts.picture(
        [
            Chart(what, ticks, [Line(*role) for role in sorted(roles.items())])
            for what, roles in sorted(drawn.items())
        ]
    )
