"""Makes a plan from changes: the whole instruction for apply, with everything that it was made from."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from planner.diff.differ import owned_by_address
from planner.diff.typed_values import given_back
from planner.model.address import Kind
from planner.model.desired import Desired
from planner.model.diagnostic import Diagnostic, note
from planner.model.observed import Observed, Unreachable
from planner.model.plan import Action, Change, Mode, Plan, PlannedFlow
from planner.model.step import Own
from planner.model.topology import RUNNING, FlowState, Topology
from planner.plan.consequences import consequences
from planner.plan.fingerprint import fingerprints
from planner.plan.guards import check
from planner.plan.steps import make_steps
from planner.plan.targets import select


def make_plan(
    desired: Desired,
    observed: Observed,
    changes: Sequence[Change],
    topology: Topology,
    mode: Mode = Mode.APPLY,
    created_at: str = "",
    targets: Sequence[str] = (),
) -> Plan:
    """Returns the plan for these changes; with `targets`, for the named objects and their needs only."""
    owned = owned_by_address(observed)
    kept, about_targets = select(changes, targets, desired, owned, topology)
    unknown = _unknown(desired, observed, topology, kept, partial=bool(targets))
    steps = make_steps(kept, desired, observed, owned)
    read = {
        one.address: one.config.keys() | one.restored.keys() | given_back(one, owned.get(one.address))
        for one in desired.topics
    }
    reachable = sorted(name for name in observed.clusters if observed.reachable(name) is not None)
    return Plan(
        topology=desired.topology,
        mode=mode,
        topology_digest=topology.digest,
        created_at=created_at,
        clusters={name: live.id for name in reachable if (live := observed.reachable(name)) is not None},
        changes=kept,
        steps=steps,
        fingerprints=fingerprints(steps, observed, read),
        diagnostics=(
            *observed.diagnostics,
            *desired.diagnostics,
            *check(desired, observed, kept, topology),
            *consequences(desired, observed, kept, unknown, topology.clusters),
            *about_targets,
        ),
        unknown=unknown,
        targets=tuple(sorted(targets)),
        connections={name: topology.clusters[name] for name in reachable if name in topology.clusters},
        flows=_flows(desired, topology),
        internal=topology.internal,
        policies=topology.policies,
    )


def with_diagnostics(plan: Plan, found: Sequence[Diagnostic]) -> Plan:
    """Returns the plan with further diagnostics, such as those of the brokers' own check, each once."""
    return replace(plan, diagnostics=tuple(dict.fromkeys([*plan.diagnostics, *found]))) if found else plan


def expected_dead(topology: Topology) -> frozenset[str]:
    """Returns the clusters that a failover gave up. The plan does not wait for them.

    Flows from such a cluster failed over, and none of them runs.
    """
    flows = topology.flows.values()
    failed = {flow.source_cluster for flow in flows if flow.state is FlowState.FAILED_OVER}
    return frozenset(failed - {flow.source_cluster for flow in flows if flow.state in RUNNING})


def _unknown(
    desired: Desired, observed: Observed, topology: Topology, changes: Sequence[Change], *, partial: bool
) -> dict[str, str]:
    """Returns why each part of this plan can't be known, by a cluster's name or an object's address."""
    unplanned = [change for change in changes if change.action is Action.UNKNOWN]
    if partial and not unplanned:
        return {}
    silent = {name: one.why for name, one in observed.clusters.items() if isinstance(one, Unreachable)}
    follows = {f"{name} unreachable" for name in silent}  # reported once, by the cluster's name
    unknown = {**silent, **{what: why for what, why in desired.unknown.items() if why not in follows}}
    for change in unplanned:
        cluster = observed.reachable(change.address.cluster or "")
        if cluster is not None and (change.address.name in cluster.hidden or change.address.kind is Kind.ACL):
            unknown[str(change.address)] = _why(change)
        elif change.address.kind in (Kind.FLOW, Kind.JOB) and _why(change) not in follows:
            unknown.setdefault(str(change.address), _why(change))
    dead = expected_dead(topology)
    return {what: why for what, why in sorted(unknown.items()) if what not in dead}


def _why(change: Change) -> str:
    return change.reason.removeprefix("(unknown: ").removesuffix(")")


def _flows(desired: Desired, topology: Topology) -> tuple[PlannedFlow, ...]:
    selected = {one.flow.name: one for one in desired.flows}
    return tuple(
        PlannedFlow(
            name=name,
            source_cluster=flow.source_cluster,
            destination_cluster=flow.destination_cluster,
            state=flow.state.value,
            job=flow.job,
            topics=len(one.topics)
            if (one := selected.get(name)) is not None and one.selection_known
            else None,
        )
        for name, flow in sorted(topology.flows.items())
    )


def adoption(plan: Plan, clusters: Collection[str]) -> Plan:
    """Returns the part of a plan that only registers ownership, for `repl import --adopt`.

    It holds the objects at these clusters that are as declared and not yet registered. A lost registry is
    rebuilt this way. An object that differs from the topology is left to a later apply, which changes and
    registers it.
    """
    owns = {step.address: step for step in plan.steps if isinstance(step, Own) and step.cluster in clusters}
    kept = tuple(change for change in plan.changes if _as_declared(change) and change.address in owns)
    addresses = {change.address for change in kept}
    steps = tuple(replace(step, needs=()) for address, step in owns.items() if address in addresses)
    others = len(owns) - len(steps)
    notes = (
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
        diagnostics=(*plan.diagnostics, *notes),
    )


def _as_declared(change: Change) -> bool:
    return change.adopted and change.action is Action.NO_OP
