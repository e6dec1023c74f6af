"""Lints of selections: what a flow includes, compared with what exists."""

from collections.abc import Iterator, Mapping, Sequence

from planner.graph.messages import counted, flow_diagnostic, listed, nearest
from planner.graph.replication_graph import ReplicationGraph
from planner.graph.routes import group_selector
from planner.graph.topic_graph import TopicNode
from planner.model.diagnostic import Diagnostic, error, note, warning
from planner.model.observed import Observed
from planner.model.topology import Flow
from runtime.contract.spec.route import RouteDecision, is_reserved
from runtime.contract.spec.selection import NamePatterns, SelectionResult, written_out


def selections(graph: ReplicationGraph) -> Iterator[Diagnostic]:
    """Yields warnings for flows whose source could be read."""
    at: dict[str, list[str]] = {}
    for node in sorted(graph.live.nodes):
        at.setdefault(node.cluster, []).append(node.topic)
    for flow in graph.flows:
        if graph.copied.is_running(flow.name) and flow.reverse_of not in graph.topology.flows:
            yield from _unmatched(flow, graph, at.get(flow.source_cluster, []))
        yield from _left_out(flow, graph)


def reserved_names(graph: ReplicationGraph) -> Iterator[Diagnostic]:
    """Yields an error for each flow that writes out a reserved topic."""
    for flow in graph.topology.flows.values():
        named = [name for entry in flow.topics.include if (name := written_out(entry)) is not None]
        found = [name for name in named if is_reserved(name)]
        if found:
            yield flow_diagnostic(
                error,
                flow,
                f"{counted(found)} can't be copied: the name is reserved",
                "remove it from include; group offsets and heartbeats are copied without it",
                "reserved-topic",
            )


def _unmatched(flow: Flow, graph: ReplicationGraph, topics: Sequence[str]) -> Iterator[Diagnostic]:
    for entry in flow.topics.include:
        name = written_out(entry)
        if name is not None and is_reserved(name):
            continue
        if name is not None and TopicNode(flow.source_cluster, name) in graph.live.nodes:
            continue
        only = NamePatterns((entry,))
        if any(only.match(topic) for topic in topics):
            continue
        close = nearest(entry, topics)
        meant = f"did you mean {close}? " if close is not None else ""
        found = "is found as soon as it appears" if flow.follow_every_ms else "is found by the next apply"
        if name is not None:
            yield flow_diagnostic(
                warning,
                flow,
                f"there is no topic {name} at {flow.source_cluster}",
                f"{meant}it {found}; until then nothing of it is copied",
                "absent-topic",
            )
        else:
            yield flow_diagnostic(
                warning,
                flow,
                f"{entry!r} matches no topic of {flow.source_cluster}",
                f"{meant}a regex matches whole names; a topic that fits {found}",
                "include-matches-nothing",
            )


def _left_out(flow: Flow, graph: ReplicationGraph) -> Iterator[Diagnostic]:
    hidden = graph.live.left_out.get((flow.name, RouteDecision.DENIED))
    if hidden:
        yield flow_diagnostic(
            warning,
            flow,
            f"include matches {counted(hidden)} of {flow.source_cluster}, which the default denials exclude",
            "to copy a topic, write its name under include, or set default_exclude: false;"
            " to silence this, name it under exclude",
            "hidden-by-default",
        )
    returning = graph.live.left_out.get((flow.name, RouteDecision.RETURNS))
    if returning:
        yield flow_diagnostic(
            note,
            flow,
            f"not copied back: {counted(returning)} of {flow.source_cluster}, mirrored from"
            f" {flow.destination_cluster}",
            "to copy a topic all the same, write its name under include",
            "comes-back",
        )


def groups_without_data(graph: ReplicationGraph, observed: Observed) -> Iterator[Diagnostic]:
    """Yields an error for a named group that reads only topics which the flow does not copy.

    Such a group would never get an offset.
    """
    for flow, copied, read in _syncing(graph, observed):
        named = group_selector(flow).written_out
        lost = [group for group in named if read.get(group) and not copied & read[group]]
        if lost:
            topics = sorted({topic for group in lost for topic in read[group]})
            yield flow_diagnostic(
                error,
                flow,
                f"group sync without data: the flow copies no topic that {counted(lost, 'group')} committed"
                f" offsets for: {listed(topics)}",
                "include these under topics, or remove the group from groups",
                "group-without-data",
            )


def hidden_groups(graph: ReplicationGraph, observed: Observed) -> Iterator[Diagnostic]:
    """Yields a note about groups that read copied topics and are kept out by the default denials."""
    for flow, copied, read in _syncing(graph, observed):
        selector = group_selector(flow)
        hidden = [
            group
            for group, topics in read.items()
            if topics & copied and selector.answer(group) is SelectionResult.DENIED
        ]
        if hidden:
            yield flow_diagnostic(
                note,
                flow,
                f"groups match {counted(hidden, 'group')}, which the default denials exclude:"
                " no offset is synced",
                "to sync a group, write its name under groups, or set default_exclude: false there;"
                " to silence this, name it under exclude",
                "group-hidden-by-default",
            )


def _syncing(
    graph: ReplicationGraph, observed: Observed
) -> Iterator[tuple[Flow, frozenset[str], Mapping[str, frozenset[str]]]]:
    """Yields flows that sync groups, with their copied topics and the topics that groups read
    at the source.
    """
    edges = graph.live.by_flow()
    for flow in graph.flows:
        cluster = observed.reachable(flow.source_cluster)
        if cluster is not None and flow.groups.sync and graph.copied.is_running(flow.name):
            copied = frozenset(edge.source.topic for edge in edges.get(flow.name, ()))
            yield flow, copied, cluster.group_topics or {}


def flows_without_topics(graph: ReplicationGraph) -> Iterator[Diagnostic]:
    """Yields an error for a flow that syncs groups and can never take a topic."""
    for flow in graph.topology.flows.values():
        route = graph.router.routes[flow.name]
        if flow.groups.sync and not route.open_ended and not route.written_out:
            yield flow_diagnostic(
                error,
                flow,
                "group sync without data: every included topic is excluded or reserved",
                "include the topics that the groups read, or set groups: {sync: false}",
                "group-without-data",
            )
