"""The steps of a plan are what its changes show, for every plan that is made, also once it was in a file."""

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from planner.diff import diff_destroy
from planner.model.desired import Desired
from planner.model.observed import Observed
from planner.model.plan import Mode, Plan
from planner.model.topology import Topology
from planner.plan import make_plan
from planner.plan.agreement import disagreements
from planner.state import planfile
from tests.fakes.simulated import simulate
from tests.fakes.worlds import states, topologies
from tests.planner.plan.jobs import dead, plan

SLOW = [HealthCheck.filter_too_much, HealthCheck.too_slow]


def agrees(made: Plan) -> None:
    assume(not made.errored)
    with tempfile.TemporaryDirectory() as folder:
        planfile.write(made, Path(folder) / "p")
        read = planfile.load(Path(folder) / "p").plan
    assert [str(one) for one in disagreements(read)] == []


@settings(max_examples=150, deadline=None, suppress_health_check=SLOW)
@given(topologies(), states())
def test_a_plan_for_any_state(shop: Topology, seen: Observed) -> None:
    agrees(plan(shop, seen))


@settings(max_examples=150, deadline=None, suppress_health_check=SLOW)
@given(topologies(), topologies(), states(), st.sets(st.sampled_from(["dc1", "dc2"])))
def test_a_plan_over_another_topology_whose_jobs_died(
    before: Topology, shop: Topology, seen: Observed, died: set[str]
) -> None:
    first = plan(before, seen)
    assume(not first.errored)
    there = simulate(first.steps, seen)
    for name in died:
        there = dead(there, name)

    agrees(plan(shop, there))


@settings(max_examples=80, deadline=None, suppress_health_check=SLOW)
@given(topologies(), states())
def test_a_destroy(before: Topology, seen: Observed) -> None:
    first = plan(before, seen)
    assume(not first.errored)
    there = simulate(first.steps, seen)
    changes = diff_destroy(there, before)

    agrees(make_plan(Desired(before.name), there, changes, before, Mode.DESTROY))


@settings(max_examples=80, deadline=None, suppress_health_check=SLOW)
@given(topologies(), states(), st.data())
def test_a_plan_of_a_part(shop: Topology, seen: Observed, data: st.DataObject) -> None:
    whole = plan(shop, seen)
    assume(whole.changes and not whole.errored)
    target = data.draw(st.sampled_from([str(one.address) for one in whole.changes]))

    agrees(plan(shop, seen, target))
