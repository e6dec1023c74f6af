"""Steps of failing_over/origins.feature: what the tools say is compared with where each record was born."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, Message, Producer
from pytest_bdd import given, parsers, scenarios, then, when

from runtime.contract.records.provenance import HEADER, Origin, encode
from tests.bdd.running import Town, eventually, two_datacenters
from tests.records import PATIENCE_S, read

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long]

scenarios("failing_over/origins.feature")

TOPICS = {"dc1": "orders", "dc2": "dc1.orders"}
PARTITIONS = 2


class Birth(NamedTuple):
    cluster: str
    topic: str
    partition: int
    offset: int


@dataclass
class World:
    """`births`: of each value, where its client got it acknowledged. `kinds`: a value of each kind."""

    town: Town
    births: dict[str, Birth] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    forged: str = ""

    def write(self, cluster: str, count: int, partition: int | None = None, **more: Any) -> str:
        producer = Producer({**self.town.client(cluster), "enable.idempotence": True})
        value = ""
        for number in range(count):
            value = f"{cluster}-{next(self.town.numbers)}"
            place = partition if partition is not None else number % PARTITIONS
            producer.produce(
                TOPICS[cluster], value=value, partition=place, on_delivery=self._born(value, cluster), **more
            )
        assert producer.flush(PATIENCE_S) == 0
        return value

    def _born(self, value: str, cluster: str) -> Any:
        def acknowledged(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            self.births[value] = Birth(cluster, TOPICS[cluster], partition, offset)

        return acknowledged

    def places(self, cluster: str) -> dict[str, tuple[int, int]]:
        found = read(self.town.client(cluster), TOPICS[cluster])
        return {(one.value or b"").decode(): (one.partition, one.offset) for one in found}

    def repl(self, *arguments: str, code: int = 0) -> str:
        done = self.town.run(*arguments, "--path", str(self.town.topology.file))
        assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    def verified(self, flow: str, code: int = 0) -> list[dict[str, Any]]:
        partitions: list[dict[str, Any]] = json.loads(self.repl("verify", flow, "--json", code=code))[
            "partitions"
        ]
        return partitions

    def located(self, topic: str, place: tuple[int, int], *options: str) -> dict[str, Any]:
        where = f"{topic}:{place[0]}:{place[1]}"
        found: dict[str, Any] = json.loads(self.repl("locate", "dc1-to-dc2", where, "--json", *options))
        return found


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with two_datacenters(tmp_path, "town", {"name": "dc1-to-dc2", "topics": {"include": ["orders"]}}) as town:
        town.topology.topics.append({"name": "orders", "cluster": "dc1", "partitions": PARTITIONS})
        yield World(town)


@pytest.fixture
def town(world: World) -> Town:
    """For the steps that all stories share."""
    return world.town


# Given, when


@given("orders at dc1 are copied to dc2 as dc1.orders")
def _(world: World) -> None:
    world.town.apply()


@given(parsers.parse("{count:d} records are written to orders at dc1 and copied to dc2"))
def _(world: World, count: int) -> None:
    world.kinds["copied"] = world.write("dc1", count)
    eventually(lambda: len(world.places("dc2")) == count, about="orders at dc2")


@given("the flow is paused")
def _(world: World) -> None:
    world.repl("pause", "dc1-to-dc2", "--auto-approve")


@given(parsers.parse("{count:d} records are written to orders at dc1"))
def _(world: World, count: int) -> None:
    world.kinds["replayed"] = world.write("dc1", count)


@when(parsers.parse("{count:d} records are written to orders at dc1"))
def _(world: World, count: int) -> None:
    world.kinds["after"] = world.write("dc1", count)


@when(parsers.parse("{count:d} records are written to partition 0 of dc1.orders at dc2"))
def _(world: World, count: int) -> None:
    world.write("dc2", count, partition=0)


@when(parsers.parse("{count:d} records are written to dc1.orders at dc2"))
def _(world: World, count: int) -> None:
    last = world.write("dc2", count)
    world.kinds.setdefault("came home", last)


@when("a client writes a record with a forged header to dc1.orders at dc2")
def _(world: World) -> None:
    """It names a record that salvage did replay."""
    birth = world.births[world.kinds["replayed"]]
    source = json.loads(world.repl("read", "dc1", "--json"))["cluster_id"]
    header = encode(Origin(source, birth.topic, birth.partition, birth.offset, 1))
    world.forged = world.write("dc2", 1, partition=birth.partition, headers=[(HEADER, header)])


@when(parsers.re(r"the engineer runs repl (?P<command>.+)"))
def _(world: World, command: str) -> None:
    world.repl(*command.split(), "--auto-approve")


# Then


@then(parsers.parse("dc1.orders at dc2 holds {count:d} records"))
def _(world: World, count: int) -> None:
    eventually(lambda: len(world.places("dc2")) >= count, about=f"{count} records at dc2")
    assert len(world.places("dc2")) == count


def counted(partitions: list[dict[str, Any]], name: str) -> int:
    return sum(one[name] for one in partitions)


@then(parsers.parse("repl verify {flow} compares {count:d} records, and {replayed:d} replayed records"))
def _(world: World, flow: str, count: int, replayed: int) -> None:
    partitions = world.verified(flow)
    assert (counted(partitions, "compared"), counted(partitions, "replayed")) == (count, replayed)
    assert counted(partitions, "given_up") == 0


@then(
    parsers.parse(
        "repl verify dc1-to-dc2 compares {count:d} records, and {replayed:d} replayed records, "
        "and reports only the forged record"
    )
)
def _(world: World, count: int, replayed: int) -> None:
    partitions = world.verified("dc1-to-dc2", code=2)
    assert (counted(partitions, "compared"), counted(partitions, "replayed")) == (count, replayed)
    found = [
        (one["partition"], each["kind"], each["destination_offset"])
        for one in partitions
        for each in one["differences"]
    ]
    birth = world.births[world.forged]
    assert found == [(birth.partition, "foreign", birth.offset)]


@then(parsers.re(r"repl read names the true origin of each record at (?P<where>dc2|both clusters)"))
def _(world: World, where: str) -> None:
    for cluster in ("dc2",) if where == "dc2" else ("dc1", "dc2"):
        said = world.repl("read", cluster, TOPICS[cluster], "--from", "earliest", "--limit", "500", "--json")
        records = json.loads(said)["records"]
        assert {one["value"]["text"] for one in records} == set(world.places(cluster))
        for one in records:
            birth = world.births[one["value"]["text"]]
            if birth.cluster == cluster:
                assert (one["provenance"], one["flow"], one["hops"]) == ("native", None, []), one
            else:
                first = one["hops"][0]
                assert (first["cluster"], first["topic"], first["partition"], first["offset"]) == birth, one
                assert one["flow"] == ("dc1-to-dc2" if cluster == "dc2" else "dc1-to-dc2-back"), one


@then("repl locate finds records of every kind at the other cluster, in both directions")
def _(world: World) -> None:
    here, there = world.places("dc1"), world.places("dc2")
    for kind, value in world.kinds.items():
        found = "replayed" if kind == "replayed" else "exact"
        forward = world.located("orders", here[value])
        backward = world.located("dc1.orders", there[value], "--reverse")
        assert (forward["found"], forward["other_offset"]) == (found, there[value][1]), kind
        assert (backward["found"], backward["other_offset"]) == (found, here[value][1]), kind


@then("repl locate dc1-to-dc2 suggests --reverse for a topic of dc2")
def _(world: World) -> None:
    world.repl("locate", "dc1-to-dc2", "dc1.orders:0:0", code=1)
    assert "add --reverse" in world.town.last().stderr
