"""For any topology and any state of the clusters: plan, apply, plan again, and nothing is left to do."""

import json

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from planner.graph.expansion import expand
from planner.model.change import Action
from planner.model.observed import Observed
from planner.model.plain import value_of
from planner.model.plan import PlanInputs, body_of
from planner.model.topology import Topology
from planner.plan.make import plan_from
from planner.plan.staleness import no_longer_done
from tests.fakes.simulated import simulate
from tests.fakes.states import topology
from tests.fakes.worlds import states, topologies
from tests.planner.plan.jobs import dead, plan, rests, there

pytestmark = pytest.mark.slow

# Refusals of the guards and lints end at the plan; everything else must come to rest.
REFUSED = frozenset({"owned", "protect", "partition-decrease", "transition"})
SLOW = [HealthCheck.filter_too_much, HealthCheck.too_slow]


@settings(suppress_health_check=SLOW)
@given(topologies() | st.just(topology()), topologies(), states(), st.sets(st.sampled_from(["dc1", "dc2"])))
def test_a_plan_after_apply_is_empty_whatever_ran_before_and_died_since(
    before: Topology, shop: Topology, seen: Observed, died: set[str]
) -> None:
    first = plan(before, seen)
    assume(not any(one.code in REFUSED for one in first.diagnostics))
    seen = simulate(first.steps, seen)
    for name in died:
        seen = dead(seen, name)

    made = plan(shop, seen)
    assume(not any(one.code in REFUSED for one in made.diagnostics))
    after = simulate(made.steps, seen)

    again = plan(shop, after)
    idle = (Action.NO_OP, Action.UNKNOWN)
    assert [one for one in again.changes if one.adopted or one.action not in idle] == []
    assert rests(shop, after)
    assert no_longer_done(made.steps, {step.id for step in made.steps}, after) == ()
    needed = {
        (job.spec.destination, job.job.name) for job in expand(shop, after).jobs if job.spec and job.needed
    }
    running = {(name, job.name) for name in ("dc1", "dc2") for job in there(after, name).jobs if job.live}
    assert running == needed


@settings(suppress_health_check=SLOW)
@given(topologies(), topologies(), states())
def test_a_plan_that_is_made_again_of_what_its_file_holds_is_the_same(
    before: Topology, shop: Topology, seen: Observed
) -> None:
    made = plan(shop, simulate(plan(before, seen).steps, seen))

    inputs = value_of(json.loads(json.dumps(body_of(made.inputs))), PlanInputs)

    assert inputs == made.inputs
    assert plan_from(inputs) == made
