"""Topics as nodes and copies as edges: which topics reach which, and which form loops."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from planner.model.topology import Flow
from runtime.contract.spec.route import RouteDecision, Router


class TopicNode(NamedTuple):
    """A topic of a cluster."""

    cluster: str
    topic: str

    def __str__(self) -> str:
        return f"{self.cluster}/{self.topic}"


class CopyEdge(NamedTuple):
    """A copy of one topic into another by a flow."""

    flow: str
    source: TopicNode
    destination: TopicNode


@dataclass(slots=True)
class CopyGraph:
    """`left_out`: topics that a flow includes and does not take, by flow and reason."""

    nodes: set[TopicNode] = field(default_factory=set)
    edges: list[CopyEdge] = field(default_factory=list)
    left_out: dict[tuple[str, RouteDecision], list[str]] = field(default_factory=dict)

    def incoming(self) -> dict[TopicNode, list[CopyEdge]]:
        """Returns the copies into each topic."""
        into: dict[TopicNode, list[CopyEdge]] = {}
        for edge in self.edges:
            into.setdefault(edge.destination, []).append(edge)
        return into

    def outgoing(self) -> dict[TopicNode, list[CopyEdge]]:
        """Returns the copies out of each topic."""
        out: dict[TopicNode, list[CopyEdge]] = {}
        for edge in self.edges:
            out.setdefault(edge.source, []).append(edge)
        return out

    def by_flow(self) -> dict[str, list[CopyEdge]]:
        """Returns the copies of each flow."""
        edges: dict[str, list[CopyEdge]] = {}
        for edge in self.edges:
            edges.setdefault(edge.flow, []).append(edge)
        return edges


def build_copy_graph(
    router: Router,
    flows: Iterable[Flow],
    starts: Iterable[TopicNode],
    copies: Callable[[str, str], bool],
    known: Iterable[TopicNode] = (),
) -> CopyGraph:
    """Returns everything that the flows make out of the topics in `starts`, step by step.

    `known` nodes were visited before and are not visited again: a second graph adds to a first one.
    """
    flows_by_source: dict[str, list[str]] = {}
    destination = {flow.name: flow.destination_cluster for flow in flows}
    for flow in sorted(flows, key=lambda one: one.name):
        flows_by_source.setdefault(flow.source_cluster, []).append(flow.name)
    seen = set(known)
    found = CopyGraph()
    waiting = sorted(set(starts) - seen)
    seen.update(waiting)
    while waiting:
        node = waiting.pop()
        found.nodes.add(node)
        for name in flows_by_source.get(node.cluster, ()):
            if not copies(name, node.topic):
                continue
            verdict = router.verdict(name, node.topic)
            if verdict is RouteDecision.TAKEN:
                named = router.routes[name].destination_topic(node.topic)
                assert named is not None
                destination_node = TopicNode(destination[name], named)
                found.edges.append(CopyEdge(name, node, destination_node))
                if destination_node not in seen:
                    seen.add(destination_node)
                    waiting.append(destination_node)
            elif verdict is not RouteDecision.OUTSIDE:
                found.left_out.setdefault((name, verdict), []).append(node.topic)
    found.edges.sort()
    return found


def clusters_form_loop(edges: Iterable[CopyEdge]) -> bool:
    """Returns whether the clusters form a loop. Only then can a topic."""
    return _order({(edge.source.cluster, edge.destination.cluster) for edge in edges}) is None


def _order(pairs: Iterable[tuple[str, str]]) -> list[str] | None:
    """Returns the clusters, sources before destinations; None if they form a loop."""
    before: dict[str, set[str]] = {}
    for source, destination in pairs:
        before.setdefault(destination, set()).add(source)
    try:
        return list(TopologicalSorter(before).static_order())
    except CycleError:
        return None


def strongly_connected(edges: Collection[CopyEdge]) -> list[list[TopicNode]]:
    """Returns the strongly connected components, sources first. A topic without a loop is a component."""
    order = _order({(edge.source.cluster, edge.destination.cluster) for edge in edges})
    if order is not None:
        rank = {cluster: at for at, cluster in enumerate(order)}
        nodes = {node for edge in edges for node in (edge.source, edge.destination)}
        return [[node] for node in sorted(nodes, key=lambda node: (rank[node.cluster], node))]
    out: dict[TopicNode, list[TopicNode]] = {}
    for edge in edges:
        out.setdefault(edge.source, []).append(edge.destination)
        out.setdefault(edge.destination, [])
    return _tarjan(out)[::-1]


def _tarjan(out: dict[TopicNode, list[TopicNode]]) -> list[list[TopicNode]]:
    """Runs Tarjan's algorithm without recursion; destinations come first."""
    index: dict[TopicNode, int] = {}
    low: dict[TopicNode, int] = {}
    stack: list[TopicNode] = []
    on_stack: set[TopicNode] = set()
    components: list[list[TopicNode]] = []
    for root in sorted(out):
        if root in index:
            continue
        path: list[tuple[TopicNode, Iterator[TopicNode]]] = []
        _push_node(root, index, low, stack, on_stack)
        path.append((root, iter(out[root])))
        while path:
            node, rest = path[-1]
            following = next(rest, None)
            if following is None:
                path.pop()
                if path:
                    parent = path[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == index[node]:
                    components.append(_pop_component(node, stack, on_stack))
            elif following not in index:
                _push_node(following, index, low, stack, on_stack)
                path.append((following, iter(out[following])))
            elif following in on_stack:
                low[node] = min(low[node], index[following])
    return components


def _push_node(
    node: TopicNode,
    index: dict[TopicNode, int],
    low: dict[TopicNode, int],
    stack: list[TopicNode],
    on_stack: set[TopicNode],
) -> None:
    index[node] = low[node] = len(index)
    stack.append(node)
    on_stack.add(node)


def _pop_component(node: TopicNode, stack: list[TopicNode], on_stack: set[TopicNode]) -> list[TopicNode]:
    component: list[TopicNode] = []
    while True:
        member = stack.pop()
        on_stack.discard(member)
        component.append(member)
        if member == node:
            return sorted(component) if len(component) > 1 else component
