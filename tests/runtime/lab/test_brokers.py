"""Real brokers: they come up, keep their data, and are gone after down."""

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient

from runtime.lab.lab import Lab
from runtime.lab.status import State

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("mode", ["lab", "lab_sasl", "lab_tls"])
def test_both_clusters_answer_with_their_own_id(mode: str, request: pytest.FixtureRequest) -> None:
    lab: Lab = request.getfixturevalue(mode)
    for cluster in lab.clusters.values():
        admin = AdminClient(cluster.client)
        described = admin.describe_cluster().result(timeout=10)
        assert described.cluster_id == cluster.cluster_id
    assert len({cluster.cluster_id for cluster in lab.clusters.values()}) == 2


def test_a_broker_at_rest_takes_less_than_450_mb(lab: Lab) -> None:
    status = lab.status()
    assert [cluster.state for cluster in status.clusters] == [State.UP, State.UP]
    assert all(0 < cluster.memory_bytes < 450_000_000 for cluster in status.clusters)


def test_fresh_names_differ(fresh: Callable[[str], str]) -> None:
    assert fresh("orders") != fresh("orders")
