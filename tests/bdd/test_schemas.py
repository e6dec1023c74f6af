"""The feature replicating/schemas, with Confluent's serializers and two strict registries."""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain

import pytest
from pytest_bdd import given, parsers, scenarios, then, when

from tests.bdd.running import Town, eventually, two_datacenters
from tests.bdd.serialized import PARTITIONS, WORDS, Serialized
from tests.fakes.registry import RegistryServer, registry_server

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1200)]

scenarios("replicating/schemas.feature")


class Shop:
    """Two datacenters, each with a registry, and a job that copies four topics from dc1."""

    def __init__(self, town: Town, registries: dict[str, RegistryServer], ids: str) -> None:
        self.town, self.registries = town, registries
        taken = 9_001 if ids == "keep" else 1  # of schemas that are at dc2 only
        for number in range(taken, taken + 3):
            registries["dc2"].add(number, {"type": "enum", "name": f"E{number}", "symbols": ["A"]}, "other")
        more = town.topology.more
        more["registries"] = {name: {"url": server.url} for name, server in registries.items()}
        more["flows"][0] |= {"schemas": {"sync": True, "ids": ids}, "heartbeats": False, "checkpoints": False}
        for word in WORDS:
            town.topology.topics.append({"name": word, "cluster": "dc1", "partitions": PARTITIONS})
        self.records = Serialized(
            {name: town.client(name) for name in ("dc1", "dc2")},
            {name: server.url for name, server in registries.items()},
        )

    def all_arrived(self, cluster: str) -> None:
        """Fails where a record is lost, doubled, in another order or can't be decoded."""
        written = sum(map(len, chain(*self.records.written.values())))
        eventually(lambda: self.count(cluster) >= written, about=f"records at {cluster}")
        for word in WORDS:
            assert self.records.read(word, cluster) == self.records.written[word], (word, cluster)

    def count(self, cluster: str) -> int:
        return sum(len(self.town.records(word, cluster)) for word in WORDS)


@given(parsers.parse("a flow with schemas, whose ids it will {ids}"), target_fixture="shop")
def _(ids: str, tmp_path_factory: pytest.TempPathFactory, closing: ExitStack) -> Shop:
    registries = {name: closing.enter_context(registry_server()) for name in ("dc1", "dc2")}
    flow = {"name": "dc1-to-dc2", "topics": {"include": list(WORDS)}, "rename": "{topic}"}
    town = closing.enter_context(two_datacenters(tmp_path_factory.mktemp("shop"), "shop", flow))
    shop = Shop(town, registries, ids)
    town.apply()
    return shop


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@when("producers at dc1 write, register a second version and go on", target_fixture="writing")
def _(shop: Shop, closing: ExitStack) -> ExitStack:
    shop.records.write("dc1", 20)
    writing = closing.enter_context(ExitStack())
    writing.enter_context(shop.records.writing("dc1"))
    eventually(lambda: shop.count("dc2") > 40)
    shop.records.version = 2
    return writing


@when("meanwhile every process of the job into dc2 is killed with -9")
def _(shop: Shop) -> None:
    shop.town.kill("dc2", "supervisor", "application")


@when("the topology is applied again")
def _(shop: Shop, writing: ExitStack) -> None:
    shop.town.apply()
    writing.close()


@then("consumers at dc2 decode every record of dc1, each once and in order")
def _(shop: Shop) -> None:
    shop.all_arrived("dc2")


@when("dc1 is lost with its registry")
def _(shop: Shop) -> None:
    shop.registries["dc1"].down = True
    shop.town.lab.kill("dc1")


@when(parsers.parse("producers at {cluster} write with a {version} version"))
def _(shop: Shop, cluster: str, version: str) -> None:
    shop.records.version = {"third": 3, "fourth": 4}[version]
    shop.records.write(cluster, 50)


@when("dc1 is started again with its registry")
def _(shop: Shop) -> None:
    shop.registries["dc1"].down = False
    shop.town.lab.start("dc1")


@when(parsers.parse("the engineer runs repl {command}"))
def _(shop: Shop, command: str) -> None:
    done = shop.town.engineer(*command.split())
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@then("consumers at dc1 and dc2 decode every record of both, each once and in order")
def _(shop: Shop) -> None:
    for cluster in ("dc1", "dc2"):
        shop.all_arrived(cluster)
