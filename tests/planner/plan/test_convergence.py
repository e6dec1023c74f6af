"""For any topology and any state of the clusters: plan, apply, plan again, and nothing is left to do."""

from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from planner.diff import diff, drift
from planner.graph import expand
from planner.model.desired import Desired
from planner.model.observed import Observed
from planner.model.plan import Action, Plan
from planner.model.topology import Topic, Topology
from planner.plan import make_plan
from planner.plan.fingerprint import no_longer_done
from tests.fakes.simulated import simulate
from tests.fakes.worlds import states, topologies
from tests.planner.plan.jobs import dead


def planned(shop: Topology, seen: Observed) -> tuple[Desired, Plan]:
    desired = expand(shop, seen)
    return desired, make_plan(desired, seen, diff(desired, seen, shop), shop)


def left_to_do(plan: Plan) -> list[Any]:
    idle = (Action.NO_OP, Action.UNKNOWN)
    changes = [change for change in plan.changes if change.adopted or change.action not in idle]
    return [*changes, *plan.steps]


# Refusals of the guards and lints end at the plan; everything else must come to rest.
REFUSED = frozenset({"owned", "protect", "partition-decrease", "transition"})


SLOW = [HealthCheck.filter_too_much, HealthCheck.too_slow]


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
@given(topologies(), states())
def test_a_plan_after_apply_is_empty(shop: Topology, seen: Observed) -> None:
    _, plan = planned(shop, seen)
    assume(not any(one.code in REFUSED for one in plan.diagnostics))

    after = simulate(plan.steps, seen)
    desired, again = planned(shop, after)

    assert left_to_do(again) == []
    assert no_longer_done(plan.steps, {step.id for step in plan.steps}, after) == ()
    drifted = [change for change in drift(desired, after) if change.action is not Action.NO_OP]
    assert drifted == []


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
@given(topologies(), topologies(), states(), st.sets(st.sampled_from(["dc1", "dc2"])))
def test_whatever_ran_before_and_died_since(
    before: Topology, shop: Topology, seen: Observed, died: set[str]
) -> None:
    _, first = planned(before, seen)
    assume(not any(one.code in REFUSED for one in first.diagnostics))
    there = simulate(first.steps, seen)
    for name in died:
        there = dead(there, name)

    _, plan = planned(shop, there)
    assume(not any(one.code in REFUSED for one in plan.diagnostics))
    after = simulate(plan.steps, there)
    desired, again = planned(shop, after)

    assert left_to_do(again) == []
    assert no_longer_done(plan.steps, {step.id for step in plan.steps}, after) == ()
    needed = {(job.spec.destination, job.job.name) for job in desired.jobs if job.spec and job.needed}
    ends = {name: after.clusters[name] for name in ("dc1", "dc2")}
    running = {(name, job.name) for name, one in ends.items() for job in one.jobs if job.live}  # type: ignore[union-attr]
    assert running == needed


@settings(max_examples=40, deadline=None)
@given(topologies(), states(), st.randoms(use_true_random=False))
def test_the_order_of_what_is_written_and_read_never_matters(
    shop: Topology, seen: Observed, random: Random
) -> None:
    def shuffled(values: Any) -> list[Any]:
        listed = list(values)
        random.shuffle(listed)
        return listed

    def mixed(one: Any) -> Any:
        topics, quotas = dict(shuffled(one.topics.items())), dict(shuffled(one.quotas.items()))
        return replace(one, topics=topics, quotas=quotas, owned=tuple(shuffled(one.owned)))

    def mixed_config(one: Topic) -> Topic:
        return replace(one, config=dict(shuffled(one.config.items())))

    other_shop = replace(
        shop,
        clusters=dict(shuffled(shop.clusters.items())),
        topics=tuple(
            replace(one, config=dict(shuffled(one.config.items()))) for one in shuffled(shop.topics)
        ),
        acls=tuple(shuffled(shop.acls)),
        quotas=tuple(shuffled(shop.quotas)),
        flows=dict(shuffled(shop.flows.items())),
    )
    other_seen = Observed({name: mixed(one) for name, one in shuffled(seen.clusters.items())})

    _, one = planned(shop, seen)
    _, other = planned(other_shop, other_seen)

    assert one == other
