"""Which rules a running job makes and removes at the destination, for the rules at the source."""

import pytest

from runtime.contract.spec.acls import AclRule
from runtime.contract.spec.jobspec import FlowSpec, ProtectionSpec, RouteSpec, SelectionSpec
from runtime.contract.spec.route import CompiledRoute, Route
from runtime.contract.spec.selection import SelectionRules
from runtime.driver.duties.acl_sync import AclChanges, ClusterRules, acl_changes
from runtime.driver.topics.mirrors import protecting_rules
from runtime.driver.topics.registry import OwnedAcl

EVERY = SelectionSpec(include=[".*"])
FORWARD = RouteSpec(name="f", source="dc1", destination="dc2", topics=EVERY)
BACK = RouteSpec(name="g", source="dc2", destination="dc1", topics=EVERY)
BEFORE = RouteSpec(name="e", source="dc0", destination="dc1", topics=EVERY)


def rule(words: str, pattern: str = "LITERAL", kind: str = "TOPIC") -> AclRule:
    """`dc1 ALLOW User:app READ orders`."""
    where, permission, principal, operation, resource = words.split()
    return AclRule(where, kind, resource, pattern, principal, "*", operation, permission)  # type: ignore[arg-type]


def flow(**more: object) -> FlowSpec:
    return FlowSpec(name="f", source="dc1", destination="dc2", topics=EVERY, acls_sync=True, **more)  # type: ignore[arg-type]


def made(one: AclRule, origin: str = "flow.f") -> OwnedAcl:
    return OwnedAcl(one, "shop", origin)


def changes(
    source: tuple[AclRule, ...] = (),
    destination: tuple[AclRule, ...] = (),
    owned: tuple[OwnedAcl, ...] = (),
    made_at_source: tuple[OwnedAcl, ...] = (),
    routes: tuple[RouteSpec, ...] = (FORWARD,),
    topics: tuple[str, ...] = ("orders", "pay.eu"),
    gone: tuple[str, ...] = (),
    **more: object,
) -> AclChanges:
    """The flow copies `topics` under their names; those in `gone` are at the source no more."""
    route = CompiledRoute(Route("f", "dc1", "dc2", SelectionRules((".*",))))
    there = {one: one for one in topics}
    every = [one for one in ("orders", "pay.eu") if one not in gone]
    return acl_changes(
        flow(**more),
        route,
        routes,
        there,
        every,
        ClusterRules(source, made_at_source),
        ClusterRules(destination, owned),
    )


READ1, READ2 = rule("dc1 ALLOW User:app READ orders"), rule("dc2 ALLOW User:app READ orders")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (READ1, {READ2}),
        (rule("dc1 ALLOW User:app WRITE orders"), set()),
        (rule("dc1 ALLOW User:app ALL orders"), {READ2, rule("dc2 ALLOW User:app DESCRIBE orders")}),
        (rule("dc1 DENY User:app WRITE orders"), {rule("dc2 DENY User:app WRITE orders")}),
        (
            rule("dc1 ALLOW User:app READ pay.", "PREFIXED"),
            {rule("dc2 ALLOW User:app READ pay.", "PREFIXED")},
        ),
        (rule("dc1 ALLOW User:app READ *"), set()),
        (rule("dc1 ALLOW User:app READ other"), set()),
        (rule("dc1 ALLOW User:app READ __repl.ledger"), set()),
    ],
)
def test_a_new_rule_at_the_source_is_made_at_the_destination(source: AclRule, expected: set[AclRule]) -> None:
    assert changes((source,)) == AclChanges(frozenset(expected), frozenset())


def test_a_rule_that_is_there_is_not_made_again() -> None:
    assert changes((READ1,), (READ2,)) == AclChanges(frozenset(), frozenset())


@pytest.mark.parametrize(
    ("owned", "removed"),
    [
        ((made(READ2),), {READ2}),
        ((), set()),  # it was there without the flow
        ((made(READ2, "flow.other"),), set()),
        ((made(READ2, "protect: acl of flow.f"),), set()),
    ],
)
def test_a_rule_that_the_flow_made_goes_with_its_rule_at_the_source(
    owned: tuple[OwnedAcl, ...], removed: set[AclRule]
) -> None:
    assert changes((), (READ2,), owned) == AclChanges(frozenset(), frozenset(removed))


