"""Which rules a running job makes and removes at the destination, for the rules at the source."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from runtime.contract.spec.acls import AclRule
from runtime.contract.spec.jobspec import FlowSpec, ProtectionSpec, RouteSpec, SelectionSpec
from runtime.contract.spec.route import CompiledRoute, Route
from runtime.contract.spec.selection import SelectionRules
from runtime.driver.duties.acl_sync import AclChanges, AclSync, ClusterRules, ClusterRulesReader, acl_changes
from runtime.driver.topics.admin import OwnedAcl
from runtime.driver.topics.mirrors import protecting_rules
from runtime.kafka.errors import ErrorCode, WireError
from runtime.kafka.protocol.metadata import TopicMetadata

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


class CountedClusters:
    """Clusters with one rule each and no registry; `reads` counts how often each cluster's rules are read.

    The first reads fail where `fails` says so.
    """

    def __init__(self, fails: int = 0) -> None:
        self.reads: Counter[str] = Counter()
        self._fails = fails

    async def acls(self, name: str) -> CountedAcls:
        return CountedAcls(self, name)

    async def cluster(self, _: str) -> CountedClusters:
        return self

    async def topics(self, names: list[str]) -> dict[str, TopicMetadata]:
        return {
            one: TopicMetadata(one, b"", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False, {}) for one in names
        }

    async def read(self, name: str) -> set[AclRule]:
        self.reads[name] += 1
        await asyncio.sleep(0.02)  # of a broker
        if self._fails:
            self._fails -= 1
            raise WireError(f"the ACLs of {name} can't be read: denied")
        return {READ1}


@dataclass
class CountedAcls:
    clusters: CountedClusters
    name: str

    async def rules(self) -> set[AclRule]:
        return await self.clusters.read(self.name)


EVERY_S = 0.1


async def synced(clusters: CountedClusters, flows: int, until: Callable[[list[AclSync]], bool]) -> int:
    """Runs the sync of as many flows from dc1 to dc2. Returns how many intervals began meanwhile."""
    rules = ClusterRulesReader(clusters)  # type: ignore[arg-type]
    route = CompiledRoute(Route("f", "dc1", "dc2", SelectionRules((".*",))))
    shared = SimpleNamespace(spec=flow(follow_every_ms=int(EVERY_S * 1000)), shared=SimpleNamespace())
    syncs = [AclSync(shared, "shop", route, (FORWARD,), rules) for _ in range(flows)]  # type: ignore[arg-type]
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    tasks = [asyncio.create_task(one.run()) for one in syncs]
    while not until(syncs):
        await asyncio.sleep(EVERY_S / 10)
        assert not any(task.done() for task in tasks)
    for task in tasks:
        task.cancel()
    return int(loop.time() // EVERY_S - began_at // EVERY_S)


def test_twenty_flows_share_one_read_of_each_cluster_and_interval() -> None:
    clusters = CountedClusters()
    intervals = asyncio.run(synced(clusters, 20, lambda _: clusters.reads["dc2"] == 5))
    assert clusters.reads.keys() == {"dc1", "dc2"}
    assert max(clusters.reads.values()) <= intervals + 1  # the first read is that of the start


def test_a_read_that_fails_is_shared_told_by_every_flow_and_repeated() -> None:
    told = {"acls": "the ACLs of dc1 can't be read: denied"}
    clusters = CountedClusters(fails=10**6)
    intervals = asyncio.run(synced(clusters, 20, lambda syncs: all(one.notes == told for one in syncs)))
    assert clusters.reads["dc1"] <= intervals + 1
    clusters = CountedClusters(fails=1)
    asyncio.run(synced(clusters, 2, lambda syncs: bool(clusters.reads["dc2"]) and not syncs[0].notes))
    assert clusters.reads["dc1"] > 1
