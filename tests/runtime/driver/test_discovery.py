"""What a flow finds at both sides, and what follows."""

import pytest

from runtime.contract.spec.jobspec import FlowSpec, JobSpec, RouteSpec, SelectionSpec, TemplateRule
from runtime.contract.spec.route import router_of
from runtime.driver.topics.mirrors import DiscoveredTopics, MirrorTopic, discover, selected_topics

SAME = {"a": "a", "b": "b"}


@pytest.mark.parametrize(
    ("destination", "copied", "expected"),
    [
        ({}, (), {"create": {"a", "b"}, "grow": set(), "copy": {"a", "b"}}),
        ({"a": 2, "b": 2}, (), {"create": set(), "grow": set(), "copy": {"a", "b"}}),
        ({"a": 1, "b": 9}, ("a",), {"create": set(), "grow": {"a"}, "copy": {"a", "b"}}),
        # A mirror that was copied into and is gone is not silently created again (R4).
        ({"b": 2}, ("a", "b"), {"create": set(), "grow": set(), "copy": {"a", "b"}}),
    ],
)
def test_what_follows(destination: dict[str, int], copied: tuple[str, ...], expected: dict[str, set[str]]):
    found = discover(SAME, {"a": 2, "b": 2}, destination, copied)
    assert {kind: {one.topic for one in getattr(found, kind)} for kind in expected} == expected


def test_a_mirror_that_is_gone_is_created_again_where_losses_are_accepted():
    assert discover({"a": "a"}, {"a": 1}, {}, {"a"}, replace_lost=True).create == (MirrorTopic("a", "a", 1),)
    assert "not created again" in discover({"a": "a"}, {"a": 1}, {}, {"a"}).notes[0]


def test_two_topics_of_one_name_are_not_mixed():
    found = discover({"a-x": "x", "b-x": "x"}, {"a-x": 1, "b-x": 1}, {}, ())
    assert found == DiscoveredTopics(
        create=(MirrorTopic("a-x", "x", 1),),
        grow=(),
        copy=(MirrorTopic("a-x", "x", 1),),
        notes=("b-x is not copied: a-x has the name x at the destination",),
    )


def job(flow: FlowSpec, *routes: RouteSpec) -> JobSpec:
    return JobSpec(job="j", topology="t", destination="dc2", clusters={}, flows=[flow], routes=list(routes))


PREFIXED = TemplateRule(text="{source}.{topic}")
EVERYTHING = SelectionSpec(include=[".*"])


def test_names_do_not_grow_round_and_round_when_the_way_back_is_known():
    there = FlowSpec(name="there", source="dc1", destination="dc2", topics=EVERYTHING, rename=PREFIXED)
    routes = [
        RouteSpec(name="there", source="dc1", destination="dc2", topics=EVERYTHING, rename=PREFIXED),
        RouteSpec(name="back", source="dc2", destination="dc1", topics=EVERYTHING, rename=PREFIXED),
    ]
    topics = ["orders", "dc2.orders", "__repl.ledger"]
    assert selected_topics(there, router_of(job(there, *routes)), topics) == {"orders": "dc1.orders"}


def test_topics_that_were_promoted_on_their_own_are_left():
    flow = FlowSpec(name="f", source="dc1", destination="dc2", topics=EVERYTHING, promoted=["pay.*"])
    router, topics = router_of(job(flow)), ["orders", "payments", "payroll"]
    assert selected_topics(flow, router, topics) == {"orders": "orders"}
    assert selected_topics(flow, router, topics, {"payroll"}) == {"orders": "orders", "payroll": "payroll"}
