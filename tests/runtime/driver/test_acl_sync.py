"""Which rules a running job makes and removes at the destination, for the rules at the source."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from runtime.contract.records.registry import OwnershipRecord
from runtime.contract.spec.acls import AclRule
from runtime.contract.spec.jobspec import FlowSpec, JobSpec, ProtectionSpec, Route
from runtime.contract.spec.route import CompiledRoute
from runtime.contract.spec.selection import SelectionSpec
from runtime.driver.duties.acl_sync import AclSync, ClusterRules, ClusterRulesReader, acl_changes
from runtime.driver.topics.mirrors import protecting_rules
from runtime.kafka.errors import ErrorCode, WireError
from runtime.kafka.protocol.changes import DeleteAclsRequest
from runtime.kafka.protocol.metadata import TopicMetadata
from tests.waiting import until

EVERY = SelectionSpec(include=(".*",))
FORWARD = Route(name="f", source="dc1", destination="dc2", topics=EVERY)
BACK = Route(name="g", source="dc2", destination="dc1", topics=EVERY)
JOB = JobSpec(job="dc2", topology="shop", destination="dc2", clusters={}, flows=[], routes=[FORWARD])
BEFORE = Route(name="e", source="dc0", destination="dc1", topics=EVERY)


def rule(words: str, pattern: str = "LITERAL", kind: str = "TOPIC") -> AclRule:
    """`dc1 ALLOW User:app READ orders`."""
    where, permission, principal, operation, resource = words.split()
    return AclRule(where, kind, resource, pattern, principal, "*", operation, permission)  # type: ignore[arg-type]


def flow(**more: object) -> FlowSpec:
    return FlowSpec(name="f", source="dc1", destination="dc2", topics=EVERY, acls_sync=True, **more)  # type: ignore[arg-type]


def made(rule: AclRule, origin: str = "flow.f") -> tuple[AclRule, OwnershipRecord]:
    return rule, OwnershipRecord(topology="shop", spec={}, origin=origin, created=True, at_ms=0)


def changes(
    source: Iterable[AclRule] = (),
    destination: Iterable[AclRule] = (),
    *,
    owned: Iterable[tuple[AclRule, OwnershipRecord]] = (),
    at_source: Iterable[tuple[AclRule, OwnershipRecord]] = (),
    routes: Sequence[Route] = (FORWARD,),
    topics: Iterable[str] = ("orders", "pay.eu"),
    gone: Iterable[str] = (),
    **more: object,
) -> tuple[frozenset[AclRule], frozenset[AclRule]]:
    """The flow copies `topics` under their names; those in `gone` are at the source no more."""
    route = CompiledRoute(Route("f", "dc1", "dc2", SelectionSpec((".*",))))
    there, every = {one: one for one in topics}, [one for one in ("orders", "pay.eu") if one not in gone]
    here, mirrored = (
        ClusterRules(frozenset(source), dict(at_source)),
        ClusterRules(frozenset(destination), dict(owned)),
    )
    return acl_changes(flow(**more), route, routes, there, every, here, mirrored)


READ1, READ2 = rule("dc1 ALLOW User:app READ orders"), rule("dc2 ALLOW User:app READ orders")
DENIED = rule("dc2 DENY User:app WRITE orders")
MADE, FROM_LOOP = made(READ2), made(READ1, "flow.g")
LOOP: dict[str, Any] = {"routes": (FORWARD, BACK, BEFORE)}


@pytest.mark.parametrize(
    ("compute", "create", "delete"),
    [
        (partial(changes, [READ1]), {READ2}, set()),
        (partial(changes, [rule("dc1 ALLOW User:app READ other")]), set(), set()),
        (partial(changes, [READ1], [READ2]), set(), set()),
        # A rule that the flow made goes with its rule at the source.
        (partial(changes, [], [READ2], owned=[MADE]), set(), {READ2}),
        (partial(changes, [], [READ2]), set(), set()),  # it was there without the flow
        (partial(changes, [], [READ2], owned=[made(READ2, "flow.other")]), set(), set()),
        (partial(changes, [], [READ2], owned=[made(READ2, "protect: acl of flow.f")]), set(), set()),
        # A denial that protects a mirror is left to the plan.
        (partial(changes, [], [DENIED], owned=[made(DENIED)], protect="acl"), set(), set()),
        (partial(changes, [], [DENIED], owned=[made(DENIED)]), set(), {DENIED}),
        # Readers of a promoted mirror and of one without its source stay.
        (partial(changes, [], [READ2], owned=[MADE], topics=["pay.eu"], promoted=["orders"]), set(), set()),
        (partial(changes, [], [READ2], owned=[MADE], topics=["pay.eu"], gone=["orders"]), set(), set()),
        # Rules that a flow made at the source: from dc0 over dc1, from the destination, of another topology.
        (partial(changes, [READ1], at_source=[made(READ1, "flow.e")], **LOOP), {READ2}, set()),
        (partial(changes, [READ1], at_source=[made(READ1, "flow.g")], **LOOP), set(), set()),
        (partial(changes, [READ1], at_source=[made(READ1, "flow.of-another")], **LOOP), set(), set()),
        (partial(changes, [READ1], at_source=[made(READ1, "protect: acl of flow.e")], **LOOP), set(), set()),
        (partial(changes, [READ1], at_source=[made(READ1, "declared")], **LOOP), {READ2}, set()),
        # One that a loop brought is not removed while its rule is there.
        (partial(changes, [READ1], [READ2], owned=[MADE], at_source=[FROM_LOOP], **LOOP), set(), set()),
    ],
)
def test_rules_at_the_destination_follow_those_at_the_source(
    compute: Callable[[], tuple[frozenset[AclRule], frozenset[AclRule]]],
    create: set[AclRule],
    delete: set[AclRule],
) -> None:
    assert compute() == (frozenset(create), frozenset(delete))


CLOSED = ProtectionSpec(principal="User:repl")
OPEN = ProtectionSpec(principal="User:repl", open_without_rules=True)


@pytest.mark.parametrize(
    ("known", "rules", "expected"),
    [
        (CLOSED, [], {}),
        (CLOSED, [rule("dc2 ALLOW User:app WRITE orders")], {"deny.User:app.WRITE.topic.orders": "flow.f"}),
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
    wanted, unprotected = protecting_rules(flow(protect="acl"), known, rules, ["orders"])
    assert {one.name: origin for one, origin in wanted.items()} == expected
    assert unprotected == {}


def test_a_rule_for_everyone_is_left_to_the_plan() -> None:
    opened = rule("dc2 ALLOW User:* WRITE ord", "PREFIXED")
    everyone = "everyone may write it by allow.User:*.WRITE.topic.ord*, which the next repl apply replaces"
    found = protecting_rules(flow(protect="acl"), CLOSED, [opened], ["orders"])
    assert found == ({}, {"orders": everyone})


class CountedClusters:
    """Clusters with one rule each and no registry; `reads` counts how often each cluster's rules are read.

    The first reads fail where `fails` says so.
    """

    def __init__(self, fails: int = 0) -> None:
        self.reads: Counter[str] = Counter()
        self._fails = fails

    async def cluster(self, _: str) -> CountedClusters:
        return self

    async def topics(self, names: list[str]) -> dict[str, TopicMetadata]:
        return {
            one: TopicMetadata(one, b"", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False, {}) for one in names
        }

    async def topic_rules(self, name: str) -> set[AclRule]:
        self.reads[name] += 1
        await asyncio.sleep(0.02)  # of a broker
        if self._fails:
            self._fails -= 1
            raise WireError(f"the ACLs of {name} can't be read: denied")
        return {READ1}


EVERY_S = 0.1


async def synced(clusters: CountedClusters, flows: int, until: Callable[[list[AclSync]], bool]) -> int:
    """Runs the sync of as many flows from dc1 to dc2. Returns how many intervals began meanwhile."""
    rules = ClusterRulesReader(clusters)  # type: ignore[arg-type]
    shared = SimpleNamespace(spec=flow(follow_every_ms=int(EVERY_S * 1000)), shared=SimpleNamespace())
    syncs = [AclSync(shared, JOB, rules, {}) for _ in range(flows)]  # type: ignore[arg-type]
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


class Sides:
    """A flow whose rule at dc2 follows one at dc1, which brokers of dc1 know or do not.

    `first` are the answers of the broker that a pass reads from, `others` is what all know together.
    """

    def __init__(self, first: Sequence[bool], others: bool) -> None:
        self.first, self.others, self.removed = list(first), others, 0
        self.clusters = self.leadership = self

    async def read(self, name: str) -> ClusterRules:
        if name == "dc2":
            return ClusterRules({READ2}, {READ2: MADE[1]})
        if not self.first:
            await asyncio.Event().wait()
        return ClusterRules({READ1} if self.first.pop(0) else set())

    async def topic_rules_of_each_broker(self, name: str) -> set[AclRule]:
        return {READ1} if self.others else set()

    async def listing(self, name: str) -> dict[str, TopicMetadata]:
        return {"orders": TopicMetadata("orders", b"", ErrorCode.NONE, False, {})}

    async def cluster(self, name: str) -> Sides:
        return self

    async def ensure(self) -> None: ...

    async def ask_controller(self, request: Any, within: float) -> list[None]:
        assert isinstance(request, DeleteAclsRequest)
        self.removed += len(request.bindings)
        await asyncio.Event().wait()
        return []


@pytest.mark.parametrize(
    ("first", "others", "removed"),
    [
        ([True, False, True, False], False, 0),  # a broker that had not read its rules yet
        ([False, False], True, 0),  # one that lags behind the others
        ([True, False, False], False, 1),
    ],
)
async def test_a_rule_is_removed_where_every_broker_misses_it_in_two_passes(
    first: Sequence[bool], others: bool, removed: int
) -> None:
    sides = Sides(first, others)
    spec = flow(follow_every_ms=10)
    followed = SimpleNamespace(spec=spec, shared=sides, selected=lambda topics: {one: one for one in topics})
    sync = AclSync(followed, JOB, sides, {})  # type: ignore[arg-type]
    running = asyncio.create_task(sync.run())
    await until(lambda: not sides.first)
    for _ in range(20):
        await asyncio.sleep(0)
    running.cancel()
    assert sides.removed == removed
