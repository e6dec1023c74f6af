"""Clusters that change under running flows: a rolling upgrade, and ZooKeeper gone."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from runtime.lab.cluster import LabClusterSpec
from runtime.lab.lab import Lab
from tests import checker
from tests.bdd.running import SMALL, Town, eventually
from tests.labs import spec
from tests.processes import kill_together
from tests.records import coordinators_ready, create_topic
from tests.topologies import at

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.versions]

MakeTown = Callable[..., Town]
TOPICS = {"there": ("dc1", "orders"), "back": ("dc2", "returns")}
CONFIG = {"retention.ms": "-1"}  # the checker writes timestamps of the past
SHAPES = checker.Spec(10**9, rate=200, large_every=0)


@pytest.fixture
def make_town(tmp_path: Path) -> Iterator[MakeTown]:
    """make_town(spec("dc1"), spec("dc2")) → flows in both directions, each of a topic of its own."""
    lab = Lab(tmp_path / "lab")
    made: list[Town] = []

    def make(*specs: LabClusterSpec) -> Town:
        lab.up(specs)
        for made_cluster in lab.clusters.values():
            coordinators_ready(made_cluster.client)
        topology = at(lab, "town", tmp_path, ("dc1", "dc2"))
        flows = (("there", "dc1", "dc2", "orders"), ("back", "dc2", "dc1", "returns"))
        topology.more["flows"] = [
            {"name": name, "from": source, "to": to, "topics": {"include": [topic]}}
            for name, source, to, topic in flows
        ]
        topology.more["jobs"] = {"dc1": SMALL, "dc2": SMALL}
        for cluster, topic in TOPICS.values():
            create_topic(lab.clusters[cluster].client, topic, 3, config=CONFIG)
        made.append(Town(lab, topology, tmp_path / "home", lambda word: word.removeprefix("into-")))
        return made[0]

    yield make
    for town in made:
        kill_together([*town.processes("dc1").values(), *town.processes("dc2").values()])
    lab.down(purge=True)
    shutil.rmtree(tmp_path, ignore_errors=True)


def copied_while(town: Town, change: Callable[[], None]) -> None:
    """Writes to both topics while the clusters change; after it, the checker must find no difference."""
    town.apply()
    with ExitStack() as writing:
        for cluster, topic in TOPICS.values():
            writing.enter_context(checker.writing(town.client(cluster), topic, SHAPES))
        change()
    for cluster, topic in TOPICS.values():
        other = "dc2" if cluster == "dc1" else "dc1"
        report = checker.compare(town.client(cluster), town.client(other), topic, patience=120)
        assert report.records > 0
        assert report.clean, report


def test_a_rolling_upgrade_loses_nothing(make_town: MakeTown) -> None:
    town = make_town(spec("dc1", version="3.9.1"), spec("dc2", version="3.9.1", brokers=3))

    def upgrade() -> None:
        for broker in ("dc2:1", "dc2:2", "dc2:3"):
            town.lab.stop(broker)
            town.lab.start(broker, version="4.1.1")
        assert town.lab.clusters["dc2"].versions == ("4.1.1",)

    copied_while(town, upgrade)


def test_zookeeper_gone_stops_no_flow(make_town: MakeTown) -> None:
    town = make_town(spec("dc1", version="2.8.2"), spec("dc2"))

    def lose_zookeeper() -> None:
        town.lab.kill("dc1:zookeeper")
        before = len(town.records("orders", "dc2")), len(town.records("returns", "dc1"))
        eventually(
            lambda: (
                len(town.records("orders", "dc2")) > before[0] + 200
                and len(town.records("returns", "dc1")) > before[1] + 200
            ),
            about="records that are copied without ZooKeeper",
        )
        town.lab.start("dc1:zookeeper")

    copied_while(town, lose_zookeeper)
