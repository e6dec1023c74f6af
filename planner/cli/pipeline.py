"""Wiring: a topology's path → its plan. Every command that plans goes through here."""

import datetime
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from planner.cli.endpoints import endpoints_of
from planner.cli.observing import observe
from planner.diff import diff, diff_destroy, drift
from planner.graph import expand
from planner.model.change import Action
from planner.model.desired import Desired
from planner.model.observed import Observed, ObservedCluster
from planner.model.plan import Mode, Plan
from planner.model.step import AlterConfigs, CreateTopic, GrowPartitions
from planner.model.topology import Topology
from planner.plan import make_plan, with_diagnostics

# For so long what the controller knows and the brokers do not show yet is read again.
OUTDATED_S = 60.0
_FIRST_PAUSE = 0.25
_LONGEST_PAUSE = 4.0


@dataclass(frozen=True, slots=True)
class PlanningInput:
    """The topology beside what the clusters hold and should hold."""

    topology: Topology
    observed: Observed
    desired: Desired
    timeout_ms: int
    given_up: str | None = None  # a cluster that is not waited for as long as the others

    def again(self) -> "PlanningInput":
        return see(self.topology, self.timeout_ms, self.given_up)


def see(topology: Topology, timeout_ms: int, given_up: str | None = None) -> PlanningInput:
    observed = observe(topology, timeout_ms, given_up)
    return PlanningInput(topology, observed, expand(topology, observed, Path.cwd()), timeout_ms, given_up)


def apply_plan(seen: PlanningInput, targets: Sequence[str] = ()) -> Plan:
    """Checked by the brokers too: what they would refuse is an error of the plan, before anything changes."""
    return settled(seen, lambda one: _planned(one, targets), PlanningInput.again)


def with_waiting(plan: Plan, seen: PlanningInput) -> Plan:
    """Warns of partitions that wait for a decision; where no job ever ran there are none."""
    clusters = [one for one in seen.observed.clusters.values() if isinstance(one, ObservedCluster)]
    if plan.errored or not any(one.jobs for one in clusters):
        return plan
    from planner.cli.waiting import waiting
    from planner.plan.consequences import warnings_of

    return with_diagnostics(plan, [*warnings_of(waiting(plan, seen.timeout_ms))])


def settled(
    seen: PlanningInput,
    plan_of: Callable[[PlanningInput], Plan],
    again: Callable[[PlanningInput], PlanningInput],
    within_s: float = OUTDATED_S,
) -> Plan:
    """Plans, and reads again while the brokers did not show all that their controller knows.

    So it is while the topics of an apply that was killed are still being made.
    """
    deadline = time.monotonic() + within_s
    pause = _FIRST_PAUSE
    plan = plan_of(seen)
    while _is_outdated(plan) and time.monotonic() + pause < deadline:
        time.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)
        seen = again(seen)
        plan = plan_of(seen)
    return plan


def _is_outdated(plan: Plan) -> bool:
    from planner.observe.broker_check import BROKER_OUTDATED

    return any(one.code == BROKER_OUTDATED for one in plan.diagnostics)


def _planned(seen: PlanningInput, targets: Sequence[str]) -> Plan:
    changes = diff(seen.desired, seen.observed, seen.topology)
    plan = make_plan(
        seen.desired, seen.observed, changes, seen.topology, Mode.APPLY, now_text(), tuple(targets)
    )
    return plan if plan.errored else verified(plan, seen.timeout_ms)


def verified(plan: Plan, timeout_ms: int) -> Plan:
    """With what the brokers have to say against its steps; where there is none, no client is made."""
    if not any(isinstance(step, CreateTopic | AlterConfigs | GrowPartitions) for step in plan.steps):
        return plan
    from planner.observe.broker_check import verify_on_broker

    endpoints = endpoints_of(plan.connections.values())
    return with_diagnostics(plan, verify_on_broker(plan.steps, endpoints, timeout_ms / 1000))


def drift_plan(seen: PlanningInput) -> Plan:
    """What the registry remembers against what is there: shown like a plan, never guarded nor applied."""
    found = drift(seen.desired, seen.observed)
    unread = [one for one in found if one.action is Action.UNKNOWN]
    nothing = Desired(seen.topology.name, unknown=seen.desired.unknown)
    plan = make_plan(nothing, seen.observed, unread, seen.topology, Mode.DRIFT, now_text())
    return replace(plan, changes=found)


def destroy_plan(topology: Topology, observed: Observed) -> Plan:
    """Everything that the topology owns leaves it; what it still declares is not looked at."""
    changes = diff_destroy(observed, topology)
    return make_plan(Desired(topology.name), observed, changes, topology, Mode.DESTROY, now_text())


def now_text() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def folder_of(path: Path) -> Path:
    return path if path.is_dir() else path.parent
