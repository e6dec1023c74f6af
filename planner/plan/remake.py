"""Inputs → plan: every plan is made here, when it is planned and again when its file is read.

So nothing in a plan file can disagree with itself: what is shown and what is executed are made alike.
"""

from dataclasses import replace
from pathlib import PurePath

from planner.diff.differ import diff, drift
from planner.graph.expansion import expand
from planner.model.change import Action
from planner.model.desired import Desired
from planner.model.plan import Mode, Plan, PlanInputs
from planner.plan.make import adoption, make_plan
from planner.plan.restore import restore_plan
from planner.plan.rollback import rollback_plan


def remake(inputs: PlanInputs) -> Plan:
    """Returns the plan of these inputs. It reads nothing."""
    plan = _made(inputs)
    return replace(plan, diagnostics=tuple(dict.fromkeys([*plan.diagnostics, *inputs.found])))


def _made(inputs: PlanInputs) -> Plan:
    topology, observed = inputs.topology, inputs.observed
    nothing = Desired(topology.name)
    match inputs.mode:
        case Mode.APPLY:
            desired = expand(topology, observed, PurePath(inputs.folder))
            plan = make_plan(inputs, desired, diff(desired, observed))
            return adoption(plan, inputs.adopt) if inputs.adopt else plan
        case Mode.DESTROY:
            return make_plan(inputs, nothing, diff(nothing, observed))
        case Mode.DRIFT:
            desired = expand(topology, observed, PurePath(inputs.folder))
            found = drift(desired, observed)
            unread = [change for change in found if change.action is Action.UNKNOWN]
            plan = make_plan(inputs, replace(nothing, unknown=desired.unknown), unread)
            return replace(plan, changes=found)
        case Mode.ROLLBACK:
            return rollback_plan(inputs)
        case Mode.RESTORE:
            return restore_plan(inputs)
