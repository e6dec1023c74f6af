"""Which topics the clusters should hold, and with what."""

from dataclasses import replace

import pytest

from planner.diff import diff
from planner.graph import expand
from planner.graph.expansion import read_request_of
from planner.model.desired import Declared, DesiredTopic, MirroredBy, QuarantineOf
from planner.model.observed import ConfigValue
from planner.model.topology import Configs, ConfigSync, OnRemove, Provenance, Topic, Transform
from planner.model.topology.transforms import OnBadRecord
from runtime.contract.spec.rename import Match, Table, Template
from tests.planner.graph.build import (
    BOUNDS,
    MIRROR,
    cluster,
    flow,
    live,
    observed,
    selected,
    topic,
    topology,
    wanted,
)

PREFIX = Template("{source}.{topic}")


def test_a_mirror_is_made_for_each_live_topic_that_is_taken() -> None:
    desired = expand(
        topology(flow("dc1>dc2", ("orders", r"pay\..*"))),
        observed(cluster("dc1", live("orders", 12), live("pay.eu", 3), "other"), cluster("dc2")),
    )
    assert wanted(desired) == {
        "dc2/orders": DesiredTopic(
            "dc2", "orders", MirroredBy("dc1-dc2", "dc1", "orders"), 12, config=MIRROR
        ),
        "dc2/pay.eu": DesiredTopic("dc2", "pay.eu", MirroredBy("dc1-dc2", "dc1", "pay.eu"), 3, config=MIRROR),
    }
    assert selected(desired) == {"dc1-dc2": (("orders", "orders"), ("pay.eu", "pay.eu"))}


def test_a_flow_that_quarantines_has_a_topic_for_it_beside_each_mirror() -> None:
    """It has the mirror's partitions and room for headers. What exists keeps its settings and partitions."""
    transform = Transform(where="true", on_bad_record=OnBadRecord.QUARANTINE)
    of = topology(flow("dc1>dc2", transform=transform, replication=2), topic("dc2/declared.quarantine", 1))
    source = cluster("dc1", live("orders", 12, max_message_bytes="5000"), live("old", 3), "declared")
    seen = observed(source, cluster("dc2", live("old.quarantine", 1, retention_ms="1")))
    found = wanted(expand(of, seen))
    made = DesiredTopic(
        "dc2",
        "orders.quarantine",
        QuarantineOf("dc1-dc2", "orders"),
        12,
        2,
        {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "max.message.bytes": str(5000 + (64 << 10)),
            "message.timestamp.type": "CreateTime",
            "retention.ms": "-1",
        },
    )
    assert found["dc2/orders.quarantine"] == made
    kept = found["dc2/old.quarantine"]
    assert (kept.origin, kept.config) == (QuarantineOf("dc1-dc2", "old"), {})
    assert found["dc2/declared.quarantine"].origin == Declared()
    changes = {str(one.address): one for one in diff(expand(of, seen), seen, of)}
    assert changes["topic.dc2.orders.quarantine"].reason == (
        "takes the bad records of orders: on_bad_record of flow.dc1-dc2"
    )
    assert not [
        one.path for one in changes["topic.dc2.old.quarantine"].fields if one.path[0] != "replication"
    ]
    details = read_request_of(of).details({"dc1": {"orders"}, "dc2": set()})
    assert "orders.quarantine" in details["dc2"].topics
    assert "orders.quarantine" not in details["dc1"].topics


def test_mirrors_have_the_replication_of_their_flow_and_declared_topics_their_own() -> None:
    desired = expand(
        topology(flow("dc1>dc2", replication=2), topic("dc2/declared")),
        observed(cluster("dc1", "orders", "declared"), cluster("dc2")),
    )
    found = wanted(desired)
    assert {name: one.replication for name, one in found.items()} == {"dc2/orders": 2, "dc2/declared": None}


def test_declared_topics_are_desired_as_declared() -> None:
    declared = Topic("orders", "dc1", 6, 3, {"retention.ms": "1"}, protect=True, on_remove=OnRemove.DELETE)
    desired = expand(topology(declared), observed(cluster("dc1")))
    assert desired.topics == (
        DesiredTopic(
            "dc1", "orders", Declared(), 6, 3, {"retention.ms": "1"}, frozenset(), True, OnRemove.DELETE
        ),
    )


