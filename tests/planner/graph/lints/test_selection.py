"""What a flow includes, against what is there."""

import pytest

from planner.graph import expand, lint_offline
from planner.model.topology import (
    FlowState,
    Groups,
    Selection,
)
from runtime.contract.spec.rename import Template
from tests.planner.graph.build import THREE, cluster, codes, flow, found, observed, said, topic, topology

PREFIX = Template("{source}.{topic}")
NO_SYNC = Groups(sync=False)


@pytest.mark.parametrize(
    ("include", "names", "expected"),
    [
        ("orders", ["orders"], []),
        (
            "orders",
            ["order"],
            ["there is no topic orders at dc1 — did you mean order? it is found as soon as it"],
        ),
        (
            "orders",
            ["zzz"],
            ["there is no topic orders at dc1 — it is found as soon as it appears; until then"],
        ),
        ("pay.*", ["pay1"], []),
        (
            "pay.*",
            ["pax"],
            ["'pay.*' matches no topic of dc1 — did you mean pax? a regex matches whole names; a"],
        ),
        (
            "pay.*",
            ["zzz"],
            ["'pay.*' matches no topic of dc1 — a regex matches whole names; a topic that fits is"],
        ),
        ("a.b", ["a-b"], []),
    ],
)
def test_an_include_that_matches_nothing(include: str, names: list[str], expected: list[str]) -> None:
    desired = expand(topology(flow("dc1>dc2", include)), observed(cluster("dc1", *names), cluster("dc2")))
    texts = said(desired, "absent-topic") + said(desired, "include-matches-nothing")
    assert len(texts) == len(expected)
    assert all(text.startswith(start) for text, start in zip(texts, expected, strict=True))


def test_without_follow_a_topic_is_found_by_the_next_apply() -> None:
    of = topology(flow("dc1>dc2", "zzz", follow_every_ms=None))
    assert "found by the next apply" in said(expand(of, THREE), "absent-topic")[0]


def test_topics_that_will_be_there_are_there() -> None:
    of = topology(flow("dc1>dc2", "a"), flow("dc2>dc3", ("a", "dec.*")), topic("dc2/declared"))
    assert codes(expand(of, THREE)) == []


def test_a_flow_that_ended_or_brings_topics_home_is_not_asked_for_matches() -> None:
    of = topology(
        flow("f=dc1>dc2", "gone", state=FlowState.PROMOTED), flow("b=dc2>dc1", "gone", reverse_of="f")
    )
    assert codes(expand(of, THREE)) == []


def test_what_the_default_denials_hide_is_said_aloud() -> None:
    names = ["a", "a.internal", "b-internal", "c.replica", "__consumer_offsets", "__repl.ledger"]
    desired = expand(
        topology(flow("dc1>dc2", topics=Selection((".*", "c.replica"), ("b-.*",)))),
        observed(cluster("dc1", *names), cluster("dc2")),
    )
    assert said(desired, "hidden-by-default") == [
        (
            "include matches the topic a.internal of dc1, which the default denials exclude — to copy a"
            " topic, write its name under include, or set default_exclude: false; to silence this, name it"
            " under exclude"
        )
    ]
    assert desired.flows[0].hidden == ("a.internal",)
    assert desired.flows[0].topics == (("a", "a"), ("c.replica", "c.replica"))


def test_what_does_not_go_back_is_noted() -> None:
    of = topology(flow("dc1>dc2", rename=PREFIX), flow("dc2>dc1", rename=PREFIX))
    over = observed(cluster("dc1", "a", "dc2.b"), cluster("dc2", "b", "dc1.a"))
    assert found(of, "comes-back", over) == [
        "flow.dc1-dc2: not copied back: the topic dc2.b of dc1, mirrored from dc2",
        "flow.dc2-dc1: not copied back: the topic dc1.a of dc2, mirrored from dc1",
    ]


@pytest.mark.parametrize("name", ["__repl.heartbeats", "__consumer_offsets"])
def test_topics_that_no_client_may_write_are_refused(name: str) -> None:
    of = topology(flow("dc1>dc2", (name, "a")))
    assert codes(expand(of, THREE)) == ["reserved-topic"]
    assert codes(lint_offline(of)) == ["reserved-topic"]


@pytest.mark.parametrize(
    ("reads", "sync", "lints"),
    [
        ({"app": frozenset({"b"})}, True, ["group-without-data"]),
        ({"app": frozenset({"b", "a"})}, True, []),
        ({"app": frozenset()}, True, []),
        ({}, True, []),
        (None, True, []),
        ({"app": frozenset({"b"})}, False, []),
    ],
)
def test_a_named_group_that_reads_nothing_of_the_flow(
    reads: dict[str, frozenset[str]] | None, sync: bool, lints: list[str]
) -> None:
    groups = Groups(Selection(("app", "x.*")), sync=sync)
    over = observed(cluster("dc1", "a", "b", group_topics=reads), cluster("dc2"))
    desired = expand(topology(flow("dc1>dc2", "a", groups=groups)), over)
    assert codes(desired) == lints


@pytest.mark.parametrize(
    ("selection", "sync", "notes"),
    [
        (Selection((".*",)), True, ["connect-sink, console-consumer-7"]),
        (Selection((".*", "connect-sink"), ("console-.*",)), True, []),
        (Selection(("console-.*",)), True, ["console-consumer-7"]),
        (Selection((".*",), default_exclude=False), True, []),
        (Selection((".*",)), False, []),
    ],
)
def test_groups_that_the_default_denials_keep_out(selection: Selection, sync: bool, notes: list[str]) -> None:
    reads = {"console-consumer-7": "a", "connect-sink": "a", "connect-else": "b", "app": "a"}
    read = {group: frozenset({topic}) for group, topic in reads.items()}
    over = observed(cluster("dc1", "a", "b", group_topics=read), cluster("dc2"))
    of = topology(flow("dc1>dc2", "a", groups=Groups(selection, sync=sync)))
    assert codes(expand(of, over)) == ["group-hidden-by-default"] * len(notes)
    for said_of, summary in zip(notes, found(of, "group-hidden-by-default", over), strict=True):
        assert said_of in summary


def test_a_flow_that_can_take_nothing_cannot_sync_groups() -> None:
    nothing = Selection(("a",), ("a",))
    assert codes(lint_offline(topology(flow("dc1>dc2", topics=nothing)))) == ["group-without-data"]
    assert codes(lint_offline(topology(flow("dc1>dc2", topics=nothing, groups=NO_SYNC)))) == []
