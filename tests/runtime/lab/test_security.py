"""Who may come in: users and ACLs with sasl, certificates with tls, secrets where they belong."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from runtime.lab.cluster import LabKafkaCluster
from runtime.lab.lab import Lab
from tests.records import create_topic, read, wait_for, write

pytestmark = pytest.mark.integration


def allow(cluster: LabKafkaCluster, user: str, operation: AclOperation, topic: str) -> None:
    rule = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        operation,
        AclPermissionType.ALLOW,
    )
    admin = AdminClient(cluster.client)
    admin.create_acls([rule])[rule].result(timeout=60)


def sees(cluster: LabKafkaCluster, user: str, topic: str) -> bool:
    admin = AdminClient(cluster.client_of(user))
    found = admin.list_topics(topic, timeout=60).topics[topic]
    return found.error is None


def test_a_user_may_nothing_until_an_acl_says_so(lab_sasl: Lab, fresh: Callable[[str], str]) -> None:
    cluster, topic = lab_sasl.clusters["dc1"], fresh("orders")
    create_topic(cluster.client, topic)
    assert not sees(cluster, "app", topic)
    allow(cluster, "app", AclOperation.WRITE, topic)
    wait_for(lambda: sees(cluster, "app", topic))
    write({**cluster.client_of("app"), "enable.idempotence": False}, topic, [b"from app"])
    assert [record.value for record in read(cluster.client, topic)] == [b"from app"]


def test_the_clusters_have_passwords_of_their_own(lab_sasl: Lab) -> None:
    passwords = {cluster.client["sasl.password"] for cluster in lab_sasl.clusters.values()}
    assert len(passwords) == 2


@pytest.mark.parametrize("mode", ["lab_sasl", "lab_tls"])
def test_secrets_are_for_their_owner_only(mode: str, request: pytest.FixtureRequest) -> None:
    lab: Lab = request.getfixturevalue(mode)
    cluster = lab.clusters["dc1"]
    private = [
        path
        for pattern in ("secrets/*", "client.properties", "users/*/client.properties", "1/server.properties")
        for path in cluster.folder.glob(pattern)
    ]
    assert len(private) > 5
    assert {path.stat().st_mode & 0o077 for path in private} == {0}
    assert not cluster.secret_file("format.args").exists()


def test_the_topology_names_secrets_by_their_files(lab_sasl: Lab) -> None:
    text = (lab_sasl.home / "topology.yaml").read_text()
    assert lab_sasl.clusters["dc1"].client["sasl.password"] not in text
    client = yaml.safe_load(text)["clusters"]["dc1"]["client"]
    assert client["sasl.username"] == "admin"
    assert (
        Path(client["sasl.password"]["file"]).read_text() == lab_sasl.clusters["dc1"].client["sasl.password"]
    )
    written = yaml.safe_load((lab_sasl.clusters["dc1"].folder / "client.yaml").read_text())
    assert written == client
