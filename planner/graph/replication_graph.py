"""The replication graph: topics as nodes and copies as edges, from declared topics and live topics.

It tells which topics reach which, where records can loop, and which provenance filter of a flow prevents it.
`auto` is resolved once for each connected component of flows that keep names: `off` where no loop is
possible, `batch` where every loop is between two clusters, `headers` where a loop is longer. It depends on
what the flows may take, not only on the topics that exist: a topic that appears tomorrow must not find the
filter off.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple, TypeVar, assert_never

from msgspec import Struct, field

from planner.graph.routes import router_of
from planner.model.observed import Observed, ObservedCluster
from planner.model.topology import Flow, Topic, Topology
from runtime.contract.spec.jobspec import ProvenanceMode
from runtime.contract.spec.naming import illegal_because
from runtime.contract.spec.rename import Match, Table, Template
from runtime.contract.spec.route import Router, is_reserved
from runtime.contract.spec.selection import SelectionResult, matches

K = TypeVar("K")


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


class CopyGraph(Struct, dict=True):
    """`left_out`: topics that a flow includes and does not take, by flow and reason."""

    nodes: set[TopicNode] = field(default_factory=set)
    edges: list[CopyEdge] = field(default_factory=list)
    left_out: dict[tuple[str, SelectionResult], list[str]] = field(default_factory=dict)

    @cached_property
    def incoming(self) -> Mapping[TopicNode, Sequence[CopyEdge]]:
        """Returns the copies into each topic."""
        return grouped(self.edges, lambda edge: edge.destination)

    @cached_property
    def outgoing(self) -> Mapping[TopicNode, Sequence[CopyEdge]]:
        """Returns the copies out of each topic."""
        return grouped(self.edges, lambda edge: edge.source)

    @cached_property
    def by_flow(self) -> Mapping[str, Sequence[CopyEdge]]:
        """Returns the copies of each flow."""
        return grouped(self.edges, lambda edge: edge.flow)


def grouped(edges: Iterable[CopyEdge], key: Callable[[CopyEdge], K]) -> dict[K, list[CopyEdge]]:
    """Returns the copies by what they have in common."""
    groups: dict[K, list[CopyEdge]] = {}
    for edge in edges:
        groups.setdefault(key(edge), []).append(edge)
    return groups


def build_copy_graph(
    router: Router,
    flows: Iterable[Flow],
    starts: Iterable[TopicNode],
    copies: Callable[[str, str], bool],
    visited: Iterable[TopicNode] = (),
) -> CopyGraph:
    """Returns everything that the flows make out of the topics in `starts`, step by step.

    `visited` nodes are not visited again: a second graph adds to a first one.
    """
    destination = {flow.name: flow.destination_cluster for flow in flows}
    seen = set(visited)
    graph = CopyGraph()
    waiting = sorted(set(starts) - seen)
    seen.update(waiting)
    while waiting:
        node = waiting.pop()
        graph.nodes.add(node)
        for name in router.may_take(node.cluster, node.topic):
            if name not in destination or not copies(name, node.topic):
                continue
            verdict = router.verdict(name, node.topic)
            if verdict.taken:
                named = router.routes[name].destination_topic(node.topic)
                assert named is not None
                destination_node = TopicNode(destination[name], named)
                graph.edges.append(CopyEdge(name, node, destination_node))
                if destination_node not in seen:
                    seen.add(destination_node)
                    waiting.append(destination_node)
            elif verdict is not SelectionResult.OUTSIDE:
                graph.left_out.setdefault((name, verdict), []).append(node.topic)
    graph.edges.sort()
    return graph


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
    nodes = sorted({node for edge in edges for node in (edge.source, edge.destination)})
    if order is not None:
        rank = {cluster: at for at, cluster in enumerate(order)}
        return [[node] for node in sorted(nodes, key=lambda node: rank[node.cluster])]
    # Kosaraju's algorithm: what reaches a topic, in the order in which a search of the copies leaves topics.
    out: dict[TopicNode, list[TopicNode]] = {}
    into: dict[TopicNode, list[TopicNode]] = {}
    for edge in edges:
        out.setdefault(edge.source, []).append(edge.destination)
        into.setdefault(edge.destination, []).append(edge.source)
    seen: set[TopicNode] = set()
    components = (_search([node], into, seen) for node in reversed(_search(nodes, out, set())))
    return [sorted(component) for component in components if component]


def _search(
    starts: Sequence[TopicNode], following: Mapping[TopicNode, Sequence[TopicNode]], seen: set[TopicNode]
) -> list[TopicNode]:
    """Returns the topics that are reached and were not seen, each behind those that are reached from it."""
    left: list[TopicNode] = []
    stack = [(node, False) for node in reversed(starts)]
    while stack:
        node, leaves = stack.pop()
        if leaves:
            left.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack += ((other, False) for other in following.get(node, ()))
    return left


class ReplicationGraph(Struct, frozen=True):
    """Topics and copies of a topology, with what was observed of the clusters.

    `names` are the live topics by cluster; a cluster that could not be read has no entry. `live` holds topics
    that exist or will exist after this plan. `silent` holds the copies out of clusters that could not be
    read. Their topics are known from flows into them, from registries, and from names that flows write out.
    So a cluster that does not answer does not change how the others copy. `declared` adds names that flows
    write out and that do not exist, `sampled` one example name for each regex. These three answer questions
    about rules and never make changes. `undescribable` topics are known by name only: the right to describe
    them is missing.
    """

    topology: Topology
    observed: Observed
    router: Router
    names: Mapping[str, Collection[str]]
    undescribable: Mapping[str, Collection[str]]
    declared_topics: Mapping[TopicNode, Topic]
    flows: tuple[Flow, ...]  # those whose source could be read
    live: CopyGraph
    silent: CopyGraph
    declared: CopyGraph
    sampled: CopyGraph

    @property
    def carried(self) -> list[CopyEdge]:
        """Returns the copies of topics that exist, also those out of clusters that could not be read."""
        return [*self.live.edges, *self.silent.edges]

    @property
    def every_edge(self) -> list[CopyEdge]:
        """Returns all copies, also those of names that do not exist."""
        return [*self.carried, *self.declared.edges, *self.sampled.edges]

    @property
    def all_carried(self) -> bool:
        """Returns whether every flow runs with all its topics and its source could be read."""
        flows = self.topology.flows.values()
        running = all(flow.runs and not flow.promoted for flow in flows)
        return running and len(self.flows) == len(flows) and not any(self.undescribable.values())

    def exists(self, node: TopicNode) -> bool:
        """Returns whether the topic exists now."""
        return node.topic in self.names.get(node.cluster, ())

    def is_undescribable(self, node: TopicNode) -> bool:
        """Returns whether the topic is known by name only."""
        return node.topic in self.undescribable.get(node.cluster, ())

    def flow(self, name: str) -> Flow:
        return self.topology.flows[name]

    def cluster(self, name: str) -> ObservedCluster | None:
        """Returns a cluster as it was observed; None where it could not be read."""
        return self.observed.reachable(name)


def replication_graph_of(
    topology: Topology,
    observed: Observed,
    names: Mapping[str, Collection[str]],
    undescribable: Mapping[str, Collection[str]] | None = None,
    mirrors: Mapping[TopicNode, TopicNode | None] | None = None,
    *,
    offline: bool = False,
) -> ReplicationGraph:
    """Builds the graph. With `offline`, every cluster counts as readable and holds what is declared.

    `mirrors` are the topics that registries know as mirrors, each with its source; None where a declared
    topic has settings of a flow.
    """
    router = router_of(topology)
    undescribable = undescribable or {}
    declared_topics = {TopicNode(topic.cluster, topic.name): topic for topic in topology.topics}
    by_name = [flow for _, flow in sorted(topology.flows.items())]
    flows = tuple(flow for flow in by_name if offline or flow.source_cluster in names)

    def copies(flow: str, topic: str) -> bool:
        if not topology.flows[flow].copies(topic):
            return False
        route = router.routes[flow].route
        if topic not in undescribable.get(route.source, ()):
            return True
        # No mirror is created for a topic that can't be described; an existing mirror stays one.
        return router.routes[flow].destination_topic(topic) in names.get(route.destination, ())

    observed_nodes = (
        TopicNode(cluster, name) for cluster in names for name in names[cluster] if not is_reserved(name)
    )
    live = build_copy_graph(router, flows, [*observed_nodes, *declared_topics], copies)
    unread = {flow.source_cluster for flow in by_name} - {flow.source_cluster for flow in flows}
    sources = set(_written_out(router, (flow for flow in by_name if flow.source_cluster in unread)))
    if unread:
        sources.update(_sources(mirrors or {}, live, router))
    silent = build_copy_graph(
        router,
        by_name,
        [node for node in (*live.nodes, *sources) if node.cluster in unread],
        copies,
        [node for node in live.nodes if node.cluster not in unread],
    )
    nodes = live.nodes | silent.nodes
    declared = build_copy_graph(router, by_name, _written_out(router, flows), copies, nodes)
    nodes |= declared.nodes
    sampled = build_copy_graph(router, by_name, list(_samples(topology, by_name)), copies, nodes)
    return ReplicationGraph(
        topology,
        observed,
        router,
        names,
        undescribable,
        declared_topics,
        flows,
        live=live,
        silent=silent,
        declared=declared,
        sampled=sampled,
    )


def _sources(
    mirrors: Mapping[TopicNode, TopicNode | None], live: CopyGraph, router: Router
) -> Iterator[TopicNode]:
    """Yields the sources of mirrors.

    That of a declared topic with settings of a flow, which no live copy fills, is at a cluster that could not
    be read.
    """
    for mirror, source in mirrors.items():
        if source is not None:
            yield source
        elif mirror not in live.incoming:
            yield from (TopicNode(*origin) for origin in router.direct_origins(*mirror))


def _written_out(router: Router, flows: Iterable[Flow]) -> list[TopicNode]:
    return [
        TopicNode(flow.source_cluster, name)
        for flow in flows
        for name in router.routes[flow.name].written_out
    ]


def _samples(topology: Topology, flows: Iterable[Flow]) -> Iterator[TopicNode]:
    """Yields one example name for each regex. A reverse flow has those of its original."""
    for flow in flows:
        if flow.reverse_of in topology.flows:
            continue
        for pattern in flow.topics.include:
            name = sample_name(pattern)
            if name is not None and not is_reserved(name):
                yield TopicNode(flow.source_cluster, name)


_STEPS = (
    (re.compile(r"\\[dD]"), "0"),
    (re.compile(r"\\[wWS]"), "x"),
    (re.compile(r"\\([^A-Za-z0-9])"), "\\1"),
    (re.compile(r"\[\^[^\]]*\]"), "x"),
    (re.compile(r"\[([A-Za-z0-9_])[^\]]*\]"), "\\1"),
    (re.compile(r"\((?:\?:)?([^()|]*)(?:\|[^()]*)?\)"), "\\1"),
    (re.compile(r"\{\d*,?\d*\}|[*+?^$]"), ""),
)


def sample_name(pattern: str) -> str | None:
    """Returns one legal name that the whole regex matches; None if none was found easily.

    Two regexes can so be compared before any topic exists.
    """
    guess = re.sub(r"(?<!\\)\.", "x", pattern)
    for step, by in _STEPS:
        guess = step.sub(by, guess)
    for name in (guess, guess.split("|")[0]):
        if illegal_because(name) is None and matches(pattern, name):
            return name
    return None


ANY = "*"  # any topic that is not written out; not a legal name, so it never means a real topic


class ReplicationLoop(Struct, frozen=True):
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
    inside = grouped(
        (edge for edge in edges if place.get(edge.source, -1) == place.get(edge.destination)),
        lambda edge: place[edge.source],
    )
    return [
        ReplicationLoop(frozenset(components[at]), frozenset(edge.flow for edge in among), _longer(among))
        for at, among in sorted(inside.items())
    ]


def _longer(edges: Iterable[CopyEdge]) -> bool:
    """Returns whether the component has a loop over more than two clusters.

    Pairs of opposite copies that form a tree have no longer loop. Any further pair closes one.
    """
    pairs = {frozenset((edge.source, edge.destination)) for edge in edges}
    nodes = {node for pair in pairs for node in pair}
    return len(pairs) >= len(nodes)


def provenance_of(graph: ReplicationGraph) -> dict[str, ProvenanceMode]:
    """Returns the resolved provenance of each flow, whatever its state: a failover must not change it."""
    edges = possible_edges(graph)
    loops = replication_loops(edges)
    looping = {node for loop in loops for node in loop.nodes}
    groups = _components(
        graph,
        [
            edge
            for edge in edges
            if edge.source.topic == edge.destination.topic or {edge.source, edge.destination} <= looping
        ],
    )
    chosen: dict[str, ProvenanceMode] = {}
    for group in groups:
        mode = _mode([loop for loop in loops if loop.flows & group], group, graph)
        for name in group:
            declared = graph.flow(name).provenance
            chosen[name] = mode if declared == "auto" else declared
    return chosen


def _mode(loops: Sequence[ReplicationLoop], group: frozenset[str], graph: ReplicationGraph) -> ProvenanceMode:
    """Returns what `auto` means for flows that belong together."""
    if not loops:
        return "off"
    modes = {graph.flow(name).provenance for name in group}
    if "headers" in modes or any(loop.longer for loop in loops):
        return "headers"
    return "batch"


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
    starts = {*graph.live.nodes, *graph.silent.nodes, *graph.declared.nodes, *graph.sampled.nodes}
    starts.update(_written_out(graph.router, flows))
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
