"""ACLs: declared, and mirrored with their topics."""

import pytest

from planner.graph import expand
from planner.model.desired import Declared, Desired, MirroredBy
from planner.model.topology import AclRule, FlowState
from runtime.contract.spec.acls import destination_prefix
from runtime.contract.spec.rename import Match, Rename, Table, Template
from runtime.contract.spec.route import CompiledRoute, Route
from runtime.contract.spec.selection import SelectionRules
from tests.planner.graph.build import acl_entry, cluster, flow, observed, rule, said, topology

PREFIX = Template("{source}.{topic}")


def rules(desired: Desired) -> set[AclRule]:
    return {one.rule for one in desired.acls}


def words(desired: Desired) -> list[str]:
    return [f"{one.rule.cluster}.{one.rule.name}" for one in desired.acls]


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
    desired = expand(
        topology(flow("dc1>dc2", "orders", rename=PREFIX, acls_sync=True)),
        observed(cluster("dc1", "orders", "other", acls=(source,)), cluster("dc2", acls=())),
    )
    assert words(desired) == mirrored


def test_where_a_rule_could_not_go_along_it_is_said() -> None:
    everything = rule("dc1 ALLOW User:a READ *")
    prefixed = rule("dc1 ALLOW User:b READ o", "PREFIXED")
    desired = expand(
        topology(flow("dc1>dc2", "orders", acls_sync=True)),
        observed(cluster("dc1", "orders", "other", acls=(everything, prefixed)), cluster("dc2", acls=())),
    )
    assert said(desired, "acl-on-everything") == [
        (
            "rules on every topic (*) of dc1 are not mirrored: they would apply to dc2's own topics too:"
            " User:a — declare under acls what these principals may do at dc2"
        )
    ]
    assert said(desired, "acl-prefix") == [
        (
            "prefixed rules are mirrored topic by topic: the flow does not take every topic under the"
            " prefix, or its rename has no such prefix: o — a new topic gets its rules within follow; or"
            " declare a prefixed rule under acls"
        )
    ]


def test_nothing_is_mirrored_that_nobody_asked_for() -> None:
    desired = expand(
        topology(flow("dc1>dc2"), flow("x=dc1>dc3", acls_sync=True, state=FlowState.PROMOTED)),
        observed(
            cluster("dc1", "a", acls=(rule("dc1 ALLOW User:a READ a"),)),
            cluster("dc2"),
            cluster("dc3", acls=()),
        ),
    )
    assert desired.acls == ()


def test_along_a_chain_rules_arrive_in_one_plan_and_declared_ones_win() -> None:
    declared = rule("dc3 ALLOW User:a READ a")
    desired = expand(
        topology(flow("dc1>dc2", acls_sync=True), flow("dc2>dc3", acls_sync=True), declared),
        observed(
            cluster("dc1", "a", acls=(rule("dc1 ALLOW User:a READ a"),)),
            cluster("dc2", acls=()),
            cluster("dc3", acls=()),
        ),
    )
    assert [(one.rule.cluster, one.origin) for one in desired.acls] == [
        ("dc2", MirroredBy("dc1-dc2", "dc1", "a")),
        ("dc3", Declared()),
    ]


@pytest.mark.parametrize("native", [True, False])
def test_between_two_sides_a_rule_does_not_outlive_its_own(native: bool) -> None:
    copied = rule("dc2 ALLOW User:a READ a")
    desired = expand(
        topology(flow("dc1>dc2", acls_sync=True), flow("dc2>dc1", acls_sync=True)),
        observed(
            cluster("dc1", "a", acls=(rule("dc1 ALLOW User:a READ a"),) if native else ()),
            cluster("dc2", "a", acls=(copied,), owned=(acl_entry("dc1-dc2", copied),)),
        ),
    )
    assert rules(desired) == ({copied} if native else set())


def test_a_rule_that_is_there_of_its_own_stays_nobodys() -> None:
    desired = expand(
        topology(flow("dc1>dc2", acls_sync=True)),
        observed(
            cluster("dc1", "a", acls=(rule("dc1 ALLOW User:a READ a"),)),
            cluster("dc2", acls=(rule("dc2 ALLOW User:a READ a"),)),
        ),
    )
    assert desired.acls == ()


def test_an_unreachable_destination_gets_its_rules_when_it_is_back() -> None:
    desired = expand(
        topology(flow("dc1>dc2", acls_sync=True)),
        observed(cluster("dc1", "a", acls=(rule("dc1 ALLOW User:a READ a"),)), "dc2"),
    )
    assert words(desired) == ["dc2.allow.User:a.READ.topic.a"]


def test_rules_that_cannot_be_read_are_held_as_they_are() -> None:
    copied, own = rule("dc2 ALLOW User:a READ a"), rule("dc2 ALLOW User:b READ a")
    desired = expand(
        topology(flow("dc1>dc2", acls_sync=True), flow("x=dc1>dc3", "zzz", acls_sync=True)),
        observed(
            cluster("dc1", "a", unreadable={"acls": "not authorized"}),
            cluster("dc2", "a", acls=(copied, own), owned=(acl_entry("dc1-dc2", copied),)),
            "dc3",
        ),
    )
    assert rules(desired) == {copied}
    assert desired.unknown == {
        "flow.dc1-dc2": "the ACLs of dc1 could not be read: not authorized",
        "flow.x": "the ACLs of dc1 could not be read: not authorized",
    }


@pytest.mark.parametrize(
    ("rename", "prefix", "there"),
    [
        (Template("{topic}"), "pay", "pay"),
        (PREFIX, "pay", "dc1.pay"),
        (Template("{topic}.replica"), "pay", None),
        (Table((("a", "b"),)), "pay", "pay"),
        (Table((("pays", "b"),)), "pay", None),
        (Table((("b", "pays"),)), "pay", None),
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
        destination_prefix(CompiledRoute(Route("f", "dc1", "dc2", SelectionRules((".*",)), rename)), prefix)
        == there
    )


@pytest.mark.parametrize(("rename", "there"), [(Template("{topic}"), "pay"), (PREFIX, None)])
def test_a_prefix_on_the_way_back(rename: Rename, there: str | None) -> None:
    way = CompiledRoute(
        Route("back", "dc2", "dc1", SelectionRules(()), rename, undoes=SelectionRules((".*",)))
    )
    assert destination_prefix(way, "pay") == there
