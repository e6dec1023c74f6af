"""The guards hold for a saved plan as they held when it was made, though the plan has lost its refusals."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from planner.diff import diff
from planner.graph import expand
from planner.model.diagnostic import Diagnostic, ExitCode
from planner.model.observed import Observed, RegistryEntry
from planner.model.plan import Change, Plan
from planner.model.step import StopJob
from planner.model.topology import Cluster, Job, Policies, Requirement, Selection, Topic
from planner.plan import make_plan
from planner.plan.agreement import disagreements
from planner.plan.recheck import recheck, shown_as_running
from tests.fakes.states import cluster, flow, live, observed, topology
from tests.planner.plan.jobs import applied, dead
from tests.planner.plan.jobs import plan as plan_of
from tests.security.plans import honest, state


def codes(found: tuple[Diagnostic, ...]) -> list[tuple[str, ExitCode]]:
    return [(one.code, one.exit) for one in found]


def with_entries(seen: Observed, name: str, edit: Callable[[RegistryEntry], RegistryEntry]) -> Observed:
    there = seen.reachable(name)
    assert there is not None
    return Observed({**seen.clusters, name: replace(there, owned=tuple(edit(one) for one in there.owned))})


def test_the_honest_plan_passes() -> None:
    plan = honest()

    assert recheck(plan, plan.steps, state()) == ()
    assert list(shown_as_running(plan, state())) == []


def test_what_is_protected_now_is_not_deleted() -> None:
    plan = honest()

    def protected(one: RegistryEntry) -> RegistryEntry:
        return replace(one, protect=True) if one.address.name == "doomed" else one

    found = recheck(plan, plan.steps, with_entries(state(), "dc1", protected))

    assert codes(found) == [("protect", ExitCode.REFUSED)]


def test_more_deletes_than_the_policy_allows() -> None:
    plan = replace(honest(), policies=Policies(max_deletes=1))

    assert codes(recheck(plan, plan.steps, state())) == [("max-deletes", ExitCode.REFUSED)]


def test_what_an_earlier_apply_did_is_not_counted_again() -> None:
    """A plan that is finished after it was cut short is not refused for what is done."""
    plan = replace(honest(), policies=Policies(max_deletes=1))
    done = {"topic.dc1.doomed", "quota.dc1.user/gone"}
    left = [step for step in plan.steps if str(step.address) not in done]

    assert recheck(plan, left, state()) == ()


@pytest.mark.parametrize(
    ("requirement", "refused"),
    [
        (Requirement("replication", ">=", "4"), {"new", "grown", "changed", "adopted"}),
        (Requirement("partitions", "<=", "6"), {"new", "grown"}),
        (Requirement("retention.ms", ">=", "5"), {"new", "changed"}),
        (Requirement("min.insync.replicas", ">=", "2"), {"new", "grown", "changed", "adopted"}),
    ],
)
def test_what_a_topic_must_fulfil(requirement: Requirement, refused: set[str]) -> None:
    """By what the steps leave behind: created, altered, grown or adopted, else the cluster's own value."""
    plan = replace(honest(), policies=Policies(require=(requirement,)))
    seen = state()
    dc1 = seen.reachable("dc1")
    assert dc1 is not None
    seen = Observed({**seen.clusters, "dc1": replace(dc1, defaults={"min.insync.replicas": "1"})})

    found = recheck(plan, plan.steps, seen)

    told = {one.address.removeprefix("topic.dc1.") for one in found if one.address and ".dc1." in one.address}
    assert told - {"only2"} == refused
    assert {one.exit for one in found} == {ExitCode.REFUSED}


def test_a_requirement_is_held_against_what_the_topic_has_besides() -> None:
    """What the plan does not touch counts as it is there."""
    rule = Requirement("min.insync.replicas", ">=", "2")
    shop = replace(
        topology(policies=Policies(require=(rule,))),
        topics=(Topic("a", "dc1", config={"retention.ms": "2"}),),
    )
    seen = observed(cluster(live("a", min_insync_replicas="2"), defaults={"min.insync.replicas": "1"}))
    desired = expand(shop, seen)
    plan = make_plan(desired, seen, diff(desired, seen, shop), shop)

    assert plan.steps
    assert recheck(plan, plan.steps, seen) == ()


@pytest.mark.parametrize("name", ["topic.dc1.changed", "job.gone", "flow.x"])
def test_what_another_topology_owns_now(name: str) -> None:
    """Also where the fingerprint was altered to say that it was so from the beginning."""
    plan = honest()

    def theirs(one: RegistryEntry) -> RegistryEntry:
        return replace(one, topology="billing") if str(one.address) == name else one

    seen = with_entries(with_entries(state(), "dc1", theirs), "dc2", theirs)

    assert codes(recheck(plan, plan.steps, seen)) == [("owned", ExitCode.REFUSED)]


def test_another_cluster_than_the_pinned_one() -> None:
    plan = honest()
    pinned = Cluster("dc1", "dc1:9092", id="another")
    plan = replace(plan, connections={**plan.connections, "dc1": pinned})

    assert codes(recheck(plan, plan.steps, state())) == [("pinned-id", ExitCode.REFUSED)]


def test_a_job_that_was_started_otherwise_since() -> None:
    """Its stop would be asked of a launcher that may have another job of that name."""
    plan = honest()
    stop = next(one for one in plan.steps if one.id == "stop:job.gone")
    assert isinstance(stop, StopJob)
    evil = replace(stop, launch='{"launcher":"kubernetes","options":{"namespace":"payments"}}')
    steps = tuple(evil if one.id == stop.id else one for one in plan.steps)

    found = recheck(replace(plan, steps=steps), steps, state())

    assert codes(found) == [("stale", ExitCode.STALE)]


def forged_before(plan: Plan, address: str, key: str) -> Plan:
    """`before` says that the new value was there already, so no field must tell that it moves."""

    def edit(change: Change) -> Change:
        if str(change.address) != address:
            return change
        assert change.before is not None
        assert change.after is not None
        fields = tuple(one for one in change.fields if one.path != (key,))
        return replace(change, before={**change.before, key: change.after[key]}, fields=fields)

    return replace(plan, changes=tuple(edit(one) for one in plan.changes))


@pytest.mark.parametrize(
    ("address", "key"), [("flow.x", "rate_limit"), ("flow.x", "topics.include"), ("job.dc2", "metrics")]
)
def test_a_change_that_is_hidden_behind_what_is_there(address: str, key: str) -> None:
    x = flow("x")
    before = replace(topology(x), jobs={"dc2": Job("dc2")})
    wider = replace(x, rate_limit=7, topics=Selection(("a", "b")))
    after = replace(topology(wider), jobs={"dc2": Job("dc2", metrics_host="0.0.0.0")})
    seen = applied(before)
    plan = plan_of(after, seen)
    assert list(shown_as_running(plan, seen)) == []

    hidden = forged_before(plan, address, key)

    assert disagreements(hidden) == ()
    found = tuple(shown_as_running(hidden, seen))
    assert {(one.code, one.exit, one.address) for one in found} == {("stale", ExitCode.STALE, address)}


def test_a_failover_that_is_finished_later_is_not_refused() -> None:
    """Many protected rules go with a flow that ends; those that are gone already don't count."""
    seen = dead(applied(topology(flow("x"))))
    plan = plan_of(topology(flow("x")), seen)

    assert recheck(plan, plan.steps, seen) == ()
