"""Which topics the clusters should hold, and with what."""

import pytest

from planner.expand import expand
from planner.model.desired import Declared, DesiredTopic, MirroredBy
from planner.model.topology import Configs, ConfigSync, FlowState, OnRemove, Provenance, Topic
from runtime.contract.rename import Match, Table, Template
from tests.planner.expand.build import (
    BOUNDS,
    MIRROR,
    cluster,
    flow,
    live,
    mirror_entry,
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


def test_a_value_that_is_no_number_is_left_to_the_broker() -> None:
    desired = expand(
        topology(flow("dc1>dc2", provenance=Provenance.HEADERS), topic("dc1/a", max_message_bytes="much")),
        observed(cluster("dc1"), cluster("dc2")),
    )
    assert wanted(desired)["dc2/a"].config["max.message.bytes"] == "much"


@pytest.mark.parametrize("state", [FlowState.PROMOTED, FlowState.FAILED_OVER])
def test_a_flow_that_ended_leaves_its_mirrors_as_they_are(state: FlowState) -> None:
    owned = (
        mirror_entry("dc1-dc2", "dc2/dc1.a"),
        mirror_entry("dc1-dc2", "dc2/dc1.gone"),
        mirror_entry("dc1-dc2", "dc2/odd"),
        mirror_entry("dc1-dc2", "dc2/dc1.b", topology="another"),
        mirror_entry("other", "dc2/dc1.c"),
    )
    desired = expand(
        topology(flow("dc1>dc2", rename=PREFIX, state=state)),
        observed("dc1", cluster("dc2", "dc1.a", "dc1.b", "dc1.c", "odd", owned=owned)),
    )
    assert desired.topics == (DesiredTopic("dc2", "dc1.a", MirroredBy("dc1-dc2", "dc1", "a")),)
    assert selected(desired) == {"dc1-dc2": (("a", "dc1.a"),)}
    assert desired.unknown == {}
    assert desired.flows[0].selection_known


def test_a_topic_that_was_promoted_on_its_own_is_left_as_it_is() -> None:
    owned = (mirror_entry("dc1-dc2", "dc2/pay.eu"), mirror_entry("dc1-dc2", "dc2/pay.us"))
    desired = expand(
        topology(flow("dc1>dc2", promoted=(r"pay\.eu",))),
        observed(cluster("dc1", "pay.eu", "pay.us"), cluster("dc2", "pay.eu", "pay.us", owned=owned)),
    )
    assert {place: one.config for place, one in wanted(desired).items()} == {
        "dc2/pay.eu": {},
        "dc2/pay.us": MIRROR,
    }
    assert selected(desired) == {"dc1-dc2": (("pay.us", "pay.us"),)}


def test_a_promoted_mirror_that_another_flow_fills_is_that_flows() -> None:
    desired = expand(
        topology(flow("old=dc1>dc2", state=FlowState.PROMOTED), flow("new=dc3>dc2")),
        observed(
            cluster("dc1"), cluster("dc2", "a", owned=(mirror_entry("old", "dc2/a"),)), cluster("dc3", "a")
        ),
    )
    assert [one.origin for one in desired.topics] == [MirroredBy("new", "dc3", "a")]


def test_failback_brings_topics_home_under_their_old_names() -> None:
    desired = expand(
        topology(
            flow("f=dc1>dc2", "pay", rename=PREFIX, state=FlowState.FAILED_OVER),
            flow("f-back=dc2>dc1", reverse_of="f"),
        ),
        observed(cluster("dc1"), cluster("dc2", live("dc1.pay", 3), "dc1.other", "own")),
    )
    assert {place: one.origin for place, one in wanted(desired).items()} == {
        "dc1/pay": MirroredBy("f-back", "dc2", "dc1.pay")
    }


def test_what_may_not_be_described_is_unknown_and_never_created() -> None:
    desired = expand(
        topology(flow("dc1>dc2", ("secret", "dim", "hidden.*"))),
        observed(
            cluster("dc1", live("dim", 3, retention_ms="1"), hidden=frozenset({"secret", "dim", "else"})),
            cluster("dc2", live("dim", flush_ms="1")),
        ),
    )
    assert {place: (one.partitions, one.config, one.unset) for place, one in wanted(desired).items()} == {
        "dc2/dim": (3, BOUNDS, frozenset())
    }
    assert desired.unknown == {
        "topic.dc1.dim": "not authorized to describe dc1/dim",
        "topic.dc1.secret": "not authorized to describe dc1/secret",
    }


def test_what_hangs_on_an_unreachable_cluster_is_unknown_and_the_rest_is_expanded() -> None:
    desired = expand(
        topology(
            flow("dc1>dc2"),
            flow("dc2>dc1", "own"),
            flow("dc2>dc3", "x"),
            topic("dc1/declared", 2),
        ),
        observed("dc1", cluster("dc2", live("own", 2), "x"), cluster("dc3")),
    )
    assert desired.unknown == {"flow.dc1-dc2": "dc1 unreachable"}
    assert {place: one.partitions for place, one in wanted(desired).items()} == {
        "dc1/declared": 2,
        "dc1/own": 2,
        "dc3/x": 1,
    }
    assert [(one.flow.name, one.selection_known) for one in desired.flows] == [
        ("dc1-dc2", False),
        ("dc2-dc1", True),
        ("dc2-dc3", True),
    ]


def test_sizes_that_nothing_tells_are_left_open() -> None:
    desired = expand(
        topology(flow("dc1>dc2"), topic("dc1/a")),
        observed(cluster("dc1", default_partitions=None, defaults={}), cluster("dc2")),
    )
    assert wanted(desired)["dc2/a"].partitions is None
    assert wanted(desired)["dc2/a"].config == BOUNDS


def test_jobs_are_those_that_flows_name() -> None:
    desired = expand(
        topology(flow("dc1>dc2"), flow("x=dc3>dc2"), flow("y=dc1>dc3", job="mine")),
        observed(cluster("dc1"), cluster("dc2"), cluster("dc3")),
    )
    assert [(one.job.name, one.flows) for one in desired.jobs] == [
        ("dc2", ("dc1-dc2", "x")),
        ("mine", ("y",)),
    ]
