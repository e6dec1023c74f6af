"""Clusters that change under running flows: a rolling upgrade, and ZooKeeper gone."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from runtime.lab.cluster import LabClusterSpec
from tests import checker
from tests.bdd.running import Town, eventually
from tests.labs import spec
from tests.records import create_topic
from tests.versions.town import town_of

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.versions, pytest.mark.long]

MakeTown = Callable[..., Town]
TOPICS = {"there": ("dc1", "orders"), "back": ("dc2", "returns")}
CONFIG = {"retention.ms": "-1"}  # the checker writes timestamps of the past
SHAPES = checker.Spec(10**9, rate=200, large_every=0)


@pytest.fixture
def make_town(tmp_path: Path) -> Iterator[MakeTown]:
    """make_town(spec("dc1"), spec("dc2")) → flows in both directions, each of a topic of its own."""
    flows = (("there", "dc1", "dc2", "orders"), ("back", "dc2", "dc1", "returns"))
    with ExitStack() as running:

        def make(*specs: LabClusterSpec) -> Town:
            declared = [
                {"name": name, "from": source, "to": to, "topics": {"include": [topic]}}
                for name, source, to, topic in flows
            ]
            town = running.enter_context(town_of(tmp_path, *specs, flows=declared))
            for cluster, topic in TOPICS.values():
                create_topic(town.client(cluster), topic, 3, config=CONFIG)
            return town

        yield make


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
            town.lab.start(broker, version="4.4.0")
        assert town.lab.clusters["dc2"].versions == ("4.4.0",)

    copied_while(town, upgrade)


def grown(town: Town, *mirrors: tuple[str, str]) -> None:
    """Returns once 200 more records are in each mirror."""
    before = {at: len(town.records(*at)) for at in mirrors}
    eventually(
        lambda: all(len(town.records(*at)) > before[at] + 200 for at in mirrors),
        about=f"records that are copied to {mirrors}",
    )


def test_a_cluster_that_is_downgraded_below_what_a_flow_needs(make_town: MakeTown) -> None:
    """Kafka 2.4 has no topic ids for the flow from it, and no plan makes it a destination."""
    town = make_town(spec("dc1"), spec("dc2", version="2.8.2"))
    file, dc1, dc2 = str(town.topology.file), town.client("dc1"), town.client("dc2")
    town.apply()
    some = checker.write(dc2, "returns", checker.Spec(records=500, large_every=0))
    with checker.writing(dc1, "orders", SHAPES):
        grown(town, ("orders", "dc2"))
        assert checker.compare(dc2, dc1, "returns", written=some, patience=60).clean
        town.lab.stop("dc2:1")
        town.lab.start("dc2:1", version="2.4.1")
        said = town.run("plan", file)
        assert said.returncode == 1
        lacks = "of dc2 lacks copy to, exactly once (Kafka 2.5): no flow can write to it in transactions"
        assert lacks in said.stdout + said.stderr
        assert "A flow to dc2: no" in town.run("doctor", "dc2", file).stdout
        grown(town, ("orders", "dc2"))
        eventually(
            lambda: "at the source: UNKNOWN_TOPIC_ID" in town.run("status", file).stdout,
            about="what holds up the flow from dc2",
        )
        town.lab.stop("dc2:1")
        town.lab.start("dc2:1", version="2.8.2")
        grown(town, ("orders", "dc2"))
    checker.write(dc2, "returns", checker.Spec(first=500, records=500, large_every=0))
    for source, there, topic in ((dc1, dc2, "orders"), (dc2, dc1, "returns")):
        report = checker.compare(source, there, topic, patience=120)
        assert report.records > 0
        assert report.clean, report


def test_zookeeper_gone_stops_no_flow(make_town: MakeTown) -> None:
    town = make_town(spec("dc1", version="2.8.2"), spec("dc2"))

    def lose_zookeeper() -> None:
        town.lab.kill("dc1:zookeeper")
        grown(town, ("orders", "dc2"), ("returns", "dc1"))
        town.lab.start("dc1:zookeeper")

    copied_while(town, lose_zookeeper)
