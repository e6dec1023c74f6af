"""Kafka's own tools, from the same jars as the brokers, work with a lab's client settings."""

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient

from runtime.lab.files import LabError
from runtime.lab.lab import Lab
from tests.labs import run_tool

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("mode", ["lab_sasl", "lab_tls"])
def test_the_client_settings_fit_a_cluster_with_security(
    mode: str, request: pytest.FixtureRequest, fresh: Callable[[str], str]
) -> None:
    lab, topic = request.getfixturevalue(mode), fresh("orders")
    run_tool(lab, "dc2", "TopicCommand", "--command-config", "{client}", "--create", "--topic", topic)
    listed = AdminClient(lab.clusters["dc2"].client).list_topics(topic, timeout=60)
    assert listed.topics[topic].error is None


def test_a_tool_that_does_not_exist_is_one_sentence(lab: Lab) -> None:
    with pytest.raises(LabError, match="Kafka has no tool Topics — for example TopicCommand"):
        run_tool(lab, "dc1", "Topics")
