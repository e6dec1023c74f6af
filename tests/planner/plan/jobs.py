"""Plans over the values of `tests.fakes.states`: make one, apply it, change what it finds, read it."""

from collections.abc import Iterable
from typing import TypeVar

from planner.diff.differ import diff, drift
from planner.graph.expansion import expand
from planner.model.change import Action, Change
from planner.model.desired import Desired
from planner.model.diagnostic import ExitCode
from planner.model.observed import Observed, ObservedCluster
from planner.model.plan import Mode, Plan
from planner.model.step import ApplyRecord, Result, Step, StepResult
from planner.model.topology import Topology
from planner.plan.make import plan_from
from planner.plan.staleness import entries_by_place
from planner.plan.steps import noted, step_of
from tests.fakes.replacing import replace
from tests.fakes.simulated import simulate
from tests.fakes.states import cluster, inputs, live, made_plan, observed, topology

NOTHING = observed(cluster(live("a")), cluster(name="dc2"))
S = TypeVar("S", bound=Step)


def plan(shop: Topology, seen: Observed = NOTHING, *targets: str) -> Plan:
    return plan_from(inputs(shop, seen, targets=targets))


def plan_for(
    want: Desired, *clusters: object, shop: Topology | None = None, targets: Iterable[str] = ()
) -> Plan:
    """A plan for what is wanted, where no topology is expanded first."""
    shop, seen = shop or topology(), observed(*clusters)  # type: ignore[arg-type]
    changes = diff(want, seen)
    return made_plan(want, seen, changes, shop, Mode.APPLY, "2026-01-01T00:00:00Z", tuple(targets))


def destroyed(seen: Observed, shop: Topology, mode: Mode = Mode.APPLY) -> Plan:
    return made_plan(Desired(shop.name), seen, diff(Desired(shop.name), seen), shop, mode)


def applied(shop: Topology, seen: Observed = NOTHING) -> Observed:
    """As an apply leaves it."""
    return simulate(plan(shop, seen).steps, seen)


def there(seen: Observed, name: str = "dc2") -> ObservedCluster:
    found = seen.reachable(name)
    assert found is not None
    return found


def at(seen: Observed, name: str = "dc2", **changed: object) -> Observed:
    """The same, where this cluster is changed so."""
    return Observed({**seen.clusters, name: replace(there(seen, name), **changed)})


def jobs_as(seen: Observed, name: str = "dc2", **changed: object) -> Observed:
    """The same, where every job of the cluster is changed so."""
    jobs = tuple(replace(job, **changed) for job in there(seen, name).jobs)
    return at(seen, name, jobs=jobs)


def dead(seen: Observed, *names: str) -> Observed:
    """Every job of the clusters was killed."""
    for name in names or ("dc2",):
        seen = jobs_as(seen, name, live=False)
    return seen


def steps_of(made: Plan, kind: type[S]) -> list[S]:
    return [step for step in made.steps if isinstance(step, kind)]


def needs(made: Plan) -> dict[str, tuple[str, ...]]:
    return {step.id: step.needs for step in made.steps}


def changes(made: Plan) -> dict[str, Change]:
    return {str(one.address): one for one in made.changes}


def touched(made: Plan) -> set[str]:
    return {str(one.address) for one in made.changes if one.action is not Action.NO_OP}


def refused(made: Plan) -> list[tuple[str, str | None, ExitCode]]:
    return [(one.code, one.address, one.exit) for one in made.diagnostics if one.exit is not ExitCode.DONE]


def rests(shop: Topology, seen: Observed) -> bool:
    """A further plan does nothing, and nothing has drifted."""
    drifted = [one for one in drift(expand(shop, seen), seen) if one.action is not Action.NO_OP]
    return not plan(shop, seen).steps and not drifted


def record_of(steps: Iterable[Step], failed: Iterable[str] = (), before: Observed = NOTHING) -> ApplyRecord:
    """The record of an apply that did these steps, as a journal keeps it: `failed` are the ids of those that
    failed, `before` are the clusters before it.
    """
    entries = entries_by_place(before)
    steps = tuple(step_of(noted(step)) for step in steps)
    outcomes = {step.id: StepResult(Result.FAILED if step.id in failed else Result.DONE) for step in steps}
    return ApplyRecord(
        "X1",
        "shop",
        "apply",
        "p",
        "u",
        "h",
        1,
        None,
        {"dc1": "C"},
        len(steps),
        0,
        steps=steps,
        outcomes=outcomes,
        before={
            step.id: entry
            for step in steps
            if step.registers and (entry := entries.get((step.cluster, step.address)))
        },
    )


def undo(seen: Observed, *steps: Step, failed: Iterable[str] = (), before: Observed = NOTHING) -> Plan:
    """What undoes these steps. `before` are the clusters before they were done."""
    applied = record_of(steps, failed, before)
    return plan_from(replace(inputs(topology(), seen), mode=Mode.ROLLBACK, applied=applied))
