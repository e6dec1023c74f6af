"""Returns the changes of objects that the topology owns and no longer desires: forgotten or deleted."""

from collections.abc import Iterable, Mapping, Sequence

from planner.diff.acls import unreadable_acl
from planner.diff.record import SOURCE_CLUSTER, SOURCE_TOPIC, flow_of, is_announced
from planner.diff.topic_values import recorded_config
from planner.diff.values import bytes_as_text
from planner.model.address import Address, Kind, topic_address
from planner.model.change import Action, Change
from planner.model.desired import DesiredFlow
from planner.model.observed import Observed, ObservedCluster, ObservedTopic
from planner.model.owned import RegistryEntry, acl_rule, acl_spec
from planner.model.topology import ENDED, AclRule, Flow, FlowState, OnRemove, OnSourceDelete


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
        return _replaced_acl(entry, rule, cluster.acls)
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


def _replaced_acl(entry: RegistryEntry, rule: AclRule, acls: Sequence[AclRule]) -> Change:
    """Returns the change of a rule that `protect: acl` took away and no mirror needs replaced any more."""
    if rule in acls:
        return Change(entry.address, Action.FORGET, "it was replaced and is there again")
    reason = "restored: it was replaced by protect: acl, and no mirror needs that any more"
    return Change(entry.address, Action.CREATE, reason, before=dict(entry.spec), after=dict(acl_spec(rule)))
