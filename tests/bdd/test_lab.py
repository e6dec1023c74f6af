"""Steps of features/lab: the lab itself, through the clients that people use."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from pytest_bdd import given, parsers, scenarios, then, when

from runtime.lab.lab import Lab
from tests.labs import spec
from tests.records import create_topic, read, wait_for, write

pytestmark = [pytest.mark.integration, pytest.mark.long]

scenarios("lab")


@dataclass
class Story:
    """What a scenario has to remember."""

    lab: Lab
    topic: str
    written: dict[str, list[bytes]] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)

    def client(self, cluster: str) -> dict[str, Any]:
        return self.lab.clusters[cluster].client

    def id_of(self, cluster: str) -> str:
        admin = AdminClient(self.lab.clusters[cluster].client)
        return str(admin.describe_cluster().result(timeout=60).cluster_id)


@pytest.fixture(scope="module")
def breakable(tmp_path_factory: pytest.TempPathFactory):
    """One lab for all scenarios here, whose clusters are brought back between them."""
    made = Lab(tmp_path_factory.mktemp("bdd-lab"))
    made.up([spec("dc1"), spec("dc2")])
    yield made
    made.down(purge=True)


@given("a lab with the clusters dc1 and dc2", target_fixture="story")
def _(breakable: Lab, fresh: Callable[[str], str]) -> Story:
    breakable.up([cluster.spec for cluster in breakable.clusters.values()])
    return Story(breakable, fresh("orders"))


@given("the topic orders at both clusters")
def _(story: Story) -> None:
    for cluster in story.lab.clusters:
        create_topic(story.client(cluster), story.topic, partitions=3)
        story.ids[cluster] = story.id_of(cluster)


@given(parsers.parse("{count:d} records were written to orders at {cluster}"))
@when(parsers.parse("{count:d} records are written to orders at {cluster}"))
def _(story: Story, count: int, cluster: str) -> None:
    story.written[cluster] = [f"{cluster} {number}".encode() for number in range(count)]
    write(story.client(cluster), story.topic, story.written[cluster])


@when(parsers.parse("{cluster} is killed"))
def _(story: Story, cluster: str) -> None:
    story.lab.kill(cluster)


@when(parsers.parse("{cluster} is started"))
def _(story: Story, cluster: str) -> None:
    story.lab.start(cluster)


@when(parsers.parse("{cluster} is paused"))
def _(story: Story, cluster: str) -> None:
    story.lab.pause(cluster)


@when(parsers.parse("{cluster} is unpaused"))
def _(story: Story, cluster: str) -> None:
    story.lab.unpause(cluster)


@then(parsers.parse("{dead} is down and {alive} is up"))
def _(story: Story, dead: str, alive: str) -> None:
    wait_for(lambda: states(story.lab) == {dead: "down", alive: "up"}, about=lambda: states(story.lab))


def states(lab: Lab) -> dict[str, str]:
    """A broker that has much to do may answer too late for once."""
    return {cluster.name: cluster.state.value for cluster in lab.status().clusters}


@then(parsers.parse("{cluster} does not answer within 1 second"))
def _(story: Story, cluster: str) -> None:
    admin = AdminClient({**story.client(cluster), "log_level": 0})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=1)


@then(parsers.parse("orders at {cluster} holds the same {count:d} records"))
def _(story: Story, cluster: str, count: int) -> None:
    values = [record.value or b"" for record in read(story.client(cluster), story.topic)]
    assert len(values) == count
    assert sorted(values) == sorted(story.written[cluster])


@then(parsers.parse("the cluster id of {cluster} is the same as before"))
def _(story: Story, cluster: str) -> None:
    assert story.id_of(cluster) == story.ids[cluster]
