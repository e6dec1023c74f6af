"""Inputs → plan: every plan is made here by `plan_from`, when it is planned and again when its file is read.

So nothing in a plan file can disagree with itself: what is shown and what is executed are made alike.

`--target` selects the changes of the named objects and of everything that they need. Warnings and notes stand
beside the changes: one message for each matter, not one for each topic.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from itertools import groupby
from operator import itemgetter
from pathlib import PurePath

from msgspec import structs

from planner.diff.differ import diff, drift
from planner.diff.record import JOB, JOBS, REGISTRY
from planner.graph.expansion import expand
from planner.graph.messages import few
from planner.model.address import Address, Kind, flow_address, job_address, topic_address
from planner.model.change import Action, Change
from planner.model.desired import (
    Declared,
    Desired,
    DesiredAcl,
    DesiredQuota,
    DesiredSubject,
    MirroredBy,
    QuarantineOf,
)
from planner.model.diagnostic import Diagnostic, error, note, warning
from planner.model.observed import Observed, Unreachable
from planner.model.plan import WAITS, Mode, Plan, PlanInputs
from planner.model.topology import Cluster, Topology
from planner.plan.guards import check, destroyed_topics
from planner.plan.ordering import make_steps
from planner.plan.restore import restore_plan
from planner.plan.rollback import rollback, rollback_steps
from planner.plan.staleness import entries_by_place
from planner.plan.steps.registry import Own
from runtime.contract.results.status import PartitionWaits


def consequences(
    desired: Desired,
    observed: Observed,
    changes: Sequence[Change],
    unknown: Mapping[str, str],
    declared: Mapping[str, Cluster],
) -> tuple[Diagnostic, ...]:
    """Returns what a reader of the plan must know beside the changes."""
    return (
        *_unknown_notes(unknown, desired, observed, changes, declared),
        *_possibly_elsewhere(desired, observed, changes, unknown),
        *_growth(desired, changes),
        *_records_lost(changes),
        *_no_authorizer(desired, observed),
        *_left_at_undeclared(desired.topology, observed, declared),
    )


def _unknown_notes(
    unknown: Mapping[str, str],
    desired: Desired,
    observed: Observed,
    changes: Iterable[Change],
    declared: Mapping[str, Cluster],
) -> Iterator[Diagnostic]:
    """Warns about each unknown object once, unless the observer or the expansion reported it."""
    reported = {diagnostic.address for diagnostic in (*observed.diagnostics, *desired.diagnostics)}
    hints = {str(change.address): change.hint for change in changes if change.hint}
    for what, why in sorted(unknown.items()):
        if what in reported:
            continue
        cluster = observed.clusters.get(what)
        if isinstance(cluster, Unreachable):
            hint = cluster.hint
        else:
            hint = hints.get(what, "give the principal of this plan the right to read it")
        source = declared[what].source if what in declared else None
        subject = f"{what} " if source is not None else ""
        yield warning(
            f"{subject}could not be read, so its part of the plan is unknown: {why}",
            hint or "correct that and plan again",
            address=what,
            source=source,
            code="unknown",
        )


def _possibly_elsewhere(
    desired: Desired, observed: Observed, changes: Iterable[Change], unknown: Mapping[str, str]
) -> Iterator[Diagnostic]:
    """Warns where a new flow or job may still run at another destination that can't be read."""
    new = {change.address for change in changes if change.action is Action.CREATE}
    at = {flow_address(flow.flow.name): flow.flow.destination_cluster for flow in desired.flows}
    # A job without a declared name has its destination's name.
    at |= {job.address: job.spec.destination for job in desired.jobs if job.spec is not None}
    named = [address for address in sorted(at) if address in new and address != job_address(at[address])]
    for cluster in sorted(observed.clusters):
        live = observed.reachable(cluster)
        some = [address for address in named if at[address] != cluster]
        if some and (cluster in unknown or (live is not None and live.unreadable.keys() & {JOBS, REGISTRY})):
            yield warning(
                f"{cluster} could not be read: if {few(some)} runs at {cluster} too, it is not stopped now",
                f"an apply that can read {cluster} stops it; until then nothing is lost or copied twice",
                code="perhaps-elsewhere",
            )


