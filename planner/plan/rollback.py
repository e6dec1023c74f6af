"""The inverse of an apply: undoes its steps where that is possible, and reports the others.

Only steps that were done are undone, in reverse order. A step is undone only where the cluster is still as
that apply left it: a later change is left alone. How a step is undone is said by its kind.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from msgspec import structs

from planner.model.address import Address
from planner.model.change import Change
from planner.model.diagnostic import Diagnostic, warning
from planner.model.observed import Observed
from planner.model.step import ApplyRecord, Step, Undone
from planner.plan.ordering import in_order
from planner.plan.staleness import entries_by_place
from planner.plan.steps.jobs import StopJob


def undone(
    applied: ApplyRecord, observed: Observed
) -> tuple[tuple[Change, ...], tuple[Step, ...], list[Diagnostic]]:
    """Returns the changes and steps that undo an apply, and warnings about steps that can't be undone."""
    changes: list[Change] = []
    steps: list[Step] = []
    problems: list[Diagnostic] = []
    entries = entries_by_place(observed)
    for step in _to_undo(applied):
        cluster = observed.reachable(step.cluster)
        undo = (
            Undone(why_not=f"{step.cluster} does not answer", hint="bring it back and plan again")
            if cluster is None
            else step.undo(cluster, entries.get((step.cluster, step.address)), applied)
        )
        if undo.change is not None:
            changes.append(undo.change)
        steps += undo.steps
        if undo.why_not:
            summary = f"{step} is not undone: {undo.why_not}"
            problems.append(warning(summary, undo.hint, address=str(step.address), code="not-undone"))
    # Deletions and disowning wait until every job has stopped.
    stops = tuple(step.id for step in steps if isinstance(step, StopJob))
    waiting = [
        structs.replace(step, needs=(*step.needs, *stops)) if step.after_jobs else step for step in steps
    ]
    return _one_change_per_object(changes), in_order(waiting), problems


def _to_undo(applied: ApplyRecord) -> Iterator[Step]:
    """Yields the steps that were done, the last one first.

    A step about an object that the apply created is undone together with the object, and the entry of a rule
    that was replaced together with that rule.
    """
    done = [
        step
        for step in applied.steps
        if (outcome := applied.outcomes.get(step.id)) is not None and outcome.result == "done"
    ]
    created = {step.address for step in done if step.creates}
    replaced = {step.address for step in done if step.replaces}
    for step in reversed(done):
        with_object = step.address in created and not step.creates
        with_rule = step.address in replaced and step.registers
        if not with_object and not with_rule:
            yield step


def _one_change_per_object(changes: Sequence[Change]) -> tuple[Change, ...]:
    """Joins the changes of each object into one change with all fields."""
    joined: dict[Address, Change] = {}
    for change in changes:
        before = joined.get(change.address)
        joined[change.address] = (
            change if before is None else replace(before, fields=(*before.fields, *change.fields))
        )
    return tuple(joined[address] for address in sorted(joined))
