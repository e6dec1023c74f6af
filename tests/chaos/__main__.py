"""A thousand blows: python -m tests.chaos [--seed N] [--blows 1000] [--brokers 3] [--without-spark]"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests import checker
from tests.chaos.blows import DOORS, EXECUTOR, LEADERS, TWO_DRIVERS, WEIGHTS
from tests.chaos.copiers import EXECUTORS, LOCAL, Copier, Kept, SlotCopier, SparkCopier, sides_of
from tests.chaos.doors import doors, through
from tests.chaos.links import links
from tests.chaos.storm import PARTITIONS, Ground, Storm, Weather, cluster_specs, prepare, rage
from tests.checker.report import AT_SOURCE, Kind
from tests.labs import running_lab
from tests.runtime.slot.world import Driver
from tests.spark.job import flow_of, spec_of
from tests.toxiproxy import toxiproxy

ROUND = 50  # blows between two comparisons


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--blows", type=int, default=1_000)
    parser.add_argument("--first", type=int, default=0, help=f"go on with a run that was cut; n × {ROUND}")
    parser.add_argument("--brokers", type=int, default=3, help="of each cluster")
    parser.add_argument("--without-spark", action="store_true", help="one bare slot, restarted when it ends")
    parser.add_argument("--sql", action="store_true", help="a second flow of the job filters and masks")
    parser.add_argument("--keep", type=Path, help="a folder for logs and clusters, left as they are")
    options = parser.parse_args()
    rounds = range(0, options.blows, ROUND)
    if options.first not in rounds:
        parser.error(f"--first {options.first}: no round begins there, but every {ROUND} of {options.blows}")
    again = " ".join(f"--{name} {getattr(options, name)}" for name in ("seed", "first", "blows", "brokers"))
    again += " --sql" if options.sql else ""
    if options.sql and options.without_spark:
        parser.error("--sql: Spark evaluates the transform, so it can't be left out")
    print(f"chaos: {again}", flush=True)
    with tempfile.TemporaryDirectory(prefix="chaos-") as scratch, links() as given:
        folder = options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        binary = None if options.without_spark else toxiproxy()
        if binary is None:
            print("chaos: without toxiproxy no link is slow or narrow, and no connection reset", flush=True)
        clusters = cluster_specs(given, options.brokers, with_doors=binary is not None)
        with (
            running_lab(folder / "lab", *clusters, purge=options.keep is None) as lab,
            doors(lab, given, binary) as proxies,
        ):
            ground = Ground(lab, given, proxies)
            left = rounds[rounds.index(options.first) :]
            found = [_round(ground, folder, options, first) for first in left]
    return _verdict(found, again)


def _round(ground: Ground, folder: Path, options: argparse.Namespace, first: int) -> Weather:
    topic, blows = f"chaos-{first}", min(ROUND, options.blows - first)
    sides = sides_of({name: cluster.bootstrap for name, cluster in ground.lab.clusters.items()})
    prepare(sides, topic, mirror=options.without_spark)
    flow = flow_of(topic, [topic])
    flows, masked = [flow], None
    if options.sql:
        masked = f"{topic}-masked"
        prepare(sides, masked, mirror=False)
        flows.append(flow_of(masked, [masked], transform=checker.TRANSFORM))
    weights = {
        **WEIGHTS,
        **TWO_DRIVERS,
        **(LEADERS if options.brokers > 1 else {}),
        **(DOORS if ground.doors else {}),
    }
    copier: Copier
    if options.without_spark:
        copier = SlotCopier(Driver(sides, job=topic), flow, topic, PARTITIONS, folder)
    else:
        # Every other round on executors of their own.
        master = LOCAL if first // ROUND % 2 else EXECUTORS
        weights |= EXECUTOR if master is EXECUTORS else {}
        copier = SparkCopier(
            through(ground.lab, spec_of(ground.lab, topic, flows)), folder / f"{topic}.json", master
        )
    began = time.monotonic()

    def say(what: str) -> None:
        print(f"  {time.monotonic() - began:6.1f} s  {what}", flush=True)

    storm = Storm(options.seed + first, [None] * blows, weights)
    log = folder / f"{topic}.log"
    found = rage(ground, topic, storm, lambda: Kept(copier, ground.links.prefix, log), say, masked)
    print(f"{topic}: {found}", flush=True)
    if options.keep is None:
        for side in sides.values():  # a gigabyte a round
            for one in (topic, masked):
                if one is not None:
                    side.delete(one)
    return found


def _verdict(found: list[Weather], again: str) -> int:
    dealt, kinds = Counter[str](), Counter[str]()
    for weather in found:
        dealt.update(weather.dealt)
        kinds.update(finding.kind for report in weather.reports for finding in report.findings)
    records = sum(report.records for weather in found for report in weather.reports)
    print(f"\nchaos: {dealt.total()} blows, {records} records")
    for what, count in sorted(dealt.items()):
        print(f"  {count:5} × {what}")
    for kind in (Kind.MISSING, Kind.DOUBLED, Kind.REORDERED, Kind.CHANGED, Kind.FOREIGN):
        print(f"  {kinds[kind]} {'lost' if kind is Kind.MISSING else kind}")
    for what in sorted(AT_SOURCE & kinds.keys()):
        print(f"  {kinds[what]} {what}: copied as its readers see it there")
    if all(weather.exact for weather in found):
        return 0
    print(f"chaos: the copy is not exact; again with {again}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
