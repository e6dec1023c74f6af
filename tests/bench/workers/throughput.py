"""How fast one, two and four slots copy, each on a Worker of its own, and what that costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from tests.bench.copy import fill
from tests.bench.copy.job import Job
from tests.bench.copy.processes import Brokers, Running
from tests.bench.copy.run import Run
from tests.bench.copy.throughput import Measured, measure
from tests.bench.copy.workloads import Workload
from tests.spark.cluster_job import Site
from tests.spark.standalone import Worker

SLOTS = (1, 2, 4)


@dataclass(frozen=True, slots=True)
class Speed:
    """`share` and `brokers_share` are parts of all cores of the machine."""

    slots: int
    mb_per_s: float
    cpu_s_per_gb: float
    brokers_cpu_s_per_gb: float
    share: float
    brokers_share: float

    @classmethod
    def of(cls, slots: int, found: Measured) -> Speed:
        cores, gb_per_s = psutil.cpu_count() or 1, found.mb_per_s / 1e3
        ours, theirs = (one * gb_per_s / cores for one in (found.cpu_s_per_gb, found.brokers_cpu_s_per_gb))
        return cls(slots, found.mb_per_s, found.cpu_s_per_gb, found.brokers_cpu_s_per_gb, ours, theirs)


@dataclass
class RunningOnWorkers(Running):
    """CPU and memory are of the driver's processes and of the executors."""

    workers: Sequence[Worker] = ()

    def _tree(self) -> list[psutil.Process]:
        return [*super()._tree(), *(one for worker in self.workers for one in worker.executors())]


class JobOnWorkers(Job):
    """The job of `make bench-copy`, submitted to the standalone cluster."""

    def __init__(self, place: Site) -> None:
        super().__init__()
        self._place = place

    def start(self, run: Run) -> Running:
        conf = {"spark.cores.max": str(run.slots), "spark.executor.cores": "1"}
        conf["spark.driver.host"] = self._place.address
        command = self.command(run, self._place.spark.master.url, run.slots, conf)
        environ = {**self.environ(run), **self._place.environ}
        log = run.folder / f"{run.tag}.log"
        running = RunningOnWorkers.start(command, run.mirror_topic, log, environ)
        running.workers = self._place.spark.workers
        return running


def speeds(place: Site, workload: Workload, window_s: float, rounds: int) -> list[Speed]:
    """One row for each round and number of slots, after a round that warms up the brokers."""
    source, there = (str(place.client(name)["bootstrap.servers"]) for name in ("dc1", "dc2"))
    at_source = fill.preload(place.client("dc1"), workload)
    side, brokers, rows = JobOnWorkers(place), Brokers(place.lab), []
    folder = place.folder / "throughput"
    folder.mkdir()
    order = [SLOTS[-1], *(slots for number in range(rounds) for slots in SLOTS[:: -1 if number % 2 else 1])]
    for number, slots in enumerate(order):
        run = Run(f"r{number}-{slots}", workload, workload.topic, source, there, folder, slots)
        found = Speed.of(slots, measure(side, run, brokers, at_source, window_s))
        fill.forget(place.client("dc2"), run.mirror_topic)
        print("warm-up:" if not number else "", found, flush=True)
        if number:
            rows.append(found)
    fill.forget(place.client("dc1"), workload.topic)
    return rows