@pytest.mark.parametrize(
    ("rename", "name"),
    [
        (Template("{topic}"), "a-x"),
        (PREFIX, "dc1.a-x"),
        (Template("{topic}.replica"), "a-x.replica"),
        (Match(r"a-(.*)", r"b-\1"), "b-x"),
        (Table((("a-x", "c"),)), "c"),
    ],
)
def test_the_name_is_the_renamed_one(rename: Template, name: str) -> None:
    desired = expand(
        topology(flow("dc1>dc2", rename=rename)), observed(cluster("dc1", "a-x"), cluster("dc2"))
    )
    assert list(wanted(desired)) == [f"dc2/{name}"]


def test_a_topic_that_is_declared_here_is_mirrored_in_the_same_plan() -> None:
    desired = expand(
        topology(flow("dc1>dc2"), topic("dc1/new", 4, retention_ms="5"), topic("dc1/plain")),
        observed(cluster("dc1", default_partitions=7), cluster("dc2")),
    )
    assert wanted(desired)["dc2/new"].partitions == 4
    assert wanted(desired)["dc2/new"].config == {**MIRROR, "retention.ms": "5"}
    assert wanted(desired)["dc2/plain"].partitions == 7


def test_a_chain_is_one_plan() -> None:
    desired = expand(
        topology(flow("dc1>dc2", "orders"), flow("dc2>dc3", rename=PREFIX)),
        observed(cluster("dc1", live("orders", 5, retention_ms="9")), cluster("dc2"), cluster("dc3")),
    )
    assert {place: (one.partitions, one.config) for place, one in wanted(desired).items()} == {
        "dc2/orders": (5, {**MIRROR, "retention.ms": "9"}),
        "dc3/dc2.orders": (5, {**MIRROR, "retention.ms": "9"}),
    }


def test_prefixed_names_do_not_grow_without_end() -> None:
    desired = expand(
        topology(
            flow("dc1>dc2", rename=PREFIX), flow("dc2>dc3", rename=PREFIX), flow("dc3>dc1", rename=PREFIX)
        ),
        observed(cluster("dc1", "a"), cluster("dc2", "b"), cluster("dc3", "c")),
    )
    assert list(wanted(desired)) == [
        "dc1/dc3.c",
        "dc1/dc3.dc2.b",
        "dc2/dc1.a",
        "dc2/dc1.dc3.c",
        "dc3/dc2.b",
        "dc3/dc2.dc1.a",
    ]


@pytest.mark.parametrize(
    ("here", "there", "partitions"),
    [(live("a", 4), (), 4), (live("a", 4), (live("a", 2),), 4), (live("a", 4), (live("a", 9),), 9)],
)
def test_a_mirror_has_at_least_the_partitions_of_its_source(
    here: object, there: tuple[object, ...], partitions: int
) -> None:
    desired = expand(
        topology(flow("dc1>dc2"), topic("dc2/a")),
        observed(cluster("dc1", here), cluster("dc2", *there)),  # type: ignore[arg-type]
    )
    assert wanted(desired)["dc2/a"].partitions == partitions


def test_topics_that_both_sides_hold_get_the_partitions_of_the_larger_and_keep_their_settings() -> None:
    desired = expand(
        topology(flow("dc1>dc2"), flow("dc2>dc1")),
        observed(
            cluster("dc1", live("a", 3, retention_ms="1")), cluster("dc2", live("a", 6, retention_ms="2"))
        ),
    )
    assert {place: (one.partitions, one.config, one.unset) for place, one in wanted(desired).items()} == {
        "dc1/a": (6, BOUNDS, frozenset()),
        "dc2/a": (6, BOUNDS, frozenset()),
    }
    assert [(one.provenance, one.shared) for one in desired.flows] == [("batch", True)] * 2