def _growth(desired: Desired, changes: Iterable[Change]) -> Iterator[Diagnostic]:
    """Warns that more partitions move keys to other partitions."""
    declared = {topic.address for topic in desired.topics if isinstance(topic.origin, Declared)}
    growing = [
        change.address
        for change in changes
        if change.address in declared
        and (field := change.field("partitions")) is not None
        and isinstance(field.old, int)
        and isinstance(field.new, int)
        and field.new > field.old
    ]
    if growing:
        yield warning(
            f"{few(growing)}: more partitions move keys: a key's new records go to another partition "
            "than its old ones",
            "consumers that need the order of a key must read the old records first",
            code="keys-move",
        )


def _records_lost(changes: Iterable[Change]) -> Iterator[Diagnostic]:
    """Warns that topics are deleted with their records."""
    deleted = [change for change in destroyed_topics(changes) if change.notes]
    if deleted:
        yield warning(
            f"{few([change.address for change in deleted])}: deleted with their records",
            "repl keeps no copy of them",
            code="records-lost",
        )


def _no_authorizer(desired: Desired, observed: Observed) -> Iterator[Diagnostic]:
    """Notes clusters that have no authorizer, so that ACLs are left out."""
    for name in sorted({acl.rule.cluster for acl in desired.acls}):
        cluster = observed.reachable(name)
        if cluster is not None and cluster.acls is None and not cluster.unreadable.get("acls"):
            yield note(
                f"{name} has no authorizer: its ACLs are left out",
                "set authorizer.class.name on its brokers to use them",
                code="no-authorizer",
            )


def _left_at_undeclared(
    topology: str, observed: Observed, declared: Mapping[str, Cluster]
) -> Iterator[Diagnostic]:
    """Warns of clusters that left the topology together with the flows into them.

    The running jobs of the topology know the routes of all flows. A cluster that is not declared is neither
    read nor changed.
    """
    routes = {
        (route.destination, route.name)
        for cluster in observed.live.values()
        for job in cluster.jobs
        if job.live and job.topology == topology and job.spec is not None
        for route in job.spec.routes
        if route.destination not in declared
    }
    for cluster, into in groupby(sorted(routes), itemgetter(0)):
        flows = few([f"flow.{name}" for _, name in into])
        yield warning(
            f"{cluster} is not declared any more, and {flows} copied into it: a job that runs there goes on,"
            " and its topics and rules stay",
            f"declare {cluster} again without these flows, and apply: that stops the job. Then remove it."
            " A cluster that is gone for good needs nothing",
            code="cluster-left",
        )


WaitKey = tuple[str, str, str]  # flow, state, next step


def warnings_of(waits: Iterable[PartitionWaits]) -> Iterator[Diagnostic]:
    """Yields a warning for partitions that wait for a decision, with the next step as the hint."""
    for (flow, state, step), partitions in by_step(waits):
        named = few([f"{partition.topic}-{partition.partition}" for partition in partitions])
        why = f": {partitions[0].why}" if partitions[0].why else ""
        yield warning(f"{named}: {state}{why}", f"next: {step}", address=str(flow_address(flow)), code=WAITS)


def by_step(waits: Iterable[PartitionWaits]) -> Iterator[tuple[WaitKey, list[PartitionWaits]]]:
    """Yields the waiting partitions, grouped by flow, state and next step."""

    def wait_key(partition: PartitionWaits) -> WaitKey:
        return partition.flow, partition.state, partition.next

    for key, partitions in groupby(sorted(waits, key=wait_key), wait_key):
        yield key, list(partitions)


def select(
    changes: Sequence[Change],
    targets: Sequence[str],
    desired: Desired,
    observed: Observed,
    topology: Topology,
) -> tuple[tuple[Change, ...], tuple[Diagnostic, ...]]:
    """Returns the targeted changes, with a note that the plan is partial; all of them without targets."""
    if not targets:
        return tuple(changes), ()
    needs = _needs(desired, observed, topology, changes)
    addresses = {change.address for change in changes} | needs.keys()
    problems: list[Diagnostic] = []
    wanted: set[Address] = set()
    for text in targets:
        try:
            address = Address.parse(text)
        except ValueError as wrong:
            problems.append(error(str(wrong), "see the addresses in the plan", code="target"))
            continue
        if address in addresses:
            wanted |= _with_needs(address, needs)
        else:
            near = get_close_matches(text, [str(address) for address in addresses], n=1)
            hint = f"did you mean {near[0]}?" if near else "see the addresses in a plan without --target"
            problems.append(error(f"--target {text} names nothing in this topology", hint, code="target"))
    kept = tuple(change for change in changes if change.address in wanted)
    if not problems:
        left_out = len(changes) - len(kept)
        names = ", ".join(sorted(targets))
        summary = f"the plan is partial: {names} and what that needs; objects left out: {left_out}"
        problems.append(note(summary, "plan without --target to see everything", code="partial"))
    return kept, tuple(problems)


