"""Compares everything that is desired with everything that was observed, and returns the changes."""

from dataclasses import replace

from planner.diff.acls import acl_changes
from planner.diff.flows import flow_changes
from planner.diff.jobs import job_changes
from planner.diff.removed import removed_changes
from planner.diff.topics import topic_changes
from planner.model.address import Address, flow_address
from planner.model.change import Action, Change
from planner.model.desired import Desired
from planner.model.observed import Observed, ObservedCluster, Unreachable
from planner.model.owned import RegistryEntry
from planner.model.topology import ENDED, Topology


def diff(desired: Desired, observed: Observed, topology: Topology) -> tuple[Change, ...]:
    """Returns one change for every desired object and for every owned one that is no longer desired.

    They are sorted by address. The order in which anything was written or read has no meaning.
    """
    clusters = {name: one for name, one in observed.clusters.items() if isinstance(one, ObservedCluster)}
    owned = owned_by_address(observed)
    topics = [one for one in desired.topics if one.cluster in clusters]
    acls = [one for one in desired.acls if one.rule.cluster in clusters]
    wanted = {one.address for one in desired.topics} | {one.address for one in desired.acls}
    left = [
        entry
        for entry in owned.values()
        if entry.topology == desired.topology and entry.address not in wanted
    ]
    flows = {one.flow.name: one for one in desired.flows}
    changes = [
        *topic_changes(topics, clusters, owned, desired.topology),
        *acl_changes(acls, clusters, owned, desired.topology),
        *removed_changes(left, clusters, observed, flows),
        *flow_changes(desired, observed),
        *job_changes(desired, observed),
        *_unknown_changes(desired, observed),
    ]
    return tuple(sorted(changes, key=lambda change: change.address))


def diff_destroy(observed: Observed, topology: Topology) -> tuple[Change, ...]:
    """Returns the changes of a destroy: what is owned is deleted or forgotten, as `on_remove` was applied."""
    return diff(Desired(topology.name), observed, declaring_nothing(topology))


def declaring_nothing(topology: Topology) -> Topology:
    """Returns the topology without its objects, as a destroy plans it."""
    return replace(topology, topics=(), acls=(), flows={}, jobs={})


def owned_by_address(observed: Observed) -> dict[Address, RegistryEntry]:
    """Returns the registry entries of all topologies by address, each from the cluster of its object.

    Flows and jobs are left out: two destinations may each have one of the same name.
    """
    return {
        entry.address: entry
        for name, cluster in observed.clusters.items()
        if isinstance(cluster, ObservedCluster)
        for entry in cluster.owned
        if entry.address.cluster == name
    }


def _unknown_changes(desired: Desired, observed: Observed) -> list[Change]:
    """Returns the changes of the objects that are unknown because a cluster does not answer."""
    unreachable = {name for name, one in observed.clusters.items() if isinstance(one, Unreachable)}
    changes = [
        Change(address, Action.UNKNOWN, f"(unknown: {cluster} unreachable)")
        for address, cluster in (
            *((one.address, one.cluster) for one in desired.topics),
            *((one.address, one.rule.cluster) for one in desired.acls),
        )
        if cluster in unreachable
    ]
    changes += [
        Change(
            flow_address(one.flow.name), Action.UNKNOWN, f"(unknown: {one.flow.source_cluster} unreachable)"
        )
        for one in desired.flows
        if not one.selection_known and one.flow.state not in ENDED
    ]
    return changes
