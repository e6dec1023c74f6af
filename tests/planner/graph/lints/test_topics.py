"""Partitions, replicas and settings."""

from typing import Any

import pytest

from planner.graph import expand, lint_offline
from planner.model.topology import (
    Configs,
    ConfigSync,
    Flow,
    Internal,
    Topic,
)
from runtime.contract.spec import naming
from tests.planner.graph.build import (
    THREE,
    cluster,
    codes,
    flow,
    found,
    live,
    observed,
    rule,
    said,
    topic,
    topology,
)


@pytest.mark.parametrize(
    ("declared", "lints"),
    [
        (topic("dc2/a", 2), ["fewer-partitions"]),
        (topic("dc2/a", 3), []),
        (topic("dc2/a", 9), []),
        (topic("dc2/a"), []),
    ],
)
def test_a_declared_mirror_needs_the_partitions_of_its_source(declared: Topic, lints: list[str]) -> None:
    of = topology(flow("dc1>dc2", "a"), declared, topic("dc1/a", 3))
    assert codes(lint_offline(of)) == lints
    assert (
        codes(
            expand(
                topology(flow("dc1>dc2", "a"), declared),
                observed(cluster("dc1", live("a", 3)), cluster("dc2")),
            )
        )
        == lints
    )


@pytest.mark.parametrize(("replication", "lints"), [(3, []), (4, ["replication-above-brokers"]), (None, [])])
def test_no_more_replicas_than_brokers(replication: int | None, lints: list[str]) -> None:
    assert codes(expand(topology(topic("dc1/a", 1, replication), topic("dc4/a", 1, 9)), THREE)) == lints
    for part in (
        flow("dc1>dc2", "a", heartbeats_every_ms=None),
        topic("dc1/a", 1),
        rule("dc1 ALLOW User:app READ a"),
    ):
        assert codes(expand(topology(part, internal=Internal(replication)), THREE)) == lints
    both = topology(flow("dc1>dc2", "a"), internal=Internal(replication))
    assert codes(expand(both, THREE)) == lints * 2  # heartbeats are written at the source


def test_a_broker_that_is_away_for_a_while() -> None:
    """Nothing of what is there already needs it."""
    made = {name: live(name, 1, 3) for name in (naming.REGISTRY, naming.LEDGER, naming.HEARTBEATS)}
    parts = (topic("dc1/a", 1, 3), flow("dc1>dc2", "a"))
    there = live("a", 1, 3)
    for topics, internal, lints in (
        ([there], made, 0),
        ([live("a", 1, 2)], made, 1),
        ([], made, 1),
        ([there], {}, 2),
    ):
        seen = observed(
            cluster("dc1", *topics, brokers=2, internal_topics=internal),
            cluster("dc2", there, brokers=2, internal_topics=internal),
        )
        of = topology(*parts, internal=Internal(3))
        assert codes(expand(of, seen)).count("replication-above-brokers") == lints


@pytest.mark.parametrize(
    ("part", "there", "lints"),
    [
        (topic("dc2/a", 1, 2, min_insync_replicas="3"), {}, ["min-insync-above-replication"]),
        (topic("dc2/a", 1, 3, min_insync_replicas="3"), {}, []),
        (topic("dc2/a", 1, 1, min_insync_replicas="all"), {}, []),
        (topic("dc2/a", 1, None, min_insync_replicas="2"), {}, ["min-insync-above-replication"]),
        (topic("dc2/a", 1, None, min_insync_replicas="2"), {"default_replication": 2}, []),
        (topic("dc2/a", 1, None, min_insync_replicas="2"), {"default_replication": None}, []),
        (topic("dc2/a", 1), {"defaults": {"min.insync.replicas": "2"}}, ["min-insync-above-replication"]),
        (flow("dc1>dc2", "a"), {"defaults": {"min.insync.replicas": "2"}}, ["min-insync-above-replication"]),
    ],
)
def test_replicas_in_sync_must_be_there(
    part: Topic | Flow, there: dict[str, object], lints: list[str]
) -> None:
    over = observed(cluster("dc1", "a"), cluster("dc2", **there))  # type: ignore[arg-type]
    assert codes(expand(topology(part), over)) == lints


def test_replicas_that_were_too_few_before_are_no_news() -> None:
    over = observed(cluster("dc2", live("a", min_insync_replicas="2")))
    assert codes(expand(topology(topic("dc2/a", retention_ms="1")), over)) == []
    assert codes(expand(topology(topic("dc2/a", 1, 1)), over)) == ["min-insync-above-replication"]


