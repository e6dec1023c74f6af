"""Worlds in which jobs run, for tests of plans."""

from dataclasses import replace

from planner.diff import diff
from planner.graph import expand
from planner.model.observed import Observed
from planner.model.plan import Plan
from planner.model.topology import Topology
from planner.plan import make_plan
from tests.fakes.simulated import simulate
from tests.fakes.states import cluster, live, observed

NOTHING = observed(cluster(live("a")), cluster(name="dc2"))


def plan(shop: Topology, seen: Observed = NOTHING, *targets: str) -> Plan:
    desired = expand(shop, seen)
    return make_plan(desired, seen, diff(desired, seen, shop), shop, targets=targets)


def applied(shop: Topology, seen: Observed = NOTHING) -> Observed:
    """As an apply leaves it."""
    return simulate(plan(shop, seen).steps, seen)


def dead(seen: Observed, name: str = "dc2") -> Observed:
    """Every job of the cluster was killed."""
    there = seen.reachable(name)
    assert there is not None
    jobs = tuple(replace(job, live=False) for job in there.jobs)
    return Observed({**seen.clusters, name: replace(there, jobs=jobs)})
