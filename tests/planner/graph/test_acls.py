"""ACLs: declared, and mirrored with their topics."""

import pytest

from planner.model.desired import Declared, MirroredBy
from planner.model.topology import AclRule
from runtime.contract.spec.acls import destination_prefix
from runtime.contract.spec.jobspec import Route
from runtime.contract.spec.rename import Match, Rename, Table, Template
from runtime.contract.spec.route import CompiledRoute
from runtime.contract.spec.selection import SelectionSpec
from tests.fakes.tables import cases
from tests.planner.graph.build import acl_entry, cluster, expanded, flow, rule, rules, said

PREFIX = Template("{source}.{topic}")
EMPTY = cluster("dc2", acls=())


@pytest.mark.parametrize(
    ("source", "mirrored"),
    [
        (rule("dc1 ALLOW User:a READ orders"), ["dc2.allow.User:a.READ.topic.dc1.orders"]),
        (rule("dc1 ALLOW User:a WRITE orders"), []),
        (
            rule("dc1 ALLOW User:a ALL orders"),
            ["dc2.allow.User:a.DESCRIBE.topic.dc1.orders", "dc2.allow.User:a.READ.topic.dc1.orders"],
        ),
        (rule("dc1 DENY User:a WRITE orders"), ["dc2.deny.User:a.WRITE.topic.dc1.orders"]),
        (rule("dc1 DENY User:a ALL orders"), ["dc2.deny.User:a.ALL.topic.dc1.orders"]),
        (
            rule("dc1 ALLOW User:a READ orders", host="10.0.0.1"),
            ["dc2.allow.User:a@10.0.0.1.READ.topic.dc1.orders"],
        ),
        (rule("dc1 ALLOW User:a READ other"), []),
        (rule("dc1 ALLOW User:a READ orders", kind="GROUP"), []),
        (rule("dc1 ALLOW User:a READ __repl.ledger"), []),
        (rule("dc1 ALLOW User:a READ ord", "PREFIXED"), ["dc2.allow.User:a.READ.topic.dc1.ord*"]),
        (rule("dc1 ALLOW User:a READ nothing", "PREFIXED"), []),
        (
            rule("dc1 ALLOW User:a READ o", "PREFIXED"),  # `other` is not copied
            ["dc2.allow.User:a.READ.topic.dc1.orders"],
        ),
        (rule("dc1 ALLOW User:a READ *"), []),
    ],
)
def test_a_rule_at_the_source_becomes(source: AclRule, mirrored: list[str]) -> None:
    dc1 = cluster("dc1", "orders", "other", acls=(source,))
    desired = expanded(flow("dc1>dc2", "orders", rename=PREFIX, acls_sync=True), dc1=dc1, dc2=EMPTY)
    assert rules(desired) == mirrored


def test_where_a_rule_could_not_go_along_it_is_said() -> None:
    acls = rule("dc1 ALLOW User:a READ *"), rule("dc1 ALLOW User:b READ o", "PREFIXED")
    dc1 = cluster("dc1", "orders", "other", acls=acls)
    desired = expanded(flow("dc1>dc2", "orders", acls_sync=True), dc1=dc1, dc2=EMPTY)
    for code, text in (
        (
            "acl-on-everything",
            "rules on every topic (*) of dc1 are not mirrored: they would apply to dc2's own",
        ),
        (
            "acl-prefix",
            "prefixed rules are mirrored topic by topic: the flow does not take every topic under",
        ),
    ):
        (summary,) = said(desired, code)
        assert summary.startswith(text)
        assert "User:a — declare" in summary or ": o — a new topic gets its rules" in summary


READERS = cluster("dc1", "a", acls=(rule("dc1 ALLOW User:a READ a"),))
COPIED, OWN = rule("dc2 ALLOW User:a READ a"), rule("dc2 ALLOW User:b READ a")
ENTRY = acl_entry("dc1-dc2", COPIED)
SYNCED, BACK = flow("dc1>dc2", acls_sync=True), flow("dc2>dc1", acls_sync=True)
ENDED = flow("x=dc1>dc3", acls_sync=True, state="promoted")
UNREADABLE = cluster("dc1", "a", unreadable={"acls": "not authorized"})


