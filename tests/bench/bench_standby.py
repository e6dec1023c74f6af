"""How long a job stands still when its machine is lost, until a standby on another machine copies.

python -m tests.bench.bench_standby [--rounds 3] [--settled 10] [--seed 1]

Two machines stand by for a job (network namespaces where these are permitted). In each round the machine of
the job is cut off, all its processes are killed at once, and nothing is closed. A row counts from there until
a record that was written later has arrived at dc2 in every partition: `claimed` is when the other standby
says that it starts the job, `all_s` the last partition's arrival. Then the lost machine comes back and
stands by. Meanwhile producers of all kinds write to another topic, transactions among them; at the end both
sides are compared record by record. The table is printed, and kept in build/bench-standby.json. It ends with
1 where a row is above 15 s, or a record was lost, doubled, reordered or changed.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

from runtime.lab.cluster import LabClusterSpec
from tests import checker
from tests.bdd.machines import Machine, two_machines
from tests.bench.results import keep
from tests.commands import REPL, environment
from tests.labs import running_lab
from tests.records import create_topic, wait_for
from tests.topologies import at, declared

RESULTS = Path("build/bench-standby.json")
JOB = "dc2"
TOPIC, PARTITIONS = "orders", 4
CHECKED = "payments"
MOST_S, WITHIN_S = 15.0, 120.0
_EVERY_S = 0.05  # between two records of a partition
_RATE = 200  # records/s that are compared


@dataclass(frozen=True, slots=True)
class Row:
    """Seconds since the machine was lost; `load` is the machine's average of the minute before."""

    load: float
    claimed_s: float
    first_s: float
    all_s: float


class Writer:
    """Writes into every partition all the time; a record holds the time at which it was written."""

    def __init__(self, client: dict[str, Any]) -> None:
        self._producer = Producer({**client, "linger.ms": 0})
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        while not self._ended.wait(_EVERY_S):
            for partition in range(PARTITIONS):
                self._producer.produce(TOPIC, str(time.monotonic()).encode(), partition=partition)
            self._producer.poll(0)

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        self._producer.flush(30)


class Arrivals:
    """Reads committed records at dc2 as they arrive."""

    def __init__(self, client: dict[str, Any]) -> None:
        settings = {"group.id": "bench-standby", "isolation.level": "read_committed", "log_level": 0}
        self._consumer = Consumer({**client, **settings, "fetch.wait.max.ms": 20})
        self._consumer.assign([TopicPartition(TOPIC, number, OFFSET_END) for number in range(PARTITIONS)])

    def wait(self, since: float) -> list[float]:
        """Returns for each partition when its first record that was written after `since` arrived."""
        arrived: dict[int, float] = {}
        while len(arrived) < PARTITIONS:
            if time.monotonic() > since + WITHIN_S:
                raise SystemExit(f"only {len(arrived)} partitions copy {WITHIN_S:g} s after the loss")
            for message in self._consumer.consume(500, 0.1):
                value, partition = message.value(), message.partition()
                if value is None or partition is None or message.error() is not None:
                    continue
                if float(value) > since:
                    arrived.setdefault(partition, time.monotonic())
        return list(arrived.values())

    def close(self) -> None:
        self._consumer.close()


def claimed_at(machine: Machine, lines: int, since: float) -> float:
    """Waits for the line of a takeover after the first `lines` of a standby's log."""
    while time.monotonic() < since + WITHIN_S:
        if any("it is started here" in line for line in machine.log.read_text().splitlines()[lines:]):
            return time.monotonic()
        time.sleep(0.02)
    raise SystemExit(f"no standby took the job over within {WITHIN_S:g} s")


def lost(runs: Machine, other: Machine, client: dict[str, Any], topology: Path) -> Row:
    """Takes the machine that runs the job away, and measures the other one."""
    load, lines = os.getloadavg()[0], len(other.log.read_text().splitlines())
    arrivals, claims = Arrivals(client), list[float]()
    arrivals.wait(time.monotonic())  # it copies, and is read
    runs.die()
    since = time.monotonic()
    watching = threading.Thread(
        target=lambda: claims.append(claimed_at(other, lines, since)), name="claims", daemon=True
    )
    watching.start()
    arrived = arrivals.wait(since)
    arrivals.close()
    watching.join()
    runs.come_back()
    runs.stand_by(JOB, topology)
    return Row(load, claims[0] - since, min(arrived) - since, max(arrived) - since)


def rows_of(folder: Path, rounds: int, settled_s: float, seed: int) -> Iterator[Row | checker.Report]:
    """The rows, and then the comparison. Between two losses there is half of `settled_s`, up to twice it."""
    moments = random.Random(seed)
    with ExitStack() as running:
        machines = running.enter_context(two_machines(folder))
        clusters = (changed(LabClusterSpec(name), host=machines.host) for name in ("dc1", "dc2"))
        lab = running.enter_context(running_lab(folder / "lab", *clusters))
        source, destination = (dict(lab.clusters[name].client) for name in ("dc1", "dc2"))
        create_topic(source, TOPIC, PARTITIONS)
        create_topic(source, CHECKED, PARTITIONS, config=checker.TOPIC_CONFIG)
        topology = at(lab, "shop", folder, ("dc1", "dc2"))
        topology.more["flows"] = [declared("there", TOPIC, CHECKED)]
        topology.more["jobs"] = {JOB: {"standby": 1, "metrics": False}}
        file = topology.write()
        try:
            subprocess.run(
                [*machines.a.through, *REPL, "apply", str(file), "--auto-approve"],
                env=environment({"REPL_HOME": str(machines.a.home)}),
                stdout=subprocess.DEVNULL,
                check=True,
            )
            writer = Writer(source)
            for machine in machines:
                machine.stand_by(JOB, file)
            wait_for(lambda: all(machine.said("runs as") for machine in machines))
            with checker.writing(
                source, CHECKED, checker.Spec(records=10**9, rate=_RATE, seed=seed)
            ) as checked:
                for _ in range(rounds):
                    time.sleep(settled_s * moments.uniform(0.5, 2))
                    runs = machines.a if machines.a.runs_the_job() else machines.b
                    other = machines.b if runs is machines.a else machines.a
                    yield lost(runs, other, destination, file)
                writer.end()
                yield checker.compare(source, destination, CHECKED, written=checked.written)
        finally:
            for machine in machines:
                machine.die()


def table(rows: list[Row]) -> str:
    names = [field.name for field in fields(Row)]
    lines = [f"| {' | '.join(names)} |", f"|{' ---: |' * len(names)}"]
    lines += ["| " + " | ".join(f"{value:.1f}" for value in asdict(row).values()) + " |" for row in rows]
    return "\n".join(lines)


def main() -> int:
    wanted = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    wanted.add_argument("--rounds", type=int, default=3)
    wanted.add_argument("--settled", type=float, default=10.0, help="seconds of copying before a loss, about")
    wanted.add_argument("--seed", type=int, default=1, help="of the moments of losses, and of the records")
    options = wanted.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # brokers and jobs would go on
    load, rows = os.getloadavg(), list[Row]()
    clean = False
    with tempfile.TemporaryDirectory() as scratch:
        for found in rows_of(Path(scratch), options.rounds, options.settled, options.seed):
            print(found, flush=True)
            if isinstance(found, Row):
                rows.append(found)
            else:
                clean = found.clean
    keep(RESULTS, rows, load)
    print(f"\n{table(rows)}")
    return int(not clean or any(row.all_s > MOST_S for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
