"""`replication` of a flow: mirrors are created with it, moved to it, and left alone after a promotion."""

from dataclasses import replace

from planner.model.plan import Action
from planner.model.step import CreateTopic, Reassign
from planner.model.topology import FlowState
from tests.fakes.states import cluster, flow, live, observed, topology
from tests.planner.plan.jobs import applied, plan

X = flow("x")
SEEN = observed(cluster(live("orders")), cluster(name="dc2"))


def test_a_mirror_is_created_with_it_and_no_further_plan_changes_it() -> None:
    shop = topology(replace(X, replication=2))
    made = plan(shop, SEEN)

    assert [one.replication for one in made.steps if isinstance(one, CreateTopic)] == [2]
    assert plan(shop, applied(shop, SEEN)).steps == ()


def test_replicas_of_a_mirror_move_when_it_is_changed() -> None:
    seen = applied(topology(replace(X, replication=1)), SEEN)
    made = plan(topology(replace(X, replication=3)), seen)

    (move,) = [one for one in made.steps if isinstance(one, Reassign)]
    assert {len(one) for one in move.replicas} == {3}
    change = next(one for one in made.changes if one.address == move.address)
    assert change.action is Action.UPDATE


def test_without_it_a_mirror_keeps_what_it_has() -> None:
    seen = applied(topology(replace(X, replication=2)), SEEN)
    assert not [one for one in plan(topology(X), seen).steps if isinstance(one, Reassign)]


def test_a_promotion_leaves_the_replicas_alone() -> None:
    seen = applied(topology(replace(X, replication=2)), SEEN)
    ended = topology(replace(X, replication=3, state=FlowState.PROMOTED))
    assert not [one for one in plan(ended, seen).steps if isinstance(one, Reassign)]
