"""What flows copy, topic by topic, and which clusters a drill loses. It is pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from planner.graph.replication_graph import replication_graph_of, replication_loops
from planner.model.observed import Observed
from planner.model.topology import Flow, Topology


@dataclass(frozen=True, slots=True)
class DrillRoute:
    """A topic that a flow copies, under its names at both sides.

    `filtered`: the flow may leave records out, or quarantine them. `protected`: only the job may write the
    mirror, which clients do not write at both sides. `rules_synced`: the mirror gets the rules of the topic.
    """

    flow: str
    source: str
    destination: str
    topic: str
    mirror: str
    transformed: bool
    filtered: bool = False
    protected: bool = False
    rules_synced: bool = False

    def turned(self) -> "DrillRoute":
        """Returns the route of a failback: from the mirror to the topic."""
        return replace(
            self, source=self.destination, destination=self.source, topic=self.mirror, mirror=self.topic
        )


def routes_of(topology: Topology) -> list[DrillRoute]:
    """Returns a route for each topic that flows name, or that one of their regexes matches.

    A mirror that another flow copies on has no producers of its own, so it is no route.
    """
    graph = replication_graph_of(topology, Observed({}), {}, offline=True)
    edges = [edge for edge in graph.every_edge if topology.flows[edge.flow].runs]
    mirrors = {edge.destination for edge in edges if edge.source.topic != edge.destination.topic}
    shared = {node for loop in replication_loops(edges) for node in loop.nodes}
    routes = []
    for edge in edges:
        if edge.source not in mirrors:
            flow = topology.flows[edge.flow]
            filters = flow.transform is not None and (flow.transform.where is not None or flow.quarantines)
            routes.append(
                DrillRoute(
                    edge.flow,
                    edge.source.cluster,
                    edge.destination.cluster,
                    edge.source.topic,
                    edge.destination.topic,
                    transformed=flow.transform is not None,
                    filtered=filters,
                    protected=flow.protect == "acl" and edge.destination not in shared,
                    rules_synced=flow.acls_sync,
                )
            )
    return routes


def not_failed_back(routes: Iterable[DrillRoute]) -> dict[str, str]:
    """Returns the flows without a failback, each with the flow that copies one of its topics back.

    Of several flows that copy a topic to different clusters, one alone can copy it back.
    """
    topics: dict[str, set[tuple[str, str]]] = {}
    for route in routes:
        topics.setdefault(route.flow, set()).add((route.source, route.topic))
    left_out: dict[str, str] = {}
    for flow in sorted(topics):
        earlier = (other for other in sorted(topics) if other < flow and other not in left_out)
        if other := next((other for other in earlier if topics[other] & topics[flow]), ""):
            left_out[flow] = other
    return left_out


def flows_out_of(topology: Topology, cluster: str) -> list[Flow]:
    """Returns the running flows out of a cluster, by name."""
    flows = (flow for _, flow in sorted(topology.flows.items()))
    return [flow for flow in flows if flow.source_cluster == cluster and flow.runs]


def clusters_to_lose(topology: Topology) -> list[str]:
    """Returns the clusters that running flows leave, in the order of the topology."""
    return [name for name in topology.clusters if flows_out_of(topology, name)]
