"""Steps of failing_over/failback.feature: a lab that loses its dc1 twice, and gets it back."""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from pytest_bdd import given, parsers, scenarios, then, when

from tests.bdd.consuming import eat, place
from tests.bdd.running import Town, eventually, two_datacenters
from tests.records import PATIENCE_S, create_topic, read

pytestmark = [pytest.mark.integration, pytest.mark.spark]

scenarios("failing_over/failback.feature")

WORDS = ("orders", "payments", "invoices")


def topic(word: str, cluster: str) -> str:
    return word if cluster == "dc1" else f"dc1.{word}"


@dataclass
class World:
    """`written` are the records of each topic and side in the order they were written, `read` what billing
    read of orders.
    """

    town: Town
    written: dict[tuple[str, str], list[bytes]] = field(default_factory=dict)
    orphans: list[bytes] = field(default_factory=list)
    read: list[bytes] = field(default_factory=list)
    before: str = ""
    stopping: threading.Event = field(default_factory=threading.Event)
    writing: threading.Thread | None = None

    def stop(self) -> None:
        self.stopping.set()
        if self.writing is not None:
            self.writing.join()

    def write(self, word: str, cluster: str, count: int) -> list[bytes]:
        town, there = self.town, topic(word, cluster)
        partitions = self.partitions(word, cluster)
        producer = Producer({**town.client(cluster), "enable.idempotence": True})
        told = [f"{cluster}-{next(town.numbers)}".encode() for _ in range(count)]
        for number, value in enumerate(told):
            producer.produce(there, value=value, partition=number % partitions)
        assert producer.flush(PATIENCE_S) == 0
        return told

    def partitions(self, word: str, cluster: str) -> int:
        return self.town.partitions(topic(word, cluster), cluster)

    def held(self, word: str, cluster: str) -> dict[int, list[bytes]]:
        found: dict[int, list[bytes]] = {one: [] for one in range(self.partitions(word, cluster))}
        for record in read(self.town.client(cluster), topic(word, cluster)):
            found[record.partition].append(record.value or b"")
        return found

    def count(self, word: str, cluster: str) -> int:
        return sum(map(len, self.held(word, cluster).values()))

    def eat(self, cluster: str, count: int, more_s: float = 0) -> list[bytes]:
        """With `more_s`, nothing comes after them for that long."""
        settings = {"group.id": "billing", "enable.auto.commit": "false", "auto.offset.reset": "earliest"}
        consumer = Consumer({**self.town.client(cluster), **settings, "isolation.level": "read_committed"})
        consumer.subscribe([topic("orders", cluster)])
        found = eat(consumer, count)
        more = consumer.poll(more_s) if more_s else None
        consumer.close()
        assert more is None or more.error() is not None, more.value()
        self.read += found
        return found

    def of(self, word: str) -> list[bytes]:
        """What was written to it at both sides."""
        return self.written[word, "dc1"] + self.written[word, "dc2"]

    def unread(self) -> list[bytes]:
        """Records that billing is still to read, wherever it goes."""
        every = Counter(self.of("orders"))
        return sorted((every - Counter(self.read)).elements())

    def repl(self, *arguments: str, code: int = 0) -> None:
        done = self.town.run(*arguments, "--path", str(self.town.topology.file))
        assert done.returncode == code, f"{done.stdout}\n{done.stderr}"

    def salvaged(self, code: int = 0) -> int:
        self.repl("salvage", "dc1-to-dc2", "--json", code=code)
        return sum(one["records"] for one in json.loads(self.town.last().stdout)["partitions"])


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    flow = {"name": "dc1-to-dc2", "topics": {"include": [*WORDS]}, "groups": {"every": "300ms"}}
    with two_datacenters(tmp_path, "town", flow) as town:
        town.topology.topics.append({"name": "orders", "cluster": "dc1", "partitions": 2})
        made = World(town)
        yield made
        made.stop()


@pytest.fixture
def town(world: World) -> Town:
    """For the steps that all stories share."""
    return world.town


# Given


@given("orders, payments and invoices at dc1 are copied to dc2 with the prefix dc1.")
def _(world: World) -> None:
    for word in WORDS[1:]:
        create_topic(world.town.client("dc1"), word, 2)
    world.town.apply()


@given(parsers.parse("{count:d} records are written to {word} at dc1 and copied to dc2"))
def _(world: World, count: int, word: str) -> None:
    world.written[word, "dc1"] = world.write(word, "dc1", count)
    world.written[word, "dc2"] = []
    eventually(lambda: world.count(word, "dc2") == count, about=f"{word} at dc2")


@given(
    parsers.parse(
        "the group billing has read {count:d} records of orders at dc1, and its offsets are synced to dc2"
    )
)
def _(world: World, count: int) -> None:
    world.eat("dc1", count)
    eventually(lambda: bool(place_there(world)), about="the place of billing at dc2")


@given("the topic payments was promoted on its own")
def _(world: World) -> None:
    world.repl("promote", "dc1-to-dc2", "--topics", "payments", "--auto-approve")


def place_there(world: World) -> dict[int, int]:
    return place(world.town, "billing", "dc2", topic("orders", "dc2"))


# When


@when(parsers.re(r"the engineer runs repl (?P<command>.+)"))
def _(world: World, command: str) -> None:
    world.before = world.town.topology.file.read_text()
    world.repl(*command.split(), "--auto-approve")


