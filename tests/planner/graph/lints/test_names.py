"""Names at the destination."""

import pytest

from planner.graph import expand, lint_offline
from planner.model.topology import (
    Flow,
    FlowState,
    Topic,
)
from runtime.contract.spec.rename import Match, Table, Template
from tests.planner.graph.build import THREE, cluster, codes, flow, found, observed, topic, topology

PREFIX = Template("{source}.{topic}")


def test_two_names_mapped_to_one() -> None:
    of = topology(flow("dc1>dc2", rename=Match(r"a-(.*)", r"b-\1")))
    over = observed(cluster("dc1", "a-x", "b-x", "a-y", "b-y", "a-z"), cluster("dc2"))
    assert found(of, "rename-collision", over) == [
        "flow.dc1-dc2: the rename gives both a-x and b-x the name dc2/b-x (and 1 more such)"
    ]


@pytest.mark.parametrize(
    ("flows", "summary"),
    [
        (
            (flow("x=dc1>dc3", "a"), flow("y=dc2>dc3", "a")),
            "flow.x: flow.x and flow.y both write dc3/a, from dc1/a and dc2/a",
        ),
        (
            (flow("x=dc1>dc3", "a"), flow("y=dc2>dc3", "b", rename=Table((("b", "a"),)))),
            "flow.x: flow.x and flow.y both write dc3/a, from dc1/a and dc2/b",
        ),
        (
            (flow("x=dc1>dc3", "a"), flow("y=dc1>dc3", ("a", "b"))),
            "flow.x: flow.x and flow.y both copy dc1/a to dc3/a: every record would be copied twice",
        ),
    ],
)
def test_two_flows_that_write_one_topic(flows: tuple[Flow, ...], summary: str) -> None:
    of = topology(*flows)
    assert found(of, "flow-collision") == [summary]
    assert "flow-collision" in codes(lint_offline(of))


@pytest.mark.parametrize(
    "flows",
    [
        (flow("x=dc1>dc3", rename=PREFIX), flow("y=dc2>dc3", rename=PREFIX)),
        (flow("x=dc1>dc3", "a"), flow("y=dc2>dc3", "b")),
        (flow("x=dc1>dc3", "a"), flow("y=dc2>dc3", "a", state=FlowState.FAILED_OVER)),
        (flow("x=dc1>dc3", "a"), flow("y=dc2>dc3", "a", promoted=("a",))),
        # One topic that all three hold, with dc3 between the others.
        (flow("dc1>dc3"), flow("dc3>dc1"), flow("dc2>dc3"), flow("dc3>dc2")),
    ],
)
def test_flows_that_do_not_collide(flows: tuple[Flow, ...]) -> None:
    of = topology(*flows)
    assert "flow-collision" not in codes(expand(of, THREE)) + list(codes(lint_offline(of)))


def test_whether_two_regexes_collide_is_decided_by_what_is_there() -> None:
    of = topology(flow("x=dc1>dc3"), flow("y=dc2>dc3"))
    assert codes(lint_offline(of)) == []
    assert codes(expand(of, observed(cluster("dc1", "a"), cluster("dc2", "b"), cluster("dc3")))) == []
    assert codes(expand(of, observed(cluster("dc1", "a"), cluster("dc2", "a"), cluster("dc3")))) == [
        "flow-collision"
    ]


@pytest.mark.parametrize(
    ("rename", "include", "why"),
    [
        (PREFIX, "x" * 246, "a topic's name has at most 249 characters, 'dc1.xxxxxxxxxxxxxxxx'… has 250"),
        (Table((("a", "__repl.a"),)), "a", "it is reserved for internal topics"),
    ],
)
def test_names_that_cannot_be(rename: Template, include: str, why: str) -> None:
    of = topology(flow("dc1>dc2", include, rename=rename))
    texts = [one.summary for one in lint_offline(of) if one.code == "illegal-name"]
    assert texts == [f"the topic {include} would get an illegal name at dc2: {why}"]


@pytest.mark.parametrize(
    ("parts", "there", "expected"),
    [
        ((flow("dc1>dc2", "a.b"),), "a_b", ["topic.dc2.a.b"]),
        ((topic("dc2/a.b"),), "a_b", ["topic.dc2.a.b"]),
        ((flow("dc1>dc2", "a.b"), topic("dc2/a_b")), "c", ["topic.dc2.a.b"]),
        ((flow("dc1>dc2", "a.b"),), "a.b", []),
        ((flow("dc1>dc2", "a.b"),), "ab", []),
    ],
)
def test_dots_and_underscores_are_one_to_kafka(
    parts: tuple[Flow | Topic, ...], there: str, expected: list[str]
) -> None:
    desired = expand(topology(*parts), observed(cluster("dc1", "a.b"), cluster("dc2", there)))
    assert [one.address for one in desired.diagnostics if one.code == "metric-collision"] == expected
