"""A topology whose jobs really run: launched by `repl apply`, on real brokers and real Spark."""

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from subprocess import CompletedProcess, Popen
from typing import Any

import psutil
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AclBinding, AclBindingFilter, AdminClient, ConfigResource, ResourceType

from planner.config import load
from planner.drill import promises
from planner.drill.replica import Replica
from planner.drill.scenario_run import ScenarioRun
from planner.workflows import ReplicationStatusRequest, status
from runtime.contract.results.status import ReplicationStatus
from runtime.lab.lab import Lab
from tests.commands import repl
from tests.labs import running_lab, spec
from tests.processes import kill_together, lives
from tests.records import (
    PATIENCE_S,
    Record,
    admin_of,
    create_topic,
    read,
    wait_for,
)
from tests.topologies import Topology, at

# A driver for one slot: small, and quick to start.
SMALL: Mapping[str, Any] = {
    "slots": 1,
    "memory": "512m",
    "metrics": False,
    "conf": {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss512k"},
}
WITHIN_S = 240.0  # many times what a job's new start takes on a quiet machine


@dataclass
class Town:
    """Names of topics, flows and jobs are short in the text and fresh ones at the clusters."""

    lab: Lab
    topology: Topology
    home: Path
    name: Callable[[str], str]
    written: dict[tuple[str, str], list[bytes]] = field(default_factory=dict)
    done: CompletedProcess[str] | None = None
    numbers: Any = field(default_factory=lambda: count(1))
    through: tuple[str, ...] = ()  # a command that runs ours in its place, somewhere else

    def run(self, *arguments: str) -> CompletedProcess[str]:
        env = {"REPL_HOME": str(self.home)}
        self.done = repl(*arguments, env=env, timeout=300, through=self.through)
        return self.done

    def succeeds(self, *arguments: str) -> CompletedProcess[str]:
        done = self.run(*arguments)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done

    def apply(self, *options: str) -> None:
        self.succeeds("apply", str(self.topology.write()), "--auto-approve", *options)

    def engineer(self, *words: str) -> CompletedProcess[str]:
        """Runs a command over the topology as it is in the file; nothing is asked."""
        return self.run(*words, "--path", str(self.topology.file), "--auto-approve")

    def last(self) -> CompletedProcess[str]:
        assert self.done is not None
        return self.done

    def ended(self, process: Popen[str], output: str, errors: str) -> None:
        """A command that was run in another way."""
        self.done = CompletedProcess(process.args, process.returncode, output, errors)

    def said(self, text: str) -> str:
        """What the command said, with the names that the scenario uses."""
        for word in ("dc1-to-dc2", "orders", "catalog", "payments", "refunds", "returns"):
            text = text.replace(self.name(word), word)
        return text

    def status(self) -> ReplicationStatus:
        """What repl status reads; for a step whose subject is not that command."""
        return status(ReplicationStatusRequest(self.topology.file, over_ms=0))

    def client(self, cluster: str) -> dict[str, Any]:
        return dict(self.lab.clusters[cluster].client)

    def admin(self, cluster: str) -> AdminClient:
        return admin_of(self.client(cluster))

    def flow(self, word: str) -> dict[str, Any]:
        found: dict[str, Any] = next(
            one for one in self.topology.more["flows"] if one["name"] == self.name(word)
        )
        return found

    # Records

    def write(self, word: str, cluster: str, records: int) -> None:
        """Every record says which it is; returns when all were acknowledged."""
        topic = self.name(word)
        told = self.written.setdefault((word, cluster), [])
        producer = Producer({**self.client(cluster), "enable.idempotence": True})
        partitions = self.partitions(word, cluster)
        for _ in range(records):
            number = next(self.numbers)
            value = f"{cluster}-{number}".encode()
            producer.produce(topic, value=value, partition=number % partitions)
            told.append(value)
        left = producer.flush(2 * PATIENCE_S)
        assert not left, f"{left} records of {topic} were not acknowledged"

    def values(self, word: str, cluster: str) -> list[list[bytes | None]]:
        """Of each partition, in order."""
        records = self.records(word, cluster)  # first: partitions may be added meanwhile
        found: list[list[bytes | None]] = [[] for _ in range(self.partitions(word, cluster))]
        for record in records:
            found[record.partition].append(record.value)
        return found

    def same(self, word: str) -> bool:
        """Whether dc2 holds the records of dc1, each once and in order."""
        return self.values(word, "dc2") == self.values(word, "dc1")

    def records(self, word: str, cluster: str) -> list[Record]:
        return read(self.client(cluster), self.name(word))

    def partitions(self, word: str, cluster: str) -> int:
        topics = self.admin(cluster).list_topics(timeout=PATIENCE_S).topics
        return len(topics[self.name(word)].partitions) if self.name(word) in topics else 0

    # Topics

    def make(self, word: str, cluster: str, partitions: int) -> None:
        create_topic(self.client(cluster), self.name(word), partitions)

    def delete(self, word: str, cluster: str) -> None:
        admin = self.admin(cluster)
        admin.delete_topics([self.name(word)])[self.name(word)].result(timeout=PATIENCE_S)

    def config(self, word: str, cluster: str, key: str) -> str:
        resource = ConfigResource(ResourceType.TOPIC, self.name(word))
        admin = self.admin(cluster)
        return str(admin.describe_configs([resource])[resource].result(timeout=PATIENCE_S)[key].value)

    # Processes

    def processes(self, cluster: str) -> dict[str, psutil.Process]:
        """What the launcher wrote down of the job: its supervisor and its application."""
        file = self.home / "jobs" / self.name(f"into-{cluster}") / "supervisor.json"
        told = json.loads(file.read_text()) if file.exists() else {}
        found = {}
        for who in ("supervisor", "watchman", "application"):
            pid = (told.get(who) or {}).get("pid", -1)
            with suppress(psutil.NoSuchProcess):
                if pid > 0:
                    found[who] = psutil.Process(pid)
        return found

    def kill(self, cluster: str, *who: str) -> None:
        """All at once: none of them looks after the others any more."""
        eventually(lambda: set(who) <= self.processes(cluster).keys(), about=f"{who} of the job")
        found = self.processes(cluster)
        kill_together(found[one] for one in who)

    def over(self) -> None:
        """Nothing that a scenario started is left."""
        done = self.run("destroy", str(self.topology.file), "--auto-approve")
        left = [one for cluster in ("dc1", "dc2") for one in self.processes(cluster).values()]
        try:
            assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
            eventually(lambda: not any(map(lives, left)), about=f"the end of {left}")
        finally:
            kill_together(left)


@dataclass(frozen=True)
class TownDrill:
    """What the steps of `repl drill` act on in the stories of a town: the same words, with its names."""

    town: Town

    def admin(self, cluster: str) -> AdminClient:
        return self.town.admin(cluster)

    def named(self, topic: str) -> str:
        return self.town.name(topic)

    def write(self, count: int, topics: Sequence[str], cluster: str) -> None:
        for topic in topics:
            self.town.write(topic, cluster, count)

    def lose(self, cluster: str) -> None:
        self.town.lab.kill(cluster)

    def bring_back(self, cluster: str) -> None:
        self.town.lab.start(cluster)

    def engineer(self, command: str) -> None:
        declared = {one["name"] for one in (*self.town.topology.topics, *self.town.topology.more["flows"])}
        named = [name if (name := self.town.name(word)) in declared else word for word in command.split()]
        self.town.engineer(*named)

    def last(self) -> CompletedProcess[str]:
        done, said = self.town.last(), self.town.said
        return CompletedProcess(done.args, done.returncode, said(done.stdout), said(done.stderr))


def fresh_names() -> Callable[[str], str]:
    """Each word of a scenario as a name that no other has."""
    base = uuid.uuid4().hex[:6]
    return lambda word: f"{word}-{base}"


def one_way(lab: Lab, folder: Path, name: Callable[[str], str], *words: str, **more: Any) -> Town:
    """`words` are topics of dc1, which the flow `dc1-to-dc2` copies to dc2; `more` is said of the flow."""
    topology = at(lab, name("town"), folder, ("dc1", "dc2"))
    there: dict[str, Any] = {"name": name("dc1-to-dc2"), "from": "dc1", "to": "dc2", "job": name("into-dc2")}
    there |= {"topics": {"include": [name(word) for word in words]}, "follow": {"every": "500ms"}}
    topology.more |= {"flows": [there | more], "jobs": {name("into-dc2"): SMALL}}
    topology.topics += ({"name": name(word), "cluster": "dc1", "partitions": 2} for word in words)
    return Town(lab, topology, folder / "home", name)


def log_in(town: Town, user: str, folder: Path) -> None:
    """The commands and the job come as this user of a lab with logins. Passwords are in files."""
    for name, declared in town.topology.clusters.items():
        cluster = town.lab.clusters[name]
        client = dict(cluster.settings(user))
        if "sasl.password" in client:
            password = folder / f"{name}.password"
            password.write_text(cluster.client_of(user)["sasl.password"])
            client["sasl.password"] = {"file": str(password)}
        declared["client"] = client


def only(rule: AclBinding) -> AclBindingFilter:
    """Returns the filter that one rule alone matches."""
    return AclBindingFilter(
        rule.restype,
        rule.name,
        rule.resource_pattern_type,
        rule.principal,
        rule.host,
        rule.operation,
        rule.permission_type,
    )


@contextmanager
def two_datacenters(folder: Path, name: str, flow: Mapping[str, Any]) -> Iterator[Town]:
    """dc1 and dc2 in a lab of their own, with one flow and a small job each; all of it is gone at the end."""
    with running_lab(folder / "lab", spec("dc1"), spec("dc2")) as lab:
        topology = at(lab, name, folder, ("dc1", "dc2"))
        topology.more["flows"] = [
            {"from": "dc1", "to": "dc2", "rename": "{source}.{topic}", "follow": {"every": "500ms"}, **flow}
        ]
        topology.more["jobs"] = {"dc1": SMALL, "dc2": SMALL}
        town = Town(lab, topology, folder / "home", lambda word: word.removeprefix("into-"))
        try:
            yield town
        finally:
            kill_together([*town.processes("dc1").values(), *town.processes("dc2").values()])


@contextmanager
def rehearsed(tree: Mapping[str, Any], folder: Path) -> Iterator[ScenarioRun]:
    """A scenario as `repl drill` runs it: on lab clusters of its own, to which the topology is applied."""
    file = folder / "declared.yaml"
    file.write_text(yaml.safe_dump(dict(tree)))
    replica = Replica(load(file), folder / "copy", print)
    with replica.running():
        run = ScenarioRun(replica, print)
        try:
            promises.apply(run)
            yield run
        finally:
            run.close()


def one_flow(**more: Any) -> dict[str, Any]:
    """A topology of two clusters in which the flow dc1-to-dc2 copies orders; `more` is said of the flow."""
    flow = {"name": "dc1-to-dc2", "from": "dc1", "to": "dc2", "topics": {"include": ["orders"]}}
    return {
        "apiVersion": "repl/v1",
        "name": "shop",
        "clusters": {name: {"bootstrap": f"{name}.example.com:9092"} for name in ("dc1", "dc2")},
        "topics": [{"name": "orders", "cluster": "dc1", "partitions": 2}],
        "flows": [flow | {"follow": {"every": "500ms"}, "groups": {"every": "300ms"}} | more],
        "jobs": {"dc2": dict(SMALL)},
    }


def eventually(holds: Callable[[], bool], within_s: float = WITHIN_S, about: str = "") -> None:
    wait_for(holds, within_s, every=0.1, about=(lambda: about) if about else None)