def _with_needs(address: Address, needs: Mapping[Address, frozenset[Address]]) -> set[Address]:
    needed: set[Address] = set()
    waiting = [address]
    while waiting:
        address = waiting.pop()
        if address not in needed:
            needed.add(address)
            waiting.extend(needs.get(address, ()))
    return needed


def _needs(
    desired: Desired, observed: Observed, topology: Topology, changes: Iterable[Change]
) -> dict[Address, frozenset[Address]]:
    """Returns what each object needs.

    A job and its flows need each other, since they share one spec: also a flow that leaves the topology. A
    flow also needs the job that it leaves, its mirror topics, its ACLs, its quotas and its schemas. A mirror
    topic needs its source if this topology owns it.
    """
    flows = topology.job_flows
    needs: dict[Address, set[Address]] = {flow_address(name): set() for name in flows}
    for topic in desired.topics:
        if isinstance(topic.origin, MirroredBy):
            source = topic_address(topic.origin.source_cluster, topic.origin.source_topic)
            needs.setdefault(flow_address(topic.origin.flow), set()).add(topic.address)
            needs.setdefault(topic.address, set()).add(source)
        elif isinstance(topic.origin, QuarantineOf):
            needs.setdefault(flow_address(topic.origin.flow), set()).add(topic.address)
    prepared: list[DesiredAcl | DesiredQuota | DesiredSubject] = [
        *desired.acls,
        *desired.quotas,
        *desired.subjects,
    ]
    for object_ in prepared:
        if isinstance(object_.origin, MirroredBy):
            needs.setdefault(flow_address(object_.origin.flow), set()).add(object_.address)
    for flow_name, address in _protections(desired, observed, topology):
        needs.setdefault(flow_address(flow_name), set()).add(address)
    for entry in observed.owned.values():
        flow = entry.flow
        if flow is not None and entry.topology == topology.name:
            needs.setdefault(flow_address(flow), set()).add(entry.address)
        if entry.source is not None and entry.address.kind is Kind.TOPIC:
            needs.setdefault(entry.address, set()).add(topic_address(*entry.source))
    jobs = [(flow_address(name), job_address(declared.job)) for name, declared in flows.items()]
    jobs += [
        (entry.address, job_address(entry.spec.get(JOB, "")))
        for entry in entries_by_place(observed).values()
        if entry.address.kind is Kind.FLOW
        and entry.address.name not in flows
        and entry.topology == topology.name
    ]
    for flow_at, job_at in jobs:
        needs.setdefault(job_at, set()).add(flow_at)
        needs.setdefault(flow_at, set()).add(job_at)
    for change in changes:
        left = (field.old for field in (change.field(JOB),) if field is not None)
        needs.setdefault(change.address, set()).update(job_address(str(job)) for job in left)
    return {address: frozenset(wanted) for address, wanted in needs.items()}


def _protections(desired: Desired, observed: Observed, topology: Topology) -> Iterator[tuple[str, Address]]:
    """Yields the protected flows, each with the ACLs that protect all mirrors at its destination."""
    rules = {acl.address for acl in desired.acls if isinstance(acl.origin, str)}
    rules |= {
        entry.address
        for entry in observed.owned.values()
        if entry.is_protection and entry.topology == topology.name
    }
    for name, flow in topology.flows.items():
        if flow.protect == "acl":
            yield from (
                (name, address) for address in sorted(rules) if address.cluster == flow.destination_cluster
            )


