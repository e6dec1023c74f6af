"""Steps of failing_over/failback.feature: a lab that loses its dc1 twice, and gets it back."""

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from pytest_bdd import given, parsers, scenarios, then, when

from runtime.lab.lab import Lab
from tests.bdd.consuming import eat, place
from tests.bdd.running import SMALL, Town, eventually
from tests.labs import spec
from tests.records import read
from tests.topologies import at

pytestmark = [pytest.mark.integration, pytest.mark.spark]

scenarios("failing_over/failback.feature")

TOPIC = {"dc1": "orders", "dc2": "dc1.orders"}


@dataclass
class World:
    """`written` are the records of each side in the order they were written, `read` what billing read."""

    town: Town
    written: dict[str, list[bytes]] = field(default_factory=lambda: {"dc1": [], "dc2": []})
    orphans: list[bytes] = field(default_factory=list)
    read: list[bytes] = field(default_factory=list)
    before: str = ""

    def write(self, cluster: str, count: int) -> list[bytes]:
        town = self.town
        producer = Producer({**town.client(cluster), "enable.idempotence": True})
        told = [f"{cluster}-{next(town.numbers)}".encode() for _ in range(count)]
        for number, value in enumerate(told):
            producer.produce(TOPIC[cluster], value=value, partition=number % 2)
        assert producer.flush(30) == 0
        return told

    def held(self, cluster: str) -> dict[int, list[bytes]]:
        found: dict[int, list[bytes]] = {0: [], 1: []}
        for record in read(self.town.client(cluster), TOPIC[cluster]):
            found[record.partition].append(record.value or b"")
        return found

    def count(self, cluster: str) -> int:
        return sum(map(len, self.held(cluster).values()))

    def eat(self, cluster: str, count: int, more_s: float = 0) -> list[bytes]:
        """With `more_s`, nothing comes after them for that long."""
        settings = {"group.id": "billing", "enable.auto.commit": "false", "auto.offset.reset": "earliest"}
        consumer = Consumer({**self.town.client(cluster), **settings, "isolation.level": "read_committed"})
        consumer.subscribe([TOPIC[cluster]])
        found = eat(consumer, count)
        more = consumer.poll(more_s) if more_s else None
        consumer.close()
        assert more is None, more.value()
        self.read += found
        return found

    def unread(self) -> list[bytes]:
        """Records that billing is still to read, wherever it goes."""
        every = Counter(self.written["dc1"] + self.written["dc2"])
        return sorted((every - Counter(self.read)).elements())

    def repl(self, *arguments: str) -> None:
        done = self.town.run(*arguments, "--path", str(self.town.topology.file))
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    lab = Lab(tmp_path / "lab")
    topology = None
    try:
        lab.up([spec("dc1"), spec("dc2")])
        topology = at(lab, "town", tmp_path, ("dc1", "dc2"))
        way = {"name": "there", "from": "dc1", "to": "dc2", "topics": {"include": ["orders"]}}
        quick = {"follow": {"every": "500ms"}, "groups": {"every": "300ms"}}
        topology.more["flows"] = [{**way, "rename": "{source}.{topic}", **quick}]
        topology.more["jobs"] = {"dc1": SMALL, "dc2": SMALL}
        topology.topics.append({"name": "orders", "cluster": "dc1", "partitions": 2})
        yield World(Town(lab, topology, tmp_path / "home", _job_name))
    finally:
        if topology is not None:
            town = Town(lab, topology, tmp_path / "home", _job_name)
            for process in [*town.processes("dc1").values(), *town.processes("dc2").values()]:
                process.kill()
        lab.down(purge=True)
        shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.fixture
def town(world: World) -> Town:
    """For the steps that all stories share."""
    return world.town


def _job_name(word: str) -> str:
    return word.removeprefix("into-")


# Given


@given("orders at dc1 are copied to dc2 as dc1.orders")
def _(world: World) -> None:
    world.town.apply()


@given(parsers.parse("{count:d} records are written to orders at dc1 and are at dc2"))
def _(world: World, count: int) -> None:
    world.written["dc1"] += world.write("dc1", count)
    eventually(lambda: world.count("dc2") == count, about="records at dc2")


@given(parsers.parse("billing read {count:d} of them at dc1, and dc2 knows"))
def _(world: World, count: int) -> None:
    world.eat("dc1", count)
    eventually(
        lambda: bool(place(world.town, "billing", "dc2", TOPIC["dc2"])), about="the place of billing at dc2"
    )


# When


@when(parsers.re(r"somebody runs repl (?P<command>.+)"))
def _(world: World, command: str) -> None:
    world.before = world.town.topology.file.read_text()
    world.repl(*command.split(), "--auto-approve")


@when(parsers.parse("{count:d} records are written to {topic} at {cluster}"))
def _(world: World, count: int, topic: str, cluster: str) -> None:
    assert TOPIC[cluster] == topic
    world.written[cluster] += world.write(cluster, count)


@when(parsers.parse("dc1 is back, where a forgotten producer writes {count:d} records"))
def _(world: World, count: int) -> None:
    world.town.lab.start("dc1")
    world.orphans = world.write("dc1", count)


@when("somebody applies the topology as it was before that")
def _(world: World) -> None:
    world.town.topology.file.write_text(world.before)
    world.town.run("apply", str(world.town.topology.file), "--auto-approve")


# Then


@then("the topology has a way home, and all that stood there before")
def _(world: World) -> None:
    before, after = json.loads(world.before), json.loads(world.town.topology.file.read_text())
    there, back = after["flows"]
    assert (back["name"], back["reverse_of"], back["from"], back["to"]) == (
        "there-back",
        "there",
        "dc2",
        "dc1",
    )
    assert {**after, "flows": [there]} == before


@then(parsers.parse("{count:d} records came home, and nothing else"))
def _(world: World, count: int) -> None:
    came = Counter(value for values in world.held("dc1").values() for value in values)
    came -= Counter(world.written["dc1"] + world.orphans)
    assert came == Counter(world.written["dc2"])
    assert came.total() == count


@then(parsers.parse("repl salvage lists the {count:d} records of the forgotten producer"))
def _(world: World, count: int) -> None:
    file = world.town.home / f"orphans-{next(world.town.numbers)}.jsonl"
    world.repl("salvage", "there", "--export", str(file))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(lines) == count


@then(parsers.parse("billing reads at {cluster} exactly the {count:d} that it had not read"))
def _(world: World, cluster: str, count: int) -> None:
    unread = world.unread()
    assert len(unread) == count
    assert sorted(world.eat(cluster, count, more_s=2)) == unread


@then(parsers.parse("billing reads at dc1 exactly the {count:d} that it had not read, and dc2 knows"))
def _(world: World, count: int) -> None:
    unread, before = world.unread(), place(world.town, "billing", "dc2", TOPIC["dc2"])
    assert sorted(world.eat("dc1", count, more_s=2)) == unread
    assert len(unread) == count
    eventually(
        lambda: place(world.town, "billing", "dc2", TOPIC["dc2"]) != before,
        about="the place of billing at dc2",
    )


@then(parsers.parse("both sides hold the same {count:d} records, each once and in order, and dc1 the 7"))
def _(world: World, count: int) -> None:
    eventually(lambda: world.count("dc2") >= count, about="records at dc2")
    here, there = world.held("dc1"), world.held("dc2")
    assert {
        number: [one for one in values if one not in world.orphans] for number, values in here.items()
    } == there
    assert sorted(value for values in there.values() for value in values) == sorted(
        world.written["dc1"] + world.written["dc2"]
    )
    assert world.count("dc2") == count
