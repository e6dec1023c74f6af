"""Where names can come home, and what keeps the records apart there: the provenance of each flow.

`auto` is chosen once for each connected component of same-name flows: `off` where names cannot cycle, `batch`
where all that comes round goes between two clusters, `headers` where a loop is longer. It is chosen by what
the flows may take, not only by what exists: a topic that appears tomorrow must not find the filter off.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import assert_never

from planner.graph.replication_graph import ReplicationGraph
from planner.graph.topic_graph import (
    CopyEdge,
    TopicNode,
    build_copy_graph,
    clusters_form_loop,
    strongly_connected,
)
from planner.model.topology import Flow, Provenance
from runtime.contract.spec.rename import Match, Table, Template

ANY = "*"  # stands for a topic that nobody has named; not a legal name, so no real one is meant


@dataclass(frozen=True, slots=True)
class ReplicationLoop:
    """Topics that come round to themselves, and the flows that carry them there."""

    nodes: frozenset[TopicNode]
    flows: frozenset[str]
    longer: bool  # than there and back between two clusters


def replication_loops(edges: Sequence[CopyEdge]) -> list[ReplicationLoop]:
    """Every strongly connected component of more than one topic."""
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
    """There-and-back pairs that form a tree hold no longer loop; any further pair closes one."""
    pairs = {frozenset((edge.source, edge.destination)) for edge in edges}
    nodes = {node for pair in pairs for node in pair}
    return len(pairs) >= len(nodes)


def provenance_of(graph: ReplicationGraph) -> dict[str, Provenance]:
    """What the provenance of each flow comes to, whatever its state: a failover must not change it."""
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
    if not found:
        return Provenance.OFF
    asked = {graph.flow(name).provenance for name in group}
    if Provenance.HEADERS in asked or any(one.longer for one in found):
        return Provenance.HEADERS
    return Provenance.BATCH


def possible_edges(graph: ReplicationGraph) -> list[CopyEdge]:
    """All that may be copied, by flows in any state, and by those whose source cannot be read."""
    flows = graph.topology.flows.values()
    edges = graph.every_edge if graph.all_carried else _reached_by_all(graph)
    return edges + [
        CopyEdge(flow.name, TopicNode(flow.source_cluster, ANY), TopicNode(flow.destination_cluster, ANY))
        for flow in flows
        if graph.router.ways[flow.name].open_ended and keeps_some_names(flow, graph)
    ]


def _reached_by_all(graph: ReplicationGraph) -> list[CopyEdge]:
    flows = graph.topology.flows.values()
    starts = {*graph.live.nodes, *graph.declared.nodes, *graph.sampled.nodes}
    starts |= {
        TopicNode(flow.source_cluster, topic)
        for flow in flows
        for topic in graph.router.ways[flow.name].written_out
    }
    return build_copy_graph(graph.router, flows, starts, lambda _flow, _topic: True).edges


def keeps_some_names(flow: Flow, graph: ReplicationGraph) -> bool:
    """Whether a topic that nobody has named may keep its name."""
    match graph.router.ways[flow.name].route.rename:
        case Template(text):
            return text == "{topic}"
        case Match() | Table():
            return True
        case rename:
            assert_never(rename)


def _components(graph: ReplicationGraph, edges: Iterable[CopyEdge]) -> list[frozenset[str]]:
    """Flows that meet at a topic belong together."""
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
