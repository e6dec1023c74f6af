"""Rights on names that do not exist: what brokers tell of them, and that asking changes nothing."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from planner.kafka import ClusterEndpoint, run_at
from planner.model.diagnostic import Failure
from planner.observe.rights import missing_on_existing, missing_rights
from runtime.lab.cluster import LabKafkaCluster
from runtime.lab.lab import Lab
from tests.records import create_topic
from tests.rights import Right, principal, rights

pytestmark = pytest.mark.integration

TIMEOUT_S = 30.0


def missing(at: ClusterEndpoint, name: str, user: str) -> list[str]:
    """The rights that are missing on a topic and a group of this name, neither of which exists."""
    return run_at(
        at,
        lambda client: missing_rights(client, [name], [name], f"User:{user}", timeout_s=TIMEOUT_S),
        TIMEOUT_S,
    )


def endpoint(cluster: LabKafkaCluster, user: str = "", folder: Path = Path()) -> ClusterEndpoint:
    settings = {key: str(value) for key, value in cluster.client.items() if key != "bootstrap.servers"}
    if user:
        file = folder / f"{cluster.spec.name}-{user}.password"
        settings |= {"sasl.username": user, "sasl.password": file.read_text()}
    return ClusterEndpoint(cluster.spec.name, cluster.bootstrap, settings)


def names(cluster: LabKafkaCluster) -> tuple[set[str], set[str]]:
    """The topics and groups of a cluster, as its super user sees them."""
    admin = AdminClient({**cluster.client, "log_level": 0})
    groups = admin.list_consumer_groups().result(60).valid
    return set(admin.list_topics(timeout=60).topics), {one.group_id for one in groups}


def scratch_rights(*without: tuple[str, str]) -> list[Right]:
    """What docs/operations.md grants to canaries, without these operations on a kind of resource."""
    return [
        Right(
            one.resource,
            one.name,
            one.prefixed,
            tuple(each for each in one.operations if (one.resource, each) not in without),
        )
        for one in rights("Canary records of a live drill", "")
    ]


SEES = Right("CLUSTER", "kafka-cluster", False, ("DESCRIBE",))


@pytest.mark.parametrize(
    ("granted", "lacking"),
    [
        ([SEES, *scratch_rights()], []),
        # Without DESCRIBE on the cluster no ACL can be read, so DELETE is asked of topics that exist.
        (scratch_rights(("TOPIC", "DELETE")), []),
        ([SEES, *scratch_rights(("TOPIC", "DELETE"))], ["DELETE on topic {}"]),
        ([SEES, *scratch_rights(("TOPIC", "WRITE"))], ["WRITE on topic {}"]),
        ([SEES, *scratch_rights(("GROUP", "DELETE"))], ["DELETE on group {}"]),
        (
            [SEES],
            [
                "DELETE on group {}",
                "DELETE on topic {}",
                "DESCRIBE on group {}",
                "DESCRIBE on topic {}",
                "READ on group {}",
                "READ on topic {}",
                "WRITE on topic {}",
            ],
        ),
    ],
)
def test_each_right_that_is_missing_is_named_and_nothing_is_made(
    lab_sasl: Lab,
    fresh: Callable[[str], str],
    tmp_path: Path,
    granted: list[Right],
    lacking: list[str],
) -> None:
    cluster, user = lab_sasl.clusters["dc1"], fresh("canary")
    principal(cluster, user, granted, tmp_path)
    before = names(cluster)
    name = f"__drill.{fresh('run')}.orders"
    found = missing(endpoint(cluster, user, tmp_path), name, user)
    assert found == [one.format(name) for one in lacking]
    assert names(cluster) == before


def test_a_super_user_needs_no_rule(lab_sasl: Lab, fresh: Callable[[str], str]) -> None:
    cluster = lab_sasl.clusters["dc1"]
    name = f"__drill.{fresh('run')}.orders"
    user: Any = cluster.client["sasl.username"]
    assert missing(endpoint(cluster), name, user) == []


def test_rights_on_a_topic_that_exists_are_asked_of_the_broker(
    lab_sasl: Lab, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    cluster, user, topic = lab_sasl.clusters["dc1"], fresh("canary"), f"__drill.{fresh('run')}.orders"
    principal(cluster, user, scratch_rights(("TOPIC", "DELETE")), tmp_path)
    create_topic(cluster.client, topic)
    own = endpoint(cluster, user, tmp_path)
    asking = partial(missing_on_existing, topics=[topic])
    assert run_at(own, asking, TIMEOUT_S) == [f"DELETE on topic {topic}"]
    assert run_at(endpoint(cluster), asking, TIMEOUT_S) == []
    with pytest.raises(Failure, match="exists at dc1"):
        missing(own, topic, user)