def test_a_topic_of_both_sides_that_one_lacks_is_made_like_the_other() -> None:
    desired = expand(
        topology(flow("dc1>dc2"), flow("dc2>dc1")),
        observed(cluster("dc1"), cluster("dc2", live("a", 6, retention_ms="2"))),
    )
    assert wanted(desired)["dc1/a"].config == {**MIRROR, "retention.ms": "2"}
    assert wanted(desired)["dc2/a"].config == BOUNDS


@pytest.mark.parametrize(
    ("configs", "config", "unset"),
    [
        (Configs(), {**MIRROR, "retention.ms": "5", "cleanup.policy": "compact"}, {"flush.ms"}),
        (Configs(ConfigSync.SET, ("flush.ms", "retention.*", "seg.*")), None, set()),
        (Configs(ConfigSync.OFF), BOUNDS, set()),
        (
            Configs(ConfigSync.ALL),
            {**MIRROR, "retention.ms": "5", "cleanup.policy": "compact", "retention.bytes": "-1"},
            {"flush.ms"},
        ),
    ],
)
def test_settings_follow_the_source(configs: Configs, config: dict[str, str] | None, unset: set[str]) -> None:
    source = live("a", retention_ms="5", cleanup_policy="compact", min_insync_replicas="2")
    mirror = live("a", flush_ms="1", min_insync_replicas="2", retention_ms="1")
    desired = expand(
        topology(flow("dc1>dc2", configs=configs)), observed(cluster("dc1", source), cluster("dc2", mirror))
    )
    expected = {**MIRROR, "cleanup.policy": "compact"} if config is None else config
    if config is None:
        del expected["segment.bytes"]
    assert wanted(desired)["dc2/a"].config == expected
    assert wanted(desired)["dc2/a"].unset == unset


def test_what_is_declared_at_the_destination_stands() -> None:
    desired = expand(
        topology(flow("dc1>dc2"), topic("dc2/a", retention_ms="7", min_insync_replicas="1")),
        observed(cluster("dc1", live("a", retention_ms="5")), cluster("dc2", live("a", flush_ms="1"))),
    )
    one = wanted(desired)["dc2/a"]
    assert one.origin == Declared()
    assert one.config == {**MIRROR, "retention.ms": "7", "min.insync.replicas": "1"}
    assert one.unset == frozenset()


def test_provenance_headers_need_room() -> None:
    desired = expand(
        topology(flow("dc1>dc2", provenance=Provenance.HEADERS), flow("dc2>dc3")),
        observed(cluster("dc1", live("a", max_message_bytes="2000000")), cluster("dc2"), cluster("dc3")),
    )
    assert wanted(desired)["dc2/a"].config["max.message.bytes"] == "2001024"
    assert wanted(desired)["dc3/a"].config["max.message.bytes"] == "2001024"


def test_all_settings_of_a_topic_that_is_still_to_be_made() -> None:
    desired = expand(
        topology(flow("dc1>dc2", configs=Configs(ConfigSync.ALL)), topic("dc1/a", flush_ms="1")),
        observed(cluster("dc1"), cluster("dc2")),
    )
    inherited = {"retention.ms": "604800000", "retention.bytes": "-1"}
    assert wanted(desired)["dc2/a"].config == {**MIRROR, **inherited, "flush.ms": "1"}


def test_a_value_that_is_no_number_is_left_to_the_broker() -> None:
    desired = expand(
        topology(flow("dc1>dc2", provenance=Provenance.HEADERS), topic("dc1/a", max_message_bytes="much")),
        observed(cluster("dc1"), cluster("dc2")),
    )
    assert wanted(desired)["dc2/a"].config["max.message.bytes"] == "much"


def test_a_value_that_nobody_may_see_is_neither_mirrored_nor_taken_back() -> None:
    secret = ConfigValue(None, sensitive=True)
    source, mirror = live("a"), live("a")
    desired = expand(
        topology(flow("dc1>dc2", configs=Configs(ConfigSync.SET, ("segment.bytes",)))),
        observed(
            cluster("dc1", replace(source, config={**source.config, "vendor.key": secret})),
            cluster("dc2", replace(mirror, config={**mirror.config, "other.key": secret})),
        ),
    )
    one = wanted(desired)["dc2/a"]
    assert (set(one.config), one.unset) == (set(MIRROR) - {"segment.bytes"}, frozenset())
