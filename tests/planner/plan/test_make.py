"""The plan as a whole: its facts, what its guards refuse, what it says besides, what --target leaves."""

import pytest
from msgspec import structs

from planner.diff.record import acl_entry
from planner.model.address import Kind, flow_address, topic_address
from planner.model.change import Action, Change
from planner.model.desired import Declared, DesiredAcl, MirroredBy
from planner.model.diagnostic import ExitCode, Severity, SourceLocation, error, warning
from planner.model.observed import FEATURE_REASSIGN, BrokerFeature, RegistryEntry, Unreachable
from planner.model.plan import Mode, Plan
from planner.model.topology import Acl, OnRemove, Policies, Requirement, Selection, Topic
from planner.plan.make import adoption, expected_dead, with_diagnostics
from planner.plan.steps.registry import Own
from planner.plan.steps.topics import AlterConfigs
from runtime.contract.spec.transform import TransformSpec
from tests.fakes.replacing import replace
from tests.fakes.states import (
    SHOP,
    acl,
    cluster,
    desired,
    flow,
    inputs,
    live,
    mirror,
    observed,
    owned,
    selecting,
    topology,
    wanted,
)
from tests.fakes.tables import cases
from tests.planner.plan.jobs import applied, destroyed, plan, plan_for, refused

REFUSED, ERROR = ExitCode.REFUSED, ExitCode.ERROR
SILENT = Unreachable("dc1", "connection refused")
FLOW = flow()
FLOWS = topology(FLOW)
DC2 = cluster(name="dc2")
RULE, MIRRORED_RULE = acl(), acl(cluster="dc2")
MIRROR = owned(mirror("orders"))


def test_an_error_of_a_lint_or_of_the_broker_is_an_error_of_the_plan() -> None:
    made = plan_for(desired(wanted("orders"), diagnostics=(error("no"),)), cluster())
    assert (made.errored, made.applyable) == (True, False)
    assert with_diagnostics(made, ()) is made
    assert with_diagnostics(made, (warning("w"),)).diagnostics[-1] == warning("w")


# What a cluster that does not answer, or hides something, leaves of the plan.


def test_a_silent_cluster_leaves_the_rest_plannable_and_is_named_with_its_place() -> None:
    far = replace(wanted("x"), cluster="dc2")
    want = desired(wanted("orders"), far, flows=(selecting(FLOW, known=False),))
    placed = structs.replace(FLOWS.clusters["dc1"], source=SourceLocation("shop.yaml", 4, 3))
    shop = replace(FLOWS, clusters={**FLOWS.clusters, "dc1": placed})
    made = plan_for(want, SILENT, DC2, shop=shop)
    assert (made.complete, made.applyable) == (False, True)
    assert made.unknown == {"dc1": "connection refused"}
    assert [step.cluster for step in made.steps] == ["dc2", "dc2"]
    (found,) = [one for one in made.diagnostics if one.code == "unknown" and one.address == "dc1"]
    assert found.severity is Severity.WARNING
    assert str(found).startswith("shop.yaml:4:3: dc1 could not be read, so its part of the plan is unknown: ")
    for target, complete in (("topic.dc2.x", True), ("topic.dc1.orders", False)):
        assert plan_for(want, SILENT, DC2, targets=[target]).complete is complete


def test_what_a_silent_cluster_makes_unknown_elsewhere_is_not_named_beside_it() -> None:
    rule = DesiredAcl(MIRRORED_RULE, MirroredBy("dc1-to-dc2", "dc1", "orders"))
    there = cluster(name="dc2", acls=[MIRRORED_RULE], owned=[acl_entry(rule, SHOP, created=True)])
    made = plan_for(desired(flows=(selecting(FLOW, known=False),)), SILENT, there, shop=FLOWS)
    (left,) = [change for change in made.changes if change.address == rule.address]
    assert left.reason == "(unknown: dc1 unreachable)"
    assert made.unknown == {"dc1": "connection refused"}


