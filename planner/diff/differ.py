"""Compares everything that is desired with everything that was observed, and returns the changes.

ACLs are compared here: an ACL has no fields that change, it exists or it does not. So are the objects that
the topology owns and no longer desires: they are forgotten or deleted. A rule that `protect: acl` replaces is
deleted and recorded; when it is no longer desired as replaced, it is created again and forgotten.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from planner.diff.flows import flow_changes
from planner.diff.jobs import job_changes
from planner.diff.quotas import quota_changes, removed_quota
from planner.diff.record import SOURCE_CLUSTER, SOURCE_TOPIC, flow_of, is_announced
from planner.diff.topics import ADOPTED, topic_changes
from planner.diff.typed_values import recorded_config
from planner.diff.values import bytes_as_text
from planner.model.address import Address, Kind, flow_address, topic_address
from planner.model.change import Action, Change, FieldChange
from planner.model.desired import Declared, Desired, DesiredAcl, DesiredFlow, MirroredBy
from planner.model.observed import (
    REPLACED,
    Observed,
    ObservedCluster,
    ObservedTopic,
    RegistryEntry,
    Unreachable,
    acl_rule,
    acl_spec,
)
from planner.model.topology import ENDED, AclRule, Flow, FlowState, OnRemove, OnSourceDelete, Topology

ACLS = "acls"  # the key of ObservedCluster.unreadable


def acl_changes(
    acls: Iterable[DesiredAcl],
    clusters: Mapping[str, ObservedCluster],
    owned: Mapping[Address, RegistryEntry],
    topology: str,
) -> list[Change]:
    live = {name: frozenset(cluster.acls or ()) for name, cluster in clusters.items()}
    return [
        _change(acl, clusters[acl.rule.cluster], live[acl.rule.cluster], owned.get(acl.address), topology)
        for acl in acls
    ]


def _change(
    acl: DesiredAcl,
    cluster: ObservedCluster,
    live: frozenset[object],
    entry: RegistryEntry | None,
    topology: str,
) -> Change:
    after: dict[str, object] = dict(acl_spec(acl.rule))
    if entry is not None and entry.topology != topology:
        return Change(acl.address, Action.NO_OP, f"owned by topology {entry.topology!r}")
    if cluster.acls is None:
        return unreadable_acl(acl.address, cluster) or Change(
            acl.address, Action.NO_OP, f"{cluster.name} has no authorizer"
        )
    if acl.replaced:
        return _replaced(acl, entry, live=acl.rule in live)
    if acl.rule not in live:
        known = entry is not None and not is_announced(entry)
        gone = "; it was deleted outside the topology" if known else ""
        return Change(acl.address, Action.CREATE, _origin(acl) + gone, after=after)
    if entry is None:
        return Change(acl.address, Action.NO_OP, ADOPTED, before=after, after=after, adopted=True)
    if is_announced(entry):
        field = FieldChange(("recorded", "spec"), "announced", "as it is", note="remembered at the cluster")
        why = "made by an apply that was cut short; only what is remembered of it changes"
        return Change(acl.address, Action.UPDATE, why, (field,), before=after, after=after)
    return Change(acl.address, Action.NO_OP, _origin(acl), before=after, after=after)


def _replaced(acl: DesiredAcl, entry: RegistryEntry | None, *, live: bool) -> Change:
    """Returns the change of a rule that `protect: acl` takes away.

    `after` is what the registry keeps of it.
    """
    before: dict[str, object] = dict(acl_spec(acl.rule))
    recorded = {**before, REPLACED: "true"}
    if live:
        return Change(
            acl.address,
            Action.DELETE,
            f"replaced by the rules of {_origin(acl)}; a promotion restores it",
            before=before,
            after=recorded,
        )
    if entry is None or not entry.is_replaced:
        return Change(acl.address, Action.NO_OP, "it is gone")
    return Change(acl.address, Action.NO_OP, f"replaced: {_origin(acl)}", before=recorded, after=recorded)


def unreadable_acl(address: Address, cluster: ObservedCluster) -> Change | None:
    """Returns the change of an ACL that could not be read; None where the cluster has no authorizer."""
    if ACLS not in cluster.unreadable:
        return None
    return Change(address, Action.UNKNOWN, f"(unknown: {cluster.unreadable[ACLS]})")


def _origin(acl: DesiredAcl) -> str:
    match acl.origin:
        case Declared():
            return "declared"
        case MirroredBy(flow=flow):
            return f"mirrored by flow.{flow}"
        case text:
            return text


def removed_changes(
    entries: Iterable[RegistryEntry],
    clusters: Mapping[str, ObservedCluster],
    observed: Observed,
    flows: Mapping[str, DesiredFlow],
) -> list[Change]:
    """Returns a change for each of these entries, which the topology owns and no longer desires."""
    left = tuple(entries)
    doomed = frozenset(entry.address for entry in left if _goes(entry, observed))
    changes = []
    for entry in left:
        cluster = clusters[entry.address.cluster or ""]
        match entry.address.kind:
            case Kind.TOPIC:
                change = _topic(entry, cluster, observed, flows, doomed)
            case Kind.ACL:
                change = _acl(entry, cluster, flows)
            case Kind.QUOTA:
                change = _quota(entry, cluster, flows)
            case _:
                change = None
        if change is not None:
            changes.append(change)
    return changes


def _goes(entry: RegistryEntry, observed: Observed) -> bool:
    """Returns whether this plan deletes the topic, which was declared with `on_remove: delete`."""
    cluster = observed.reachable(entry.address.cluster or "")
    live = cluster.topics.get(entry.address.name) if cluster is not None else None
    asked = flow_of(entry) is None and entry.on_remove is OnRemove.DELETE
    return asked and live is not None and not entry.is_another(live.id)


def _topic(
    entry: RegistryEntry,
    cluster: ObservedCluster,
    observed: Observed,
    flows: Mapping[str, DesiredFlow],
    doomed: frozenset[Address],
) -> Change | None:
    name = entry.address.name
    if name in cluster.hidden:
        why = f"(unknown: not authorized to describe {cluster.name}/{name})"
        return Change(entry.address, Action.UNKNOWN, why)
    live = cluster.topics.get(name)
    if live is None:
        return Change(entry.address, Action.FORGET, "already gone from the cluster")
    if entry.is_another(live.id):
        return Change(entry.address, Action.FORGET, "another topic has its name now, which is left alone")
    flow_name = flow_of(entry)
    if flow_name is None:
        if entry.on_remove is OnRemove.DELETE:
            return _delete(entry, live, cluster, "leaves the topology; on_remove: delete, as last applied")
        return Change(entry.address, Action.FORGET, "leaves the topology; on_remove: keep, it stays as it is")
    flow = flows.get(flow_name)
    if flow is None:
        return Change(entry.address, Action.FORGET, f"flow.{flow_name} leaves the topology; its mirror stays")
    return _mirror(entry, live, cluster, observed, flow, doomed)


def _mirror(
    entry: RegistryEntry,
    live: ObservedTopic,
    cluster: ObservedCluster,
    observed: Observed,
    desired: DesiredFlow,
    doomed: frozenset[Address],
) -> Change | None:
    flow = desired.flow
    if not desired.selection_known:
        return _unknown_selection(entry, flow)
    if cluster.name != flow.destination_cluster:
        why = f"flow.{flow.name} copies to {flow.destination_cluster} now; its mirror stays"
        return Change(entry.address, Action.FORGET, why)
    source = f"{entry.spec.get(SOURCE_CLUSTER, flow.source_cluster)}/{entry.spec.get(SOURCE_TOPIC, '')}"
    if not _source_is_gone(entry, observed, flow, doomed):
        return Change(entry.address, Action.FORGET, f"flow.{flow.name} no longer selects {source}; it stays")
    if flow.on_source_delete is OnSourceDelete.DELETE and flow.state is FlowState.ACTIVE:
        why = f"{source} was deleted; on_source_delete: delete of flow.{flow.name}"
        return _delete(entry, live, cluster, why)
    return Change(entry.address, Action.FORGET, f"{source} was deleted; the mirror stays")


def _unknown_selection(entry: RegistryEntry, flow: Flow) -> Change | None:
    """Returns the change while the source does not answer; None for the topics of a flow that has ended."""
    if flow.state in ENDED:
        return None
    why = f"(unknown: {flow.source_cluster} unreachable)"
    return Change(entry.address, Action.UNKNOWN, why)


def _source_is_gone(entry: RegistryEntry, observed: Observed, flow: Flow, doomed: frozenset[Address]) -> bool:
    """Returns whether the source topic of a mirror is deleted, or is deleted by this plan."""
    name = entry.spec.get(SOURCE_TOPIC)
    source = observed.reachable(flow.source_cluster)
    if name is None or source is None or entry.spec.get(SOURCE_CLUSTER) != flow.source_cluster:
        return False
    if topic_address(flow.source_cluster, name) in doomed:
        return True
    return name not in source.topics and name not in source.hidden


def _delete(entry: RegistryEntry, live: ObservedTopic, cluster: ObservedCluster, reason: str) -> Change:
    before: dict[str, object] = {
        "partitions": live.partitions,
        "replication": live.replication_factors,
        "config": recorded_config(entry, live),
    }
    return Change(entry.address, Action.DELETE, reason, before=before, notes=_what_goes(live.name, cluster))


def _what_goes(name: str, cluster: ObservedCluster) -> tuple[str, ...]:
    """Returns the notes about the size of a topic and the groups that commit to it, where these were read."""
    notes = []
    if cluster.sizes is not None and (size := cluster.sizes.get(name, 0)):
        notes.append(f"the topic holds {bytes_as_text(size)} of records, which are lost with it")
    groups = sorted(group for group, topics in (cluster.group_topics or {}).items() if name in topics)
    if groups:
        shown = ", ".join(groups[:5]) + (f" and {len(groups) - 5} more" if len(groups) > 5 else "")
        notes.append(f"consumer groups that commit to it: {shown}")
    return tuple(notes)


def _acl(entry: RegistryEntry, cluster: ObservedCluster, flows: Mapping[str, DesiredFlow]) -> Change | None:
    flow_name = flow_of(entry)
    flow = flows.get(flow_name) if flow_name is not None else None
    if flow is not None and not flow.selection_known:
        return _unknown_selection(entry, flow.flow)
    if cluster.acls is None:
        return unreadable_acl(entry.address, cluster)
    rule = acl_rule(cluster.name, entry.spec)
    if rule is not None and entry.is_replaced:
        return _no_longer_replaced(entry, rule, cluster.acls)
    if rule is None or rule not in cluster.acls:
        never = (
            "never made: an apply was cut short" if is_announced(entry) else "already gone from the cluster"
        )
        return Change(entry.address, Action.FORGET, never)
    if not entry.created:
        return Change(entry.address, Action.FORGET, "leaves the topology; it was there before and stays")
    notes = (
        ("what it denied is allowed again, if another rule allows it",) if rule.permission == "DENY" else ()
    )
    reason = "leaves the topology" if flow_name is None else f"no longer mirrored by flow.{flow_name}"
    if entry.is_protection:
        reason = "what it protected is no mirror any more, or was promoted"
    return Change(entry.address, Action.DELETE, reason, before=dict(entry.spec), notes=notes)


def _quota(entry: RegistryEntry, cluster: ObservedCluster, flows: Mapping[str, DesiredFlow]) -> Change | None:
    flow_name = flow_of(entry)
    flow = flows.get(flow_name) if flow_name is not None else None
    if flow is not None and not flow.selection_known:
        return _unknown_selection(entry, flow.flow)
    return removed_quota(entry, cluster, flow_name)


def _no_longer_replaced(entry: RegistryEntry, rule: AclRule, acls: Sequence[AclRule]) -> Change:
    """Returns the change of a rule that `protect: acl` took away and no mirror needs replaced any more."""
    if rule in acls:
        return Change(entry.address, Action.FORGET, "it was replaced and is there again")
    reason = "restored: it was replaced by protect: acl, and no mirror needs that any more"
    return Change(entry.address, Action.CREATE, reason, before=dict(entry.spec), after=dict(acl_spec(rule)))


def diff(desired: Desired, observed: Observed, topology: Topology) -> tuple[Change, ...]:
    """Returns one change for every desired object and for every owned one that is no longer desired.

    They are sorted by address. The order in which anything was written or read has no meaning.
    """
    clusters = {name: one for name, one in observed.clusters.items() if isinstance(one, ObservedCluster)}
    owned = owned_by_address(observed)
    topics = [one for one in desired.topics if one.cluster in clusters]
    acls = [one for one in desired.acls if one.rule.cluster in clusters]
    quotas = [one for one in desired.quotas if one.cluster in clusters]
    wanted = {one.address for one in desired.topics} | {one.address for one in desired.acls}
    wanted |= {one.address for one in desired.quotas}
    left = [
        entry
        for entry in owned.values()
        if entry.topology == desired.topology and entry.address not in wanted
    ]
    flows = {one.flow.name: one for one in desired.flows}
    changes = [
        *topic_changes(topics, clusters, owned, desired.topology),
        *acl_changes(acls, clusters, owned, desired.topology),
        *quota_changes(quotas, clusters, owned, desired.topology),
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
    return replace(topology, topics=(), acls=(), quotas=(), flows={}, file_flows={}, jobs={})


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
            *((one.address, one.cluster) for one in desired.quotas),
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
