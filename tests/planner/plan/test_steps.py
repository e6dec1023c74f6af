"""Changes become steps, in the order in which they must happen."""

from dataclasses import replace

import pytest

from planner.diff import diff
from planner.diff.record import acl_entry
from planner.model.address import job_address, topic_address
from planner.model.desired import Declared, Desired, DesiredAcl
from planner.model.observed import ConfigValue, Observed
from planner.model.plan import Action, Change, Plan
from planner.model.step import AlterConfigs, CreateTopic, GrowPartitions, Own, Reassign
from planner.model.topology import OnRemove
from planner.plan import make_plan
from planner.plan.steps import make_steps
from tests.fakes.simulated import simulate
from tests.fakes.states import (
    SHOP,
    acl,
    cluster,
    desired,
    live,
    mirror,
    observed,
    owned,
    topology,
    uneven,
    wanted,
)

READ, WRITE = acl("READ"), acl("WRITE")
DOOMED = replace(owned(wanted("old")), on_remove=OnRemove.DELETE)


def plan(want: Desired, seen: Observed) -> Plan:
    shop = topology()
    return make_plan(want, seen, diff(want, seen, shop), shop)


def ids(want: Desired, seen: Observed) -> list[str]:
    return [step.id for step in plan(want, seen).steps]


def test_a_new_topic_is_created_then_owned() -> None:
    create, own = plan(desired(wanted("orders", 12, retention_ms="1")), observed(cluster())).steps

    assert create == CreateTopic(
        "create:topic.dc1.orders", create.address, "dc1", "orders", 12, None, {"retention.ms": "1"}
    )
    assert isinstance(own, Own)
    assert own.needs == (create.id,)
    assert own.entry.spec == {"partitions": "12", "config.retention.ms": "1"}
    assert (own.entry.topology, own.entry.origin, own.entry.created) == (SHOP, "declared", True)


def test_a_mirror_remembers_its_flow_and_its_source() -> None:
    own = plan(desired(mirror("orders")), observed(cluster(name="dc2"))).steps[-1]

    assert isinstance(own, Own)
    assert own.entry.origin == "flow.dc1-to-dc2"
    assert own.entry.spec == {"source.cluster": "dc1", "source.topic": "orders"}


def test_only_the_keys_that_move_are_sent() -> None:
    applied = wanted("orders", 6, retention_ms="1", segment_ms="5", flush_ms="7")
    want = wanted("orders", 12, retention_ms="2", flush_ms="7")
    have = live("orders", 6, retention_ms="1", segment_ms="5", flush_ms="7")

    grow, alter, own = plan(desired(want), observed(cluster(have, owned=[owned(applied)]))).steps

    assert grow == GrowPartitions("grow:topic.dc1.orders", want.address, "dc1", "orders", 6, 12)
    assert alter == AlterConfigs(
        "alter:topic.dc1.orders",
        want.address,
        "dc1",
        "orders",
        {"retention.ms": "2"},
        ("segment.ms",),
        {"retention.ms": "1", "segment.ms": "5"},
    )
    assert own.needs == (alter.id, grow.id)
    assert isinstance(own, Own)
    assert own.entry.spec["id"] == "id:orders"


def test_a_sensitive_old_value_is_not_kept_for_the_rollback() -> None:
    have = replace(live("orders"), config={"vendor.password": ConfigValue(None, sensitive=True)})

    alter = plan(desired(wanted("orders", vendor_password="x")), observed(cluster(have))).steps[0]

    assert isinstance(alter, AlterConfigs)
    assert alter.old == {"vendor.password": None}


@pytest.mark.parametrize(
    ("replication", "wanted_replication", "order"),
    [
        (1, 3, ["reassign:topic.dc1.orders", "alter:topic.dc1.orders", "own:topic.dc1.orders"]),
        (3, 1, ["alter:topic.dc1.orders", "reassign:topic.dc1.orders", "own:topic.dc1.orders"]),
    ],
)
def test_min_insync_replicas_never_stands_above_the_replicas(replication, wanted_replication, order) -> None:
    want = wanted("orders", 2, wanted_replication, min_insync_replicas="1")

    assert ids(desired(want), observed(cluster(live("orders", 2, replication)))) == order


@pytest.mark.parametrize("factors", [(3, 1), (1, 3), (2, 3, 3)])
def test_each_partition_gets_the_replication_that_is_declared(factors: tuple[int, ...]) -> None:
    seen = observed(cluster(uneven("orders", *factors)))
    (reassign,) = [
        one for one in plan(desired(wanted("orders", None, 3)), seen).steps if isinstance(one, Reassign)
    ]

    assert {len(one) for one in reassign.replicas} == {3}
    assert [len(one) for one in reassign.old] == list(factors)


