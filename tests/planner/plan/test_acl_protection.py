"""A rule for everyone that `protect: acl` replaces: in which order, what is remembered, how it comes back."""

import pytest
from msgspec import structs

from planner.diff.differ import drift
from planner.graph.expansion import expand
from planner.model.change import Action
from planner.model.observed import Observed
from planner.model.topology import AclRule, Cluster, Flow, Topology
from planner.plan.staleness import no_longer_done
from planner.plan.steps.acls import CreateAcl, DeleteAcl
from planner.plan.steps.jobs import LaunchJob
from runtime.contract.spec.flow import FlowState
from tests.fakes.replacing import replace
from tests.fakes.simulated import simulate
from tests.fakes.states import cluster, flow, live, observed, topology
from tests.planner.plan.jobs import applied, at, plan, rests, steps_of, there, touched, undo

X = structs.replace(flow("x"), protect="acl")
EVERYONE = AclRule("dc2", "TOPIC", "*", "LITERAL", "User:*", "*", "WRITE", "ALLOW")
JOB = replace(EVERYONE, principal="User:job")
SOURCE = cluster(live("orders"), live("pay.eu"))
OPEN = observed(SOURCE, cluster(live("own"), name="dc2", acls=[EVERYONE], owned=()))


def shop(one: Flow = X, *, open_without_rules: bool = False) -> Topology:
    dc2 = Cluster(
        "dc2", bootstrap="dc2:9092", principal="User:job", allow_everyone_if_no_acl_found=open_without_rules
    )
    return topology(one, clusters=(Cluster("dc1", bootstrap="dc1:9092"), dc2))


def rules(seen: Observed) -> set[AclRule]:
    return set(there(seen).acls or ())


def remembered(seen: Observed) -> set[str]:
    return {entry.address.name for entry in there(seen).owned if entry.is_protection}


CLOSED = applied(shop(), OPEN)


def test_it_goes_when_its_substitutes_are_there_and_before_the_job_copies() -> None:
    made = plan(shop(), OPEN)
    (gone,) = steps_of(made, DeleteAcl)
    created, (launch,) = steps_of(made, CreateAcl), steps_of(made, LaunchJob)
    assert gone.rule == EVERYONE
    assert {one.id for one in created} | {f"own:{gone.address}"} <= set(gone.needs)
    assert {one.rule for one in created} == {
        JOB,
        replace(EVERYONE, operation="DESCRIBE"),
        replace(EVERYONE, resource="__repl.", pattern="PREFIXED"),
        replace(EVERYONE, resource="own"),
    }
    assert gone.id in launch.needs
    assert "max-deletes" not in [one.code for one in made.diagnostics]
    assert EVERYONE not in rules(CLOSED)
    assert rests(shop(), CLOSED)
    assert no_longer_done(made.steps, {one.id for one in made.steps}, CLOSED) == ()
    acls = {one for one in touched(made) if one.startswith("acl.")}
    assert {one for one in touched(plan(shop(), OPEN, "flow.x")) if one.startswith("acl.")} == acls


@pytest.mark.parametrize("state", ["promoted", "failed_over"])
def test_it_is_restored_once_the_flow_has_ended(state: FlowState) -> None:
    ended = shop(structs.replace(X, state=state))
    made = plan(ended, CLOSED)
    (back,), removed = steps_of(made, CreateAcl), steps_of(made, DeleteAcl)
    assert back.rule == EVERYONE
    assert "own:flow.x" in back.needs
    assert len(removed) == 4
    assert all({back.id, "own:flow.x"} <= set(one.needs) for one in removed)
    assert not [one for one in made.diagnostics if one.severity.value == "error"]
    after = simulate(made.steps, CLOSED)
    assert (rules(after), remembered(after)) == ({EVERYONE}, set())
    assert rests(ended, after)
    assert rules(simulate(plan(ended, CLOSED, "flow.x").steps, CLOSED)) == {EVERYONE}


def test_a_topic_that_is_promoted_alone_gets_its_rule_after_that() -> None:
    alone = shop(structs.replace(X, promoted=(r"pay\.eu",)))
    made = plan(alone, CLOSED)
    (given,) = steps_of(made, CreateAcl)
    assert given.rule == replace(EVERYONE, resource="pay.eu")
    assert "own:flow.x" in given.needs
    assert rests(alone, simulate(made.steps, CLOSED))


def test_one_that_was_made_again_by_hand_goes_again() -> None:
    again = at(CLOSED, acls=(*(there(CLOSED).acls or ()), EVERYONE))
    drifted = [one for one in drift(expand(shop(), again), again) if one.action is not Action.NO_OP]
    assert [(one.action, one.reason) for one in drifted] == [
        (Action.CREATE, "made again outside the topology")
    ]
    made = plan(shop(), again)
    assert rules(simulate(made.steps, again)) == rules(CLOSED)


def test_a_rollback_and_a_destroy_restore_it() -> None:
    undone = undo(CLOSED, *plan(shop(), OPEN).steps)
    assert [one.action for one in undone.changes if one.address.name == EVERYONE.name] == [Action.CREATE]
    after = simulate(undone.steps, CLOSED)
    assert (rules(after), remembered(after)) == ({EVERYONE}, set())
    assert rules(applied(replace(shop(), flows={}, jobs={}), CLOSED)) == {EVERYONE}


def test_a_mirror_without_rules_gets_them_and_loses_them_with_its_flow() -> None:
    made = shop(open_without_rules=True)
    ended = shop(structs.replace(X, state="promoted"), open_without_rules=True)
    seen = applied(made, observed(SOURCE, cluster(name="dc2", acls=(), owned=())))
    assert len(rules(seen)) == 12
    assert {one.principal for one in rules(seen) if one.operation in ("WRITE", "ALL")} == {"User:job"}
    assert rests(made, seen)
    lifted = plan(ended, seen)
    assert all("own:flow.x" in one.needs for one in steps_of(lifted, DeleteAcl))
    after = simulate(lifted.steps, seen)
    assert rules(after) == set()
    assert rests(ended, after)
