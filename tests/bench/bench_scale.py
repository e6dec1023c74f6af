"""What a job with many partitions costs, on a lab of its own: a row for each number of partitions.

python -m tests.bench.bench_scale [--partitions 1000,3000,10000] [--brokers 3]

Each flow copies one topic of 100 partitions from dc1 to dc2. One job of two slots runs all flows. Columns:
`apply` creates the mirrors and starts the job. `copying` is the time from its end until a record of every
partition is at dc2. `status` is the command. `idle` are shares of a core while nothing is written. `edit`
changes one flow, and `moved` counts the other flows that got a new generation. `killed` is the time from
a kill of the job's JVM with -9 until a new record of every flow is at dc2. The table is printed, and kept
in build/bench-scale.json and build/bench-scale.svg.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from planner.workflows.topology import kill_all_below
from runtime.lab.cluster import LabClusterSpec
from runtime.lab.lab import Lab
from tests import charts
from tests.bench.lab import Brokers, bench_lab, cpu_s, job_processes, run_repl
from tests.bench.results import keep
from tests.charts import Chart, Line
from tests.records import known_everywhere
from tests.topologies import at

RESULTS, PICTURE = Path("build/bench-scale.json"), Path("build/bench-scale.svg")
EACH = 100  # partitions of a flow
# Brokers that just started would compile all the while, on the cores that the job is measured on.
QUICK_COMPILER = ("-XX:TieredStopAtLevel=1",)
AT_ONCE = 10  # topics that one request creates
IDLE_S = 20.0
WITHIN_S = 900.0
_MOVED = re.compile(r" (?:flow_stopping|flow_taken_over) flow=(\S+)")


@dataclass(frozen=True, slots=True)
class Row:
    """Seconds, megabytes, and percents of a core."""

    partitions: int
    flows: int
    apply_s: float
    copying_s: float
    status_s: float
    driver_mb: float
    slots_mb: float
    idle_driver: float
    idle_slots: float
    idle_jvm: float
    idle_brokers: float
    edit_s: float
    moved: int
    killed_s: float


class World:
    """A topology with many flows, its topics, and its job. `flows` are the names of its flows and topics."""

    def __init__(self, lab: Lab, folder: Path, partitions: int) -> None:
        self.partitions = partitions
        self.flows = [f"p{partitions}-{number:03}" for number in range(partitions // EACH)]
        self._lab = lab
        self._home = folder / f"home-{partitions}"
        self._topology = at(lab, f"scale{partitions}", folder, ("dc1", "dc2"))
        flow = {"from": "dc1", "to": "dc2", "groups": {"sync": False}}
        declared = [{"name": name, "topics": {"include": [re.escape(name)]}, **flow} for name in self.flows]
        self._topology.more["flows"] = declared
        self._topology.more["jobs"] = {"dc2": {"slots": 2, "master": "local[2]", "metrics": False}}
        self._file = self._topology.write()

    def client(self, cluster: str) -> dict[str, Any]:
        return dict(self._lab.clusters[cluster].client)

    def create(self) -> None:
        """Creates the topics at the source, with one replica each, and writes a record to each partition."""
        admin = AdminClient(self.client("dc1"))
        for begin in range(0, len(self.flows), AT_ONCE):
            wanted = [NewTopic(name, EACH, 1) for name in self.flows[begin : begin + AT_ONCE]]
            for future in admin.create_topics(wanted, request_timeout=120).values():
                future.result(WITHIN_S)
            known_everywhere(self.client("dc1"), {one.topic: EACH for one in wanted})
        self.write(range(EACH))

    def write(self, partitions: Iterable[int]) -> None:
        """Writes a record to these partitions of each topic."""
        producer = Producer({**self.client("dc1"), "enable.idempotence": True, "linger.ms": 50})
        for number in partitions:
            for name in self.flows:
                producer.produce(name, b"record", partition=number)
            producer.poll(0)
        if producer.flush(WITHIN_S):
            raise SystemExit("dc1 does not acknowledge the records")

    def repl(self, *words: str) -> tuple[float, str]:
        """Runs a command on the topology. Returns its seconds and what it printed."""
        return run_repl(self._home, WITHIN_S, *words, "--path", str(self._file))

    def states(self) -> dict[str, int]:
        _, text = self.repl("status", "--json", "--over", "0s")
        found: dict[str, int] = {}
        for flow in json.loads(text)["flows"]:
            for state, count in flow["states"].items():
                found[state] = found.get(state, 0) + count
        return found

    def edit(self) -> tuple[float, int]:
        """Changes one flow. Returns the seconds of apply, and how many other flows got a new generation."""
        log = next((self._home / "jobs").glob("*/job.log"))
        before = log.stat().st_size
        self._topology.more["flows"][0]["rate_limit"] = "900MB/s"
        self._topology.write()
        seconds, _ = self.repl("apply", "--auto-approve")
        with log.open("rb") as file:
            file.seek(before)
            moved = set(_MOVED.findall(file.read().decode()))
        return seconds, len(moved - {self.flows[0]})

    def processes(self) -> dict[str, list[psutil.Process]]:
        """Returns the processes of the job by role."""
        return job_processes(self._home)

    def remove(self) -> None:
        """Ends the job. Its topics go with the lab."""
        self.repl("destroy", "--auto-approve")

    def kill(self) -> None:
        """Kills what is left of the job, as where a measurement was interrupted."""
        kill_all_below(self._home)


class Arrivals:
    """Reads the first partition of every mirror from its present end on."""

    def __init__(self, world: World) -> None:
        self._consumer = Consumer(
            {**world.client("dc2"), "group.id": "bench-scale", "isolation.level": "read_committed"}
        )
        self._waiting = set(world.flows)
        places = [TopicPartition(name, 0) for name in world.flows]
        for place in places:
            _, place.offset = self._consumer.get_watermark_offsets(place, timeout=60)
        self._consumer.assign(places)

    def wait(self) -> None:
        """Returns when every mirror has a new record."""
        deadline = time.monotonic() + WITHIN_S
        while self._waiting:
            message = self._consumer.poll(1.0)
            if message is not None and message.error() is None:
                self._waiting.discard(message.topic() or "")
            if time.monotonic() > deadline:
                raise SystemExit(f"{len(self._waiting)} flows copy nothing within {WITHIN_S:g} s")
        self._consumer.close()


def until(holds: Callable[[], bool]) -> float:
    """Waits until it holds, and returns the seconds."""
    began = time.perf_counter()
    while not holds():
        if time.perf_counter() - began > WITHIN_S:
            raise SystemExit(f"not reached within {WITHIN_S:g} s")
        time.sleep(0.5)
    return time.perf_counter() - began


def ends(world: World) -> int:
    """How many partitions of the mirrors have a record."""
    consumer = Consumer({**world.client("dc2"), "group.id": "bench-scale", "log_level": 0})
    try:
        places = [TopicPartition(name, number, 0) for name in world.flows for number in range(EACH)]
        return sum(one.offset >= 0 for one in consumer.offsets_for_times(places, timeout=60))
    except KafkaException:
        return 0
    finally:
        consumer.close()


def idle(world: World, brokers: Brokers) -> Mapping[str, float]:
    """Returns the percents of a core that each role takes while nothing is written."""
    roles = world.processes()

    def taken() -> dict[str, float]:
        return {**{role: cpu_s(some) for role, some in roles.items()}, "brokers": brokers.cpu_s()}

    before = taken()
    time.sleep(IDLE_S)
    return {role: 100 * (after - before[role]) / IDLE_S for role, after in taken().items()}


def measured(lab: Lab, folder: Path, partitions: int) -> Row:
    world = World(lab, folder, partitions)
    try:
        return row_of(world, Brokers(lab))
    finally:
        world.kill()


def row_of(world: World, brokers: Brokers) -> Row:
    partitions = world.partitions
    world.create()
    apply_s, _ = world.repl("apply", "--auto-approve")
    copying_s = until(lambda: ends(world) == partitions)
    until(lambda: world.states().get("caught_up", 0) >= partitions)
    status_s, _ = world.repl("status")
    memory = {
        role: sum(one.memory_info().rss for one in some) / 1e6 for role, some in world.processes().items()
    }
    shares = idle(world, brokers)
    edit_s, moved = world.edit()
    arrivals = Arrivals(world)
    (jvm,) = world.processes()["jvm"]
    began = time.perf_counter()
    jvm.kill()
    world.write([0])
    arrivals.wait()
    killed_s = time.perf_counter() - began
    world.remove()
    return Row(
        partitions=partitions,
        flows=len(world.flows),
        apply_s=apply_s,
        copying_s=copying_s,
        status_s=status_s,
        driver_mb=memory["driver"],
        slots_mb=memory["slots"],
        idle_driver=shares["driver"],
        idle_slots=shares["slots"],
        idle_jvm=shares["jvm"],
        idle_brokers=shares["brokers"],
        edit_s=edit_s,
        moved=moved,
        killed_s=killed_s,
    )


def table(rows: Sequence[Row]) -> str:
    """The table as Markdown."""
    names = list(asdict(rows[0]))
    lines = [f"| {' | '.join(names)} |", f"|{' ---: |' * len(names)}"]
    for row in rows:
        cells = [
            f"{value:,.1f}" if isinstance(value, float) else f"{value:,}" for value in asdict(row).values()
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


_CHARTS = {
    "seconds": ("apply_s", "killed_s", "edit_s", "status_s"),
    "MB": ("driver_mb", "slots_mb"),
    "% of a core while idle": ("idle_driver", "idle_slots", "idle_jvm"),
}


def picture(rows: Sequence[Row]) -> str:
    """Draws one chart for each unit over the number of partitions, as SVG."""
    ticks = {float(row.partitions): f"{row.partitions:,}" for row in rows}

    def line(name: str) -> Line:
        return Line(name, [(row.partitions, getattr(row, name)) for row in rows])

    return charts.picture([Chart(unit, ticks, [*map(line, names)]) for unit, names in _CHARTS.items()])


def main() -> int:
    wanted = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    wanted.add_argument("--partitions", default="1000,3000,10000", help=f"multiples of {EACH}")
    wanted.add_argument("--brokers", type=int, default=3, help="of each cluster")
    options = wanted.parse_args()
    load, rows = os.getloadavg(), []
    for partitions in map(int, options.partitions.split(",")):
        # Three replicas are the brokers' work, not ours.
        properties = {"default.replication.factor": "1", "min.insync.replicas": "1"}
        clusters = (
            LabClusterSpec(
                name, brokers=options.brokers, properties=properties, heap="768m", jvm=QUICK_COMPILER
            )
            for name in ("dc1", "dc2")
        )
        with bench_lab(*clusters) as (lab, folder):
            rows.append(measured(lab, folder, partitions))
            print(rows[-1], flush=True)
        keep(RESULTS, rows, load)
        PICTURE.write_text(picture(rows))
    print(f"\n{table(rows)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