def test_offline_only_what_is_declared_is_judged() -> None:
    assert codes(lint_offline(topology(topic("dc1/a", 1, 2, min_insync_replicas="3")))) == [
        "min-insync-above-replication"
    ]
    assert (
        codes(lint_offline(topology(topic("dc1/a", 1, min_insync_replicas="3"), topic("dc2/a", 1, 9)))) == []
    )


@pytest.mark.parametrize(
    ("config", "lints"),
    [
        ({"retention_ms": "9", "flush_ms": "1"}, []),
        ({"retention_ms": "8"}, ["shorter-retention", "declared-differently"]),
        ({"cleanup_policy": "compact"}, ["declared-differently"]),
        ({"message_timestamp_type": "LogAppendTime"}, ["mirror-timestamps"]),
    ],
)
def test_a_mirror_that_is_declared_otherwise(config: dict[str, Any], lints: list[str]) -> None:
    over = observed(cluster("dc1", live("a", retention_ms="9")), cluster("dc2"))
    assert codes(expand(topology(flow("dc1>dc2"), topic("dc2/a", **config)), over)) == lints


def test_what_stands_is_shown_beside_what_the_source_has() -> None:
    over = observed(cluster("dc1", live("a", retention_ms="8")), cluster("dc2"))
    desired = expand(topology(flow("dc1>dc2"), topic("dc2/a", retention_ms="9")), over)
    assert said(desired, "declared-differently") == [
        (
            "dc2/a is a mirror and is declared differently from its source: retention.ms=9 (source: 8)"
            " — the declared value is used; remove it from the topic to mirror the source's value"
        )
    ]


@pytest.mark.parametrize(
    ("source", "mirror", "lints"),
    [
        ({}, {}, []),
        ({}, {"retention_ms": "1000"}, 1),
        ({}, {"retention_ms": "-1"}, []),
        ({"retention_ms": "-1"}, {}, 1),
        ({"retention_ms": "-1"}, {"retention_ms": "-1"}, []),
        ({}, {"retention_bytes": "5"}, 1),
        ({"retention_bytes": "5"}, {}, []),
        ({}, {"retention_ms": "1000", "cleanup_policy": "compact"}, []),
        ({}, {"retention_ms": "unreadable"}, []),
    ],
)
def test_a_destination_that_forgets_earlier(
    source: dict[str, Any], mirror: dict[str, Any], lints: int | list[str]
) -> None:
    over = observed(cluster("dc1", live("a", **source)), cluster("dc2", live("a", **mirror)))
    of = topology(flow("dc1>dc2", configs=Configs(ConfigSync.OFF)))
    assert codes(expand(of, over)) == (lints if isinstance(lints, list) else ["shorter-retention"])


def test_shorter_retention_is_one_message_for_a_flow() -> None:
    over = observed(
        cluster("dc1", *(live(name) for name in "abcde")),
        cluster("dc2", defaults={"retention.ms": "86400000", "cleanup.policy": "delete"}),
    )
    assert found(topology(flow("dc1>dc2")), "shorter-retention", over) == [
        (
            "flow.dc1-dc2: dc2 keeps less than dc1 of 5 topics (a, b, c and 2 more): retention.ms is 1d at"
            " dc2 and 7d at dc1 (of a); older records are missing after a failover"
        )
    ]


@pytest.mark.parametrize(
    ("key", "source", "mirror", "shown"),
    [
        ("retention_ms", "-1", "90000", "90s at dc2 and no limit at dc1"),
        ("retention_ms", "5001", "0", "0 at dc2 and 5001ms at dc1"),
        ("retention_bytes", "2000000000", "1500000", "1500KB at dc2 and 2GB at dc1"),
        ("retention_bytes", "7", "5", "5 bytes at dc2 and 7 bytes at dc1"),
    ],
)
def test_limits_are_readable(key: str, source: str, mirror: str, shown: str) -> None:
    limits: list[dict[str, Any]] = [{key: source}, {key: mirror}]
    over = observed(cluster("dc1", live("a", **limits[0])), cluster("dc2", live("a", **limits[1])))
    of = topology(flow("dc1>dc2", configs=Configs(ConfigSync.OFF)))
    assert shown in said(expand(of, over), "shorter-retention")[0]
