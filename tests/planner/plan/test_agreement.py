"""The steps of a plan are what its changes show, for every plan that is made, also once it was in a file."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from planner.model.observed import Observed
from planner.model.plan import Mode, Plan
from planner.model.topology import Topology
from planner.plan.agreement import disagreements
from planner.state import planfile
from tests.fakes.simulated import simulate
from tests.fakes.states import topology
from tests.fakes.worlds import states, topologies
from tests.planner.plan.jobs import dead, destroyed, plan

pytestmark = pytest.mark.slow

SLOW = [HealthCheck.filter_too_much, HealthCheck.too_slow]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plans") / "plan"


@settings(suppress_health_check=SLOW)
@given(topologies() | st.just(topology()), topologies(), states(), st.data())
def test_a_plan_agrees_whatever_ran_before(
    file: Path, before: Topology, shop: Topology, seen: Observed, data: st.DataObject
) -> None:
    first = plan(before, seen)
    assume(not first.errored)
    seen = simulate(first.steps, seen)
    for name in data.draw(st.sets(st.sampled_from(["dc1", "dc2"])), "died"):
        seen = dead(seen, name)
    whole = plan(shop, seen)
    addresses = [str(one.address) for one in whole.changes]
    targets = data.draw(st.lists(st.sampled_from(addresses), max_size=1) if addresses else st.just([]))
    made: Plan = data.draw(
        st.sampled_from([whole, plan(shop, seen, *targets), destroyed(seen, before, Mode.DESTROY)])
    )
    assume(not made.errored)
    planfile.write(made, file)
    assert [str(one) for one in disagreements(planfile.load(file).plan)] == []
