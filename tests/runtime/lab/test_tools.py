"""Kafka's own tools, from the same jars as the brokers, work against every kind of cluster."""

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient

from runtime.lab.files import LabError
from runtime.lab.lab import Lab

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("mode", "clusters", "copies"),
    [
        ("lab", ("dc2",), 1),
        ("lab_three", ("dc1",), 3),
        ("lab_sasl", ("dc1", "dc2"), 1),  # each has passwords of its own
        ("lab_tls", ("dc2",), 1),
    ],
)
def test_create_write_and_read_a_topic(
    mode: str,
    clusters: tuple[str, ...],
    copies: int,
    request: pytest.FixtureRequest,
    fresh: Callable[[str], str],
) -> None:
    lab: Lab = request.getfixturevalue(mode)
    for cluster in clusters:
        topic = fresh("orders")
        client = ("--command-config", "{client}")
        lab.tool(cluster, "org.apache.kafka.tools.TopicCommand", *client, "--create", "--topic", topic)
        lab.tool(
            cluster,
            "org.apache.kafka.tools.ConsoleProducer",
            *(*client, "--topic", topic),
            stdin=f"first of {cluster}\nsecond of {cluster}\n",
        )
        read = lab.tool(
            cluster,
            "org.apache.kafka.tools.ConsoleConsumer",
            *(*client, "--topic", topic, "--from-beginning", "--max-messages", "2"),
        )
        assert read.splitlines() == [f"first of {cluster}", f"second of {cluster}"]
        admin_client = AdminClient(lab.clusters[cluster].client)
        (partition,) = admin_client.list_topics(topic, timeout=60).topics[topic].partitions.values()
        assert len(partition.replicas) == copies


def test_a_tool_that_does_not_exist_is_one_sentence(lab: Lab) -> None:
    with pytest.raises(LabError, match="Kafka has no tool Topics — for example TopicCommand"):
        lab.tool("dc1", "Topics")


def test_a_tool_that_fails_says_why(lab: Lab, fresh: Callable[[str], str]) -> None:
    with pytest.raises(LabError, match="does not exist as expected"):
        lab.tool("dc1", "TopicCommand", "--describe", "--topic", fresh("none"))