@cases(
    "flows clusters found",
    {
        "not wanted": ([flow("dc1>dc2"), ENDED], {"dc1": READERS, "dc3": cluster("dc3", acls=())}, set()),
        "there of its own": ([SYNCED], {"dc1": READERS, "dc2": cluster("dc2", acls=(COPIED,))}, set()),
        "a destination that is down": ([SYNCED], {"dc1": READERS, "dc2": None}, {COPIED}),
        "between two sides": (
            [SYNCED, BACK],
            {"dc1": READERS, "dc2": cluster("dc2", "a", acls=(COPIED,), owned=(ENTRY,))},
            {COPIED},
        ),
        "it does not outlive its own": (
            [SYNCED, BACK],
            {"dc1": cluster("dc1", "a", acls=()), "dc2": cluster("dc2", "a", acls=(COPIED,), owned=(ENTRY,))},
            set(),
        ),
        "held while they can't be read": (
            [SYNCED, flow("x=dc1>dc3", "zzz", acls_sync=True)],
            {"dc1": UNREADABLE, "dc2": cluster("dc2", "a", acls=(COPIED, OWN), owned=(ENTRY,)), "dc3": None},
            {COPIED},
        ),
    },
)
def test_the_rules_of_a_mirror(flows, clusters, found) -> None:
    desired = expanded(*flows, **clusters)
    assert {one.rule for one in desired.acls} == found
    why = "the ACLs of dc1 could not be read: not authorized"
    assert desired.unknown == ({"flow.dc1-dc2": why, "flow.x": why} if clusters["dc1"] is UNREADABLE else {})


def test_along_a_chain_rules_arrive_in_one_plan_and_declared_ones_win() -> None:
    declared = rule("dc3 ALLOW User:a READ a")
    desired = expanded(
        SYNCED, flow("dc2>dc3", acls_sync=True), declared, dc1=READERS, dc2=EMPTY, dc3=cluster("dc3", acls=())
    )
    assert [(one.rule.cluster, one.origin) for one in desired.acls] == [
        ("dc2", MirroredBy("dc1-dc2", "dc1", "a")),
        ("dc3", Declared()),
    ]


@pytest.mark.parametrize(
    ("rename", "prefix", "there"),
    [
        (Template("{topic}"), "pay", "pay"),
        (PREFIX, "pay", "dc1.pay"),
        (Template("{topic}.replica"), "pay", None),
        (Table({"a": "b"}), "pay", "pay"),
        (Table({"pays": "b"}), "pay", None),
        (Table({"b": "pays"}), "pay", None),
        (Match(r"a-(.*)", r"b-\1"), "a-x", "b-x"),
        (Match(r"a-(.*)", r"b-\1"), "a", None),
        (Match(r"a-(.*)$", r"\1"), "a-x", "x"),
        (Match(r"a-(.*)", r"\1-b"), "a-x", None),
        (Match(r"a-([a-z]*)", r"b-\1"), "a-x", None),
        (Match(r"([a-z]+)-(.*)", r"\1.\2"), "a-x", None),
    ],
)
def test_a_prefix_at_the_other_side(rename: Rename, prefix: str, there: str | None) -> None:
    assert (
        destination_prefix(CompiledRoute(Route("f", "dc1", "dc2", SelectionSpec((".*",)), rename)), prefix)
        == there
    )


@pytest.mark.parametrize(("rename", "there"), [(Template("{topic}"), "pay"), (PREFIX, None)])
def test_a_prefix_on_the_way_back(rename: Rename, there: str | None) -> None:
    way = CompiledRoute(Route("back", "dc2", "dc1", SelectionSpec(()), rename, undoes=SelectionSpec((".*",))))
    assert destination_prefix(way, "pay") == there
