"""Turns changes into steps in their order of execution. A step's `needs` are steps that go before it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from planner.model.address import Address
from planner.model.change import Action, Change
from planner.model.desired import Desired, DesiredAcl, DesiredQuota, DesiredSubject, DesiredTopic
from planner.model.observed import Observed, RegistryEntry
from planner.model.step import Milestone, PlannedSteps, Step
from planner.plan.steps import KINDS, OBJECTS
from planner.plan.steps.jobs import job_steps
from planner.plan.steps.registry import Disown

_RANK = {kind: rank for rank, kind in enumerate(KINDS)}


def make_steps(changes: Sequence[Change], desired: Desired, observed: Observed) -> tuple[Step, ...]:
    """Returns the steps of all changes, in order."""
    objects: tuple[DesiredTopic | DesiredAcl | DesiredQuota | DesiredSubject, ...] = (
        *desired.topics,
        *desired.acls,
        *desired.quotas,
        *desired.subjects,
    )
    wanted = {item.address: item for item in objects}
    steps: list[Step] = []
    for change in changes:
        if change.action is Action.UNKNOWN or (change.action is Action.NO_OP and not change.adopted):
            continue
        cluster, entry = observed.reachable(change.address.cluster or ""), observed.owned.get(change.address)
        kind = OBJECTS[change.address.kind]
        if cluster is not None and change.address in wanted:
            steps += kind.steps(change, wanted[change.address], cluster, entry, desired.topology)
        elif cluster is not None and entry is not None:
            removal = kind.removal(change, entry, cluster)
            if removal or change.action is not Action.DELETE:
                needs = tuple(step.id for step in removal)
                steps += (*removal, Disown.of(entry.address, cluster.name, entry.topology, needs))
    return in_order(
        waiting_for_others([*steps, *job_steps(changes, desired, observed, steps)], observed.owned)
    )


def waiting_for_others(steps: Sequence[Step], owned: Mapping[Address, RegistryEntry]) -> list[Step]:
    """Adds to each step's needs the steps about other objects that go before it."""
    reached: dict[tuple[str, Milestone], list[str]] = defaultdict(list)
    flows: dict[Address, str] = {}
    for step in steps:
        if (milestone := step.milestone) is not None:
            reached[step.cluster, milestone].append(step.id)
        if milestone is Milestone.FLOW_REGISTERED:
            flows[step.address] = step.id
    others = PlannedSteps(reached, flows, owned)
    return [
        replace(step, needs=tuple(dict.fromkeys((*step.needs, *more))))
        if (more := tuple(step.waits_for(others)))
        else step
        for step in steps
    ]


def in_order(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Returns the steps by kind and address, each after everything that it needs."""
    ranked = sorted(steps, key=lambda step: (_RANK[type(step)], step.id))
    placed: dict[str, None] = {}
    by_id = {step.id: step for step in ranked}

    def place(step: Step) -> None:
        for need in step.needs:
            if need not in placed and need in by_id:
                place(by_id[need])
        placed.setdefault(step.id)

    for step in ranked:
        place(step)
    return tuple(by_id[step_id] for step_id in placed)