def test_a_lint_that_names_the_silent_cluster_is_enough() -> None:
    said = warning("dc1 does not answer", address="dc1")
    assert plan_for(desired(diagnostics=(said,)), SILENT).diagnostics == (said,)


@pytest.mark.parametrize(
    ("first", "second", "dead"),
    [
        ("failed_over", "promoted", {"dc1"}),
        ("failed_over", "failed_over", {"dc1"}),
        ("failed_over", "active", set()),
        ("failed_over", "paused", set()),
        ("promoted", "promoted", set()),
    ],
)
def test_a_cluster_is_expected_dead_once_nothing_runs_from_it(first, second, dead) -> None:
    shop = topology(flow("a", state=first), flow("b", state=second))
    assert expected_dead(shop) == dead
    assert plan_for(desired(wanted("orders")), SILENT, DC2, shop=shop).complete is bool(dead)


def test_addresses_are_ordered_by_kind_cluster_and_name() -> None:
    ordered = [
        topic_address("dc1", "orders"),
        topic_address("dc1", "orders-2"),
        topic_address("dc1-a", "orders"),  # as text it is before topic.dc1.orders
        topic_address("dc2", "a"),
    ]
    assert sorted([*ordered[::-1], flow_address("z")]) == [flow_address("z"), *ordered]


def test_what_a_cluster_hides_is_unknown_by_its_address() -> None:
    hiding = cluster(hidden=frozenset({"orders"}), unreadable={"acls": "not authorized"})
    made = plan_for(desired(wanted("orders"), acls=(DesiredAcl(RULE, Declared()),)), hiding)
    assert made.unknown == {
        f"acl.dc1.{RULE.name}": "not authorized",
        "topic.dc1.orders": "not authorized to describe dc1/orders",
    }


MOVES_KEYS = (
    "topic.dc1.a, topic.dc1.b, topic.dc1.c and 2 more: more partitions move keys: "
    "a key's new records go to another partition than its old ones"
)


def test_said_once_for_all_of_them() -> None:
    names = "abcde"
    doomed = [owned(wanted(name), on_remove=OnRemove.DELETE) for name in ("x", "y")]
    have = cluster(*(live(name, 1) for name in (*names, "x", "y")), owned=doomed, sizes={"x": 5})
    follows = mirror("a", 2), cluster(live("a", 1), name="dc2", owned=[owned(mirror("a", 1))])
    want = desired(*(wanted(name, 2) for name in names), follows[0], acls=(DesiredAcl(RULE, Declared()),))
    made = plan_for(want, have, follows[1])  # a mirror only follows its source: it moves no key
    assert [one.summary for one in made.diagnostics] == [
        MOVES_KEYS,
        "topic.dc1.x: deleted with their records",
        "dc1 has no authorizer: its ACLs are left out",
    ]


# Guards: each refusal names its guard, its object and its exit code.

ORDERS = cluster(live("orders", 6))
PROTECTED = owned(wanted("orders"), protect=True, on_remove=OnRemove.DELETE)
TOO_MANY = ("replication-above-brokers", ERROR)
DOOMED = [owned(wanted(f"t{number}"), on_remove=OnRemove.DELETE) for number in range(6)]
DOOMED_AT = cluster(*(live(one.address.name) for one in DOOMED), owned=DOOMED)


UNREASSIGNED = cluster(
    live("orders", 6, 3),
    lacking=(BrokerFeature(FEATURE_REASSIGN, "2.4", broker="1 (a:9092)", why="not offered"),),
)
THEIRS = cluster(live("orders", 6), owned=[owned(wanted("orders", 1), topology="billing")])


