"""How long `repl apply` takes, and what it costs, on a lab of its own.

python -m tests.bench.bench_apply [--few 1000] [--many 5000]

Creates the few and the many topics, changes a setting of each of the many, and applies once more with
nothing to do. Seconds are the whole command's: reading the clusters, planning, the lease, the journal, every
step, and waiting until every broker shows every topic. The table is printed, build/bench-apply.json keeps it.
"""

import argparse
import json
import os
from dataclasses import dataclass
from pathlib import Path

from runtime.lab.cluster import LabClusterSpec
from runtime.lab.lab import Lab
from tests.bench.bench_plan import timed
from tests.bench.lab import bench_lab
from tests.bench.results import keep

RESULTS = Path("build/bench-apply.json")
BROKERS = 2
FEW_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Row:
    what: str
    steps: int
    requests: int
    executing: float
    seconds: float
    megabytes: float
    most_seconds: float | None = None

    @property
    def within(self) -> bool:
        return self.most_seconds is None or self.seconds <= self.most_seconds


def topology(lab: Lab, folder: Path, name: str, count: int, retention: str) -> Path:
    file = folder / f"{name}.yaml"
    declared = f"cluster: dc1, partitions: 1, config: {{retention.ms: {retention}}}"
    topics = "".join(f"  - {{name: {name}.{number:05}, {declared}}}\n" for number in range(count))
    clusters = f"clusters:\n  dc1: {{bootstrap: '{lab.clusters['dc1'].bootstrap}'}}\n"
    file.write_text(f"apiVersion: repl/v1\nname: {name}\n{clusters}topics:\n{topics}", encoding="utf-8")
    return file


def measured(what: str, path: Path, most_seconds: float | None = None) -> Row:
    seconds, megabytes, text = timed("apply", str(path), "--auto-approve", "--json")
    end = json.loads(text.splitlines()[-1])
    steps = sum(end.get("steps", {}).values())
    row = Row(what, steps, end.get("requests", 0), end.get("seconds", 0.0), seconds, megabytes, most_seconds)
    print(told(row), flush=True)
    return row


def bench(lab: Lab, folder: Path, few: int, many: int) -> list[Row]:
    small = topology(lab, folder, "few", few, "1d")
    large = topology(lab, folder, "many", many, "1d")
    rows = [
        measured(f"{few:,} topics created", small, FEW_SECONDS if few <= 1_000 else None),
        measured(f"{many:,} topics created", large),
    ]
    topology(lab, folder, "many", many, "2d")
    return [*rows, measured(f"{many:,} configs changed", large), measured("nothing to do", large)]


HEAD = f"{'':<24}{'steps':>8}{'requests':>10}{'executing':>11}{'in all':>9}{'memory':>10}"


def told(row: Row) -> str:
    verdict = "" if row.within else f"   more than {row.most_seconds:g} s"
    return (
        f"{row.what:<24}{row.steps:>8,}{row.requests:>10,}{row.executing:>9.1f} s{row.seconds:>7.1f} s"
        f"{row.megabytes:>7.0f} MB{verdict}"
    )


def main() -> int:
    wanted = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    wanted.add_argument("--few", type=int, default=1_000)
    wanted.add_argument("--many", type=int, default=5_000)
    options = wanted.parse_args()
    load = os.getloadavg()
    with bench_lab(LabClusterSpec("dc1", brokers=BROKERS, heap="768m")) as (lab, folder):
        print(HEAD)
        rows = bench(lab, folder, options.few, options.many)
    keep(RESULTS, rows, load)
    return 0 if all(row.within for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
