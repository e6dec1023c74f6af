"""The output of an apply while it runs and at its end. Pure.

As text a line for each step, as JSON an event for each line.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from planner.graph.messages import few
from planner.model.address import Address, flow_address
from planner.model.change import Action
from planner.model.plan import ApplyResult, Plan
from planner.model.step import Result, Step, StepResult
from planner.plan.make import by_step
from runtime.contract.results.status import PartitionWaits

EVENT_VERSION = 1


def shown(plan: Plan) -> frozenset[str]:
    """Returns the steps that get a line. A registry step has one only if nothing else happens
    to its object.
    """
    worked_on = {step.address for step in plan.steps if not step.registers}
    return frozenset(step.id for step in plan.steps if not step.registers or step.address not in worked_on)


def line(step: Step, outcome: StepResult) -> str:
    """Returns the line for a step that ended: `topic.dc2.orders: created (0.4 s)`."""
    word = step.verb
    match outcome.result:
        case Result.DONE:
            note = f"; {outcome.why}" if outcome.why else ""
            return f"{step.address}: {step.past} ({outcome.seconds:.1f} s){note}"
        case Result.FAILED:
            return f"{step.address}: {word} failed after {outcome.seconds:.1f} s: {outcome.why}"
        case Result.SKIPPED:
            return f"{step.address}: {word} skipped {outcome.why}"
        case Result.NOT_STARTED | Result.SENT:
            return f"{step.address}: {word} {outcome.result}: {outcome.why}"


def event(step: Step, outcome: StepResult) -> dict[str, Any]:
    """Returns the JSON event of a step that ended."""
    return {
        "version": EVENT_VERSION,
        "event": "step",
        "step": step.id,
        "address": str(step.address),
        "action": step.verb,
        "result": outcome.result.value.replace(" ", "_"),
        "why": outcome.why,
        "seconds": round(outcome.seconds, 3),
    }


def finished_event(ended: ApplyResult) -> dict[str, Any]:
    """Returns the JSON event of the apply's end."""
    summary, counts = ended.summary, counted(ended)
    results = Counter(outcome.result.value.replace(" ", "_") for outcome in summary.outcomes.values())
    return {
        "version": EVENT_VERSION,
        "event": "finished",
        "id": ended.apply_id,
        "complete": ended.complete,
        "interrupted": summary.interrupted,
        "resources": {word: counts[word] for word in ("added", "changed", "destroyed")},
        "steps": dict(sorted(results.items())),
        "requests": summary.requests,
        "seconds": round(summary.seconds, 3),
        "waiting": [msgspec.to_builtins(partition) for partition in ended.waits],
    }


_COUNTED_AS = {
    Action.CREATE: "added",
    Action.UPDATE: "changed",
    Action.DELETE: "destroyed",
    Action.FORGET: "forgotten",
}


def counted(ended: ApplyResult) -> Mapping[str, int]:
    """Returns the number of objects whose every step is done, by what happened to them."""
    done: dict[Address, bool] = {}
    for step in ended.plan.steps:
        if (outcome := ended.summary.outcomes.get(step.id)) is not None:
            done[step.address] = done.get(step.address, True) and outcome.result is Result.DONE
    counts: Counter[str] = Counter()
    for change in ended.plan.changes:
        if not done.get(change.address, False):
            continue
        if change.action is Action.REPLACE:
            counts.update(("added", "destroyed"))
        elif change.action in _COUNTED_AS:
            counts[_COUNTED_AS[change.action]] += 1
        elif change.adopted:
            counts["adopted"] += 1
    return counts


def closing(ended: ApplyResult, command: str) -> str:
    """Returns the last screen: what was done, what was not and why, and the command that finishes it."""
    summary, counts = ended.summary, counted(ended)
    resources = (
        f"Resources: {counts['added']} added, {counts['changed']} changed, {counts['destroyed']} destroyed."
    )
    more = "".join(
        f" {counts[word]} {text}."
        for word, text in (("adopted", "managed from now on"), ("forgotten", "forgotten"))
        if counts[word]
    )
    if ended.complete:
        return f"Apply complete! {resources}{more}"
    lines = [
        "Apply interrupted." if summary.interrupted else "Apply not complete.",
        "",
        f"Done: {resources}{more}",
    ]
    for title, result in (
        ("Failed", Result.FAILED),
        ("Skipped", Result.SKIPPED),
        ("Not started", Result.NOT_STARTED),
    ):
        lines += _listed(title, ended.plan.steps, summary.of(result))
    lines += _waiting(ended.waits)
    if not (summary.complete and ended.plan.complete):
        lines += ["", f"What is done stays done. To finish the rest: {command}"]
    return "\n".join(lines)


def _waiting(waits: Sequence[PartitionWaits]) -> list[str]:
    """Returns the partitions that wait for a decision, with the next step for each."""
    lines = ["", f"Partitions that wait for a decision ({len(waits)}):"] if waits else []
    for (flow, state, step), partitions in by_step(waits):
        named = few([f"{partition.topic}-{partition.partition}" for partition in partitions])
        why = f": {partitions[0].why}" if partitions[0].why else ""
        lines += [f"  {flow_address(flow)}: {named} {state}{why}", f"    Next: {step}"]
    return lines


def _listed(title: str, steps: Iterable[Step], ended: Mapping[str, StepResult], most: int = 20) -> list[str]:
    if not ended:
        return []
    lines = [
        f"  {step}" + (f": {ended[step.id].why}" if ended[step.id].why else "")
        for step in steps
        if step.id in ended
    ]
    more = f"  … and {len(lines) - most} more (repl history --id shows all)"
    return ["", f"{title} ({len(lines)}):", *lines[:most], *([more] if len(lines) > most else [])]
