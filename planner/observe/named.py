"""Pure: the topics that a topology names letter by letter, by cluster."""

from collections import defaultdict

from planner.model.topology import Topology
from runtime.contract.spec.selection import NamePatterns


def named_topics(topology: Topology) -> dict[str, frozenset[str]]:
    """Declared topics, and names that a flow's include writes out: one that is not listed may be hidden."""
    names: dict[str, set[str]] = defaultdict(set)
    for topic in topology.topics:
        names[topic.cluster].add(topic.name)
    for flow in topology.flows.values():
        names[flow.source_cluster] |= NamePatterns(flow.topics.include).written_out
    return {cluster: frozenset(found) for cluster, found in names.items()}
