"""The guards of a plan: ownership, protection, deletes, partitions and replication."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from planner.diff.differ import owned_by_address
from planner.diff.record import flow_of
from planner.graph.messages import few
from planner.model.address import Address, Kind, topic_address
from planner.model.change import Action, Change
from planner.model.desired import Desired, DesiredTopic
from planner.model.diagnostic import Diagnostic, ExitCode, error
from planner.model.observed import FEATURE_REASSIGN, Observed
from planner.model.topology import ENDED, Cluster, Topology
from planner.plan.guards.jobs import job_guards
from planner.plan.guards.policies import unmet_requirements
from planner.plan.guards.promotions import promotions
from planner.plan.guards.transitions import changes_of_silent_sources, transitions

DESTROYING = frozenset({Action.DELETE, Action.REPLACE})


def check(
    desired: Desired, observed: Observed, changes: Sequence[Change], topology: Topology
) -> tuple[Diagnostic, ...]:
    """Returns the refusals of every guard for the planned changes. A wrong cluster id hides all others."""
    pinned = tuple(pinned_ids(topology.clusters, observed))
    if pinned:
        return pinned
    addresses = {change.address for change in changes}
    topics = tuple(one for one in desired.topics if one.address in addresses)
    flows = (*changes, *changes_of_silent_sources(desired, observed, changes))
    complained = frozenset(one.address for one in desired.diagnostics if one.address is not None)
    return (
        *ownership(desired.topology, observed, changes),
        *partition_decreases(topics, changes),
        *impossible_replication(topics, observed, changes, complained),
        *protection(observed, changes, topology),
        *max_deletes(topology.policies.max_deletes, _ended(topology), observed, changes),
        *transitions(flows, topology, observed),
        *promotions(flows, desired),
        *job_guards(desired, observed, changes),
        *unmet_requirements(topology.policies.require, topics, observed),
    )


def pinned_ids(clusters: Mapping[str, Cluster], observed: Observed) -> Iterator[Diagnostic]:
    """Yields a refusal for each cluster whose id is not the pinned one."""
    for name, cluster in sorted(clusters.items()):
        live = observed.reachable(name)
        if live is not None and cluster.id is not None and cluster.id != live.id:
            yield error(
                f"cluster {name} is {live.id}, but its id is pinned as {cluster.id}",
                f"mend clusters.{name}.bootstrap, or clusters.{name}.id if the cluster was replaced",
                source=cluster.source,
                code="pinned-id",
                exit=ExitCode.REFUSED,
            )


def ownership(topology: str, observed: Observed, changes: Iterable[Change]) -> Iterator[Diagnostic]:
    """Yields a refusal for each object that another topology owns."""
    owned = owned_by_address(observed)
    for change in changes:
        entry = owned.get(change.address)
        if entry is not None and entry.topology != topology:
            yield error(
                f"owned by the topology {entry.topology!r}",
                f"take it out of this topology, or let {entry.topology!r} forget it first: "
                "remove it there with on_remove: keep and apply",
                address=str(change.address),
                code="owned",
                exit=ExitCode.REFUSED,
            )


def partition_decreases(topics: Iterable[DesiredTopic], changes: Iterable[Change]) -> Iterator[Diagnostic]:
    """Yields an error for each topic that would get fewer partitions."""
    sources = {one.address: one.source for one in topics}
    for change in changes:
        for one in change.fields:
            if one.path != ("partitions",) or change.action is not Action.UPDATE:
                continue
            if isinstance(one.old, int) and isinstance(one.new, int) and one.new < one.old:
                yield error(
                    f"partitions only grow: there are {one.old}, {one.new} are declared",
                    f"declare {one.old} or more; for fewer, make a topic of another name and copy into it",
                    address=str(change.address),
                    source=sources.get(change.address),
                    code="partition-decrease",
                )


def impossible_replication(
    topics: Iterable[DesiredTopic],
    observed: Observed,
    changes: Iterable[Change],
    complained: frozenset[str],
) -> Iterator[Diagnostic]:
    """Yields an error where there are fewer brokers than replicas, unless a lint reported it."""
    wanted = {one.address: one for one in topics}
    for change in changes:
        topic = wanted.get(change.address)
        if topic is None or topic.replication is None or str(change.address) in complained:
            continue
        cluster = observed.reachable(topic.cluster)
        moves = change.action is Action.CREATE or any(one.path == ("replication",) for one in change.fields)
        if cluster is None or not moves:
            continue
        brokers = len(cluster.brokers)
        if change.action is Action.UPDATE and FEATURE_REASSIGN not in cluster.features:
            yield error(
                f"the brokers of {topic.cluster} can't reassign replicas, so the replication stays as it is",
                "declare the replication that the topic has, or upgrade the brokers to Kafka 2.4 or newer",
                address=str(change.address),
                source=topic.source,
                code="reassign",
            )
        elif topic.replication > brokers:
            yield error(
                f"replication {topic.replication} needs as many brokers; {topic.cluster} has {brokers}",
                f"declare replication: {brokers} or less, or add brokers",
                address=str(change.address),
                source=topic.source,
                code="replication",
            )


def protection(
    observed: Observed, changes: Iterable[Change], topology: Topology | None = None
) -> Iterator[Diagnostic]:
    """Yields a refusal to delete a protected topic, as declared or as last applied.

    Removing a topic's block from the YAML does not remove its protection.
    """
    owned = owned_by_address(observed)
    topics = topology.topics if topology is not None else ()
    declared = {topic_address(one.cluster, one.name) for one in topics if one.protect}
    for change in changes:
        entry = owned.get(change.address)
        applied = entry is not None and entry.protect
        if change.action in DESTROYING and (applied or change.address in declared):
            since = "protected when it was applied last" if applied else "declared with protect: true"
            yield error(
                f"{since}, so it is not deleted",
                "declare it with protect: false and apply that first; then remove it",
                address=str(change.address),
                code="protect",
                exit=ExitCode.REFUSED,
            )


def _ended(topology: Topology) -> frozenset[str]:
    return frozenset(name for name, flow in topology.flows.items() if flow.state in ENDED)


def max_deletes(
    allowed: int, ended: Collection[str], observed: Observed, changes: Sequence[Change]
) -> Iterator[Diagnostic]:
    """Yields a refusal if the plan destroys more objects than `policies.max_deletes` allows.

    `ended` are the flows that are promoted or failed over.
    """
    excluded = set(_rules_of_ending_flows(ended, observed, changes))
    destroyed = [
        change.address
        for change in changes
        if change.action in DESTROYING and _holds_data(change) and change.address not in excluded
    ]
    if len(destroyed) > allowed:
        yield error(
            f"the plan destroys {len(destroyed)} objects, policies.max_deletes is {allowed}:"
            f" {few(destroyed, 5)}",
            f"if all of them are meant to go, set policies.max_deletes: {len(destroyed)}",
            code="max-deletes",
            exit=ExitCode.REFUSED,
        )


def _holds_data(change: Change) -> bool:
    """Returns whether the object holds data. A job or flow does not: its ledger stays."""
    return change.address.kind not in (Kind.FLOW, Kind.JOB)


def _rules_of_ending_flows(
    ended: Iterable[str], observed: Observed, changes: Iterable[Change]
) -> Iterator[Address]:
    """Yields the ACLs that a flow made and that are removed because it ends or comes back.

    They do not count as deletes: a failover must not ask how many topics were protected.
    """
    ending_flows = {
        change.address.name
        for change in changes
        if change.address.kind is Kind.FLOW
        and any(one.path in (("state",), ("promoted",)) for one in change.fields)
    }
    ending_flows |= set(ended)
    for address, entry in owned_by_address(observed).items():
        if address.kind is Kind.ACL and flow_of(entry) in ending_flows:
            yield address


def destroyed_topics(changes: Iterable[Change]) -> list[Change]:
    """Returns the changes that delete a topic."""
    return [one for one in changes if one.action in DESTROYING and one.address.kind is Kind.TOPIC]