def test_a_denial_that_protects_a_mirror_is_left_to_the_plan() -> None:
    denied = rule("dc2 DENY User:app WRITE orders")

    assert changes((), (denied,), (made(denied),), protect="acl").delete == frozenset()
    assert changes((), (denied,), (made(denied),)).delete == {denied}


@pytest.mark.parametrize(
    "more",
    [
        {"topics": ("pay.eu",), "promoted": ["orders"]},
        {"topics": ("pay.eu",), "gone": ("orders",)},
    ],
)
def test_readers_of_a_promoted_mirror_and_of_one_without_its_source_stay(more: dict[str, object]) -> None:
    assert changes((), (READ2,), (made(READ2),), **more).delete == frozenset()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("origin", "mirrored"),
    [
        ("flow.e", True),  # out of dc0, by way of dc1
        ("flow.g", False),  # out of the destination
        ("flow.of-another-topology", False),
        ("protect: acl of flow.e", False),
        ("declared", True),
    ],
)
def test_a_rule_that_a_flow_made_at_the_source(origin: str, mirrored: bool) -> None:
    found = changes((READ1,), made_at_source=(made(READ1, origin),), routes=(FORWARD, BACK, BEFORE))
    assert found.create == (frozenset({READ2}) if mirrored else frozenset())


def test_a_rule_that_a_loop_brought_is_not_removed_while_its_rule_is_there() -> None:
    at_source = (made(READ1, "flow.g"),)
    found = changes((READ1,), (READ2,), (made(READ2),), at_source, routes=(FORWARD, BACK))
    assert found == AclChanges(frozenset(), frozenset())


CLOSED = ProtectionSpec(principal="User:repl")
OPEN = ProtectionSpec(principal="User:repl", open_without_rules=True)


@pytest.mark.parametrize(
    ("known", "rules", "expected"),
    [
        (CLOSED, [], {}),
        (CLOSED, [rule("dc2 ALLOW User:app WRITE orders")], {"deny.User:app.WRITE.topic.orders": "flow.f"}),
        (
            CLOSED,
            [rule("dc2 ALLOW User:app ALL ord", "PREFIXED")],
            {"deny.User:app.WRITE.topic.orders": "flow.f"},
        ),
        (CLOSED, [rule("dc2 ALLOW User:repl WRITE *")], {}),
        (
            CLOSED,
            [rule("dc2 ALLOW User:app WRITE *"), rule("dc2 DENY User:app WRITE orders")],
            {},
        ),
        (
            OPEN,
            [rule("dc2 ALLOW User:app READ other")],
            dict.fromkeys(
                [
                    "allow.User:repl.ALL.topic.orders",
                    *(
                        f"allow.User:*.{one}.topic.orders"
                        for one in ("READ", "CREATE", "DELETE", "ALTER", "ALTER_CONFIGS")
                    ),
                ],
                "protect: acl of flow.f, instead of allow.everyone.if.no.acl.found",
            ),
        ),
        (OPEN, [rule("dc2 ALLOW User:app READ orders")], {}),
    ],
)
def test_a_new_mirror_is_protected(
    known: ProtectionSpec, rules: list[AclRule], expected: dict[str, str]
) -> None:
    found = protecting_rules(flow(protect="acl"), known, rules, ["orders"])
    assert {one.name: origin for one, origin in found.wanted.items()} == expected
    assert found.unprotected == {}


def test_a_rule_for_everyone_is_left_to_the_plan() -> None:
    opened = rule("dc2 ALLOW User:* WRITE ord", "PREFIXED")
    found = protecting_rules(flow(protect="acl"), CLOSED, [opened], ["orders"])
    assert found.wanted == {}
    assert found.unprotected == {
        "orders": "everyone may write it by allow.User:*.WRITE.topic.ord*, which the next repl apply replaces"
    }