@cases(
    "want have found",
    {
        "nothing to refuse": (desired(wanted("orders", 6)), ORDERS, None),
        "partitions grow": (desired(wanted("orders", 12)), ORDERS, None),
        "partitions never shrink": (desired(wanted("orders", 1)), ORDERS, ("partition-decrease", ERROR)),
        "another topology's topic": (desired(wanted("orders", 1)), THEIRS, ("owned", REFUSED)),
        "as many replicas as brokers": (desired(wanted("orders", 6, 3)), cluster(), None),
        "more replicas than brokers": (desired(wanted("orders", 6, 4)), cluster(), TOO_MANY),
        "more for a topic that exists": (desired(wanted("orders", 6, 4)), ORDERS, TOO_MANY),
        "brokers are away": (desired(wanted("orders", 6, 4)), cluster(live("orders", 6, 4)), None),
        "no reassignment": (desired(wanted("orders", 6, 2)), UNREASSIGNED, ("reassign", ERROR)),
        "protected": (desired(), cluster(live("orders"), owned=[PROTECTED]), ("protect", REFUSED)),
        "free": (desired(), cluster(live("orders"), owned=[replace(PROTECTED, protect=False)]), None),
    },
)
def test_the_guard_of_a_topic(want, have, found) -> None:
    assert refused(plan_for(want, have)) == ([(found[0], "topic.dc1.orders", found[1])] if found else [])


def test_what_a_lint_reports_is_reported_once() -> None:
    made = plan(replace(topology(), topics=(Topic("orders", "dc1", 6, 4),)), observed(cluster()))
    assert refused(made) == [(TOO_MANY[0], "topic.dc1.orders", ERROR)]


@pytest.mark.parametrize("protect", [True, False])
def test_protection_holds_before_it_was_applied(protect: bool) -> None:
    seen = observed(cluster(live("orders"), owned=[replace(PROTECTED, protect=False)]))
    made = destroyed(
        seen, replace(topology(), topics=(Topic("orders", "dc1", protect=protect),)), Mode.DESTROY
    )
    assert [one.address for one in made.diagnostics if one.code == "protect"] == [
        "topic.dc1.orders"
    ] * protect


@pytest.mark.parametrize(("allowed", "found"), [(6, []), (5, [("max-deletes", None, REFUSED)])])
def test_max_deletes(allowed, found) -> None:
    shop = topology(policies=Policies(max_deletes=allowed))
    assert refused(plan_for(desired(), DOOMED_AT, shop=shop)) == found


@pytest.mark.parametrize("mode", [Mode.APPLY, Mode.DESTROY])
def test_a_destroy_takes_back_any_number_of_acls(mode) -> None:
    rules = tuple(Acl(acl(principal=f"User:app{number}")) for number in range(6))
    shop = replace(topology(policies=Policies(max_deletes=5)), acls=rules)
    seen = applied(shop, observed(cluster(live("orders"), acls=[]), cluster(name="dc2", acls=[])))
    made = destroyed(seen, shop, mode)
    assert [one.action for one in made.changes if one.address.kind is Kind.ACL] == [Action.DELETE] * 6
    assert ("max-deletes" in [one.code for one in made.diagnostics]) is (mode is Mode.APPLY)


UNSET = replace(mirror("t"), cluster="dc1", unset=frozenset({"retention.ms"}))