def plan_from(inputs: PlanInputs) -> Plan:
    """Returns the plan of these inputs. It reads nothing."""
    observed = inputs.observed
    nothing = Desired(inputs.topology.name)
    match inputs.mode:
        case Mode.APPLY:
            desired = expand(inputs.topology, observed, PurePath(inputs.folder))
            plan = make_plan(inputs, desired, diff(desired, observed))
            if inputs.adopt:
                plan = adoption(plan, inputs.adopt)
        case Mode.DESTROY:
            plan = make_plan(inputs, nothing, diff(nothing, observed))
        case Mode.DRIFT:
            desired = expand(inputs.topology, observed, PurePath(inputs.folder))
            drifted = drift(desired, observed)
            unread = [change for change in drifted if change.action is Action.UNKNOWN]
            plan = make_plan(inputs, replace(nothing, unknown=desired.unknown), unread)
            plan = replace(plan, changes=drifted)
        case Mode.ROLLBACK:  # guarded like any other plan: protection and policies hold
            assert inputs.applied is not None
            desired, seen, changes, problems = rollback(inputs.applied, observed)
            plan = make_plan(inputs, replace(desired, topology=inputs.topology.name), changes, seen)
            steps = rollback_steps(inputs.applied, plan.steps)
            plan = replace(plan, steps=steps, diagnostics=(*plan.diagnostics, *problems))
        case Mode.RESTORE:
            plan = restore_plan(inputs)
    return replace(plan, diagnostics=tuple(dict.fromkeys([*plan.diagnostics, *inputs.diagnostics])))


def make_plan(
    inputs: PlanInputs, desired: Desired, changes: Sequence[Change], seen: Observed | None = None
) -> Plan:
    """Returns the plan for these changes; with targets, for the named objects and their needs only.

    `seen` are the clusters that the changes were made from, where that is not all that was observed.
    """
    topology, observed, targets = inputs.topology, inputs.observed, inputs.targets
    kept, about_targets = select(changes, targets, desired, observed, topology)
    unknown = _unknown(desired, observed, topology, kept, partial=bool(targets))
    steps = make_steps(kept, desired, seen or observed)
    return Plan(
        inputs,
        changes=kept,
        steps=steps,
        diagnostics=(
            *observed.diagnostics,
            *desired.diagnostics,
            *check(desired, observed, kept, topology, inputs.mode),
            *consequences(desired, observed, kept, unknown, topology.clusters),
            *about_targets,
        ),
        unknown=unknown,
        desired=desired,
    )


def with_diagnostics(plan: Plan, diagnostics: Sequence[Diagnostic]) -> Plan:
    """Returns the plan with what can't be found out again, such as the brokers' objections, each once."""
    present = frozenset(plan.diagnostics)
    new = tuple(diagnostic for diagnostic in dict.fromkeys(diagnostics) if diagnostic not in present)
    if not new:
        return plan
    inputs = replace(plan.inputs, diagnostics=(*plan.inputs.diagnostics, *new))
    return replace(plan, inputs=inputs, diagnostics=(*plan.diagnostics, *new))


def expected_dead(topology: Topology) -> frozenset[str]:
    """Returns the clusters that a failover gave up. The plan does not wait for them.

    Flows from such a cluster failed over, and none of them runs.
    """
    flows = topology.flows.values()
    failed = {flow.source_cluster for flow in flows if flow.state == "failed_over"}
    return frozenset(failed - {flow.source_cluster for flow in flows if flow.runs})


def _unknown(
    desired: Desired, observed: Observed, topology: Topology, changes: Sequence[Change], *, partial: bool
) -> dict[str, str]:
    """Returns why each part of this plan can't be known, by a cluster's name or an object's address."""
    if partial and not any(change.unknown for change in changes):
        return {}
    silent = {
        name: cluster.why for name, cluster in observed.clusters.items() if isinstance(cluster, Unreachable)
    }
    unknown = {**silent, **desired.unknown}
    for change in changes:
        # What a silent cluster makes unknown is reported once, by the cluster's name.
        if change.unknown and change.silent is None:
            unknown.setdefault(str(change.address), change.unknown)
    dead = expected_dead(topology)
    return {what: why for what, why in sorted(unknown.items()) if what not in dead}


def adoption(plan: Plan, clusters: Collection[str]) -> Plan:
    """Returns the part of a plan that only registers ownership, for `repl import --adopt`.

    It holds the objects at these clusters that are as declared and not yet registered. A lost registry is
    rebuilt this way. An object that differs from the topology is left to a later apply, which changes and
    registers it.
    """
    owns = {step.address: step for step in plan.steps if isinstance(step, Own) and step.cluster in clusters}
    kept = tuple(
        change
        for change in plan.changes
        if change.adopted and change.action is Action.NO_OP and change.address in owns
    )
    addresses = {change.address for change in kept}
    steps = tuple(structs.replace(step, needs=()) for address, step in owns.items() if address in addresses)
    others = len(owns) - len(steps)
    notes = (
        (
            note(
                f"objects at {', '.join(sorted(clusters))} that are missing or differ from the topology,"
                f" and are not registered: {others}",
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
        diagnostics=(*plan.diagnostics, *notes),
    )
