"""How long `repl failover dc1` takes from its start to its end, on a lab of its own: the tool's time.

python -m tests.bench.bench_failover [--groups 100] [--partitions 100] [--only "dc1 killed"]

dc1 has three brokers, dc2 one. For each row a job copies fresh topics, every group has committed in every
partition, and then dc1 (or a part of it) is taken away. Where dc1 is dead, the checkpoints know what the
groups had committed; where a part of it answers, they commit after the job's last look, so that all of it
is left to the failover. A row counts only if every group stands at dc2 where it stood at dc1. The table is
printed, build/bench-failover.json keeps it.
"""

import argparse
import functools
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import (
    ConsumerGroupTopicPartitions,  # noqa: TID251 - commits alone
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from runtime.lab.cluster import LabClusterSpec
from runtime.lab.lab import Lab
from tests.bench.lab import bench_lab, run_repl
from tests.bench.results import keep
from tests.records import create_topic, group_offsets, read, wait_for
from tests.topologies import at

RESULTS = Path("build/bench-failover.json")
MOST_SECONDS = 30.0
TOPICS = 10
RECORDS = 100  # in each partition
WITHIN_S = 180.0


@dataclass(frozen=True, slots=True)
class Row:
    """`told`, `stopped`: what of it was spent on telling the job, and on stopping it."""

    what: str
    groups: int
    partitions: int
    seconds: float
    told: float
    stopped: float
    moved: int  # offsets that the failover itself still had to write

    @property
    def within(self) -> bool:
        return self.seconds <= MOST_SECONDS


@dataclass(frozen=True, slots=True)
class Case:
    """`answers`: what is left of dc1 still tells what groups committed."""

    what: str
    answers: bool
    lose: Callable[["World"], None]
    mend: Callable[["World"], None]


@dataclass
class World:
    """One topology, its topics, its job, and a folder of whoever started that."""

    lab: Lab
    folder: Path
    name: str
    groups: int
    partitions: int
    answers: bool
    there: dict[tuple[str, int], list[int]] = field(default_factory=dict)  # offsets at dc2, in order

    @property
    def topics(self) -> list[str]:
        return [f"{self.name}.{number}" for number in range(TOPICS)]

    @property
    def home(self) -> Path:
        return self.folder / f"{self.name}-home"

    @property
    def file(self) -> Path:
        return self.folder / f"{self.name}.yaml"

    def prepare(self) -> None:
        for topic in self.topics:
            create_topic(self.lab.clusters["dc1"].client, topic, self.partitions // TOPICS, 3)
        self._write()
        self._declare()
        self.repl("apply", str(self.file), "--auto-approve")
        wait_for(self._copied, WITHIN_S, 1.0)
        for topic in self.topics:
            for record in read(self.lab.clusters["dc2"].client, topic):
                self.there.setdefault((topic, record.partition), []).append(record.offset)
        self._commit()
        if not self.answers:
            wait_for(lambda: not self.wrong(), WITHIN_S, 2.0)

    def repl(self, *words: str) -> str:
        return run_repl(self.home, WITHIN_S, *words)[1]

    def wrong(self) -> int:
        """Offsets that do not stand at dc2 where they stood at dc1."""
        wrong = 0
        for number in range(self.groups):
            stand = group_offsets(self.lab.clusters["dc2"].client, self._group(number))
            for one in self._places(number):
                at = (one.topic, one.partition)
                wrong += stand.get(at) != self.there[at][one.offset]  # markers lie between dc2's records
        return wrong

    def kill_the_job(self) -> None:
        """As if its machine were gone: nobody cleans up, and nothing of it is found again."""
        for file in (self.home / "jobs").glob("*/supervisor.json"):
            told = json.loads(file.read_text())
            for who in ("watchman", "supervisor", "application"):
                pid = (told.get(who) or {}).get("pid", -1)
                if pid > 0:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.home, ignore_errors=True)

    def _group(self, number: int) -> str:
        return f"{self.name}-group-{number}"

    def _places(self, number: int) -> Iterator[TopicPartition]:
        for topic in self.topics:
            for partition in range(self.partitions // TOPICS):
                yield TopicPartition(topic, partition, (number * 7 + partition) % RECORDS)

    def _write(self) -> None:
        producer = Producer({**self.lab.clusters["dc1"].client, "enable.idempotence": True})
        for topic in self.topics:
            for number in range(RECORDS * self.partitions // TOPICS):
                producer.produce(topic, value=b"%d" % number, partition=number % (self.partitions // TOPICS))
            producer.flush()

    def _declare(self) -> None:
        topology = at(self.lab, self.name, self.folder, ("dc1", "dc2"))
        selected = {"include": [rf"{self.name}\..*"]}
        groups = {"every": "10m" if self.answers else "1s", "include": [f"{self.name}-.*"]}
        flow: dict[str, Any] = {"name": self.name, "from": "dc1", "to": "dc2", "topics": selected}
        topology.more["flows"] = [{**flow, "job": f"into-{self.name}", "groups": groups}]
        topology.more["jobs"] = {f"into-{self.name}": {"slots": 2, "metrics": False}}
        topology.write()

    def _copied(self) -> bool:
        status = json.loads(self.repl("status", str(self.file), "--json", "--over", "0s"))
        (flow,) = status["flows"]
        found = flow["states"].get("caught_up", 0)
        return bool(found >= self.partitions)

    def _commit(self) -> None:
        admin = AdminClient(self.lab.clusters["dc1"].client)

        def done(number: int) -> bool:
            """A coordinator that is new to a group may refuse at first."""
            asked = ConsumerGroupTopicPartitions(self._group(number), list(self._places(number)))
            (answer,) = admin.alter_consumer_group_offsets([asked], request_timeout=30).values()
            return all(one.error is None for one in answer.result(60).topic_partitions)

        for number in range(self.groups):
            wait_for(functools.partial(done, number), WITHIN_S)


def killed(world: World) -> None:
    world.lab.kill("dc1")


def killed_with_the_job(world: World) -> None:
    world.kill_the_job()
    world.lab.kill("dc1")


def restarted(world: World) -> None:
    world.lab.start("dc1")


CASES = (
    Case("dc1 killed", False, killed, restarted),
    Case("dc1 and the job's machine killed", False, killed_with_the_job, restarted),
    Case(
        "dc1 stopped, its connections stay",
        False,
        lambda world: world.lab.pause("dc1"),
        lambda world: world.lab.unpause("dc1"),
    ),
    Case("one broker of three killed", True, lambda world: world.lab.kill("dc1:2"), restarted),
    Case(
        "one broker of three stopped",
        True,
        lambda world: world.lab.pause("dc1:2"),
        lambda world: world.lab.unpause("dc1:2"),
    ),
)


def measured(lab: Lab, folder: Path, number: int, case: Case, groups: int, partitions: int) -> Row:
    world = World(lab, folder, f"bench{number}", groups, partitions, case.answers)
    try:
        return _measured(world, case)
    finally:
        world.kill_the_job()


def _measured(world: World, case: Case) -> Row:
    world.prepare()
    left = world.wrong()
    case.lose(world)
    begun = time.perf_counter()
    text = world.repl("failover", "dc1", "--path", str(world.file), "--auto-approve", "--json")
    seconds = time.perf_counter() - begun
    told = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    wrong = world.wrong()
    if wrong:
        raise SystemExit(f"{case.what}: {wrong} offsets do not stand where they should\n{text}")
    case.mend(world)

    def took(*actions: str) -> float:
        return sum(float(one["seconds"]) for one in told if one.get("action") in actions)

    told_s, stopped_s = took("reconfigure", "launch"), took("stop")
    return Row(case.what, world.groups, world.partitions, seconds, told_s, stopped_s, left)


HEAD = f"{'':<36}{'groups':>8}{'partitions':>12}{'to write':>10}{'in all':>9}{'telling':>9}{'stopping':>10}"


def shown(row: Row) -> str:
    verdict = "" if row.within else f"   more than {MOST_SECONDS:g} s"
    return (
        f"{row.what:<36}{row.groups:>8,}{row.partitions:>12,}{row.moved:>10,}{row.seconds:>7.1f} s"
        f"{row.told:>7.1f} s{row.stopped:>8.1f} s{verdict}"
    )


def main() -> int:
    wanted = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    wanted.add_argument("--groups", type=int, default=100)
    wanted.add_argument("--partitions", type=int, default=100)
    wanted.add_argument("--only", default="", help="rows whose name begins so")
    options = wanted.parse_args()
    load, rows = os.getloadavg(), []
    with bench_lab(LabClusterSpec("dc1", brokers=3), LabClusterSpec("dc2")) as (lab, folder):
        print(HEAD, flush=True)
        for number, case in enumerate(CASES):
            if case.what.startswith(options.only):
                rows.append(measured(lab, folder, number, case, options.groups, options.partitions))
                print(shown(rows[-1]), flush=True)
    keep(RESULTS, rows, load)
    return 0 if all(row.within for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
