"""Flows in every state, clusters that cannot be read, and the jobs."""

import pytest

from planner.graph import expand
from planner.model.desired import DesiredTopic, MirroredBy
from planner.model.topology import FlowState
from runtime.contract.spec.rename import Template
from tests.planner.graph.build import (
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
