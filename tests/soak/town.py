"""Two datacenters of a soak: their lab, the topology in its file, the load and a consumer group."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from planner.drill.traffic import DrillConsumer
from planner.model.diagnostic import ExitCode
from planner.workflows import ReplicationStatusRequest, status
from planner.workflows.samples import sample_of
from runtime.lab.cluster import LabClusterSpec
from tests.bdd.running import Town
from tests.endpoints import endpoint
from tests.labs import JVM, WITH_PARENT, running_lab
from tests.records import wait_for
from tests.soak.comparison import Comparison, Findings
from tests.soak.load import Load, Place, Sent, number_of
from tests.topologies import at

FLOW = "dc1-to-dc2"
HOME, AWAY = "dc1", "dc2"
TOPICS = {"orders": 4, "refunds": 2}
JOB: Mapping[str, Any] = {"slots": 2, "memory": "512m", "metrics": False}
PATIENCE_S = 300.0
_ATTEMPTS = 4


class SoakFailure(Exception):
    """The run can't go on: a command failed, or something never came."""


class SoakTown:
    """The topics of dc1 are copied to dc2 as `dc1.TOPIC`. `active` is the cluster that producers write to."""

    def __init__(self, folder: Path, brokers: int, rate: float, say: Callable[[str], None]) -> None:
        self.load = Load(rate)
        self.say = say
        self.active = HOME
        self.partitions = dict(TOPICS)
        self.found = Findings()
        self.read: set[int] = set()
        self.read_again = self.skipped = self.replayed = 0
        self._replayed: set[int] = set()
        self._brokers = brokers
        self._folder = folder
        self._running = ExitStack()

    def __enter__(self) -> SoakTown:
        clusters = (
            LabClusterSpec(name, brokers=self._brokers, jvm=JVM, prefix=WITH_PARENT) for name in (HOME, AWAY)
        )
        self.lab = self._running.enter_context(running_lab(self._folder / "lab", *clusters))
        topology = at(self.lab, "soak", self._folder, (HOME, AWAY))
        topology.topics = [
            {"name": name, "cluster": HOME, "partitions": partitions} for name, partitions in TOPICS.items()
        ]
        flow = {
            "name": FLOW,
            "from": HOME,
            "to": AWAY,
            "rename": "{source}.{topic}",
            "groups": {"sync": True},
        }
        topology.more["flows"] = [
            {**flow, "topics": {"include": [*TOPICS, r"extra\..*"]}, "follow": {"every": "500ms"}}
        ]
        topology.more["jobs"] = {HOME: JOB, AWAY: JOB}
        self.town = Town(self.lab, topology, self._folder / "home", lambda word: word.removeprefix("into-"))
        self.comparison = Comparison({name: self.town.client(name) for name in (HOME, AWAY)})
        topology.write()
        self.repl("apply")
        return self

    def __exit__(self, *_: object) -> None:
        with self._running:
            self.load.stop(lost=True)
            for name in (HOME, AWAY):
                self.lab.start(name)
            self.town.run("destroy", str(self.file), "--auto-approve")

    @property
    def file(self) -> Path:
        return self.town.topology.file

    # Commands

    def repl(self, *words: str) -> None:
        """Runs a command over the topology, and approves what it changes. SoakFailure if it fails.

        A plan is stale where a job that was killed was started again meanwhile, or the other way round: the
        command runs again then.
        """
        began = time.monotonic()
        path = [str(self.file)] if words[0] == "apply" else ["--path", str(self.file)]
        for _ in range(_ATTEMPTS):
            done = self.town.run(*words, *path, "--auto-approve")
            if done.returncode != ExitCode.STALE:
                break
            self.say(f"repl {' '.join(words)}: the plan was stale")
        self.say(f"repl {' '.join(words)} ({time.monotonic() - began:.1f} s)")
        if done.returncode:
            raise SoakFailure(f"repl {' '.join(words)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")

    def edit(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Changes the topology's file, which commands edit too, and applies it."""
        body = json.loads(self.file.read_text())
        change(body)
        self.file.write_text(json.dumps(body, indent=1))
        self.repl("apply")

    # Load

    def names(self, cluster: str) -> dict[str, str]:
        return {topic: topic if cluster == HOME else f"{HOME}.{topic}" for topic in self.partitions}

    def start_load(self, cluster: str) -> None:
        self.active = cluster
        self.load.start(self.town.client(cluster), self.names(cluster), self.partitions)

    def restart_load(self) -> None:
        """Lets the producers write to topics and partitions that were added."""
        self.load.stop()
        self.start_load(self.active)

    def await_known(self, topic: str) -> None:
        """Returns when both clusters have all partitions of a topic."""
        for cluster in (HOME, AWAY):
            name, wanted = self.names(cluster)[topic], self.partitions[topic]
            wait_for(lambda: self.town.partitions(name, cluster) == wanted, PATIENCE_S, every=0.3)  # noqa: B023

    # The consumer group

    def group_reads(self, cluster: str, records: int) -> None:
        """A consumer reads so many records and commits its place."""
        with DrillConsumer(endpoint(self.town.lab, cluster), "billing", self._subscribed(cluster)) as member:
            self._came(id_ for ids in member.take(records).values() for id_ in ids)

    def group_resumes(self, cluster: str) -> None:
        """A consumer reads on to the end. Nobody writes: what it did not read by then was skipped."""
        before = set(self.read)
        with DrillConsumer(endpoint(self.town.lab, cluster), "billing", self._subscribed(cluster)) as member:
            again = self._came(member.read_to_end())
        there = {
            number
            for topic in TOPICS
            for partition in range(self.partitions[topic])
            for number in self.comparison.numbers(
                cluster, self.names(cluster)[topic], Place(topic, partition)
            )
        }
        skipped = there - self.read
        self.read |= skipped  # each is counted once
        self.read_again += again
        self.skipped += len(skipped)
        came = len(self.read - before)
        self.say(f"billing reads on at {cluster}: {came} records, {again} again, {len(skipped)} skipped")

    def _subscribed(self, cluster: str) -> list[str]:
        names = self.names(cluster)
        return [names[topic] for topic in TOPICS]

    def _came(self, values: Iterable[bytes]) -> int:
        numbers = {number_of(one) for one in values}
        again = len(numbers & self.read)
        self.read |= numbers
        return again

    # Waiting and comparing

    def await_copied(self) -> None:
        """Returns when the flow has nothing left to copy. The load must have ended."""

        def copied() -> bool:
            flows = status(ReplicationStatusRequest(self.file, over_ms=0)).flows
            found = next(one for one in flows if one.name == FLOW)
            return found.lag_records == 0 and {one.topic for one in found.topics} >= self.partitions.keys()

        wait_for(copied, PATIENCE_S, every=0.3)

    def salvage(self) -> None:
        """Copies to dc2 what dc1 held when it was lost."""
        file = self._folder / "salvaged.jsonl"
        file.unlink(missing_ok=True)
        self.repl("salvage", FLOW, "--export", str(file))
        found = {number_of(one.value) for one in sample_of(file)}
        if found:
            self.repl("salvage", FLOW, "--replay")
        self._replayed |= found
        self.replayed += len(found)

    def compare(self) -> None:
        """Compares both clusters. The load must have ended, and the flow copied."""
        names = {cluster: self.names(cluster) for cluster in (HOME, AWAY)}
        found = self.comparison.compare(self.load.sent, names, self._replayed, PATIENCE_S / 5)
        self.load.sent, self._replayed = Sent(), set()
        self.found += found
        told = ", ".join(f"{count} {kind}" for kind, count in sorted(found.kinds.items())) or "equal"
        self.say(f"compared {found.records} records: {told}")
