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
from tests.chaos.copiers import processes_of
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


_WIDTH, _HEIGHT, _LEFT, _LEGEND = 720, 150, 60, 220
_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#e377c2", "#7f7f7f")


def picture(samples: Sequence[Sample]) -> str:
    """Draws one chart for each kind of figure, one line for each role, as SVG."""
    kinds = sorted({one.what for one in samples})
    end_s = max((one.at_s for one in samples), default=1.0)
    parts = []
    for row, what in enumerate(kinds):
        parts.append(f'<g transform="translate(0 {row * (_HEIGHT + 60) + 30})">')
        parts += _chart(what, [one for one in samples if one.what == what], end_s)
        parts.append("</g>")
    height = len(kinds) * (_HEIGHT + 60) + 20
    size = f'width="{_LEFT + _WIDTH + _LEGEND}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>\n"])


def _chart(what: str, samples: Sequence[Sample], end_s: float) -> list[str]:
    most = max(one.value for one in samples) or 1.0
    parts = [
        f'<text x="{_LEFT}" y="-8" font-weight="bold">{what}</text>',
        f'<line x1="{_LEFT}" y1="{_HEIGHT}" x2="{_LEFT + _WIDTH}" y2="{_HEIGHT}" stroke="#888"/>',
        f'<text x="{_LEFT - 6}" y="10" text-anchor="end">{most:,.0f}</text>',
        f'<text x="{_LEFT - 6}" y="{_HEIGHT}" text-anchor="end">0</text>',
        f'<text x="{_LEFT + _WIDTH}" y="{_HEIGHT + 16}" text-anchor="end">{end_s / 60:,.0f} min</text>',
    ]
    for number, role in enumerate(sorted({one.role for one in samples})):
        colour = _COLOURS[number % len(_COLOURS)]
        line = [
            (f"{_LEFT + one.at_s / end_s * _WIDTH:.1f}", f"{_HEIGHT - one.value / most * _HEIGHT:.1f}")
            for one in samples
            if one.role == role
        ]
        points = " ".join(",".join(point) for point in _corners(line))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts.append(f'<text x="{_LEFT + _WIDTH + 10}" y="{14 + 15 * number}" fill="{colour}">{role}</text>')
    return parts


def _corners(line: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Leaves out the points of a level stretch between its ends."""
    return [
        line[at]
        for at in range(len(line))
        if not 0 < at < len(line) - 1 or {line[at - 1][1], line[at + 1][1]} != {line[at][1]}
    ]
