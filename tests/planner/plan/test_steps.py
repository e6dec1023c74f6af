"""Changes become steps, in the order in which they must happen, and move as few replicas as can be."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.diff.record import acl_entry
from planner.model.address import job_address, topic_address
from planner.model.change import Action, Change
from planner.model.desired import Declared, DesiredAcl
from planner.model.observed import ObservedBroker
from planner.model.topology import OnRemove
from planner.plan.ordering import make_steps
from planner.plan.steps.registry import Own
from planner.plan.steps.topics import AlterConfigs, CreateTopic, GrowPartitions, Reassign, wanted_replicas
from tests.fakes.simulated import simulate
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
    topology,
    uneven,
    wanted,
)
from tests.fakes.tables import cases
from tests.planner.plan.jobs import applied, plan, plan_for, steps_of, there

READ, WRITE = acl("READ"), acl("WRITE")
READING = desired(acls=(DesiredAcl(READ, Declared()),))
DOOMED = owned(wanted("old"), on_remove=OnRemove.DELETE)
LEAVING = acl_entry(DesiredAcl(WRITE, Declared()), SHOP, created=True)


def test_only_the_keys_that_move_are_sent() -> None:
    before = wanted("orders", 6, retention_ms="1", segment_ms="5", flush_ms="7")
    want = wanted("orders", 12, retention_ms="2", flush_ms="7")
    have = live("orders", 6, retention_ms="1", segment_ms="5", flush_ms="7")
    grow, alter, own = plan_for(desired(want), cluster(have, owned=[owned(before)])).steps
    assert grow == GrowPartitions("grow:topic.dc1.orders", want.address, "dc1", "orders", 6, 12)
    was = {"retention.ms": "1", "segment.ms": "5"}
    assert alter == AlterConfigs(
        "alter:topic.dc1.orders", want.address, "dc1", "orders", {"retention.ms": "2"}, ("segment.ms",), was
    )
    assert own.needs == (alter.id, grow.id)
    assert isinstance(own, Own)
    assert own.entry.spec["id"] == "id:orders"


ONE, TWO = (wanted("orders", 2, 2, min_insync_replicas=least) for least in "12")
THREE = {"min_insync_replicas": "3"}


@cases(
    "want have kinds",
    {
        "a new topic is created, then owned": (wanted("orders", 12), [], "create own"),
        "adopting only registers": (wanted("orders"), [live("orders")], "own"),
        "replicas come before min.insync.replicas": (ONE, [live("orders", 2, 1)], "reassign alter own"),
        "replicas go after min.insync.replicas": (ONE, [live("orders", 2, 3)], "alter reassign own"),
        "one partition has too few for it": (TWO, [uneven("orders", 1, 3, **THREE)], "reassign alter own"),
        "so has the other partition": (TWO, [uneven("orders", 3, 1, **THREE)], "reassign alter own"),
        "all partitions have enough": (TWO, [uneven("orders", 2, 3, **THREE)], "alter reassign own"),
        "one partition gets fewer": (ONE, [uneven("orders", 1, 3, **THREE)], "alter reassign own"),
        "partitions grow last": (wanted("orders", 4, 3), [live("orders", 2, 1)], "reassign grow own"),
    },
)
def test_the_steps_of_one_topic_in_their_order(want, have, kinds) -> None:
    steps = plan_for(desired(want), cluster(*have)).steps
    assert [step.id for step in steps] == [f"{kind}:topic.dc1.orders" for kind in kinds.split()]
    assert all(step.needs == (before.id,) for before, step in itertools.pairwise(steps[:-1]))


def test_what_is_added_comes_first_and_what_is_taken_away_last() -> None:
    have = cluster(
        live("old"), live("grown", 1), acls=[WRITE], owned=[DOOMED, LEAVING, owned(wanted("left"))]
    )
    made = plan_for(desired(wanted("new"), wanted("grown", 2), acls=READING.acls), have)
    assert [step.id for step in made.steps] == [
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


CREATED = {"partitions": "12", "config.retention.ms": "1"}
GROWN = {"partitions": "7", "id": "id:orders"}
SOURCE = {"source.cluster": "dc1", "source.topic": "orders"}
PROTECTING = desired(acls=(DesiredAcl(READ, "protect: acl of flow.x"),))
OWNED = cluster(live("orders"), owned=[owned(wanted("orders"))])


@cases(
    "want have origin created spec",
    {
        "a new topic": (
            desired(wanted("orders", 12, retention_ms="1")),
            cluster(),
            "declared",
            True,
            CREATED,
        ),
        "a mirror": (desired(mirror("orders")), cluster(name="dc2"), "flow.dc1-to-dc2", True, SOURCE),
        "an adopted topic": (
            desired(wanted("orders")),
            cluster(live("orders")),
            "declared",
            False,
            {"id": "id:orders"},
        ),
        "a topic that was made here before": (desired(wanted("orders", 7)), OWNED, "declared", True, GROWN),
        "an adopted rule": (READING, cluster(acls=[READ]), "declared", False, None),
        "a rule that protects": (PROTECTING, cluster(acls=[]), "protect: acl of flow.x", True, None),
    },
)
def test_what_the_registry_remembers(want, have, origin, created, spec) -> None:
    own = plan_for(want, have).steps[-1]
    assert isinstance(own, Own)
    assert (own.entry.topology, own.entry.origin, own.entry.created) == (SHOP, origin, created)
    assert spec is None or own.entry.spec == spec


def test_what_no_step_is_known_for_has_none() -> None:
    gone = topic_address("dc1", "old")
    unknown = [
        Change(job_address("dc2"), Action.REPLACE, "spark changed"),
        Change(topic_address("dc1", "of-none"), Action.FORGET, "no topology owns it"),
        Change(gone, Action.DELETE, "deleted meanwhile"),
    ]
    assert make_steps(unknown, desired(), observed(cluster(owned=[DOOMED]))) == ()
    assert plan_for(desired(wanted("a")), cluster(live("a"), owned=[owned(wanted("a"))])).steps == ()


@pytest.mark.parametrize("there_before", [False, True])
@pytest.mark.parametrize("steps_done", range(4))
def test_a_rule_goes_as_it_came_wherever_its_apply_was_cut(steps_done: int, there_before: bool) -> None:
    before = cluster(acls=[READ] if there_before else [])
    cut = simulate(plan_for(READING, before).steps[:steps_done], observed(before))
    after = simulate(plan_for(READING, there(cut, "dc1")).steps, cut)
    gone = there(simulate(plan_for(desired(), there(after, "dc1")).steps, after), "dc1")
    assert plan_for(READING, there(after, "dc1")).steps == ()
    assert (gone.acls, gone.owned) == ((READ,) if there_before else (), ())


# Replicas: which brokers hold which partition after a change of the replication factor.


@cases(
    "before after moved_to",
    {
        "a mirror moves when its flow's replication changes": (1, {"replication": 3}, {3}),
        "without it a mirror keeps what it has": (2, {}, None),
        "a promotion moves none": (2, {"replication": 3, "state": "promoted"}, None),
    },
)
def test_the_replication_of_a_flow(before, after, moved_to) -> None:
    x = flow("x", replication=before)
    assert [one.replication for one in steps_of(plan(topology(x)), CreateTopic)] == [before]
    seen = applied(topology(x))
    assert plan(topology(x), seen).steps == ()
    moves = steps_of(plan(topology(flow("x", **after)), seen), Reassign)
    assert [{len(one) for one in move.replicas} for move in moves] == ([moved_to] if moved_to else [])


def brokers(*racks: str | None) -> list[ObservedBroker]:
    return [ObservedBroker(number, "host", 9092, rack) for number, rack in enumerate(racks, start=1)]


@pytest.mark.parametrize(
    ("replicas", "replication", "racks", "expected"),
    [
        (((1,), (2,), (3,)), 2, (None, None, None), ((1, 2), (2, 1), (3, 1))),
        (((1, 2, 3), (2, 3, 1)), 2, (None, None, None), ((1, 2), (2, 3))),
        (((1,), (1,)), 2, ("a", "a", "b"), ((1, 3), (1, 3))),  # another rack before the emptier broker
        (((9,), (1,)), 1, (None, None), ((2,), (1,))),  # a broker that is gone is replaced
        (((1,),), 3, (None, None), None),
        (((1,),), 0, (None, None), None),
    ],
)
def test_as_little_moves_as_can_be(replicas, replication, racks, expected) -> None:
    assert wanted_replicas(replicas, replication, brokers(*racks)) == expected


@given(st.data())
def test_every_partition_has_that_many_different_brokers_and_keeps_what_it_can(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 6))
    racks = data.draw(st.lists(st.sampled_from([None, "a", "b"]), min_size=count, max_size=count))
    partition = st.lists(st.integers(1, count), min_size=1, unique=True).map(tuple)
    replicas = data.draw(st.lists(partition, min_size=1, max_size=8))
    replication = data.draw(st.integers(1, count))
    found = wanted_replicas(replicas, replication, brokers(*racks))
    assert found is not None
    for before, after in zip(replicas, found, strict=True):
        assert len(after) == len(set(after)) == replication
        assert after[: len(before)] == before[:replication]
