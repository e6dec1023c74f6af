"""A long run of daily life: python -m tests.soak [--hours 2] [--seed N] [--rate 400] [--every 10]"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path
from subprocess import TimeoutExpired

from tests.soak.growth import Growth, levels, picture, write_csv
from tests.soak.life import Life
from tests.soak.town import AWAY, HOME, SoakFailure, SoakTown

_PAUSE_S = 10.0
_AWAY_S = 20.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--rate", type=float, default=400.0, help="records per second")
    parser.add_argument("--every", type=float, default=10.0, help="minutes between two failovers")
    parser.add_argument("--brokers", type=int, default=3, help="of each cluster")
    parser.add_argument(
        "--out", type=Path, default=Path("build/soak"), help="the folder of figures and picture"
    )
    options = parser.parse_args()
    print(f"soak: --hours {options.hours} --seed {options.seed} --every {options.every}", flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()

    def say(what: str) -> None:
        print(f"  {time.monotonic() - began:7.1f} s  {what}", flush=True)

    dice = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="soak-") as scratch:
        town = SoakTown(Path(scratch), options.brokers, options.rate, say)
        failovers, problem = 0, ""
        with town, Growth(town) as growth:
            life = Life(town, dice)
            try:
                while time.monotonic() - began < options.hours * 3600:
                    town.start_load(HOME)
                    life.go_on(options.every * 60, _PAUSE_S)
                    _fail_over_and_back(town)
                    failovers += 1
            except (SoakFailure, AssertionError, TimeoutExpired) as failure:
                problem = str(failure)
    write_csv(options.out / "growth.csv", growth.samples)
    (options.out / "growth.svg").write_text(picture(growth.samples))
    return _verdict(town, life, growth, failovers, problem, options.out)


def _fail_over_and_back(town: SoakTown) -> None:
    """dc1 is lost under load, dc2 takes over, and everything comes back. Both clusters are compared then."""
    town.lab.kill(HOME)
    town.say("dc1 is lost")
    town.load.stop(lost=True)
    town.repl("failover", HOME)
    town.group_resumes(AWAY)
    town.start_load(AWAY)
    time.sleep(_AWAY_S)
    town.lab.start(HOME)
    town.salvage()
    town.repl("failback", HOME)
    town.load.stop()
    town.group_resumes(AWAY)
    town.repl("failback", HOME, "--switch")
    town.await_copied()
    town.compare()
    town.group_resumes(HOME)


def _verdict(town: SoakTown, life: Life, growth: Growth, failovers: int, problem: str, out: Path) -> int:
    print(f"\nsoak: {failovers} failovers and failbacks, {town.load.total:,} records acknowledged")
    for what, count in sorted(life.count.items()):
        print(f"  {count:5} × {what}")
    print(f"  {town.found.records:,} records compared at both clusters, {town.replayed:,} of them replayed")
    for kind in ("lost", "doubled", "reordered", "foreign", "at one cluster only"):
        print(f"  {town.found.kinds[kind]} {kind}")
    print(f"  billing: {town.read_again} read again, {town.skipped} skipped")
    print(f"\n{'':54}first third  last third")
    grown = levels(growth.samples)
    for one in grown:
        mark = "  grows" if one.grows else ""
        print(f"{one.role:34}{one.what:20}{one.first:10,.1f}{one.last:12,.1f}{mark}")
    print(f"\nFigures and picture: {out}/growth.csv, {out}/growth.svg")
    for line in [*town.found.examples[:20], *([problem] if problem else [])]:
        print(f"soak: {line}", file=sys.stderr)
    failed = problem or town.found.kinds or town.skipped or any(one.grows for one in grown) or not failovers
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
