"""A rule for everyone that `protect: acl` replaces: in which order, what is remembered, how it comes back."""

from dataclasses import replace

import pytest

from planner.diff import diff, drift
from planner.graph import expand
from planner.model.observed import Observed
from planner.model.plan import Action, Plan
from planner.model.step import ApplyRecord, CreateAcl, DeleteAcl, LaunchJob, Step, StepResult
from planner.model.topology import AclRule, Cluster, Flow, FlowState, Protect, Topology
from planner.plan.agreement import disagreements
from planner.plan.fingerprint import no_longer_done
from planner.plan.rollback import roll_back
from tests.fakes.simulated import simulate
from tests.fakes.states import cluster, flow, live, observed, topology
from tests.planner.plan.jobs import applied, plan

X = replace(flow("x"), protect=Protect.ACL)
EVERYONE = AclRule("dc2", "TOPIC", "*", "LITERAL", "User:*", "*", "WRITE", "ALLOW")
JOB = replace(EVERYONE, principal="User:job")
SOURCE = cluster(live("orders"), live("pay.eu"))
OPEN = observed(SOURCE, cluster(live("own"), name="dc2", acls=[EVERYONE], owned=()))


def shop(one: Flow, *, open_without_rules: bool = False) -> Topology:
    dc2 = Cluster("dc2", "dc2:9092", principal="User:job", allow_everyone_if_no_acl_found=open_without_rules)
    return topology(one, clusters=(Cluster("dc1", "dc1:9092"), dc2))


def rules(seen: Observed) -> set[AclRule]:
    there = seen.reachable("dc2")
    assert there is not None
    return set(there.acls or ())


def remembered(seen: Observed) -> set[str]:
    there = seen.reachable("dc2")
    assert there is not None
    return {entry.address.name for entry in there.owned if entry.is_protection}


def rests(made: Topology, seen: Observed) -> bool:
    """A further plan does nothing, and nothing has drifted."""
    desired = expand(made, seen)
    drifted = [one for one in drift(desired, seen) if one.action is not Action.NO_OP]
    return not plan(made, seen).steps and not drifted


def step(made: Plan, kind: type[Step], rule: AclRule | None = None) -> Step:
    return next(
        one for one in made.steps if isinstance(one, kind) and rule in (None, getattr(one, "rule", None))
    )


def test_it_goes_when_its_substitutes_are_there_and_before_the_job_copies() -> None:
    made = plan(shop(X), OPEN)
    gone = step(made, DeleteAcl)
    created = [one for one in made.steps if isinstance(one, CreateAcl)]

    assert isinstance(gone, DeleteAcl)
    assert gone.rule == EVERYONE
    assert {one.id for one in created} | {f"own:{gone.address}"} <= set(gone.needs)
    assert {one.rule for one in created} == {
        JOB,
        replace(EVERYONE, operation="DESCRIBE"),
        replace(EVERYONE, resource="__repl.", pattern="PREFIXED"),
        replace(EVERYONE, resource="own"),
    }
    assert gone.id in step(made, LaunchJob).needs
    assert disagreements(made) == ()
    assert "max-deletes" not in [one.code for one in made.diagnostics]


def test_then_nothing_is_left_to_do() -> None:
    made = plan(shop(X), OPEN)
    after = simulate(made.steps, OPEN)

    assert EVERYONE not in rules(after)
    assert rests(shop(X), after)
    assert no_longer_done(made.steps, {one.id for one in made.steps}, after) == ()


@pytest.mark.parametrize("state", [FlowState.PROMOTED, FlowState.FAILED_OVER])
def test_it_is_restored_once_the_flow_has_ended(state: FlowState) -> None:
    seen = applied(shop(X), OPEN)
    ended = shop(replace(X, state=state))
    made = plan(ended, seen)
    back = step(made, CreateAcl, EVERYONE)

    assert "own:flow.x" in back.needs
    removed = [one for one in made.steps if isinstance(one, DeleteAcl)]
    assert len(removed) == 4
    assert all({back.id, "own:flow.x"} <= set(one.needs) for one in removed)
    assert disagreements(made) == ()
    assert not [one for one in made.diagnostics if one.severity.value == "error"]
    after = simulate(made.steps, seen)
    assert rules(after) == {EVERYONE}
    assert remembered(after) == set()
    assert rests(ended, after)


def test_a_topic_that_is_promoted_alone_gets_its_rule_after_that() -> None:
    seen = applied(shop(X), OPEN)
    alone = shop(replace(X, promoted=(r"pay\.eu",)))
    made = plan(alone, seen)

    (given,) = [one for one in made.steps if isinstance(one, CreateAcl)]
    assert given.rule == replace(EVERYONE, resource="pay.eu")
    assert "own:flow.x" in given.needs
    assert disagreements(made) == ()
    assert rests(alone, simulate(made.steps, seen))


def test_one_that_was_made_again_by_hand_goes_again() -> None:
    seen = applied(shop(X), OPEN)
    there = seen.reachable("dc2")
    assert there is not None
    again = Observed({**seen.clusters, "dc2": replace(there, acls=(*(there.acls or ()), EVERYONE))})

    drifted = [one for one in drift(expand(shop(X), again), again) if one.action is not Action.NO_OP]
    assert [(one.action, one.reason) for one in drifted] == [
        (Action.CREATE, "made again outside the topology")
    ]
    made = plan(shop(X), again)
    assert disagreements(made) == ()
    assert rules(simulate(made.steps, again)) == rules(seen)


def test_a_rollback_restores_it() -> None:
    made = plan(shop(X), OPEN)
    outcomes = {one.id: StepResult("done") for one in made.steps}
    record = ApplyRecord(
        "X1", "shop", "apply", "p", "u", "h", 1, None, {"dc2": "C"}, 0, 0, steps=made.steps, outcomes=outcomes
    )
    seen = simulate(made.steps, OPEN)

    undone = roll_back(record, seen)

    change = next(one for one in undone.changes if one.address.name == EVERYONE.name)
    assert change.action is Action.CREATE
    assert rules(simulate(undone.steps, seen)) == {EVERYONE}
    assert remembered(simulate(undone.steps, seen)) == set()


def test_destroying_the_topology_restores_it() -> None:
    seen = applied(shop(X), OPEN)
    nothing = replace(shop(X), flows={}, jobs={})
    assert rules(applied(nothing, seen)) == {EVERYONE}


def test_a_mirror_without_rules_gets_them_and_loses_them_with_its_flow() -> None:
    made, ended = (
        shop(replace(X, state=state), open_without_rules=True) for state in (X.state, FlowState.PROMOTED)
    )
    seen = applied(made, observed(SOURCE, cluster(name="dc2", acls=(), owned=())))

    assert len(rules(seen)) == 12
    assert {one.principal for one in rules(seen) if one.operation in ("WRITE", "ALL")} == {"User:job"}
    assert rests(made, seen)
    lifted = plan(ended, seen)
    assert disagreements(lifted) == ()
    assert all("own:flow.x" in one.needs for one in lifted.steps if isinstance(one, DeleteAcl))
    after = simulate(lifted.steps, seen)
    assert rules(after) == set()
    assert rests(ended, after)


def test_a_target_brings_the_protection_of_its_flow() -> None:
    found = diff(expand(shop(X), OPEN), OPEN, shop(X))
    whole = {one.address for one in found if one.address.kind.value == "acl"}
    targeted = plan(shop(X), OPEN, "flow.x")
    assert {one.address for one in targeted.changes if one.address.kind.value == "acl"} == whole
