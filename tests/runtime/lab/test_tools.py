"""Kafka's own tools, from the same jars as the brokers, work against every kind of cluster."""

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient

from runtime.lab.files import LabError
from runtime.lab.lab import Lab
from tests.labs import run_tool

pytestmark = pytest.mark.integration
CLIENT = "--command-config"


def test_create_write_and_read_a_topic(lab_sasl: Lab, fresh: Callable[[str], str]) -> None:
    topic = fresh("orders")
    created(lab_sasl, "dc1", topic)
    run_tool(
        lab_sasl,
        "dc1",
        "org.apache.kafka.tools.ConsoleProducer",
        *(CLIENT, "{client}", "--topic", topic),
        stdin="first\nsecond\n",
    )
    read = run_tool(
        lab_sasl,
        "dc1",
        "ConsoleConsumer",
        *(CLIENT, "{client}", "--topic", topic, "--from-beginning", "--max-messages", "2"),
    )
    assert read.splitlines() == ["first", "second"]


@pytest.mark.parametrize(
    ("mode", "cluster", "copies"),
    [
        ("lab_three", "dc1", 3),
        ("lab_sasl", "dc2", 1),  # it has passwords of its own
        ("lab_tls", "dc2", 1),
    ],
)
def test_the_client_settings_fit_every_kind_of_cluster(
    mode: str, cluster: str, copies: int, request: pytest.FixtureRequest, fresh: Callable[[str], str]
) -> None:
    lab: Lab = request.getfixturevalue(mode)
    assert created(lab, cluster, fresh("orders")) == copies


def created(lab: Lab, cluster: str, topic: str) -> int:
    """Creates a topic with Kafka's tool, and returns the number of its replicas."""
    run_tool(lab, cluster, "TopicCommand", CLIENT, "{client}", "--create", "--topic", topic)
    admin = AdminClient(lab.clusters[cluster].client)
    (partition,) = admin.list_topics(topic, timeout=60).topics[topic].partitions.values()
    return len(partition.replicas)


def test_a_tool_that_does_not_exist_is_one_sentence(lab: Lab) -> None:
    with pytest.raises(LabError, match="Kafka has no tool Topics — for example TopicCommand"):
        run_tool(lab, "dc1", "Topics")
