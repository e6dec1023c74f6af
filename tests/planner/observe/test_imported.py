"""What a live cluster holds → a topology that says the same, and what is left out of it, aloud."""

from collections.abc import Mapping

import pytest

from planner.model.observed import ConfigSource, ConfigValue, ObservedCluster
from planner.model.topology import AclRule, Cluster, QuotaEntity
from planner.observe.imported import import_request, import_topology
from planner.render.topology import topology_yaml
from tests.fakes.replacing import replace
from tests.fakes.states import cluster, live, uneven

DC1, DC2 = Cluster("dc1", bootstrap="a:9092"), Cluster("dc2", bootstrap="b:9092")
READ = AclRule("dc1", "TOPIC", "orders", "LITERAL", "User:app", "*", "READ", "ALLOW")


def text_of(*clusters: ObservedCluster, pattern: str | None = None) -> str:
    topology, _ = import_topology("t", {"dc1": DC1, "dc2": DC2}, clusters, pattern)
    return topology_yaml(topology)


def said(*clusters: ObservedCluster, pattern: str | None = None) -> list[str]:
    _, left_out = import_topology("t", {"dc1": DC1, "dc2": DC2}, clusters, pattern)
    return [diagnostic.summary for diagnostic in left_out]


def test_only_what_is_set_explicitly_is_written_in_words_that_people_use() -> None:
    topic = live("orders", retention_ms="604800000", inherited={"segment.bytes": "1073741824"})
    assert text_of(cluster(topic)) == (
        "apiVersion: repl/v1\n"
        "name: t\n\n"
        "clusters:\n"
        '  dc1: {bootstrap: "a:9092", id: cluster-dc1}\n\n'
        "topics:\n"
        "  - {name: orders, cluster: dc1, partitions: 6, replication: 3, config: {retention.ms: 7d}}\n"
    ).replace('"a:9092"', "a:9092")


def test_what_most_have_goes_to_the_defaults_and_equal_topics_join() -> None:
    first = cluster(
        live("a", 6, 3, retention_ms="1"),
        live("b", 6, 3, retention_ms="1"),
        live("c", 12, 3, retention_ms="2"),
    )
    second = cluster(live("a", 6, 3, retention_ms="1"), name="dc2")
    lines = text_of(first, second).splitlines()
    assert "  topic: {partitions: 6, replication: 3, config: {retention.ms: 1}}" in lines
    assert lines[-3:] == [
        "  - {name: a, cluster: [dc1, dc2]}",
        "  - {name: b, cluster: dc1}",
        "  - {name: c, cluster: dc1, partitions: 12, config: {retention.ms: 2}}",
    ]


def test_a_setting_that_one_topic_lacks_is_no_default() -> None:
    text = text_of(cluster(live("a", retention_ms="1"), live("b", retention_ms="1"), live("c")))
    assert "defaults:\n  topic: {partitions: 6, replication: 3}\n" in text
    assert "- {name: a, cluster: dc1, config: {retention.ms: 1}}" in text
    assert "- {name: c, cluster: dc1}" in text


@pytest.mark.parametrize(
    ("pattern", "names"),
    [(None, ["orders", "payments"]), ("__.*", ["__debezium"]), ("pay.*", ["payments"]), ("pay", [])],
)
def test_which_topics_are_taken(pattern: str | None, names: list[str]) -> None:
    there = cluster(live("orders"), live("payments"), live("__debezium"))
    found, _ = import_topology("t", {"dc1": DC1}, [there], pattern)
    assert [topic.name for topic in found.topics] == names
    request = import_request(there, pattern)
    assert request.configs == dict.fromkeys(names, frozenset())
    assert {request.acls, request.quotas, request.scram_users} == {pattern is None}


def test_what_is_left_out_is_said() -> None:
    throttled = live("orders", leader_replication_throttled_replicas="*")
    observed = cluster(
        throttled, live("__debezium"), hidden=frozenset({"secret"}), unreadable={"acls": "no right"}
    )
    assert "throttled" not in text_of(observed)
    assert said(observed) == [
        "not authorized to describe 1 of dc1's topics: secret",
        "left out 1 of dc1's topics that begin with __: __debezium",
        "the ACLs of dc1 are left out: no right",
        "left out the replication throttles of dc1's orders: they are temporary",
    ]


