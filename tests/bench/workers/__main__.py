"""A job on a real standalone cluster of Spark with four Workers, in network namespaces where permitted.

python -m tests.bench.workers [--only lost rolling balance cores links] [--worker-timeout 30]
                              [--share 0.05] [--link 20] [--shapes uniform skewed] [--window 10]

One table has the stories, with what the checker found in every record. The other one has the throughput of
one to eight slots, each on a Worker of its own: with a share of a core (`cores`), then with a link of 20 MB/s
(`links`). build/bench-workers.svg is its picture. Where the slots used less than 95 % of their limits, the
brokers or other work on the machine were the bound. build/bench-workers.json keeps both tables. It ends with
1 where a record was lost, doubled or reordered.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from runtime.lab.cluster import LabClusterSpec
from tests.bench.results import keep
from tests.bench.workers import table
from tests.bench.workers.limits import CpuShares, Limit, Links
from tests.bench.workers.scale import SHAPES, SLOTS, Scaled, scaled
from tests.bench.workers.stories import Outcome, Stories
from tests.labs import JVM, WITH_PARENT
from tests.spark.cluster_job import Site, site

RESULTS, PICTURE = Path("build/bench-workers.json"), Path("build/bench-workers.svg")
WORKERS = 4
STORIES, LIMITS = ("lost", "rolling", "balance"), ("cores", "links")
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
    wanted.add_argument("--only", nargs="+", choices=(*STORIES, *LIMITS), default=[*STORIES, *LIMITS])
    wanted.add_argument("--worker-timeout", type=int, help="spark.worker.timeout of the cluster, in seconds")
    wanted.add_argument("--share", type=float, default=0.05, help="of a core, for each slot")
    wanted.add_argument("--link", type=float, default=20.0, help="MB/s to and from the machine of each slot")
    wanted.add_argument("--shapes", nargs="+", choices=SHAPES, default=SHAPES)
    wanted.add_argument("--megabytes", type=int, default=10_000, help="of record values that can be copied")
    wanted.add_argument("--window", type=float, default=15.0, help="seconds that each throughput is measured")
    options = wanted.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # brokers, Workers and jobs would go on
    timeout = options.worker_timeout
    settings = {"spark.worker.timeout": str(timeout)} if timeout else {}
    load = os.getloadavg()
    rows: list[Outcome] = []
    found: list[Scaled] = []
    with tempfile.TemporaryDirectory(prefix="bench-workers-") as home:
        brokers = [
            LabClusterSpec(name, heap="1g", jvm=JVM, prefix=WITH_PARENT, properties=BROKER)
            for name in ("dc1", "dc2")
        ]
        if names := [name for name in STORIES if name in options.only]:
            with site(Path(home), brokers, WORKERS, settings) as place:
                rows = told(place, names)
        limits: dict[str, Callable[[], Limit]] = {
            "cores": lambda: CpuShares(options.share),
            "links": lambda: Links(options.link),
        }
        if names := [name for name in LIMITS if name in options.only]:
            (Path(home) / "scale").mkdir()
            with site(Path(home) / "scale", brokers, SLOTS[-1]) as place:
                for name in names:
                    for row in scaled(place, limits[name], options.megabytes, options.window, options.shapes):
                        print(row, flush=True)
                        found.append(row)
            PICTURE.parent.mkdir(exist_ok=True)
            PICTURE.write_text(table.picture(found))
    keep(RESULTS, [*rows, *found], load)
    print(
        f"\nload before the run: {load[0]:.1f} on {os.cpu_count()} cores, after it: {os.getloadavg()[0]:.1f}"
    )
    for shown in (table.stories(rows) if rows else "", table.scaled(found) if found else ""):
        if shown:
            print(f"\n{shown}")
    return 0 if all(one.clean for one in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
