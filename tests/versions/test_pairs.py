"""One story over a pair of versions: plan, apply, copy, kill, group sync, failover and failback.

The checker compares both sides record by record. Each step that passed is noted in `build/versions.jsonl`,
from which `python -m tests.versions.table` makes the table of docs/compatibility.md.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Producer

from runtime.lab.cluster import KafkaVersion
from tests import checker
from tests.bdd.consuming import consumer_of, eat, place
from tests.bdd.running import Town, eventually
from tests.labs import spec
from tests.records import PATIENCE_S, create_topic, read
from tests.versions.town import town_of

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long]

PAIRS = [
    ("2.8.2", "4.4.0"),
    pytest.param(("4.4.0", "2.8.2"), marks=pytest.mark.versions),
    pytest.param(("4.2.1", "4.4.0"), marks=pytest.mark.versions),
    pytest.param(("4.4.0", "4.3.1"), marks=pytest.mark.versions),
    pytest.param(("4.4.0", "4.2.1"), marks=pytest.mark.versions),
    pytest.param(("4.1.1", "4.4.0"), marks=pytest.mark.versions),
    pytest.param(("3.9.1", "4.1.1"), marks=pytest.mark.versions),
    pytest.param(("2.4.1", "2.5.1"), marks=pytest.mark.versions),
]
NOTES = Path("build/versions.jsonl")
SHAPES = checker.Spec(records=3000, large_every=1000)


@dataclass
class Pair:
    """A Pair is a flow from an old or new cluster to another; `orders` holds what consumers read."""

    town: Town
    versions: tuple[str, str]
    passed: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.passed[name] = round(time.monotonic() - began, 1)

    def note(self) -> None:
        NOTES.parent.mkdir(exist_ok=True)
        source, destination = self.versions
        features = {
            version: json.loads(self.repl(f"doctor {cluster}", "--json"))["features"]
            for cluster, version in zip(("dc1", "dc2"), self.versions, strict=True)
        }
        line = {
            "source": source,
            "destination": destination,
            "passed": self.passed,
            "features": features,
        }
        with NOTES.open("a") as notes:
            notes.write(json.dumps(line) + "\n")

    def repl(self, command: str, *more: str) -> str:
        words = command.split()
        done = self.town.run(*words, str(self.town.topology.file), *more)
        assert done.returncode == 0, f"repl {command}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def write(self, cluster: str, count: int) -> Counter[bytes]:
        producer = Producer({**self.town.client(cluster), "enable.idempotence": True})
        values = [f"{cluster}-{next(self.town.numbers)}".encode() for _ in range(count)]
        for number, value in enumerate(values):
            producer.produce("orders", value=value, partition=number % 2)
        assert producer.flush(PATIENCE_S) == 0
        return Counter(values)

    def held(self, cluster: str) -> Counter[bytes]:
        return Counter(one.value or b"" for one in read(self.town.client(cluster), "orders"))


@pytest.fixture
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    source, destination = request.param
    clusters = (spec("dc1", version=source), spec("dc2", version=destination))
    flow = {"name": "there", "from": "dc1", "to": "dc2", "topics": {"include": ["orders", "shapes"]}}
    quick = {"follow": {"every": "500ms"}, "groups": {"every": "300ms"}}
    with town_of(tmp_path, *clusters, flows=[{**flow, **quick}]) as town:
        town.topology.topic("orders", partitions=2)
        yield Pair(town, (source, destination))


@pytest.mark.parametrize("pair", PAIRS, indirect=True, ids=lambda pair: "-to-".join(pair))
def test_a_flow_lives_its_life(pair: Pair) -> None:
    town, source, there = pair.town, pair.town.client("dc1"), pair.town.client("dc2")
    create_topic(source, "shapes", 3, config={"max.message.bytes": "8000000", "retention.ms": "-1"})
    with pair.step("plan and apply"):
        town.apply()
        assert "No changes." in pair.repl("plan")

    with pair.step("copy"):
        written = checker.write(source, "shapes", SHAPES)
        report = checker.compare(source, there, "shapes", written=written, patience=60)
        assert report.clean, report

    with pair.step("kill"):
        with checker.writing(source, "shapes", checker.Spec(10**9, first=10**6, rate=300)) as more:
            town.kill("dc2", "application")
            eventually(lambda: "application" in town.processes("dc2"), about="the job's application")
        report = checker.compare(source, there, "shapes", patience=90)
        assert report.clean, report
        assert more.written

    everything = pair.write("dc1", 200)
    with pair.step("group sync"):
        billing = consumer_of(town, "billing", "dc1")
        seen = Counter(eat(billing, 120))
        billing.close()
        committed = place(town, "billing", "dc1")
        eventually(
            lambda: (
                place(town, "billing", "dc2").keys() == committed.keys() and pair.held("dc2") == everything
            ),
            about="the offsets of billing, and orders, at dc2",
        )

    with pair.step("failover"):
        town.lab.kill("dc1")
        pair.repl("failover dc1", "--auto-approve")
        billing = consumer_of(town, "billing", "dc2")
        seen += Counter(eat(billing, (everything - seen).total()))
        billing.close()
        assert seen == everything
        everything += pair.write("dc2", 50)

    town.lab.start("dc1")
    if KafkaVersion.of(pair.versions[0]) < (2, 5, 0):
        done = town.run("failback", "dc1", str(town.topology.file), "--auto-approve")
        assert (done.returncode, "upgrade dc1 to Kafka 2.5 or newer" in done.stderr) == (1, True), done
        pair.note()
        return
    with pair.step("failback"):
        pair.repl("failback dc1", "--auto-approve")
        everything += pair.write("dc2", 20)
        pair.repl("failback dc1 --switch", "--auto-approve")
        everything += pair.write("dc1", 30)
        for cluster in ("dc1", "dc2"):
            eventually(lambda at=cluster: pair.held(at) == everything, about=f"orders at {cluster}")  # type: ignore[misc]

    with pair.step("verify"):
        assert json.loads(pair.repl("verify there", "--json"))["equal"]
        pair.repl("status")
    pair.note()
