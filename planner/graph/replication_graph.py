"""What is there to copy: the topology's own topics and those of the clusters that could be read."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from planner.graph.routes import CopiedTopics, router_of
from planner.graph.sample import sample
from planner.graph.topic_graph import CopyEdge, CopyGraph, TopicNode, reach
from planner.model.topology import Flow, Topic, Topology
from runtime.contract.spec.route import Router, is_reserved


@dataclass(frozen=True, slots=True)
class ReplicationGraph:
    """`names` are the live topics of each cluster that could be read. A cluster that could not has no entry.

    `real` holds what exists or will after this plan; `supposed` adds to it what the flows name and is not
    there, `imagined` one name for each regex. The last two serve questions about rules, never changes.
    `dim` topics are known by name only: we may not describe them.
    """

    topology: Topology
    router: Router
    carried: CopiedTopics
    names: Mapping[str, Collection[str]]
    dim: Mapping[str, Collection[str]]
    declared: Mapping[TopicNode, Topic]
    flows: tuple[Flow, ...]  # those whose source could be read
    real: CopyGraph
    supposed: CopyGraph
    imagined: CopyGraph

    @property
    def every_edge(self) -> list[CopyEdge]:
        return [*self.real.edges, *self.supposed.edges, *self.imagined.edges]

    @property
    def all_carried(self) -> bool:
        """Whether every flow runs with all its topics, and its source could be read."""
        flows = self.topology.flows.values()
        running = all(self.carried.running(flow.name) and not flow.promoted for flow in flows)
        return running and len(self.flows) == len(flows) and not any(self.dim.values())

    def exists(self, node: TopicNode) -> bool:
        return node.topic in self.names.get(node.cluster, ())

    def is_dim(self, node: TopicNode) -> bool:
        return node.topic in self.dim.get(node.cluster, ())

    def flow(self, name: str) -> Flow:
        return self.topology.flows[name]


def world_of(
    topology: Topology,
    names: Mapping[str, Collection[str]],
    dim: Mapping[str, Collection[str]] | None = None,
    *,
    offline: bool = False,
) -> ReplicationGraph:
    """Offline, every cluster counts as readable and holds what is declared."""
    router = router_of(topology)
    carried = CopiedTopics(topology)
    dim = dim or {}
    declared = {TopicNode(topic.cluster, topic.name): topic for topic in topology.topics}
    by_name = [flow for _, flow in sorted(topology.flows.items())]
    flows = tuple(flow for flow in by_name if offline or flow.source_cluster in names)

    def carries(flow: str, topic: str) -> bool:
        if not carried.carries(flow, topic):
            return False
        route = router.ways[flow].route
        if topic not in dim.get(route.source, ()):
            return True
        # Nothing is made out of a topic that we may not see; a mirror that is there stays one.
        return router.ways[flow].name_there(topic) in names.get(route.destination, ())

    live = (TopicNode(cluster, name) for cluster in names for name in names[cluster] if not is_reserved(name))
    real = reach(router, flows, [*live, *declared], carries)
    supposed = reach(router, flows, list(_written_out(router, flows)), carries, real.nodes)
    known = real.nodes | supposed.nodes
    imagined = reach(router, flows, list(_samples(topology, flows)), carries, known)
    return ReplicationGraph(topology, router, carried, names, dim, declared, flows, real, supposed, imagined)


def _written_out(router: Router, flows: Iterable[Flow]) -> Iterator[TopicNode]:
    for flow in flows:
        for name in router.ways[flow.name].written_out:
            yield TopicNode(flow.source_cluster, name)


def _samples(topology: Topology, flows: Iterable[Flow]) -> Iterator[TopicNode]:
    """One name for each regex at its flow's source. A failback flow's are those of its original."""
    for flow in flows:
        if flow.reverse_of in topology.flows:
            continue
        for pattern in flow.topics.include:
            name = sample(pattern)
            if name is not None and not is_reserved(name):
                yield TopicNode(flow.source_cluster, name)
