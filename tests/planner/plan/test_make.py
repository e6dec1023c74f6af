"""The plan as a whole: its three facts, what it says beside the changes, what --target leaves."""

from dataclasses import replace

import pytest

from planner.diff import diff
from planner.diff.record import acl_entry
from planner.model.desired import Declared, DesiredAcl, MirroredBy
from planner.model.diagnostic import Severity, SourceLocation, error, warning
from planner.model.observed import Unreachable
from planner.model.plan import Mode, Plan, PlannedFlow
from planner.model.topology import FlowState, OnRemove
from planner.plan import make_plan, with_diagnostics
from planner.plan.make import expected_dead
from tests.fakes.states import (
    SHOP,
    acl,
    cluster,
    desired,
    flow,
    live,
    mirror,
    observed,
    owned,
    selecting,
    topology,
    wanted,
)

SILENT = Unreachable("dc1", "connection refused")
FLOW = flow()
MOVES = (
    "topic.dc1.a, topic.dc1.b, topic.dc1.c and 2 more: more partitions move keys: "
    "a key's new records go to another partition than its old ones"
)


def plan(want, *clusters, shop=None, targets=()) -> Plan:
    shop = shop or topology(FLOW)
    seen = observed(*clusters)
    return make_plan(want, seen, diff(want, seen, shop), shop, Mode.APPLY, "2026-01-01T00:00:00Z", targets)


def codes(made: Plan) -> list[tuple[str, Severity]]:
    return [(one.code, one.severity) for one in made.diagnostics]


def test_what_the_plan_was_made_from() -> None:
    want = desired(wanted("orders"), mirror("orders"), flows=(selecting(FLOW, "orders"),))

    made = plan(want, cluster(), cluster(name="dc2"))

    assert (made.topology, made.topology_digest, made.created_at) == (
        SHOP,
        "sha256:yaml",
        "2026-01-01T00:00:00Z",
    )
    assert made.clusters == {"dc1": "cluster-dc1", "dc2": "cluster-dc2"}
    assert made.connections.keys() == {"dc1", "dc2"}
    assert made.flows == (PlannedFlow("dc1-to-dc2", "dc1", "dc2", "active", "dc2", 1),)
    assert (made.complete, made.errored, made.applyable, made.changed) == (True, False, True, True)
    assert codes(made) == []


def test_no_changes() -> None:
    want = wanted("orders")

    made = plan(desired(want), cluster(live("orders"), owned=[owned(want)]), shop=topology())

    assert (made.changed, made.applyable, made.steps, made.fingerprints, made.diagnostics) == (
        False,
        False,
        (),
        (),
        (),
    )


def test_an_error_of_a_lint_or_of_the_broker_is_an_error_of_the_plan() -> None:
    made = plan(desired(wanted("orders"), diagnostics=(error("no"),)), cluster())

    assert (made.errored, made.applyable) == (True, False)
    assert with_diagnostics(made, ()) is made
    assert with_diagnostics(made, (warning("w"),)).diagnostics[-1] == warning("w")


def test_a_silent_cluster_leaves_the_rest_plannable() -> None:
    want = desired(
        wanted("orders"), replace(wanted("x"), cluster="dc2"), flows=(selecting(FLOW, known=False),)
    )

    made = plan(want, SILENT, cluster(name="dc2"))

    assert (made.complete, made.applyable) == (False, True)
    assert made.unknown == {"dc1": "connection refused"}
    assert [step.cluster for step in made.steps] == ["dc2", "dc2"]
    assert made.flows[0].topics is None
    assert ("unknown", Severity.WARNING) in codes(made)


def test_a_cluster_that_could_not_be_read_is_named_with_its_place_in_the_file() -> None:
    shop = topology(FLOW)
    place = SourceLocation("shop.yaml", 4, 3)
    clusters = {**shop.clusters, "dc1": replace(shop.clusters["dc1"], source=place)}

    made = plan(desired(wanted("orders")), SILENT, cluster(name="dc2"), shop=replace(shop, clusters=clusters))

    (found,) = [one for one in made.diagnostics if one.code == "unknown" and one.address == "dc1"]
    assert str(found).startswith("shop.yaml:4:3: dc1 could not be read, so its part of the plan is unknown: ")


def test_a_failover_expects_its_cluster_dead() -> None:
    shop = topology(flow(state=FlowState.FAILED_OVER))

    made = plan(desired(wanted("orders")), SILENT, cluster(name="dc2"), shop=shop)

    assert made.complete


