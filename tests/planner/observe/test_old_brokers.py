"""Brokers of other ages are read as far as they can be, and named where they are too old."""

from planner.kafka import ClusterClient, ClusterEndpoint
from planner.model.diagnostic import ExitCode, Failure, error
from planner.model.observed import (
    ClusterDetailsRequest,
    ConfigSource,
    Observed,
    RegistryEntry,
    Unreachable,
)
from planner.observe.cluster import ReadOptions
from runtime.contract.spec.naming import REGISTRY
from tests.endpoints import observed
from tests.fakes.hostile_broker import API_VERSIONS, METADATA
from tests.fakes.old_broker import CLUSTER_ID, DESCRIBE_CONFIGS, OldBroker

KAFKA_2_3 = {0: 7, 1: 11, METADATA: 8, API_VERSIONS: 2, 22: 1, 24: 1, 26: 1, DESCRIBE_CONFIGS: 2, 44: 0}
KAFKA_0_11 = {0: 3, 1: 5, METADATA: 4, API_VERSIONS: 1, 22: 0, 24: 0, 26: 0, DESCRIBE_CONFIGS: 1}
KAFKA_0_10 = {0: 2, 1: 3, METADATA: 2, API_VERSIONS: 0}


def observe(broker: OldBroker) -> Observed:
    there = ClusterEndpoint("dc1", f"127.0.0.1:{broker.port}")
    wanted = ClusterDetailsRequest({"orders": frozenset()})
    return observed({"dc1": there}, lambda _: {"dc1": wanted})


def test_the_oldest_that_will_do_is_read_in_its_own_versions() -> None:
    with OldBroker(KAFKA_2_3) as broker:
        found = observe(broker)
        cluster = found.reachable("dc1")
    assert cluster is not None, found.clusters["dc1"]
    assert cluster.id == CLUSTER_ID
    orders = cluster.topics["orders"]
    assert (orders.id, orders.partitions, orders.replication) == ("", 1, 1)
    assert {key: (one.value, one.source) for key, one in orders.config.items()} == {
        "retention.ms": ("1000", ConfigSource.TOPIC)
    }
    assert cluster.default_partitions == 4
    assert found.diagnostics == ()
    assert {(METADATA, 8), (DESCRIBE_CONFIGS, 2)} <= {(asked.api, asked.version) for asked in broker.asked}


def test_a_broker_without_incremental_changes_is_read_and_named() -> None:
    with OldBroker(KAFKA_0_11) as broker:
        found = observe(broker)
    assert found.reachable("dc1") is not None, found.clusters["dc1"]
    (only,) = found.diagnostics
    assert only.code == "broker-too-old"
    assert only.summary.endswith("is too old: it lacks incremental config changes (Kafka 2.3)")
    assert f"broker 1 (127.0.0.1:{broker.port}) of dc1" in only.summary


def test_a_broker_from_before_transactions_is_named_with_all_that_it_lacks() -> None:
    with OldBroker(KAFKA_0_10) as broker:
        here = ClusterEndpoint("dc1", f"127.0.0.1:{broker.port}")
        found = observed({"dc1": here})
    (only,) = found.diagnostics
    assert only.exit is ExitCode.ERROR
    assert only.summary == (
        f"broker 1 ({here.bootstrap}) of dc1 is too old: it lacks message format v2 (Kafka 0.11) "
        "and transactions (Kafka 0.11) and incremental config changes (Kafka 2.3)"
    )
    cluster = found.reachable("dc1")
    assert cluster is not None
    assert "too old" in cluster.unreadable["defaults"]


def test_a_registry_that_can_not_be_read_makes_its_cluster_unknown_not_unowned() -> None:
    async def broken(of: ClusterClient) -> tuple[RegistryEntry, ...]:
        raise Failure(error(f"{REGISTRY} at {of.name} cannot be used", "look at it"))

    with OldBroker(KAFKA_2_3, REGISTRY) as broker:
        here = ClusterEndpoint("dc1", f"127.0.0.1:{broker.port}")
        found = observed({"dc1": here}, options=ReadOptions(read_registry=broken)).clusters["dc1"]
    assert found == Unreachable("dc1", f"{REGISTRY} at dc1 cannot be used", "look at it", silent=False)


def test_a_registry_is_no_topic_of_the_users() -> None:
    with OldBroker(KAFKA_2_3, REGISTRY) as broker:
        cluster = observe(broker).reachable("dc1")
    assert cluster is not None
    assert REGISTRY in cluster.internal_topics
    assert REGISTRY not in cluster.topics