@pytest.mark.parametrize(
    ("rule", "want", "have", "passes"),
    [
        ("replication >= 3", wanted("t", None, 2), None, False),
        ("replication >= 3", wanted("t"), None, True),  # the broker's own is 3
        ("replication >= 3", wanted("t"), live("t", 1, 1), False),
        ("partitions <= 100", wanted("t", 101), None, False),
        ("partitions != 1", wanted("t"), None, False),
        ("retention.ms <= 604800000", wanted("t", retention_ms="-1"), None, False),
        ("retention.ms <= 604800000", wanted("t", retention_ms="-01"), None, False),  # as Kafka reads it
        ("retention.ms <= 604800000", wanted("t", retention_ms=" -1"), None, False),
        ("retention.ms <= 604800000", wanted("t", retention_ms="nan"), None, False),
        ("retention.ms <= 604800000", wanted("t", retention_ms="\x01-1"), None, False),
        ("retention.ms != -1", wanted("t", retention_ms="\x01-1"), None, False),
        ("retention.bytes <= 1000000", wanted("t", retention_bytes="-2"), None, False),
        ("local.retention.bytes <= 1000000", wanted("t", local_retention_bytes="-2"), None, True),
        ("retention.ms > 1", wanted("t", retention_ms="-1"), None, True),
        ("cleanup.policy != compact", wanted("t", cleanup_policy=" compact,"), None, False),
        ("cleanup.policy != compact", wanted("t", cleanup_policy="\x01compact"), None, False),
        ("cleanup.policy == compact,delete", wanted("t", cleanup_policy="delete, compact"), None, True),
        ("retention.ms < 10", wanted("t"), live("t", retention_ms="9"), True),
        ("retention.ms < 10", wanted("t"), live("t", retention_ms="10"), False),
        ("retention.ms < 10", UNSET, live("t", retention_ms="10"), True),
        ("compression.type == zstd", wanted("t", compression_type="zstd"), None, True),
        ("compression.type == zstd", wanted("t", compression_type="lz4"), None, False),
        ("compression.type != gzip", wanted("t", compression_type="gzip"), None, False),
        ("compression.type >= zstd", wanted("t", compression_type="zstd"), None, False),
        ("compression.type == zstd", wanted("t"), None, True),  # nothing is known of it
    ],
)
def test_required_by_policy(rule, want, have, passes) -> None:
    shop = topology(policies=Policies(require=(Requirement(*rule.split()),)))
    made = plan_for(desired(want), cluster(*([have] if have else [])), shop=shop)
    assert refused(made) == ([] if passes else [("policy", "topic.dc1.t", REFUSED)])
    assert refused(plan_for(desired(want), shop=shop)) == []  # a cluster that does not answer


def test_a_policy_counts_what_a_topic_falls_back_to() -> None:
    shop = topology(policies=Policies(require=(Requirement("retention.ms", "<", "10"),)))
    before = owned(wanted("t", retention_ms="9"))
    have = cluster(live("t", retention_ms="9"), owned=[before], defaults={"retention.ms": "10"})
    assert refused(plan_for(desired(wanted("t")), have, shop=shop)) == [("policy", "topic.dc1.t", REFUSED)]


# --target

WANT = desired(
    wanted("orders"),
    wanted("visits"),
    mirror("orders"),
    mirror("payments"),
    acls=(DesiredAcl(RULE, Declared()), DesiredAcl(MIRRORED_RULE, MirroredBy("dc1-to-dc2", "dc1", "orders"))),
    flows=(selecting(FLOW, "orders", "payments"),),
)
LEFT = [
    owned(mirror("left")),
    acl_entry(DesiredAcl(MIRRORED_RULE, Declared()), SHOP, created=True),
    owned(mirror("theirs"), topology="billing"),
]
OF_FLOW = {
    f"acl.dc2.{MIRRORED_RULE.name}",
    "topic.dc1.orders",
    "topic.dc2.left",
    "topic.dc2.orders",
    "topic.dc2.payments",
}


@pytest.mark.parametrize(
    ("targets", "addresses"),
    [
        ({"topic.dc1.visits"}, {"topic.dc1.visits"}),
        ({"topic.dc2.orders"}, {"topic.dc1.orders", "topic.dc2.orders"}),
        ({"topic.dc2.orders", "topic.dc1.orders"}, {"topic.dc1.orders", "topic.dc2.orders"}),
        ({"flow.dc1-to-dc2"}, OF_FLOW),
        ({"job.dc2", f"acl.dc1.{RULE.name}"}, OF_FLOW | {f"acl.dc1.{RULE.name}"}),
    ],
)
def test_a_target_brings_what_it_needs(targets, addresses) -> None:
    clusters = cluster(acls=[]), cluster(live("left"), name="dc2", acls=[], owned=LEFT)
    made = plan_for(WANT, *clusters, shop=FLOWS, targets=sorted(targets))
    assert [str(change.address) for change in made.changes] == sorted(addresses)
    assert (made.diagnostics[-1].code, made.diagnostics[-1].severity) == ("partial", Severity.NOTE)


