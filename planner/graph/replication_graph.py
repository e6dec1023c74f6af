"""The replication graph: what there is to copy, from declared topics and live topics."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from planner.graph.routes import CopiedTopics, router_of
from planner.graph.topic_graph import CopyEdge, CopyGraph, TopicNode, build_copy_graph
from planner.model.topology import Flow, Topic, Topology
from runtime.contract.spec.naming import illegal_because
from runtime.contract.spec.regex import matches
from runtime.contract.spec.route import Router, is_reserved


@dataclass(frozen=True, slots=True)
class ReplicationGraph:
    """Topics and copies of a topology, with the topics of the clusters that could be read.

    `names` are the live topics by cluster; a cluster that could not be read has no entry. `live` holds topics
    that exist or will exist after this plan. `declared` adds names that flows write out and that do not
    exist. `sampled` adds one example name for each regex. The last two answer questions about rules and never
    make changes. `undescribable` topics are known by name only: the right to describe them is missing.
    """

    topology: Topology
    router: Router
    copied: CopiedTopics
    names: Mapping[str, Collection[str]]
    undescribable: Mapping[str, Collection[str]]
    declared_topics: Mapping[TopicNode, Topic]
    flows: tuple[Flow, ...]  # those whose source could be read
    live: CopyGraph
    declared: CopyGraph
    sampled: CopyGraph

    @property
    def every_edge(self) -> list[CopyEdge]:
        """Returns all copies, also those of names that do not exist."""
        return [*self.live.edges, *self.declared.edges, *self.sampled.edges]

    @property
    def all_carried(self) -> bool:
        """Returns whether every flow runs with all its topics and its source could be read."""
        flows = self.topology.flows.values()
        running = all(self.copied.is_running(flow.name) and not flow.promoted for flow in flows)
        return running and len(self.flows) == len(flows) and not any(self.undescribable.values())

    def exists(self, node: TopicNode) -> bool:
        """Returns whether the topic exists now."""
        return node.topic in self.names.get(node.cluster, ())

    def is_undescribable(self, node: TopicNode) -> bool:
        """Returns whether the topic is known by name only."""
        return node.topic in self.undescribable.get(node.cluster, ())

    def flow(self, name: str) -> Flow:
        return self.topology.flows[name]


def replication_graph_of(
    topology: Topology,
    names: Mapping[str, Collection[str]],
    undescribable: Mapping[str, Collection[str]] | None = None,
    *,
    offline: bool = False,
) -> ReplicationGraph:
    """Builds the graph. With `offline`, every cluster counts as readable and holds what is declared."""
    router = router_of(topology)
    copied = CopiedTopics(topology)
    undescribable = undescribable or {}
    declared_topics = {TopicNode(topic.cluster, topic.name): topic for topic in topology.topics}
    by_name = [flow for _, flow in sorted(topology.flows.items())]
    flows = tuple(flow for flow in by_name if offline or flow.source_cluster in names)

    def copies(flow: str, topic: str) -> bool:
        if not copied.copies(flow, topic):
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
    declared = build_copy_graph(router, flows, list(_written_out(router, flows)), copies, live.nodes)
    known = live.nodes | declared.nodes
    sampled = build_copy_graph(router, flows, list(_samples(topology, flows)), copies, known)
    return ReplicationGraph(
        topology, router, copied, names, undescribable, declared_topics, flows, live, declared, sampled
    )


def _written_out(router: Router, flows: Iterable[Flow]) -> Iterator[TopicNode]:
    for flow in flows:
        for name in router.routes[flow.name].written_out:
            yield TopicNode(flow.source_cluster, name)


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
