"""ReadOptions real clusters: names, details, pins; one that is down never keeps the other from being read."""

from collections.abc import Callable

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from planner.kafka import ClusterEndpoint
from planner.model.observed import (
    FEATURE_SHARE,
    ClusterDetailsRequest,
    ConfigSource,
    Observed,
    ObservedCluster,
    Request,
)
from runtime.lab.lab import Lab
from tests.endpoints import endpoint, observed
from tests.planner.apply.cut import id_text
from tests.records import create_topic, wait_for, write

pytestmark = pytest.mark.integration
Fresh = Callable[[str], str]


def both(lab: Lab) -> dict[str, ClusterEndpoint]:
    return {name: endpoint(lab, name) for name in ("dc1", "dc2")}


def create(lab: Lab, cluster: str, name: str, partitions: int = 1, **config: str) -> None:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    create_topic(lab.clusters[cluster].client, name, partitions, config=settings)


def read(lab: Lab, request: Request) -> Observed:
    return observed(both(lab), lambda _: request)


def dc1(found: Observed) -> ObservedCluster:
    cluster = found.reachable("dc1")
    assert cluster is not None, found.clusters["dc1"]
    return cluster


def test_names_tell_who_the_cluster_is_and_what_it_holds(lab: Lab, fresh: Fresh) -> None:
    name = fresh("orders")
    create(lab, "dc1", name, 3)
    found = observed(both(lab), named={"dc1": {fresh("absent")}})
    cluster = dc1(found)
    assert cluster.id == lab.clusters["dc1"].cluster_id
    assert cluster.topics[name].replicas == ((1,), (1,), (1,))
    described = AdminClient(lab.clusters["dc1"].client)
    assert cluster.topics[name].id == topic_id(described, name)
    assert cluster.default_partitions == 1
    assert cluster.defaults["retention.ms"] == "604800000"
    assert {lack.name for lack in cluster.lacking} <= {FEATURE_SHARE}
    assert cluster.hidden == frozenset()
    assert found.diagnostics == ()
    assert found.reachable("dc2") is not None


def topic_id(admin: AdminClient, name: str) -> str:
    return id_text(admin.describe_topics(TopicCollection([name]))[name].result(60).topic_id)


def test_details_are_what_was_asked_for_and_no_more(lab: Lab, fresh: Fresh) -> None:
    explicit, keys, every = fresh("explicit"), fresh("keys"), fresh("every")
    for name in (explicit, keys, every):
        create(lab, "dc1", name, retention_ms="1000", segment_bytes="1048576")
    wanted = ClusterDetailsRequest({explicit: frozenset({"cleanup.policy"}), every: None})
    topics = dc1(read(lab, {"dc1": wanted})).topics
    assert {key: value.source for key, value in topics[explicit].config.items()} == {
        "cleanup.policy": ConfigSource.DEFAULT,
        "retention.ms": ConfigSource.TOPIC,
        "segment.bytes": ConfigSource.TOPIC,
    }
    assert len(topics[every].config) > 25
    chosen = ClusterDetailsRequest({keys: frozenset({"retention.ms", "cleanup.policy"})}, explicit=False)
    topics = dc1(read(lab, {"dc1": chosen})).topics
    assert set(topics[keys].config) == {"retention.ms", "cleanup.policy"}


def test_sizes_groups_and_acls_are_read_only_when_wanted(lab: Lab, fresh: Fresh) -> None:
    full, empty = fresh("full"), fresh("empty")
    create(lab, "dc1", full, 2)
    create(lab, "dc1", empty)
    write(lab.clusters["dc1"].client, full, [b"x" * 1000] * 10)
    nothing = dc1(read(lab, {}))
    assert (nothing.sizes, nothing.group_topics, nothing.acls) == (None, None, None)
    wanted = ClusterDetailsRequest(sizes=frozenset({full, empty}), acls=True, every_group=True)
    cluster = dc1(read(lab, {"dc1": wanted}))
    assert cluster.sizes is not None
    assert cluster.sizes[full] > 5_000
    assert cluster.sizes[empty] == 0
    assert cluster.group_topics is not None
    assert cluster.acls is None  # no authorizer
    assert cluster.unreadable == {}


def test_a_topic_that_vanishes_between_names_and_details_is_gone(lab: Lab, fresh: Fresh) -> None:
    name = fresh("brief")
    create(lab, "dc1", name)

    def wanted(names: Observed) -> Request:
        assert name in dc1(names).topics
        admin = AdminClient(lab.clusters["dc1"].client)
        admin.delete_topics([name])[name].result(60)
        wait_for(lambda: name not in admin.list_topics(timeout=60).topics)
        return {"dc1": ClusterDetailsRequest({name: frozenset()})}

    after = dc1(observed(both(lab), wanted))
    assert name not in after.topics
    assert name not in after.hidden
