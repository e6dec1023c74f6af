"""Where records can loop, and the provenance filter of each flow that prevents it.

`auto` is resolved once for each connected component of flows that keep names: `off` where no loop is
possible, `batch` where every loop is between two clusters, `headers` where a loop is longer. It depends on
what the flows may take, not only on the topics that exist: a topic that appears tomorrow must not find the
filter off.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import assert_never

from planner.graph.replication_graph import (
    CopyEdge,
    ReplicationGraph,
    TopicNode,
    build_copy_graph,
    clusters_form_loop,
    strongly_connected,
)
from planner.model.topology import Flow, Provenance
from runtime.contract.spec.rename import Match, Table, Template

ANY = "*"  # any topic that is not written out; not a legal name, so it never means a real topic


@dataclass(frozen=True, slots=True)
class ReplicationLoop:
    """Topics that reach themselves again, and the flows that carry their records."""

    nodes: frozenset[TopicNode]
    flows: frozenset[str]
    longer: bool  # over more than two clusters


def replication_loops(edges: Sequence[CopyEdge]) -> list[ReplicationLoop]:
    """Returns every strongly connected component of more than one topic."""
    if not clusters_form_loop(edges):
        return []
    components = [component for component in strongly_connected(edges) if len(component) > 1]
    place = {node: at for at, component in enumerate(components) for node in component}
    inside: dict[int, list[CopyEdge]] = {}
    for edge in edges:
        at = place.get(edge.source)
        if at is not None and place.get(edge.destination) == at:
            inside.setdefault(at, []).append(edge)
    return [
        ReplicationLoop(frozenset(components[at]), frozenset(edge.flow for edge in found), _longer(found))
        for at, found in sorted(inside.items())
    ]


def _longer(edges: Iterable[CopyEdge]) -> bool:
    """Returns whether the component has a loop over more than two clusters.

    Pairs of opposite copies that form a tree have no longer loop. Any further pair closes one.
    """
    pairs = {frozenset((edge.source, edge.destination)) for edge in edges}
    nodes = {node for pair in pairs for node in pair}
    return len(pairs) >= len(nodes)


def provenance_of(graph: ReplicationGraph) -> dict[str, Provenance]:
    """Returns the resolved provenance of each flow, whatever its state: a failover must not change it."""
    edges = possible_edges(graph)
    found = replication_loops(edges)
    looping = {node for one in found for node in one.nodes}
    groups = _components(
        graph,
        [
            edge
            for edge in edges
            if edge.source.topic == edge.destination.topic or {edge.source, edge.destination} <= looping
        ],
    )
    chosen: dict[str, Provenance] = {}
    for group in groups:
        mode = _mode([one for one in found if one.flows & group], group, graph)
        for name in group:
            own = graph.flow(name).provenance
            chosen[name] = mode if own is Provenance.AUTO else own
    return chosen


def _mode(found: Sequence[ReplicationLoop], group: frozenset[str], graph: ReplicationGraph) -> Provenance:
    """Returns what `auto` means for flows that belong together."""
    if not found:
        return Provenance.OFF
    asked = {graph.flow(name).provenance for name in group}
    if Provenance.HEADERS in asked or any(one.longer for one in found):
        return Provenance.HEADERS
    return Provenance.BATCH


def possible_edges(graph: ReplicationGraph) -> list[CopyEdge]:
    """Returns every copy that may happen, also by flows that do not run or whose source can't be read."""
    flows = graph.topology.flows.values()
    edges = graph.every_edge if graph.all_carried else _reached_by_all(graph)
    return edges + [
        CopyEdge(flow.name, TopicNode(flow.source_cluster, ANY), TopicNode(flow.destination_cluster, ANY))
        for flow in flows
        if graph.router.routes[flow.name].open_ended and keeps_some_names(flow, graph)
    ]


def _reached_by_all(graph: ReplicationGraph) -> list[CopyEdge]:
    """Returns the copies of all flows as if every flow ran."""
    flows = graph.topology.flows.values()
    starts = {*graph.live.nodes, *graph.declared.nodes, *graph.sampled.nodes}
    starts |= {
        TopicNode(flow.source_cluster, topic)
        for flow in flows
        for topic in graph.router.routes[flow.name].written_out
    }
    return build_copy_graph(graph.router, flows, starts, lambda _flow, _topic: True).edges


def keeps_some_names(flow: Flow, graph: ReplicationGraph) -> bool:
    """Returns whether a topic that no pattern writes out may keep its name."""
    match graph.router.routes[flow.name].route.rename:
        case Template(text):
            return text == "{topic}"
        case Match() | Table():
            return True
        case rename:
            assert_never(rename)


def _components(graph: ReplicationGraph, edges: Iterable[CopyEdge]) -> list[frozenset[str]]:
    """Groups the flows that share a topic."""
    parent = {name: name for name in graph.topology.flows}

    def root(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    at: dict[TopicNode, str] = {}
    for edge in edges:
        for node in (edge.source, edge.destination):
            parent[root(edge.flow)] = root(at.setdefault(node, edge.flow))
    groups: dict[str, set[str]] = {}
    for name in parent:
        groups.setdefault(root(name), set()).add(name)
    return [frozenset(group) for _, group in sorted(groups.items())]
