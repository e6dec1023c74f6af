"""Lints of destination names: names that Kafka refuses, and two topics under one name."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from planner.graph.merges import TopicMerge
from planner.graph.messages import counted, flow_diagnostic
from planner.graph.replication_graph import ReplicationGraph
from planner.graph.topic_graph import CopyEdge, TopicNode
from planner.model.address import topic_address
from planner.model.diagnostic import Diagnostic, error
from runtime.contract.spec.naming import illegal_because, metric_name
from runtime.contract.spec.route import is_reserved


def illegal_names(graph: ReplicationGraph, edges: Sequence[CopyEdge]) -> Iterator[Diagnostic]:
    """Yields an error for each flow that would create a topic with an illegal name."""
    wrong: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for edge in edges:
        name = edge.destination.topic
        why = "it is reserved for internal topics" if is_reserved(name) else illegal_because(name)
        if why is not None:
            wrong[edge.flow].append((edge.source.topic, why))
    for flow, found in sorted(wrong.items()):
        topics = [topic for topic, _ in found]
        yield flow_diagnostic(
            error,
            graph.flow(flow),
            f"{counted(topics)} would get an illegal name at"
            f" {graph.flow(flow).destination_cluster}: {found[0][1]}",
            "change rename, or exclude these topics",
            "illegal-name",
        )


def collisions(graph: ReplicationGraph, found: Sequence[TopicMerge]) -> Iterator[Diagnostic]:
    """Yields one error for each pair of flows, or for the one flow whose rename merges topics."""
    pairs: defaultdict[tuple[str, str], list[TopicMerge]] = defaultdict(list)
    for merge in found:
        pairs[merge.flows].append(merge)
    for (one, other), merges in sorted(pairs.items()):
        first = merges[0]
        more = f" (and {len(merges) - 1} more such)" if len(merges) > 1 else ""
        if one == other:
            yield flow_diagnostic(
                error,
                graph.flow(one),
                f"the rename gives both {first.one.source.topic} and {first.other.source.topic} the name"
                f" {first.node}{more}",
                "change rename so that each keeps a name of its own, or exclude one of them",
                "rename-collision",
            )
        elif first.one.source == first.other.source:
            yield flow_diagnostic(
                error,
                graph.flow(one),
                f"flow.{one} and flow.{other} both copy {first.one.source} to {first.node}{more}: every"
                " record would be copied twice",
                f"let only one of them include it, or rename in flow.{other}",
                "flow-collision",
            )
        else:
            yield flow_diagnostic(
                error,
                graph.flow(one),
                f"flow.{one} and flow.{other} both write {first.node}, from {first.one.source} and"
                f" {first.other.source}{more}",
                'keep them apart: rename: "{source}.{topic}", or exclude it in one of them',
                "flow-collision",
            )


def metric_collisions(graph: ReplicationGraph) -> Iterator[Diagnostic]:
    """Yields an error for `a.b` beside `a_b`: Kafka refuses it, since their metrics have one name."""
    by_metric: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    nodes = {*graph.live.nodes, *graph.declared.nodes}
    for cluster, names in graph.names.items():
        nodes.update(TopicNode(cluster, name) for name in names)
    for node in nodes:
        by_metric[node.cluster, metric_name(node.topic)].add(node.topic)
    into = graph.live.incoming()
    for (cluster, _), names in sorted(by_metric.items()):
        new = sorted(name for name in names if not graph.exists(TopicNode(cluster, name)))
        if len(names) < 2 or not new:
            continue
        node = TopicNode(cluster, next((name for name in new if TopicNode(cluster, name) in into), new[0]))
        others = sorted(names - {node.topic})
        declared = graph.declared_topics.get(node)
        edges = into.get(node, ())
        made_by = graph.flow(edges[0].flow).source if edges else None
        source = declared.source if declared is not None else made_by
        yield error(
            f"{node.topic} cannot be created at {cluster} beside {others[0]}:"
            " Kafka treats . and _ as the same in metrics",
            "rename or exclude one of them",
            address=str(topic_address(*node)),
            source=source,
            code="metric-collision",
        )
