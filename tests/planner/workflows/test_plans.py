"""A plan is made again while the brokers do not show all that their controller knows."""

from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from planner.graph import expand
from planner.model.diagnostic import error
from planner.model.plan import Plan
from planner.observe.broker_check import BROKER_OUTDATED
from planner.plan import with_diagnostics
from planner.workflows.plans import PlanningInput, settled
from tests.fakes.states import cluster, observed, topology
from tests.planner.plan.jobs import plan

SHOP = topology()
NOTHING = observed(cluster(), cluster(name="dc2"))


@dataclass
class Brokers:
    """They show what their controller knows once they were read so many times; 0 is the first reading."""

    from_reading: int
    readings: list[int] = field(default_factory=lambda: [0])

    def plan_of(self, seen: PlanningInput) -> Plan:
        made = plan(SHOP, seen.observed)
        behind = self.readings[-1] < self.from_reading
        return with_diagnostics(made, [error("it exists", code=BROKER_OUTDATED)]) if behind else made

    def again(self, seen: PlanningInput) -> PlanningInput:
        self.readings.append(self.readings[-1] + 1)
        return replace(seen)


@pytest.mark.parametrize("readings", [0, 1, 2])
def test_it_is_read_again_until_the_brokers_show_it(readings: int) -> None:
    brokers = Brokers(readings)

    made = settled(PlanningInput(SHOP, NOTHING, expand(SHOP, NOTHING), 1), brokers.plan_of, brokers.again)

    assert (made.errored, len(brokers.readings) - 1) == (False, readings)


def test_brokers_that_never_show_it_are_an_error_of_the_plan() -> None:
    brokers = Brokers(10**6)

    made = settled(
        PlanningInput(SHOP, NOTHING, expand(SHOP, NOTHING), 1), brokers.plan_of, brokers.again, within_s=0.5
    )

    assert [one.code for one in made.diagnostics] == [BROKER_OUTDATED]
    assert len(brokers.readings) > 1