@pytest.mark.parametrize("factors", [(1, 3, 3), (3, 3, 1), (1, 3)])
def test_of_partitions_that_differ_the_usual_replication_is_written(factors: tuple[int, ...]) -> None:
    observed = cluster(uneven("orders", *factors))

    assert "replication: 3" in text_of(observed)
    assert said(observed) == ["the partitions of dc1's orders have 1 and 3 replicas; 3 is written"]


def test_a_listed_topic_whose_settings_are_hidden_is_not_written_without_them() -> None:
    observed = cluster(live("orders"), live("blind"), hidden=frozenset({"blind"}))
    assert "blind" not in text_of(observed)


def test_bindings_join_and_those_without_a_word_are_said() -> None:
    strange = AclRule("dc1", "TRANSACTIONAL_ID", "t", "LITERAL", "User:a", "*", "TWO_PHASE_COMMIT", "ALLOW")
    describe = AclRule("dc1", "TOPIC", "orders", "LITERAL", "User:app", "*", "DESCRIBE", "ALLOW")
    other = AclRule("dc1", "TOPIC", "bills", "LITERAL", "User:app", "*", "READ", "ALLOW")
    observed = cluster(live("orders"), acls=[READ, describe, other, strange])
    text = text_of(observed)
    assert '- {cluster: dc1, principal: "User:app", allow: [READ], topic: bills}' in text
    assert '- {cluster: dc1, principal: "User:app", allow: [DESCRIBE, READ], topic: orders}' in text
    assert "TWO_PHASE_COMMIT" not in text
    assert any("TWO_PHASE_COMMIT can't be declared" in one for one in said(observed))


def test_a_value_that_the_broker_keeps_to_itself_is_not_written() -> None:
    topic = live("orders")
    kept = {"vendor.secret": ConfigValue(None, ConfigSource.TOPIC, sensitive=True)}

    assert "vendor.secret" not in text_of(cluster(replace(topic, config=kept)))


def test_limits_that_a_topology_cannot_declare_are_left_out_and_told() -> None:
    quotas: dict[str, Mapping[str, float]] = {
        QuotaEntity("app").name: {"producer_byte_rate": 0.5, "request_percentage": 5, "vendor_rate": 1},
        QuotaEntity("User:app").name: {"producer_byte_rate": 5},
    }
    held = replace(cluster(live("orders")), quotas=quotas)
    assert "  - {cluster: dc1, user: app, request_percentage: 5}\n" in text_of(held)
    assert said(held) == [
        (
            "left out limits of dc1 that a topology can't declare: user app: producer_byte_rate=0.5;"
            " user app: vendor_rate=1; user User:app: producer_byte_rate=5"
        )
    ]
    hidden = replace(cluster(live("orders")), unreadable={"quotas": "too old"})
    assert said(hidden) == ["the client quotas of dc1 are left out: too old"]


def test_scram_users_are_listed() -> None:
    users = {"app": ("SCRAM-SHA-256", "SCRAM-SHA-512")}
    held = replace(cluster(live("orders")), scram_users=users)
    assert said(held) == ["dc1 has 1 SCRAM user: app (SCRAM-SHA-256, SCRAM-SHA-512)"]
    hidden = replace(cluster(live("orders")), unreadable={"scram": "too old"})
    assert said(hidden) == ["the SCRAM users of dc1 are not listed: too old"]


def test_what_is_declared_of_a_cluster_stays() -> None:
    declared = Cluster("dc1", bootstrap="a:9092", labels={"env": "prod"}, principal="User:CN=repl")
    topology, _ = import_topology("t", {"dc1": declared}, [cluster(live("a"))])
    assert topology.clusters["dc1"].labels == {"env": "prod"}
    assert topology.clusters["dc1"].principal == "User:CN=repl"
