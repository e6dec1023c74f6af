"""A saved plan is executed only as long as what it touches is as it saw it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from confluent_kafka.cimpl import NewPartitions

from planner.state import planfile
from runtime.lab.lab import Lab
from tests.commands import repl
from tests.planner.apply.cut import plan_now, topic_ids
from tests.records import create_topic, wait_for
from tests.topologies import Topology, at

pytestmark = pytest.mark.integration


class Meanwhile:
    """What somebody does to a topic between the plan and its apply."""

    def __init__(self, lab: Lab, topic: str) -> None:
        self.client = lab.clusters["dc1"].client
        self.admin = AdminClient(self.client)
        self.lab = lab
        self.topic = topic

    def make(self) -> None:
        create_topic(self.client, self.topic)

    def delete(self) -> None:
        self.admin.delete_topics([self.topic])[self.topic].result(timeout=60)
        wait_for(lambda: self.topic not in topic_ids(self.lab, self.topic))

    def make_again(self) -> None:
        self.delete()
        self.make()

    def grow(self) -> None:
        self.admin.create_partitions([NewPartitions(self.topic, 5)])[self.topic].result(timeout=60)
        wait_for(lambda: len(self.admin.list_topics(self.topic).topics[self.topic].partitions) == 5)

    def set(self, key: str, value: str) -> None:
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, self.topic, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(timeout=60)
        wait_for(lambda: self.value(key) == value)

    def value(self, key: str) -> str:
        resource = ConfigResource(ResourceType.TOPIC, self.topic)
        return str(self.admin.describe_configs([resource])[resource].result(timeout=60)[key].value)


@pytest.fixture
def topology(lab, fresh, tmp_path) -> Topology:
    made = at(lab, fresh("shop"), tmp_path)
    made.topic(f"{made.name}-t", partitions=1, config={"retention.ms": 60_000})
    made.write()
    return made


@pytest.fixture
def meanwhile(lab, topology) -> Meanwhile:
    return Meanwhile(lab, f"{topology.name}-t")


def save(topology: Topology, folder: Path) -> Path:
    saved = folder / "plan.bin"
    planfile.write(plan_now(topology.file), saved)
    return saved


CASES: dict[str, tuple[Callable[[Meanwhile], None], str]] = {
    "deleted": (Meanwhile.delete, "was deleted since the plan was made"),
    "made again": (Meanwhile.make_again, "was deleted and created again since the plan was made"),
    "grown": (Meanwhile.grow, "has 5 partitions now, 1 when the plan was made"),
    "configured": (lambda topic: topic.set("retention.ms", "5000"), "retention.ms is 5s now, not set"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_related_change_makes_it_stale(topology, meanwhile, tmp_path, case):
    change, said = CASES[case]
    meanwhile.make()
    saved = save(topology, tmp_path)
    change(meanwhile)
    done = repl("apply", str(saved))
    assert done.returncode == 4, done.stderr
    assert f"topic.dc1.{meanwhile.topic}: {said}" in done.stderr
    assert "repl plan --out" in done.stderr


def test_made_by_somebody_since(topology, meanwhile, tmp_path):
    saved = save(topology, tmp_path)
    meanwhile.make()
    done = repl("apply", str(saved))
    assert done.returncode == 4, done.stderr
    assert f"topic.dc1.{meanwhile.topic}: was created since the plan was made" in done.stderr


def test_an_unrelated_change_does_not(topology, meanwhile, tmp_path):
    """Another topic, and a setting of the same topic that the plan never looked at."""
    meanwhile.make()
    saved = save(topology, tmp_path)
    meanwhile.set("segment.ms", "77777")
    Meanwhile(meanwhile.lab, f"{meanwhile.topic}-other").make()
    done = repl("apply", str(saved))
    assert done.returncode == 0, done.stderr
    assert (meanwhile.value("retention.ms"), meanwhile.value("segment.ms")) == ("60000", "77777")


def test_a_plan_is_applied_once(topology, meanwhile, tmp_path):
    """The second time there is nothing to do, until something else changed what it did."""
    saved = save(topology, tmp_path)
    assert repl("apply", str(saved)).returncode == 0
    again = repl("apply", str(saved))
    assert again.returncode == 0, again.stderr
    meanwhile.set("retention.ms", "5000")
    again = repl("apply", str(saved))
    assert again.returncode == 4
    assert f"topic.dc1.{meanwhile.topic}: retention.ms is 5s now, the plan made it 1m" in again.stderr
    assert meanwhile.value("retention.ms") == "5000"
