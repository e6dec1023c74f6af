"""A job on a real standalone cluster of Spark with four Workers, in network namespaces where permitted.

python -m tests.bench.workers [--only lost rolling balance throughput] [--worker-timeout 30]

One table has the stories, with what the checker found in every record; one the throughput of one, two and
four slots, with the brokers' share of the CPU beside it. build/bench-workers.json keeps both. It ends with 1
where a record was lost, doubled or reordered.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from runtime.lab.cluster import LabClusterSpec
from tests.bench.copy.workloads import THROUGHPUT
from tests.bench.results import keep
from tests.bench.workers import table
from tests.bench.workers.stories import Outcome, Stories
from tests.bench.workers.throughput import Speed, speeds
from tests.labs import JVM, WITH_PARENT
from tests.spark.cluster_job import Site, site

RESULTS = Path("build/bench-workers.json")
WORKERS = 4
STORIES, SPEED = ("lost", "rolling", "balance"), "throughput"
WORKLOAD = next(one for one in THROUGHPUT if one.name == "1k-lz4")
BROKER = {"log.retention.ms": "-1", "file.delete.delay.ms": "1000"}


def told(place: Site, names: list[str]) -> list[Outcome]:
    """Tells the stories one after the other, with one job."""
    stories, rows = Stories(place, {}), []
    try:
        stories.job.start()
        for name in names:
            rows.append(stories.told[name]())
            print(rows[-1], flush=True)
        stories.job.stop()
    finally:
        stories.job.kill()
    return rows


def main() -> int:
    wanted = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    wanted.add_argument("--only", nargs="+", choices=(*STORIES, SPEED), default=[*STORIES, SPEED])
    wanted.add_argument("--worker-timeout", type=int, help="spark.worker.timeout of the cluster, in seconds")
    wanted.add_argument("--rounds", type=int, default=3, help="of the throughput")
    wanted.add_argument("--scale", type=float, default=1.0, help="of the data that the throughput copies")
    wanted.add_argument("--window", type=float, default=10.0, help="seconds that each throughput is measured")
    options = wanted.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # brokers, Workers and jobs would go on
    timeout = options.worker_timeout
    settings = {"spark.worker.timeout": str(timeout)} if timeout else {}
    load = os.getloadavg()
    rows: list[Outcome] = []
    found: list[Speed] = []
    with tempfile.TemporaryDirectory(prefix="bench-workers-") as home:
        brokers = [
            LabClusterSpec(name, heap="1g", jvm=JVM, prefix=WITH_PARENT, properties=BROKER)
            for name in ("dc1", "dc2")
        ]
        with site(Path(home), brokers, WORKERS, settings) as place:
            names = [name for name in STORIES if name in options.only]
            if names:
                rows = told(place, names)
            if SPEED in options.only:
                workload = replace(WORKLOAD, megabytes=int(WORKLOAD.megabytes * options.scale))
                found = speeds(place, workload, options.window, options.rounds)
    keep(RESULTS, [*rows, *found], load)
    print(f"\nload before the run: {load[0]:.1f} on {os.cpu_count()} cores")
    for shown in (table.stories(rows) if rows else "", table.speeds(found) if found else ""):
        if shown:
            print(f"\n{shown}")
    return 0 if all(one.clean for one in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
