"""Steps of features/replicating/link.feature: clusters and job in network namespaces of their own."""

import json
import threading
from collections.abc import Iterator

import pytest
from pytest_bdd import given, parsers, scenarios, then, when

from runtime.lab.lab import Lab
from tests.bdd.running import SMALL, Town, eventually, fresh_names
from tests.chaos.links import Links, links
from tests.chaos.storm import cluster_specs
from tests.topologies import at

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long]

scenarios("replicating/link.feature")


@pytest.fixture
def link() -> Iterator[Links]:
    with links() as laid:
        yield laid


@pytest.fixture
def town(link: Links, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    """The job lives at the other end of the cables, where every command runs too."""
    folder, name = tmp_path_factory.mktemp("link"), fresh_names()
    lab = Lab(folder / "lab")

    try:
        lab.up(cluster_specs(link, 1))
        topology = at(lab, name("town"), folder, ("dc1", "dc2"))
        topology.topics = [{"name": name("orders"), "cluster": "dc1", "partitions": 2}]
        flow = {
            "name": name("dc1-to-dc2"),
            "from": "dc1",
            "to": "dc2",
            "topics": {"include": [name("orders")]},
        }
        topology.more["flows"] = [flow | {"job": name("into-dc2"), "groups": {"sync": False}}]
        topology.more["jobs"] = {name("into-dc2"): SMALL}
        made = Town(lab, topology, folder / "home", name, through=link.prefix)
        topology.write()
        try:
            made.apply()
            yield made
        finally:
            link.restore(lab, "dc1")
            made.over()
    finally:
        lab.down(purge=True)


@given("dc1 and dc2 replicate orders over a link")
def _(town: Town) -> None:
    assert "Apply complete!" in town.last().stdout


@given(parsers.parse("{count:d} records were copied"))
def _(town: Town, count: int) -> None:
    town.write("orders", "dc1", count)
    eventually(lambda: len(town.records("orders", "dc2")) == count)


@when(
    parsers.parse("the link to {cluster} is cut for {seconds:d} seconds while {count:d} records are written")
)
def _(town: Town, link: Links, cluster: str, seconds: int, count: int) -> None:
    link.cut(town.lab, cluster)
    if link.prefix:  # without namespaces a cut is a cluster that stands still, and nobody can write to it
        town.write("orders", cluster, count)
    threading.Event().wait(seconds)


@then("none of them arrived meanwhile")
def _(town: Town) -> None:
    assert len(town.records("orders", "dc2")) == 50


@then("repl status shows how far dc2 is behind")
def _(town: Town) -> None:
    told = json.loads(town.run("status", str(town.topology.file), "--json").stdout)
    (flow,) = told["flows"]
    assert flow["source_answers"] is False
    assert flow["state"] != "caught_up"


@when("the link is restored")
def _(town: Town, link: Links) -> None:
    link.restore(town.lab, "dc1")
    if not link.prefix:
        town.write("orders", "dc1", 200)


@then(parsers.parse("dc2 holds all {count:d} records, each once and in order"))
def _(town: Town, count: int) -> None:
    expected = town.values("orders", "dc1")
    assert sum(len(one) for one in expected) == count
    eventually(lambda: town.values("orders", "dc2") == expected)