@when(parsers.parse("{count:d} records are written to {name} at {cluster}"))
def _(world: World, count: int, name: str, cluster: str) -> None:
    word = name.removeprefix("dc1.")
    assert topic(word, cluster) == name
    world.written[word, cluster] += world.write(word, cluster, count)


@when("a producer keeps writing to dc1.payments at dc2")
def _(world: World) -> None:
    """Until it is stopped: a failback does not wait for what comes meanwhile."""

    def write() -> None:
        while not world.stopping.is_set():
            world.written["payments", "dc2"] += world.write("payments", "dc2", 10)

    world.writing = threading.Thread(target=write)
    world.writing.start()


@when("the producer stops")
def _(world: World) -> None:
    assert len(world.written["payments", "dc2"]) > 5, "nothing was written during the failback"
    world.stop()


@when("dc1.invoices gets a third partition at dc2")
def _(world: World) -> None:
    world.town.grow(topic("invoices", "dc2"), "dc2", 3)


@when("the topic invoices is deleted and created again at dc1")
def _(world: World) -> None:
    admin = world.town.admin("dc1")
    admin.delete_topics(["invoices"])["invoices"].result(PATIENCE_S)
    eventually(lambda: world.town.partitions("invoices", "dc1") == 0, about="invoices are gone")
    create_topic(world.town.client("dc1"), "invoices", 2)


@when(parsers.parse("dc1 is started again, and a forgotten producer writes {count:d} records to it"))
def _(world: World, count: int) -> None:
    world.town.lab.start("dc1")
    world.orphans = world.write("orders", "dc1", count)


@when("the engineer applies the topology file from before the failover")
def _(world: World) -> None:
    world.town.topology.file.write_text(world.before)
    world.town.run("apply", str(world.town.topology.file), "--auto-approve")


# Then


@then("the topology has a reverse flow, and the rest is unchanged")
def _(world: World) -> None:
    before, after = json.loads(world.before), json.loads(world.town.topology.file.read_text())
    there, back = after["flows"]
    assert (back["name"], back["reverse_of"], back["from"], back["to"]) == (
        "dc1-to-dc2-back",
        "dc1-to-dc2",
        "dc2",
        "dc1",
    )
    assert {**after, "flows": [there]} == before


@then(parsers.parse("dc1 received the {count:d} records, and no others"))
def _(world: World, count: int) -> None:
    came = Counter(value for values in world.held("orders", "dc1").values() for value in values)
    came -= Counter(world.written["orders", "dc1"] + world.orphans)
    assert came == Counter(world.written["orders", "dc2"])
    assert came.total() == count


@then(parsers.parse("{word} at dc1 holds the same records as at dc2"))
def _(world: World, word: str) -> None:
    """All that was ever written, each once and in order, in the partition where it was written."""
    every = sorted(world.of(word))

    def there_are_all() -> bool:
        return all(world.count(word, cluster) >= len(every) for cluster in ("dc1", "dc2"))

    eventually(there_are_all, about=f"{word} at both sides")
    here, there = world.held(word, "dc1"), world.held(word, "dc2")
    assert here == there
    assert sorted(value for values in here.values() for value in values) == every


@then(parsers.parse("repl salvage lists the {count:d} records of the forgotten producer"))
def _(world: World, count: int) -> None:
    assert world.salvaged() == count


@then(
    parsers.parse(
        "repl salvage lists the {count:d} records of the forgotten producer,"
        " and that invoices was created again"
    )
)
def _(world: World, count: int) -> None:
    assert world.salvaged(code=1) == count
    assert "invoices is not the topic that was copied: it was recreated" in world.town.last().stdout


@then("repl status shows payments as promoted")
def _(world: World) -> None:
    done = world.town.run("status", str(world.town.topology.file), "--json", "--over", "0s")
    there, back = json.loads(done.stdout)["flows"]
    states = {one["topic"]: one["state"] for one in there["topics"]}
    assert (states["payments"], back["state"], back["lag_records"]) == ("promoted", "promoted", 0)


@then(parsers.parse("billing reads at {cluster} exactly the {count:d} records that it had not read"))
def _(world: World, cluster: str, count: int) -> None:
    unread = world.unread()
    assert len(unread) == count
    assert sorted(world.eat(cluster, count, more_s=2)) == unread


@then(
    parsers.parse(
        "billing reads at dc1 exactly the {count:d} records that it had not read,"
        " and its offsets are synced to dc2"
    )
)
def _(world: World, count: int) -> None:
    unread, before = world.unread(), place_there(world)
    assert sorted(world.eat("dc1", count, more_s=2)) == unread
    assert len(unread) == count
    eventually(lambda: place_there(world) != before, about="the place of billing at dc2")


@then(
    parsers.parse(
        "both clusters hold the same {count:d} records of orders, each once and in order,"
        " and dc1 holds the 7 others"
    )
)
def _(world: World, count: int) -> None:
    eventually(lambda: world.count("orders", "dc2") >= count, about="records at dc2")
    here, there = world.held("orders", "dc1"), world.held("orders", "dc2")
    assert {
        number: [one for one in values if one not in world.orphans] for number, values in here.items()
    } == there
    assert sorted(value for values in there.values() for value in values) == sorted(world.of("orders"))
    assert world.count("orders", "dc2") == count
