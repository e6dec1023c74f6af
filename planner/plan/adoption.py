"""`repl import --adopt`: of a plan only what writes ownership down: a lost registry is rebuilt so."""

from collections.abc import Collection
from dataclasses import replace

from planner.model.change import Action, Change
from planner.model.diagnostic import note
from planner.model.plan import Plan
from planner.model.step import Own


def adoption(plan: Plan, clusters: Collection[str]) -> Plan:
    """The objects at these clusters that are as declared and not yet remembered; nothing else is touched.

    What differs from the topology stays with a later apply, which changes and registers it in one.
    """
    owns = {step.address: step for step in plan.steps if isinstance(step, Own) and step.cluster in clusters}
    kept = tuple(change for change in plan.changes if _as_declared(change) and change.address in owns)
    addresses = {change.address for change in kept}
    steps = tuple(replace(step, needs=()) for address, step in owns.items() if address in addresses)
    others = len(owns) - len(steps)
    said = (
        (
            note(
                f"{others} objects at {', '.join(sorted(clusters))} are missing or differ from the topology:"
                " they are not registered",
                "repl plan shows them, repl apply changes and registers them",
                code="adopt-later",
            ),
        )
        if others
        else ()
    )
    return replace(
        plan,
        changes=kept,
        steps=steps,
        fingerprints=tuple(one for one in plan.fingerprints if one.address in addresses),
        diagnostics=(*plan.diagnostics, *said),
    )


def _as_declared(change: Change) -> bool:
    return change.adopted and change.action is Action.NO_OP
