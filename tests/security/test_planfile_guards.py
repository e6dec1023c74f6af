"""The guards hold for a saved plan as they held when it was made, or as a file says that they are."""

from collections.abc import Callable

import pytest

from planner.model.diagnostic import Diagnostic, ExitCode
from planner.model.observed import Observed, RegistryEntry
from planner.model.topology import Policies, Requirement, Topic
from planner.plan.guards import recheck
from planner.plan.make import plan_from
from tests.fakes.replacing import replace
from tests.fakes.states import cluster, flow, inputs, live, observed, topology
from tests.planner.plan.jobs import applied, dead
from tests.planner.plan.jobs import plan as plan_of
from tests.security.plans import changed, honest, state


def codes(found: tuple[Diagnostic, ...]) -> list[tuple[str, ExitCode]]:
    return [(one.code, one.exit) for one in found]


def with_entries(seen: Observed, name: str, edit: Callable[[RegistryEntry], RegistryEntry]) -> Observed:
    there = seen.reachable(name)
    assert there is not None
    return Observed({**seen.clusters, name: replace(there, owned=tuple(edit(one) for one in there.owned))})


def test_the_honest_plan_passes() -> None:
    plan = honest()

    assert recheck(plan, plan.steps, state()) == ()


def test_what_is_protected_now_is_not_deleted() -> None:
    plan = honest()

    def protected(one: RegistryEntry) -> RegistryEntry:
        return replace(one, protect=True) if one.address.name == "doomed" else one

    found = recheck(plan, plan.steps, with_entries(state(), "dc1", protected))

    assert codes(found) == [("protect", ExitCode.REFUSED)]


def test_more_deletes_than_the_policy_allows() -> None:
    plan = changed(honest(), policies=Policies(max_deletes=1))

    assert codes(recheck(plan, plan.steps, state())) == [("max-deletes", ExitCode.REFUSED)]


def test_what_an_earlier_apply_did_is_not_counted_again() -> None:
    """A plan that is finished after it was cut short is not refused for what is done."""
    plan = changed(honest(), policies=Policies(max_deletes=1))
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
    plan = changed(honest(), policies=Policies(require=(requirement,)))
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
    plan = plan_from(inputs(shop, seen))

    assert plan.steps
    assert recheck(plan, plan.steps, seen) == ()


@pytest.mark.parametrize("name", ["topic.dc1.changed", "job.gone", "flow.x"])
def test_what_another_topology_owns_now(name: str) -> None:
    """Also where the file was altered to say that it was so from the beginning."""
    plan = honest()

    def theirs(one: RegistryEntry) -> RegistryEntry:
        return replace(one, topology="billing") if str(one.address) == name else one

    seen = with_entries(with_entries(state(), "dc1", theirs), "dc2", theirs)

    assert codes(recheck(plan, plan.steps, seen)) == [("owned", ExitCode.REFUSED)]


def test_a_failover_that_is_finished_later_is_not_refused() -> None:
    """Many protected rules go with a flow that ends; those that are gone already don't count."""
    seen = dead(applied(topology(flow("x"))))
    plan = plan_of(topology(flow("x")), seen)

    assert recheck(plan, plan.steps, seen) == ()
