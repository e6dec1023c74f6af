"""What leaves the topology: forgotten or deleted, as it was last applied, never by accident."""

from dataclasses import replace

import pytest

from planner.diff import diff, diff_destroy
from planner.model.address import group_address
from planner.model.observed import RegistryEntry, Unreachable
from planner.model.plan import Action
from planner.model.topology import FlowState, OnRemove, OnSourceDelete
from tests.fakes.states import (
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

KEPT = owned(wanted("orders", 6, retention_ms="1"))
DOOMED = replace(KEPT, on_remove=OnRemove.DELETE)
MIRROR = owned(mirror("orders", 6))
SILENT = Unreachable("dc1", "connection refused")


def left(*clusters, flows=()):
    changes = diff(desired(flows=flows), observed(*clusters), topology())
    return [(str(change.address), change.action, change.reason) for change in changes]


@pytest.mark.parametrize(
    ("at", "action", "reason"),
    [
        (
            cluster(live("orders"), owned=[KEPT]),
            Action.FORGET,
            "leaves the topology; on_remove: keep, it stays as it is",
        ),
        (
            cluster(live("orders"), owned=[DOOMED]),
            Action.DELETE,
            "leaves the topology; on_remove: delete, as last applied",
        ),
        (cluster(owned=[DOOMED]), Action.FORGET, "already gone from the cluster"),
        (
            cluster(live("orders", topic_id="another"), owned=[DOOMED]),
            Action.FORGET,
            "another topic has its name now, which is left alone",
        ),
        (
            cluster(owned=[DOOMED], hidden=frozenset({"orders"})),
            Action.UNKNOWN,
            "(unknown: not authorized to describe dc1/orders)",
        ),
    ],
)
def test_a_declared_topic(at, action, reason) -> None:
    assert left(at) == [("topic.dc1.orders", action, reason)]


def test_nothing_of_another_topology_and_nothing_unowned_is_seen() -> None:
    at = cluster(live("orders"), live("visits"), owned=[replace(DOOMED, topology="billing")])

    assert left(at) == []


def test_an_entry_of_a_kind_that_is_not_removed_is_left_alone() -> None:
    assert left(cluster(owned=[RegistryEntry(group_address("dc1", "app"), "shop")])) == []


def test_a_mirror_whose_flow_left_stays() -> None:
    at = cluster(live("orders"), name="dc2", owned=[MIRROR])

    assert left(cluster(), at) == [
        ("topic.dc2.orders", Action.FORGET, "flow.dc1-to-dc2 leaves the topology; its mirror stays")
    ]


@pytest.mark.parametrize(
    ("source", "one", "expected"),
    [
        (
            cluster(live("orders")),
            flow(),
            (Action.FORGET, "flow.dc1-to-dc2 no longer selects dc1/orders; it stays"),
        ),
        (cluster(), flow(), (Action.FORGET, "dc1/orders was deleted; the mirror stays")),
        (
            cluster(),
            flow(on_source_delete=OnSourceDelete.DELETE),
            (Action.DELETE, "dc1/orders was deleted; on_source_delete: delete of flow.dc1-to-dc2"),
        ),
        (
            cluster(),
            flow(on_source_delete=OnSourceDelete.DELETE, state=FlowState.PROMOTED),
            (Action.FORGET, "dc1/orders was deleted; the mirror stays"),
        ),
        (
            cluster(hidden=frozenset({"orders"})),
            flow(on_source_delete=OnSourceDelete.DELETE),
            (Action.FORGET, "flow.dc1-to-dc2 no longer selects dc1/orders; it stays"),
        ),
    ],
)
def test_a_mirror_that_its_flow_no_longer_fills(source, one, expected) -> None:
    at = cluster(live("orders"), name="dc2", owned=[MIRROR])

    assert left(source, at, flows=[selecting(one)]) == [("topic.dc2.orders", *expected)]


def test_a_mirror_without_a_known_source_is_never_taken_for_deleted() -> None:
    at = cluster(live("orders"), name="dc2", owned=[replace(MIRROR, spec={})])
    one = selecting(flow(on_source_delete=OnSourceDelete.DELETE))

    ((_, action, _),) = left(cluster(), at, flows=[one])

    assert action is Action.FORGET


def test_while_the_source_is_silent_its_mirrors_are_unknown() -> None:
    at = cluster(live("orders"), name="dc2", owned=[MIRROR])

    assert left(SILENT, at, flows=[selecting(flow(), known=False)]) == [
        ("flow.dc1-to-dc2", Action.UNKNOWN, "(unknown: dc1 unreachable)"),
        ("topic.dc2.orders", Action.UNKNOWN, "(unknown: dc1 unreachable)"),
    ]


def test_after_a_failover_nobody_waits_for_the_source() -> None:
    at = cluster(live("orders"), name="dc2", owned=[MIRROR])
    failed_over = selecting(flow(state=FlowState.FAILED_OVER), known=False)

    assert left(SILENT, at, flows=[failed_over]) == []


def test_a_delete_says_what_is_inside_and_who_reads_it() -> None:
    groups = {f"g{number}": frozenset({"orders"}) for number in range(7)} | {"other": frozenset({"visits"})}
    at = cluster(live("orders", 6, 3), owned=[DOOMED], sizes={"orders": 1_200_000_000}, group_topics=groups)

    (change,) = diff(desired(), observed(at), topology())

    assert change.notes == (
        "the topic holds 1.2 GB of records, which are lost with it",
        "consumer groups that commit to it: g0, g1, g2, g3, g4 and 2 more",
    )
    assert change.before == {"partitions": 6, "replication": 3, "config": {"retention.ms": "1"}}


def test_destroy_is_everything_leaving() -> None:
    at = cluster(live("orders"), live("visits"), owned=[DOOMED, owned(wanted("visits"))])

    changes = diff_destroy(observed(at), topology(flow()))

    assert [change.action for change in changes] == [Action.DELETE, Action.FORGET]


def test_an_unreachable_cluster_makes_each_of_its_objects_unknown() -> None:
    changes = diff(desired(wanted("orders")), observed(SILENT), topology())

    assert [(str(one.address), one.action, one.reason) for one in changes] == [
        ("topic.dc1.orders", Action.UNKNOWN, "(unknown: dc1 unreachable)")
    ]


def test_a_mirror_goes_with_a_source_that_this_plan_deletes() -> None:
    source = cluster(live("orders"), owned=[DOOMED])
    at = cluster(live("orders"), name="dc2", owned=[MIRROR])

    found = left(source, at, flows=[selecting(flow(on_source_delete=OnSourceDelete.DELETE))])

    assert [(address, action) for address, action, _ in found] == [
        ("topic.dc1.orders", Action.DELETE),
        ("topic.dc2.orders", Action.DELETE),
    ]