@pytest.mark.parametrize(
    ("other", "dead"),
    [
        (FlowState.PROMOTED, {"dc1"}),
        (FlowState.FAILED_OVER, {"dc1"}),
        (FlowState.ACTIVE, set()),
        (FlowState.PAUSED, set()),
    ],
)
def test_a_cluster_is_given_up_once_nothing_runs_from_it(other, dead) -> None:
    assert expected_dead(topology(flow("a", state=FlowState.FAILED_OVER), flow("b", state=other))) == dead
    assert not expected_dead(topology(flow("a", state=FlowState.PROMOTED)))


def test_what_a_cluster_hides_is_unknown_by_its_address() -> None:
    rule = acl()
    at = cluster(hidden=frozenset({"orders"}), unreadable={"acls": "not authorized"})

    made = plan(desired(wanted("orders"), acls=(DesiredAcl(rule, Declared()),)), at)

    assert made.unknown == {
        f"acl.dc1.{rule.name}": "not authorized",
        "topic.dc1.orders": "not authorized to describe dc1/orders",
    }


def test_said_once_for_all_of_them() -> None:
    names = "abcde"
    doomed = [owned(wanted(name), on_remove=OnRemove.DELETE) for name in ("x", "y")]
    at = cluster(*(live(name, 1) for name in (*names, "x", "y")), owned=doomed, sizes={"x": 5})
    want = desired(*(wanted(name, 2) for name in names), acls=(DesiredAcl(acl(), Declared()),))

    made = plan(want, at, shop=topology())

    assert [one.summary for one in made.diagnostics] == [
        MOVES,
        "topic.dc1.x: deleted with their records",
        "dc1 has no authorizer: its ACLs are left out",
    ]


def test_a_lint_that_names_the_silent_cluster_is_enough() -> None:
    said = warning("dc1 does not answer", address="dc1")

    made = plan(desired(diagnostics=(said,)), SILENT, shop=topology())

    assert made.diagnostics == (said,)


RULE, MIRRORED_RULE = acl(), acl(cluster="dc2")
WANT = desired(
    wanted("orders"),
    wanted("visits"),
    mirror("orders"),
    mirror("payments"),
    acls=(DesiredAcl(RULE, Declared()), DesiredAcl(MIRRORED_RULE, MirroredBy("dc1-to-dc2", "dc1", "orders"))),
    flows=(selecting(FLOW, "orders", "payments"),),
)
LEFT = [owned(mirror("left")), acl_entry(DesiredAcl(MIRRORED_RULE, Declared()), SHOP, created=True)]
OTHERS = owned(mirror("theirs"), topology="billing")


@pytest.mark.parametrize(
    ("targets", "addresses"),
    [
        (["topic.dc1.visits"], ["topic.dc1.visits"]),
        (["topic.dc2.orders"], ["topic.dc1.orders", "topic.dc2.orders"]),
        (["topic.dc2.orders", "topic.dc1.orders"], ["topic.dc1.orders", "topic.dc2.orders"]),
        (
            ["flow.dc1-to-dc2"],
            [
                f"acl.dc2.{MIRRORED_RULE.name}",
                "topic.dc1.orders",
                "topic.dc2.left",
                "topic.dc2.orders",
                "topic.dc2.payments",
            ],
        ),
        (["job.dc2", f"acl.dc1.{RULE.name}"], None),
    ],
)
def test_a_target_brings_what_it_needs(targets, addresses) -> None:
    clusters = cluster(acls=[]), cluster(live("left"), name="dc2", acls=[], owned=[*LEFT, OTHERS])

    made = plan(WANT, *clusters, targets=targets)
    whole = plan(WANT, *clusters)

    found = [str(change.address) for change in made.changes]
    assert found == addresses or (
        addresses is None and len(found) == len(whole.changes) - 1
    )  # all but visits
    assert codes(made)[-1] == ("partial", Severity.NOTE)


@pytest.mark.parametrize(
    ("target", "summary", "way_out"),
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
            "'orders' is no address: it begins with one of topic, acl, quota, flow, job, group",
            "see the addresses in the plan",
        ),
    ],
)
def test_a_target_that_names_nothing(target, summary, way_out) -> None:
    made = plan(WANT, cluster(), cluster(name="dc2"), targets=[target])

    assert (made.diagnostics[-1].summary, made.diagnostics[-1].way_out) == (summary, way_out)
    assert made.errored


def test_a_silent_cluster_matters_only_to_its_targets() -> None:
    want = desired(wanted("orders"), replace(wanted("x"), cluster="dc2"))

    assert plan(want, SILENT, cluster(name="dc2"), targets=["topic.dc2.x"]).complete
    assert not plan(want, SILENT, cluster(name="dc2"), targets=["topic.dc1.orders"]).complete