@pytest.mark.parametrize(
    ("factors", "least", "first"),
    [
        ((1, 3), "2", "reassign"),  # one partition has too few for it as yet
        ((3, 1), "2", "reassign"),
        ((2, 3), "2", "alter"),
        ((1, 3), "1", "alter"),  # one partition is to have fewer than what is set now
    ],
)
def test_min_insync_replicas_never_stands_above_those_of_any_partition(
    factors: tuple[int, ...], least: str, first: str
) -> None:
    want = wanted("orders", 2, 2, min_insync_replicas=least)
    made = plan(desired(want), observed(cluster(uneven("orders", *factors, min_insync_replicas="3"))))

    assert made.steps[0].id == f"{first}:topic.dc1.orders"


def test_a_new_replication_factor_is_a_reassignment() -> None:
    reassign = plan(desired(wanted("orders", None, 3)), observed(cluster(live("orders", 2, 1)))).steps[0]

    assert isinstance(reassign, Reassign)
    assert reassign.replicas == ((1, 2, 3), (1, 2, 3))
    assert reassign.old == ((1,), (1,))


def test_partitions_grow_after_the_replicas_moved() -> None:
    want = wanted("orders", 4, 3)

    steps = plan(desired(want), observed(cluster(live("orders", 2, 1)))).steps

    assert [step.id for step in steps[:2]] == ["reassign:topic.dc1.orders", "grow:topic.dc1.orders"]
    assert steps[1].needs == ("reassign:topic.dc1.orders",)


def test_what_is_added_comes_first_and_what_is_taken_away_last() -> None:
    leaving = acl_entry(DesiredAcl(WRITE, Declared()), SHOP, created=True)
    at = cluster(live("old"), live("grown", 1), acls=[WRITE], owned=[DOOMED, leaving, owned(wanted("left"))])

    assert ids(
        desired(wanted("new"), wanted("grown", 2), acls=(DesiredAcl(READ, Declared()),)), observed(at)
    ) == [
        "create:topic.dc1.new",
        "grow:topic.dc1.grown",
        f"announce:acl.dc1.{READ.name}",
        f"create:acl.dc1.{READ.name}",
        f"own:acl.dc1.{READ.name}",
        "own:topic.dc1.grown",
        "own:topic.dc1.new",
        f"delete:acl.dc1.{WRITE.name}",
        "delete:topic.dc1.old",
        f"disown:acl.dc1.{WRITE.name}",
        "disown:topic.dc1.left",
        "disown:topic.dc1.old",
    ]


def test_adopting_only_writes_the_registry_and_keeps_who_made_it() -> None:
    adopt = plan(desired(wanted("orders")), observed(cluster(live("orders")))).steps
    acl_adopted = plan(desired(acls=(DesiredAcl(READ, Declared()),)), observed(cluster(acls=[READ]))).steps
    again = plan(desired(wanted("a", 7)), observed(cluster(live("a"), owned=[owned(wanted("a"))]))).steps

    assert [(type(step), step.entry.created) for step in (*adopt, *acl_adopted) if isinstance(step, Own)] == [
        (Own, False),
        (Own, False),
    ]
    assert isinstance(again[-1], Own)
    assert again[-1].entry.created


def test_nothing_to_do_is_no_step() -> None:
    assert ids(desired(wanted("a")), observed(cluster(live("a"), owned=[owned(wanted("a"))]))) == []


def test_what_no_step_is_known_for_has_none() -> None:
    nobodys, gone = topic_address("dc1", "nobodys"), topic_address("dc1", "old")
    changes = [
        Change(job_address("dc2"), Action.REPLACE, "spark changed"),
        Change(nobodys, Action.FORGET, "nobody owns it"),
        Change(gone, Action.DELETE, "somebody was faster"),
    ]

    steps = make_steps(changes, desired(), observed(cluster()), {gone: DOOMED})

    assert steps == ()


def test_a_rule_that_protects_a_mirror_says_so_in_the_registry() -> None:
    wanted_acl = DesiredAcl(READ, "protect: acl of flow.dc1-to-dc2")

    own = plan(desired(acls=(wanted_acl,)), observed(cluster(acls=[]))).steps[-1]

    assert isinstance(own, Own)
    assert own.entry.origin == "protect: acl of flow.dc1-to-dc2"


@pytest.mark.parametrize("there_before", [False, True])
@pytest.mark.parametrize("steps_done", range(4))
def test_a_rule_goes_as_it_came_wherever_its_apply_was_cut(steps_done: int, there_before: bool) -> None:
    asked = desired(acls=(DesiredAcl(READ, Declared()),))
    before = observed(cluster(acls=[READ] if there_before else []))
    cut = simulate(plan(asked, before).steps[:steps_done], before)

    after = simulate(plan(asked, cut).steps, cut)
    gone = simulate(plan(desired(), after).steps, after).reachable("dc1")

    assert plan(asked, after).steps == ()
    assert gone is not None
    assert (gone.acls, gone.owned) == ((READ,) if there_before else (), ())
