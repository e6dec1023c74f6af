"""What a small team pays: the start of one job, its memory, and what it takes while nothing is written.

python -m tests.bench.bench_start [--rounds 3] [--repl PATH ...] [--fresh]

A round applies a topology of one flow from dc1 to dc2, whose topic of 4 partitions has records. `first` is
the time from the start of `repl apply` until a reader of committed records has one at dc2, `apply` until the
command ends. Then the job stands idle: its memory (PSS counts shared pages once), its threads, and its share
of a core. Then a second flow is applied to the running job: `flow` and `edit` are the same two times. Each
`--repl` is another installation; they alternate in every round. With `--fresh` each round has brokers that
never had a job. The table is printed, and kept in build/bench-start.json.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from planner.workflows.topology import kill_all_below
from runtime.lab.cluster import LabClusterSpec
from runtime.lab.lab import Lab
from tests.bench.lab import REPL, Brokers, bench_lab, cpu_s, job_processes
from tests.bench.results import keep
from tests.records import create_topic
from tests.topologies import at, declared

RESULTS = Path("build/bench-start.json")
PARTITIONS = 4
WITHIN_S = 120.0
SETTLED_S = 12.0
IDLE_S = 15.0
_READ_S = 0.005


@dataclass(frozen=True, slots=True)
class Row:
    """Seconds, megabytes, and percents of a core."""

    side: str
    first_s: float
    apply_s: float
    flow_s: float
    edit_s: float
    rss_mb: float
    pss_mb: float
    supervision_mb: float
    jvm_mb: float
    driver_mb: float
    slots_mb: float
    threads: int
    idle_jvm: float
    idle_driver: float
    idle_slots: float
    idle_all: float
    idle_brokers: float


class FirstRecord:
    """Waits for the first committed record of a topic at dc2, which the job has yet to create."""

    def __init__(self, client: dict[str, Any], topic: str) -> None:
        self._consumer = Consumer(
            {**client, "group.id": "bench-start", "isolation.level": "read_committed", "log_level": 0}
        )
        self._topic = topic

    def wait(self, since: float) -> float:
        """Returns the seconds from `since` to the record."""
        deadline = since + WITHIN_S
        while not self._created():
            self._in_time(deadline)
            time.sleep(_READ_S)
        places = [TopicPartition(self._topic, number, 0) for number in range(PARTITIONS)]
        self._consumer.assign(places)
        while True:
            self._in_time(deadline)
            message = self._consumer.poll(0.5)
            if message is not None and message.error() is None:
                self._consumer.close()
                return time.monotonic() - since

    def _created(self) -> bool:
        try:
            metadata = self._consumer.list_topics(self._topic, timeout=5).topics[self._topic]
        except KafkaException:
            return False
        return metadata.error is None and len(metadata.partitions) == PARTITIONS

    def _in_time(self, deadline: float) -> None:
        if time.monotonic() > deadline:
            raise SystemExit(f"no record in {self._topic} at dc2 within {WITHIN_S:g} s")


class Team:
    """A topology of one flow, then two, its command and its job."""

    def __init__(self, lab: Lab, folder: Path, name: str, repl: Path) -> None:
        self._lab, self._repl = lab, repl
        self._home = folder / f"home-{name}"
        self.topics = [f"{name}-orders", f"{name}-payments"]
        self._topology = at(lab, name, folder, ("dc1", "dc2"))
        self._topology.more["jobs"] = {"dc2": {"metrics": False}}
        self._topology.more["flows"] = []
        for topic in self.topics:
            create_topic(self.client("dc1"), topic, PARTITIONS)
        producer = Producer(self.client("dc1"))
        for number in range(1000):
            for topic in self.topics:
                producer.produce(topic, b"x" * 100, partition=number % PARTITIONS)
        if producer.flush(30):
            raise SystemExit("dc1 does not acknowledge the records")

    def client(self, cluster: str) -> dict[str, Any]:
        return dict(self._lab.clusters[cluster].client)

    def add_flow(self) -> tuple[float, float]:
        """Applies another flow. Returns the seconds until its first record, and of the command."""
        flows = self._topology.more["flows"]
        topic = self.topics[len(flows)]
        flows.append(declared(topic, topic))
        path, arrival = self._topology.write(), FirstRecord(self.client("dc2"), topic)
        began = time.monotonic()
        with self.command("apply", "--auto-approve", "--path", str(path)) as command:
            first_s = arrival.wait(began)
            _, error = command.communicate(timeout=WITHIN_S)
            apply_s = time.monotonic() - began
            if command.returncode:
                raise SystemExit(f"repl apply: {command.returncode}\n{error}")
        return first_s, apply_s

    def remove(self) -> None:
        with self.command("destroy", "--auto-approve", "--path", str(self._topology.file)) as command:
            command.communicate(timeout=WITHIN_S)

    @contextmanager
    def command(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(
            [self._repl, *words],
            env={**os.environ, "REPL_HOME": str(self._home)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as command:
            yield command

    def log(self) -> str:
        return "".join(file.read_text() for file in self._home.glob("jobs/*/job.log"))

    def processes(self) -> dict[str, list[psutil.Process]]:
        """Returns the processes of the job by role."""
        return job_processes(self._home)

    def kill(self) -> None:
        kill_all_below(self._home)


def measured(lab: Lab, folder: Path, name: str, repl: Path) -> Row:
    team = Team(lab, folder, name, repl)
    try:
        return row_of(team, Brokers(lab), repl)
    finally:
        if keep_logs := os.environ.get("BENCH_LOGS"):
            Path(keep_logs, f"{name}.log").write_text(team.log())
        team.kill()


def row_of(team: Team, brokers: Brokers, repl: Path) -> Row:
    first_s, apply_s = team.add_flow()
    time.sleep(SETTLED_S)
    roles = team.processes()
    everyone = [process for some in roles.values() for process in some]
    before, brokers_before = {role: cpu_s(some) for role, some in roles.items()}, brokers.cpu_s()
    time.sleep(IDLE_S)
    idle = {role: 100 * (cpu_s(some) - before[role]) / IDLE_S for role, some in roles.items()}
    idle_brokers = 100 * (brokers.cpu_s() - brokers_before) / IDLE_S
    pss = {
        role: sum(process.memory_full_info().pss for process in some) / 1e6 for role, some in roles.items()
    }
    rss = sum(process.memory_info().rss for process in everyone) / 1e6
    threads = sum(process.num_threads() for process in everyone)
    flow_s, edit_s = team.add_flow()
    team.remove()
    return Row(
        side=str(repl),
        first_s=first_s,
        apply_s=apply_s,
        flow_s=flow_s,
        edit_s=edit_s,
        rss_mb=rss,
        pss_mb=sum(pss.values()),
        supervision_mb=pss["supervision"],
        jvm_mb=pss["jvm"],
        driver_mb=pss["driver"],
        slots_mb=pss["slots"],
        threads=threads,
        idle_jvm=idle["jvm"],
        idle_driver=idle["driver"],
        idle_slots=idle["slots"],
        idle_all=sum(idle.values()),
        idle_brokers=idle_brokers,
    )


def table(rows: Sequence[Row]) -> str:
    """The medians of each side as Markdown, with the lowest and the highest round."""
    sides = list(dict.fromkeys(row.side for row in rows))
    lines = [f"| | {' | '.join(sides)} |", f"| --- |{' ---: |' * len(sides)}"]
    for field in fields(Row)[1:]:
        cells = []
        for side in sides:
            values = [float(asdict(row)[field.name]) for row in rows if row.side == side]
            cells.append(f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})")
        lines.append(f"| {field.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    wanted = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    wanted.add_argument("--rounds", type=int, default=3)
    wanted.add_argument("--repl", type=Path, action="append", help="the command of another installation")
    wanted.add_argument("--fresh", action="store_true", help="each round has brokers of its own")
    options = wanted.parse_args()
    load, rows = os.getloadavg(), list[Row]()
    sides = [side.absolute() for side in options.repl or [REPL]]
    labs = options.rounds * len(sides) if options.fresh else 1
    rounds = [(number, side) for number in range(options.rounds) for side in sides]
    for number in range(labs):
        with bench_lab(LabClusterSpec("dc1"), LabClusterSpec("dc2")) as (lab, folder):
            for turn in rounds[number::labs] if labs > 1 else rounds:
                rows.append(measured(lab, folder, f"team{rounds.index(turn)}", turn[1]))
                print(rows[-1], flush=True)
    keep(RESULTS, rows, load)
    print(f"\n{table(rows)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
