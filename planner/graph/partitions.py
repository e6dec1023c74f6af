"""How many partitions each topic must have: at least as many as every topic it is copied from."""

from collections.abc import Mapping

from planner.graph.replication_graph import ReplicationGraph
from planner.graph.topic_graph import TopicNode
from planner.model.observed import Observed


def partitions_of(world: ReplicationGraph, observed: Observed) -> Mapping[TopicNode, int | None]:
    """By topic, along chains and rounds. None where nothing tells. What is declared stays as declared."""
    wanted = {node: _own(node, world, observed) for node in sorted(world.real.nodes)}
    out = world.real.outgoing()
    waiting = [node for node, count in wanted.items() if count is not None]
    while waiting:
        node = waiting.pop()
        count = wanted[node]
        assert count is not None
        for edge in out.get(node, ()):
            there = edge.destination
            topic = world.declared.get(there)
            if topic is not None and topic.partitions is not None:
                continue
            if (wanted[there] or 0) < count:
                wanted[there] = count
                waiting.append(there)
    return wanted


def _own(node: TopicNode, world: ReplicationGraph, observed: Observed) -> int | None:
    topic = world.declared.get(node)
    if topic is not None and topic.partitions is not None:
        return topic.partitions
    cluster = observed.reachable(node.cluster)
    if cluster is None:
        return None
    live = cluster.topics.get(node.topic)
    if live is not None:
        return live.partitions
    # A declared topic that says nothing of partitions gets the cluster's own number.
    return cluster.default_partitions if topic is not None else None
