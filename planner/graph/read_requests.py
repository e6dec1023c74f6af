"""What must be read of the clusters: names first, then details of the topics that the topology is about."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from planner.graph.replication_graph import ReplicationGraph, replication_graph_of
from planner.graph.routes import group_selector
from planner.model.topology import ConfigSync, Protect, Topology
from runtime.contract.spec.mirror import ALWAYS
from runtime.contract.spec.route import is_reserved

# Effective values that are mirrored or that lints compare, wherever they are set.
EFFECTIVE = frozenset({*ALWAYS, "retention.ms", "retention.bytes", "min.insync.replicas"})


@dataclass(frozen=True, slots=True)
class ClusterReadRequest:
    """What to read of one cluster.

    `topics` are described; they are asked for by name, since a listing leaves out topics without the right to
    describe them. Their explicitly set values are always read, the effective values of `keys` too, and all
    values of the topics in `every_key`. `groups` are asked for their committed topics; `denied_groups` also
    asks for the groups that the default denials keep out.
    """

    topics: frozenset[str] = frozenset()
    keys: frozenset[str] = EFFECTIVE
    every_key: frozenset[str] = frozenset()
    acls: bool = False
    groups: frozenset[str] = frozenset()
    denied_groups: bool = False


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """`clusters` are read first: names, registry and brokers. `details` then returns what else to read."""

    topology: Topology

    @property
    def clusters(self) -> tuple[str, ...]:
        return tuple(sorted(self.topology.clusters))

    def details(self, names: Mapping[str, Collection[str]]) -> dict[str, ClusterReadRequest]:
        """Returns the details to read of each cluster. `names` are the topics of the clusters that could be
        read.
        """
        graph = replication_graph_of(self.topology, names)
        return {name: _cluster(name, graph) for name in sorted(names) if name in self.topology.clusters}


def read_request_of(topology: Topology) -> ReadRequest:
    """Returns what has to be read for a topology."""
    return ReadRequest(topology)


def _cluster(name: str, graph: ReplicationGraph) -> ClusterReadRequest:
    flows = graph.topology.flows.values()
    topics = {topic.name for topic in graph.topology.topics if topic.cluster == name}
    every_key = set()
    for edge in (*graph.live.edges, *graph.declared.edges):
        for node in (edge.source, edge.destination):
            if node.cluster == name:
                topics.add(node.topic)
        if edge.source.cluster == name and graph.flow(edge.flow).configs.sync is ConfigSync.ALL:
            every_key.add(edge.source.topic)
    acls = any(acl.rule.cluster == name for acl in graph.topology.acls) or any(
        (flow.acls_sync and name in (flow.source_cluster, flow.destination_cluster))
        or (flow.protect is Protect.ACL and flow.destination_cluster == name)
        for flow in flows
    )
    declared = {key for topic in graph.topology.topics if topic.cluster == name for key in topic.config}
    return ClusterReadRequest(
        topics=frozenset(topic for topic in topics if not is_reserved(topic)),
        keys=EFFECTIVE | declared,
        every_key=frozenset(every_key),
        acls=acls,
        groups=frozenset(_groups(name, graph)),
        denied_groups=any(
            flow.source_cluster == name and flow.groups.sync and flow.groups.select.default_exclude
            for flow in graph.flows
            if graph.copied.is_running(flow.name)
        ),
    )


def _groups(name: str, graph: ReplicationGraph) -> set[str]:
    """Returns the groups that flows out of this cluster name. A lint checks whether they read
    what is copied.
    """
    groups: set[str] = set()
    for flow in graph.flows:
        if flow.source_cluster == name and flow.groups.sync:
            groups |= group_selector(flow).written_out
    return groups
