"""Hundreds of rounds behind a hostile proxy: python -m tests.hostile [--seed N] [--rounds 500] [--spark 4]"""

from __future__ import annotations

import argparse
import os
import random
import re
import shlex
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr
from functools import partial
from pathlib import Path

from runtime.lab.lab import Lab
from runtime.slot import log
from tests.checker.report import AT_SOURCE, Kind
from tests.hostile.faults import REFUSALS, Dice, Fault, Tally
from tests.hostile.proxy import proxies
from tests.hostile.rounds import (
    KINDS,
    Outcome,
    Stream,
    cluster_specs,
    round_of,
    routes_of,
    spark_round,
    streams_of,
)
from tests.hostile.wire import NAMES
from tests.labs import run_tool, running_lab

_WEIGHTS: Mapping[str, int] = {"slot": 12, "file": 2, "replay": 2, "restore": 2}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--first", type=int, default=0, help="go on with a run that was cut, at this round")
    parser.add_argument("--streams", type=int, default=6, help="rounds at the same time")
    parser.add_argument("--brokers", type=int, default=1, help="of the destination")
    parser.add_argument("--blows", type=int, default=4, help="the most in one round")
    parser.add_argument(
        "--spark", type=int, default=0, help="further rounds of a whole job on Spark, with SQL"
    )
    parser.add_argument("--transaction-version", type=int, help="a level to finalize at the destination")
    parser.add_argument("--only", choices=KINDS, help="one way of copying")
    parser.add_argument("--quick", action="store_true", help="refuse no connections for 12 s or 70 s")
    parser.add_argument("--keep", type=Path, help="a folder for logs and clusters, left as they are")
    options = parser.parse_args()
    again = shlex.join([*sys.argv[1:], f"--seed={options.seed}"])
    print(f"hostile: {again}", flush=True)
    with tempfile.TemporaryDirectory(prefix="hostile-") as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        _log_to(folder / "copies.log")
        clusters = cluster_specs(options.streams, options.brokers)
        with running_lab(folder / "lab", *clusters, purge=options.keep is None) as lab:
            if options.transaction_version is not None:
                _finalize(lab, options.transaction_version)
            with (
                (folder / "said.log").open("w") as said,
                redirect_stderr(said),
                proxies(routes_of(lab)) as made,
            ):
                outcomes, failures = _rounds(streams_of(lab, made, folder), options)
            tally = Tally()
            for proxy in made:
                tally.add(proxy.tally)
    return _verdict(outcomes, failures, tally, again)


def _finalize(lab: Lab, level: int) -> None:
    """Finalizes a level of transaction.version. A new cluster has the highest one of its version of Kafka."""
    run_tool(lab, "dc2", "FeatureCommand", "downgrade", "--feature", f"transaction.version={level}")
    features = run_tool(lab, "dc2", "FeatureCommand", "describe")
    assert re.search(rf"transaction\.version\s.*FinalizedVersionLevel: {level}\s", features), features


def _log_to(file: Path) -> None:
    """The decisions of the slots, to look at after a finding."""
    log.start({}, os.open(file, os.O_CREAT | os.O_APPEND | os.O_WRONLY))


def _rounds(streams: list[Stream], options: argparse.Namespace) -> tuple[list[Outcome], list[str]]:
    outcomes: list[Outcome] = []
    failures: list[str] = []
    left = iter(range(options.first, options.rounds))
    lock, began = threading.Lock(), time.monotonic()
    refusals = {seconds: weight for seconds, weight in REFUSALS.items() if seconds < 10 or not options.quick}

    def say(text: str) -> None:
        print(f"  {time.monotonic() - began:6.0f} s  {text}", flush=True)

    def once(name: str, run: Callable[[random.Random, Dice], Outcome], number: int) -> None:
        dice = random.Random(f"{options.seed}/{number}")
        chooser = Dice(dice, dice.randint(1, options.blows), refusals)
        try:
            outcome = run(dice, chooser)
        except Exception as error:  # noqa: BLE001 - the next round goes on; the verdict tells
            failures.append(f"{name}: {error!r}")
            say(f"{name} FAILED: {error!r}")
            return
        outcomes.append(outcome)
        say(f"{number + 1}/{options.rounds} {outcome}")

    def work(stream: Stream) -> None:
        while True:
            with lock:
                number = next(left, None)
            if number is None:
                return
            kind = options.only or _kind(options.seed, number)
            topic = f"hostile-{number}"
            once(topic, partial(round_of, kind, stream, topic), number)

    with ThreadPoolExecutor(len(streams)) as threads:
        for done in [threads.submit(work, stream) for stream in streams]:
            done.result()
    for number in range(options.spark):
        topic = f"hostile-spark-{number}"
        once(topic, partial(spark_round, streams[0], topic), options.rounds + number)
    return outcomes, failures


def _kind(seed: int, number: int) -> str:
    (kind,) = random.Random(f"{seed}/{number}/kind").choices([*_WEIGHTS], [*_WEIGHTS.values()])
    return kind


def _verdict(outcomes: list[Outcome], failures: list[str], tally: Tally, again: str) -> int:
    print(f"\nhostile: {len(outcomes) + len(failures)} rounds, {tally.blows.total()} faults")
    width = max(len(fault) for fault in Fault)
    print(f"  {'':{width}}  " + "  ".join(f"{NAMES[api]:>18}" for api in NAMES))
    print(f"  {'requests':{width}}  " + "  ".join(f"{tally.requests[api]:18,}" for api in NAMES))
    for fault in Fault:
        print(f"  {fault:{width}}  " + "  ".join(f"{tally.blows[api, fault]:18,}" for api in NAMES))
    for seconds, count in sorted(tally.refusals.items()):
        print(f"  {count:5} × connections refused for {seconds:g} s")
    print(f"  {tally.busy:5} × InitProducerId answered with CONCURRENT_TRANSACTIONS behind that")
    kinds = Counter(outcome.kind.split(",")[0] for outcome in outcomes)
    print("  rounds: " + ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())))
    reports = [report for outcome in outcomes for report in outcome.reports]
    found = Counter(finding.kind for report in reports for finding in report.findings)
    print(f"  {sum(report.records for report in reports):,} records compared")
    for kind in (Kind.MISSING, Kind.DOUBLED, Kind.REORDERED, Kind.CHANGED, Kind.FOREIGN, Kind.MISPLACED):
        print(f"  {found[kind]} {'lost' if kind is Kind.MISSING else kind}")
    for what in sorted(AT_SOURCE & found.keys()):
        print(f"  {found[what]} {what}: copied as its readers see it there")
    for failure in failures:
        print(f"  failed: {failure}")
    if all(outcome.exact for outcome in outcomes) and not failures:
        return 0
    print(f"hostile: the copy is not exact, or a round failed; again with {again}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