@pytest.mark.parametrize("target", ["flow.x", "flow.y", "job.dc2"])
def test_a_flow_that_left_the_topology_brings_the_job_that_still_copies_it(target: str) -> None:
    staying = flow("y", topics=Selection(("b",)))
    seen = applied(
        topology(flow("x", topics=Selection(("a",))), staying),
        observed(cluster(live("a")), cluster(name="dc2")),
    )
    whole, partial = plan(topology(staying), seen), plan(topology(staying), seen, target)
    assert {change.action for change in partial.changes} >= {Action.DELETE, Action.UPDATE}
    assert partial.steps == whole.steps


def test_a_flow_brings_the_quarantine_of_its_mirror() -> None:
    filtering = flow("x", transform=TransformSpec(where="true", on_bad_record="quarantine"))
    seen = observed(cluster(live("a"), live("b")), cluster(name="dc2"))
    made = plan(topology(filtering), seen, "flow.x")
    assert "topic.dc2.a.quarantine" in {str(one.address) for one in made.changes}


def test_a_mirror_that_goes_with_its_source_brings_it() -> None:
    doomed = owned(wanted("orders"), on_remove=OnRemove.DELETE)
    clusters = cluster(live("orders"), owned=[doomed]), cluster(live("orders"), name="dc2", owned=[MIRROR])
    want = desired(flows=(selecting(flow(on_source_delete="delete")),))
    made = plan_for(want, *clusters, shop=FLOWS, targets=["topic.dc2.orders"])
    assert {str(one.address) for one in made.changes if one.action is Action.DELETE} == {
        "topic.dc1.orders",
        "topic.dc2.orders",
    }


@pytest.mark.parametrize(
    ("target", "summary", "hint"),
    [
        (
            "topic.dc1.order",
            "--target topic.dc1.order names nothing in this topology",
            "did you mean topic.dc1.orders?",
        ),
        (
            "group.zzz.q",
            "--target group.zzz.q names nothing in this topology",
            "see the addresses in a plan without --target",
        ),
        (
            "orders",
            "'orders' is no address: it begins with one of topic, acl, quota, schema, flow, job, group",
            "see the addresses in the plan",
        ),
    ],
)
def test_a_target_that_names_nothing(target, summary, hint) -> None:
    made = plan_for(WANT, cluster(), DC2, shop=FLOWS, targets=[target])
    assert (made.diagnostics[-1].summary, made.diagnostics[-1].hint) == (summary, hint)
    assert made.errored


def test_an_adoption_registers_what_is_as_declared_at_the_named_clusters() -> None:
    alike, other, far = topic_address("dc1", "a"), topic_address("dc1", "b"), topic_address("dc2", "a")

    def own(address, needs=()):
        return Own(
            f"own:{address}", address, address.cluster, RegistryEntry(address, "shop", {}), needs=needs
        )

    made = Plan(
        inputs(topology(), observed()),
        changes=tuple(
            Change(address, action, "exists", adopted=True)
            for address, action in ((alike, Action.NO_OP), (other, Action.UPDATE), (far, Action.NO_OP))
        ),
        steps=(
            own(alike),
            AlterConfigs("c", other, "dc1", "b", set={"k": "v"}),
            own(other, ("c",)),
            own(far),
        ),
    )
    kept = adoption(made, ["dc1"])
    assert [step.id for step in kept.steps] == [f"own:{alike}"]
    assert [change.address for change in kept.changes] == [alike]
    assert [one.summary for one in kept.diagnostics] == [
        "objects at dc1 that are missing or differ from the topology, and are not registered: 1"
    ]
    assert adoption(made, ["dc2"]).diagnostics == ()
