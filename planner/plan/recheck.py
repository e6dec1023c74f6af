"""Checks the guards and policies of a plan against the clusters once more before it is applied.

They need only the plan and the present state of the clusters: an object may have been protected after the
plan was made, or another topology may own it by now.
"""

from collections.abc import Collection, Iterable, Iterator

from planner.model.address import Kind
from planner.model.desired import Declared, DesiredTopic
from planner.model.diagnostic import Diagnostic
from planner.model.observed import Observed, RegistryEntry
from planner.model.plan import Plan
from planner.model.step import Step
from planner.model.topology import Policies
from planner.plan.guards import (
    max_deletes,
    owned_by_others,
    ownership,
    pinned_ids,
    protection,
    unmet_requirements,
)
from planner.plan.steps.registry import Own
from planner.plan.steps.topics import AlterConfigs
from runtime.contract.spec.flow import ENDED

PARTITIONS, REPLICATION = "partitions", "replication"


def recheck(plan: Plan, remaining: Collection[Step], observed: Observed) -> tuple[Diagnostic, ...]:
    """Returns every refusal. `remaining` are the steps that an earlier apply of this plan did not do."""
    pinned = tuple(pinned_ids(plan.connections, observed))
    if pinned:
        return pinned
    touched = {step.address for step in remaining}
    changes = tuple(change for change in plan.changes if change.address in touched)
    places = ((step.cluster, step.address, None) for step in remaining if step.address.cluster is None)
    ended = {flow.name for flow in plan.job_flows if flow.state in ENDED}
    return (
        *ownership(plan.topology, observed, changes),
        *owned_by_others(places, plan.topology, observed),
        *protection(observed, changes),
        *max_deletes(plan.policies.max_deletes, ended, observed, changes, plan.mode),
        *requirements(plan, remaining, observed),
    )


def requirements(plan: Plan, steps: Iterable[Step], observed: Observed) -> Iterator[Diagnostic]:
    """Yields the unmet `policies.require` of every topic that these steps register."""
    return unmet_requirements(plan.policies.require, _topics_after(tuple(steps)), observed)


def required_keys(policies: Policies) -> frozenset[str]:
    """Returns the settings of a topic that its requirements compare."""
    return frozenset(one.subject for one in policies.require) - {PARTITIONS, REPLICATION}


def _topics_after(steps: Iterable[Step]) -> Iterator[DesiredTopic]:
    """Yields the topics as they will be, from their registry entries."""
    listed = tuple(steps)
    unset = {step.address: frozenset(step.unset) for step in listed if isinstance(step, AlterConfigs)}
    for step in listed:
        if isinstance(step, Own) and step.address.kind is Kind.TOPIC:
            yield DesiredTopic(
                cluster=step.cluster,
                name=step.address.name,
                origin=Declared(),
                partitions=_number(step.entry, PARTITIONS),
                replication=_number(step.entry, REPLICATION),
                config=step.entry.config,
                unset=unset.get(step.address, frozenset()),
            )


def _number(entry: RegistryEntry, key: str) -> int | None:
    text = entry.spec.get(key, "")
    return int(text) if text.isascii() and text.isdecimal() else None
