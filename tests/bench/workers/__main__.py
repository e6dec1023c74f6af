"""A job on a real standalone cluster of Spark with four Workers, in network namespaces where permitted.

python -m tests.bench.workers [--only lost rolling balance scale] [--worker-timeout 30] [--share 0.1]

One table has the stories, with what the checker found in every record. The other one has the throughput of
one to eight slots, each with a share of a core; build/bench-workers.svg is its picture. Where the slots used
less than 95 % of their shares, the brokers or other work on the machine were the bound.
build/bench-workers.json keeps both tables. It ends with 1 where a record was lost, doubled or reordered.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from pathlib import Path

from runtime.lab.cluster import LabClusterSpec
from runtime.lab.lab import Lab
from tests.bench.results import keep
from tests.bench.workers import table
from tests.bench.workers.shares import SHAPES, Scaled, scaled
from tests.bench.workers.stories import Outcome, Stories
from tests.labs import JVM, WITH_PARENT
from tests.spark.cluster_job import Site, site

RESULTS, PICTURE = Path("build/bench-workers.json"), Path("build/bench-workers.svg")
WORKERS = 4
STORIES, SCALE = ("lost", "rolling", "balance"), "scale"
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
    wanted.add_argument("--only", nargs="+", choices=(*STORIES, SCALE), default=[*STORIES, SCALE])
    wanted.add_argument("--worker-timeout", type=int, help="spark.worker.timeout of the cluster, in seconds")
    wanted.add_argument("--share", type=float, default=0.1, help="of a core, for each slot")
    wanted.add_argument("--shapes", nargs="+", choices=SHAPES, default=SHAPES)
    wanted.add_argument("--megabytes", type=int, default=8_000, help="of record values that can be copied")
    wanted.add_argument("--window", type=float, default=10.0, help="seconds that each throughput is measured")
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
        if SCALE in options.only:
            lab = Lab(Path(home) / "scale-lab")
            try:
                lab.up(brokers)
                folder = Path(home) / "scale"
                found = scaled(lab, folder, options.share, options.megabytes, options.window, options.shapes)
            finally:
                lab.down(purge=True)
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
