"""What 100,000 partitions cost a driver and a plan, against simulated brokers: a row for each size.

python -m tests.bench.bench_simulated [--partitions 1000,10000] [--seed 7] [--faults 0.1] [--without-duties]

Two simulated clusters of three brokers each are processes of their own. They answer Kafka's protocol over
TCP, with latency and failures that are drawn from the seed. The driver is a whole one; a process stands for
its slots, takes their assignments and sends their reports, and copies nothing. Spark is not started.

Phases of a driver: `start` of a new job until every partition is assigned and every group offset is at the
destination; `idle`, some seconds after that; `restart`, after a kill with -9, until every partition is
assigned.
Plans: `adopt` finds mirrors that no topology owns, `no changes` is the same after they are registered.

A cell is seconds of CPU / seconds from begin to end, which other work on the machine lengthens. `growth` is
the exponent by which CPU grew from the row before: 1 is linear. To measure each duty costs CPU, which
`--without-duties` leaves out. The tables are printed, and build/bench-simulated.json keeps them.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from tests.bench.lab import REPL
from tests.bench.results import keep
from tests.bench.simulation.contents import ClusterSize
from tests.bench.simulation.faults import FaultRates
from tests.bench.simulation.job import DriverProcess, spent
from tests.bench.simulation.meter import DutyCost
from tests.bench.simulation.processes import SimulatedClusters
from tests.bench.simulation.world import DESTINATION, SOURCE, write_topology

RESULTS = Path("build/bench-simulated.json")
IDLE_S = 30.0
WITHIN_S = 3_600.0
_SHOWN_S = 0.05  # a duty that took less at every size has no column
_COLUMNS = (
    "partitions",
    "topics",
    "flows",
    "CPU s",
    "s",
    "growth",
    "peak MB",
    "requests",
    "MB",
    "brokers' CPU s",
)


@dataclass(frozen=True, slots=True)
class Row:
    """What one phase cost at one size. `growth` is that of CPU from the row before. A plan has no duties."""

    phase: str
    partitions: int
    topics: int
    flows: int
    cpu_s: float
    wall_s: float
    peak_mb: float
    requests: int
    megabytes: float
    brokers_cpu_s: float
    faults: int
    duties: Mapping[str, tuple[float, float]]
    growth: float | None = None


class Phase:
    """Measures what brokers do from its begin to its end."""

    def __init__(self, name: str, size: ClusterSize, clusters: SimulatedClusters) -> None:
        self._name = name
        self._size = size
        self._clusters = clusters
        self._before = clusters.counted()
        self._brokers_s = clusters.cpu_s()
        self._began = time.perf_counter()

    def row(self, cpu_s: float, peak_mb: float, duties: Mapping[str, DutyCost] | None = None) -> Row:
        """Ends the phase."""
        wall_s = time.perf_counter() - self._began
        brokers_s = self._clusters.cpu_s() - self._brokers_s
        after = self._clusters.counted()
        counted = [after[name].since(before) for name, before in self._before.items()]
        found = Row(
            phase=self._name,
            partitions=self._size.partitions,
            topics=self._size.topics,
            flows=len(self._size.flows),
            cpu_s=cpu_s,
            wall_s=wall_s,
            peak_mb=peak_mb,
            requests=sum(one.total for one in counted),
            megabytes=sum(one.sent + one.received for one in counted) / 1e6,
            brokers_cpu_s=brokers_s,
            faults=sum(sum(one.faults.values()) for one in counted),
            duties={name: (one.cpu_s, one.wall_s) for name, one in (duties or {}).items()},
        )
        print(_line(found), file=sys.stderr, flush=True)
        return found


def planned(phase: Phase, file: Path, expected: str, *more: str) -> Row:
    """Runs a plan, and checks what it found."""
    words = [str(REPL), "plan", str(file), *more]
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        row = phase.row(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
        output.seek(0)
        text = output.read()
    if process.returncode or expected not in text:
        raise SystemExit(f"the plan is not as expected ({expected}):\n{text[-2000:]}")
    return row


def plans(size: ClusterSize, clusters: SimulatedClusters, folder: Path) -> list[Row]:
    """Plans before and after the mirrors are registered. Leaves the spec of the job in the folder."""
    topology, plan = folder / "topology.yaml", folder / "adopt.plan"
    write_topology(topology, size, clusters.bootstrap)
    none = "0 to change, 0 to destroy"
    expected = f"Plan: {len(size.flows) + 1} to add, {none}, {size.topics} to adopt"
    adopt = planned(Phase("plan: adopt", size, clusters), topology, expected, "--out", str(plan))
    words = [str(plan), str(folder / "job.json"), clusters.bootstrap[DESTINATION]]
    subprocess.run([sys.executable, "-m", "tests.bench.simulation.world", *words], check=True)
    # The job is not running, so it is planned each time.
    unchanged = planned(Phase("plan: no changes", size, clusters), topology, f"Plan: 1 to add, {none}.")
    return [adopt, unchanged]


def driven(
    size: ClusterSize, clusters: SimulatedClusters, folder: Path, idle_s: float, options: Sequence[str] = ()
) -> list[Row]:
    """Starts a job, leaves it alone, kills it, and starts it again."""
    spec, log = folder / "job.json", folder / "driver.log"
    every = size.partitions + len(size.flows)  # each flow copies its heartbeats, too
    rows: list[Row] = []
    phase = Phase("driver: start", size, clusters)
    with DriverProcess(spec, log, options) as driver:
        driver.wait(lambda one: one.assigned >= every, WITHIN_S, "every partition is assigned")
        cost = driver.wait(
            lambda _: clusters.counted()[DESTINATION].committed >= size.partitions,
            WITHIN_S,
            "every group offset is at the destination",
        )
        rows.append(phase.row(cost.cpu_s, cost.peak_mb, spent(cost)))
        phase, before = Phase("driver: idle", size, clusters), driver.cost()
        time.sleep(idle_s)
        cost = driver.cost()
        rows.append(phase.row(cost.cpu_s - before.cpu_s, cost.peak_mb, spent(cost, before)))
    phase = Phase("driver: restart", size, clusters)
    with DriverProcess(spec, log, options) as driver:
        cost = driver.wait(lambda one: one.assigned >= every, WITHIN_S, "every partition is assigned again")
        rows.append(phase.row(cost.cpu_s, cost.peak_mb, spent(cost)))
    return rows


def measured(
    size: ClusterSize,
    seed: int,
    rates: FaultRates,
    idle_s: float,
    only: str,
    options: Sequence[str] = (),
) -> list[Row]:
    """All rows of one size, on clusters of their own."""
    sizes = [replace(size, name=SOURCE, source=True), replace(size, name=DESTINATION, source=False)]
    with SimulatedClusters(sizes, seed, rates) as clusters, tempfile.TemporaryDirectory() as folder:
        rows = plans(size, clusters, Path(folder))
        return rows if only == "plan" else rows + driven(size, clusters, Path(folder), idle_s, options)


def with_growth(rows: Iterable[Row]) -> list[Row]:
    """Returns the rows with the exponent by which CPU grew from the row before of the same phase."""
    before: dict[str, Row] = {}
    found = []
    for row in rows:
        older = before.get(row.phase)
        found.append(row if older is None else dataclasses.replace(row, growth=exponent(older, row)))
        before[row.phase] = row
    return found


def exponent(before: Row, after: Row) -> float | None:
    """Returns the logarithm of the ratio of CPU to the base of the ratio of sizes."""
    ratio = after.partitions / before.partitions
    if ratio == 1 or min(before.cpu_s, after.cpu_s) <= 0:
        return None
    return math.log(after.cpu_s / before.cpu_s) / math.log(ratio)


def _line(row: Row) -> str:
    return (
        f"{row.phase}, {row.partitions:,} partitions: {row.cpu_s:.1f} s of CPU, {row.wall_s:.1f} s,"
        f" {row.peak_mb:.0f} MB, {row.requests:,} requests, {row.megabytes:.0f} MB on the wire"
    )


def tables(rows: Sequence[Row]) -> str:
    """The rows as Markdown: a table for each phase."""
    lines: list[str] = []
    for phase in dict.fromkeys(row.phase for row in rows):
        some = [row for row in rows if row.phase == phase]
        known = dict.fromkeys(name for row in some for name in row.duties)
        duties = [name for name in known if any(sum(row.duties.get(name, ())) >= _SHOWN_S for row in some)]
        lines += [
            f"\n{phase}\n",
            _cells([*_COLUMNS, *duties]),
            "|" + " ---: |" * (len(_COLUMNS) + len(duties)),
        ]
        for row in some:
            cells = [
                f"{row.partitions:,}",
                f"{row.topics:,}",
                f"{row.flows:,}",
                f"{row.cpu_s:.1f}",
                f"{row.wall_s:.1f}",
                "" if row.growth is None else f"{row.growth:.2f}",
                f"{row.peak_mb:.0f}",
                f"{row.requests:,}",
                f"{row.megabytes:,.0f}",
                f"{row.brokers_cpu_s:.1f}",
            ]
            lines.append(_cells([*cells, *(_pair(row.duties.get(name)) for name in duties)]))
    return "\n".join(lines)


def _pair(cost: tuple[float, float] | None) -> str:
    if cost is None:
        return ""
    return f"{cost[0]:.2f} / {cost[1]:.1f}" if cost[1] else f"{cost[0]:.2f}"


def _cells(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> int:
    wanted = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    wanted.add_argument("--partitions", default="1000,10000,100000", help="sizes, in order")
    wanted.add_argument("--seed", type=int, default=7)
    wanted.add_argument("--partitions-of-topic", type=int, default=2)
    wanted.add_argument("--topics-of-flow", type=int, default=500)
    wanted.add_argument("--idle", type=float, default=IDLE_S, help="seconds of the idle phase")
    wanted.add_argument(
        "--faults", type=float, default=1.0, help="factor of the rates of failures and of latency"
    )
    wanted.add_argument(
        "--without-duties", action="store_true", help="measure the processes alone, and not their duties"
    )
    wanted.add_argument("--only", choices=("plan", "all"), default="all")
    given = wanted.parse_args()
    usual = dataclasses.asdict(FaultRates())
    rates = FaultRates(**{name: rate * given.faults for name, rate in usual.items()})
    load, rows = os.getloadavg(), []
    for partitions in map(int, given.partitions.split(",")):
        size = ClusterSize(
            name="",
            partitions=partitions,
            partitions_of_topic=given.partitions_of_topic,
            topics_of_flow=given.topics_of_flow,
        )
        options = ("--without-duties",) if given.without_duties else ()
        rows += measured(size, given.seed, rates, given.idle, given.only, options)
        keep(RESULTS, with_growth(rows), load)
    print(tables(with_growth(rows)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
