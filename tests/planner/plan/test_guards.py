"""Guards: each refusal names its guard, its object, its exit code and the way out."""

from dataclasses import replace

import pytest

from planner.diff import diff, diff_destroy
from planner.model.address import Kind
from planner.model.diagnostic import ExitCode, error
from planner.model.plan import Action, Mode
from planner.model.topology import Acl, Cluster, OnRemove, Policies, Requirement, Topic
from planner.plan import make_plan
from tests.fakes.states import acl, cluster, desired, live, mirror, observed, owned, topology, wanted
from tests.planner.plan.jobs import applied

REFUSED, ERROR = ExitCode.REFUSED, ExitCode.ERROR
WEEK = "604800000"


def guarded(want, *clusters, policies=None, shop=None):
    shop = shop or topology(policies=policies or Policies())
    seen = observed(*clusters)
    plan = make_plan(want, seen, diff(want, seen, shop), shop)
    return [(one.code, one.address, one.exit) for one in plan.diagnostics if one.exit is not ExitCode.DONE]


def test_nothing_to_refuse() -> None:
    assert guarded(desired(wanted("orders", 6)), cluster(live("orders", 6))) == []


def test_a_pinned_id_outranks_everything() -> None:
    shop = topology(clusters=[Cluster("dc1", "dc1:9092", id="pinned"), Cluster("dc2", "x", id="cluster-dc2")])

    assert guarded(
        desired(wanted("orders", 1)), cluster(live("orders", 6)), cluster(name="dc2"), shop=shop
    ) == [("pinned-id", None, REFUSED)]


def test_a_topic_that_another_topology_owns() -> None:
    want = wanted("orders", 1)
    at = cluster(live("orders", 6), owned=[owned(want, topology="billing")])

    assert guarded(desired(want), at) == [("owned", "topic.dc1.orders", REFUSED)]


@pytest.mark.parametrize(
    ("declared", "found"), [(1, [("partition-decrease", "topic.dc1.orders", ERROR)]), (12, [])]
)
def test_partitions_only_grow(declared, found) -> None:
    assert guarded(desired(wanted("orders", declared)), cluster(live("orders", 6))) == found


@pytest.mark.parametrize(
    ("want", "at", "found"),
    [
        (wanted("orders", 6, 4), cluster(), [("replication", "topic.dc1.orders", ERROR)]),
        (wanted("orders", 6, 4), cluster(live("orders", 6, 3)), [("replication", "topic.dc1.orders", ERROR)]),
        (
            wanted("orders", 6, 4),
            cluster(live("orders", 6, 4)),
            [],
        ),  # brokers are away, the topic is as wanted
        (wanted("orders", 6, 3), cluster(), []),
        (
            wanted("orders", 6, 2),
            cluster(live("orders", 6, 3), features=frozenset()),
            [("reassign", "topic.dc1.orders", ERROR)],
        ),
    ],
)
def test_replication_above_the_brokers(want, at, found) -> None:
    assert guarded(desired(want), at) == found


def test_what_the_lints_said_is_not_said_twice() -> None:
    said = error("replication 4 on 3 brokers", address="topic.dc1.orders", code="lint")

    found = guarded(desired(wanted("orders", 6, 4), diagnostics=(said,)), cluster())

    assert found == [("lint", "topic.dc1.orders", ERROR)]


def test_protection_holds_after_its_block_is_gone() -> None:
    entry = owned(wanted("orders"), protect=True, on_remove=OnRemove.DELETE)

    assert guarded(desired(), cluster(live("orders"), owned=[entry])) == [
        ("protect", "topic.dc1.orders", REFUSED)
    ]
    assert guarded(desired(), cluster(live("orders"), owned=[replace(entry, protect=False)])) == []


def test_protection_holds_before_it_was_applied() -> None:
    entry = owned(wanted("orders"), on_remove=OnRemove.DELETE)
    seen = observed(cluster(live("orders"), owned=[entry]))
    for protect, refused in ((True, ["topic.dc1.orders"]), (False, [])):
        shop = replace(topology(), topics=(Topic("orders", "dc1", protect=protect),))

        plan = make_plan(desired(), seen, diff_destroy(seen, shop), shop, Mode.DESTROY)

        assert [one.address for one in plan.diagnostics if one.code == "protect"] == refused


@pytest.mark.parametrize(("allowed", "found"), [(6, []), (5, [("max-deletes", None, REFUSED)])])
def test_max_deletes(allowed, found) -> None:
    doomed = [owned(wanted(f"t{number}"), on_remove=OnRemove.DELETE) for number in range(6)]
    at = cluster(*(live(f"t{number}") for number in range(6)), owned=doomed)

    assert guarded(desired(), at, policies=Policies(max_deletes=allowed)) == found


@pytest.mark.parametrize("mode", [Mode.APPLY, Mode.DESTROY])
def test_a_destroy_takes_back_any_number_of_acls(mode) -> None:
    rules = tuple(Acl(acl(principal=f"User:app{number}")) for number in range(6))
    shop = replace(topology(policies=Policies(max_deletes=5)), acls=rules)
    seen = applied(shop, observed(cluster(live("orders"), acls=[]), cluster(name="dc2", acls=[])))

    plan = make_plan(desired(), seen, diff_destroy(seen, shop), shop, mode)

    assert [one.action for one in plan.changes if one.address.kind is Kind.ACL] == [Action.DELETE] * 6
    assert ("max-deletes" in [one.code for one in plan.diagnostics]) is (mode is Mode.APPLY)


@pytest.mark.parametrize(
    ("subject", "operator", "value", "want", "have", "passes"),
    [
        ("replication", ">=", "3", wanted("t", None, 2), None, False),
        ("replication", ">=", "3", wanted("t"), None, True),  # the broker's own is 3
        ("replication", ">=", "3", wanted("t"), live("t", 1, 1), False),
        ("partitions", "<=", "100", wanted("t", 101), None, False),
        ("partitions", "!=", "1", wanted("t"), None, False),
        ("retention.ms", "<=", WEEK, wanted("t", retention_ms="-1"), None, False),
        ("retention.ms", ">", "1", wanted("t", retention_ms="-1"), None, True),
        ("retention.ms", "<", "10", wanted("t"), live("t", retention_ms="9"), True),
        ("retention.ms", "<", "10", wanted("t"), live("t", retention_ms="10"), False),
        (
            "retention.ms",
            "<",
            "10",
            replace(mirror("t"), cluster="dc1", unset=frozenset({"retention.ms"})),
            live("t", retention_ms="10"),
            True,
        ),
        ("compression.type", "==", "zstd", wanted("t", compression_type="zstd"), None, True),
        ("compression.type", "==", "zstd", wanted("t", compression_type="lz4"), None, False),
        ("compression.type", "!=", "gzip", wanted("t", compression_type="gzip"), None, False),
        ("compression.type", ">=", "zstd", wanted("t", compression_type="zstd"), None, False),
        ("compression.type", "==", "zstd", wanted("t"), None, True),  # nothing is known of it
    ],
)
def test_required_by_policy(subject, operator, value, want, have, passes) -> None:
    at = cluster(*([have] if have else []))
    policies = Policies(require=(Requirement(subject, operator, value),))

    expected = [] if passes else [("policy", "topic.dc1.t", REFUSED)]
    assert guarded(desired(want), at, policies=policies) == expected


def test_a_policy_on_a_silent_cluster_waits() -> None:
    policies = Policies(
        require=(Requirement("replication", ">=", "3"), Requirement("retention.ms", ">", "1"))
    )

    assert guarded(desired(wanted("t")), policies=policies) == []
