"""Lints of topics: their names at the destination, partitions, replicas and settings.

They find names that Kafka refuses, two topics under one name, and settings that can't work or that keep less
than the source.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from planner.graph.lints.loops import TopicMerge
from planner.graph.messages import counted, flow_diagnostic, readable
from planner.graph.replication_graph import CopyEdge, ReplicationGraph, TopicNode
from planner.graph.topics import DesiredTopics
from planner.model.address import topic_address
from planner.model.desired import Declared, DesiredTopic, MirroredBy, QuarantineOf
from planner.model.diagnostic import Diagnostic, error, warning
from planner.model.topology import Topology
from runtime.contract.spec import naming
from runtime.contract.spec.naming import illegal_because, metric_name
from runtime.contract.spec.route import is_reserved
from runtime.contract.spec.topic_settings import TopicSettings


def illegal_names(graph: ReplicationGraph, edges: Sequence[CopyEdge]) -> Iterator[Diagnostic]:
    """Yields an error for each flow that would create a topic with an illegal name."""
    wrong: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for edge in edges:
        name = edge.destination.topic
        why = "it is reserved for internal topics" if is_reserved(name) else illegal_because(name)
        if why is not None:
            wrong[edge.flow].append((edge.source.topic, why))
    for flow, refused in sorted(wrong.items()):
        topics = [topic for topic, _ in refused]
        yield flow_diagnostic(
            error,
            graph.flow(flow),
            f"{counted(topics)} would get an illegal name at"
            f" {graph.flow(flow).destination_cluster}: {refused[0][1]}",
            "change rename, or exclude these topics",
            "illegal-name",
        )


def collisions(graph: ReplicationGraph, merges: Sequence[TopicMerge]) -> Iterator[Diagnostic]:
    """Yields one error for each pair of flows, or for the one flow whose rename merges topics."""
    pairs: defaultdict[tuple[str, str], list[TopicMerge]] = defaultdict(list)
    for merge in merges:
        pairs[merge.flows].append(merge)
    for (flow, other), of_pair in sorted(pairs.items()):
        node, first, second = of_pair[0].node, of_pair[0].first, of_pair[0].second
        more = f" (and {len(of_pair) - 1} more such)" if len(of_pair) > 1 else ""
        if flow == other:
            yield flow_diagnostic(
                error,
                graph.flow(flow),
                f"the rename gives both {first.source.topic} and {second.source.topic} the name {node}{more}",
                "change rename so that each keeps a name of its own, or exclude one of them",
                "rename-collision",
            )
        elif first.source == second.source:
            yield flow_diagnostic(
                error,
                graph.flow(flow),
                f"flow.{flow} and flow.{other} both copy {first.source} to {node}{more}: every"
                " record would be copied twice",
                f"let only one of them include it, or rename in flow.{other}",
                "flow-collision",
            )
        else:
            yield flow_diagnostic(
                error,
                graph.flow(flow),
                f"flow.{flow} and flow.{other} both write {node}, from {first.source} and"
                f" {second.source}{more}",
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
    into = graph.live.incoming
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


MIN_ISR = "min.insync.replicas"
TIMESTAMP_TYPE = "message.timestamp.type"


def fewer_partitions(
    graph: ReplicationGraph, partitions: Mapping[TopicNode, int | None]
) -> Iterator[Diagnostic]:
    """Yields an error for a mirror with fewer partitions than its source.

    A record keeps its partition. A mirror is never shrunk, and may have more partitions.
    """
    for node, edges in sorted(graph.live.incoming.items()):
        topic = graph.declared_topics.get(node)
        if topic is None or topic.partitions is None:
            continue
        most = max(edges, key=lambda edge: (partitions.get(edge.source) or 0, edge))
        needed = partitions.get(most.source) or 0
        if needed > topic.partitions:
            yield error(
                f"{node} is declared with {topic.partitions} partitions, and its source {most.source} has"
                f" {needed}: records keep their partition",
                f"declare partitions: {needed} or more, or leave the number to flow.{most.flow}",
                address=str(topic_address(*node)),
                source=topic.source,
                code="fewer-partitions",
            )


def replication(topics: Iterable[DesiredTopic], graph: ReplicationGraph) -> Iterator[Diagnostic]:
    """Yields an error where a topic needs more replicas than the cluster has brokers.

    A topic that exists with this replication is no error: a broker may be down, and a failover must not wait
    for it.
    """
    for topic in topics:
        cluster = graph.cluster(topic.cluster)
        if cluster is None or topic.replication is None or topic.replication <= len(cluster.brokers):
            continue
        live = cluster.topics.get(topic.name)
        if live is not None and live.replication_factors == topic.replication:
            continue
        yield too_many_replicas(topic, len(cluster.brokers))


def too_many_replicas(topic: DesiredTopic, brokers: int) -> Diagnostic:
    return error(
        f"replication {topic.replication} needs as many brokers, and {topic.cluster} has {brokers}",
        f"declare replication: {brokers} or less, or add brokers",
        address=str(topic.address),
        source=topic.source,
        code="replication-above-brokers",
    )


def internal_replication(graph: ReplicationGraph) -> Iterator[Diagnostic]:
    """Yields the same error for the product's internal topics, where they have to be created."""
    wanted = graph.topology.internal.replication
    if wanted is None:
        return
    for name, topics in sorted(_internal(graph.topology).items()):
        cluster = graph.cluster(name)
        if cluster is None or wanted <= len(cluster.brokers) or topics <= cluster.internal_topics.keys():
            continue
        yield error(
            f"internal.replication is {wanted}, and {name} has {len(cluster.brokers)} brokers",
            f"set internal: {{replication: {len(cluster.brokers)}}}, or leave it out: then it follows"
            " the number of brokers",
            source=graph.topology.clusters[name].source,
            code="replication-above-brokers",
        )


def _internal(topology: Topology) -> dict[str, set[str]]:
    """Returns the internal topics that each cluster needs: for the registry, for jobs into it
    and out of it.
    """
    needed: defaultdict[str, set[str]] = defaultdict(set)
    for flow in topology.flows.values():
        needed[flow.destination_cluster] |= {naming.REGISTRY, naming.LEDGER}
        if flow.heartbeats_every_ms is not None and flow.runs:
            needed[flow.source_cluster].add(naming.HEARTBEATS)
    for topic in topology.topics:
        needed[topic.cluster].add(naming.REGISTRY)
    for acl in topology.acls:
        needed[acl.rule.cluster].add(naming.REGISTRY)
    return needed


def min_insync(topics: DesiredTopics, graph: ReplicationGraph) -> Iterator[Diagnostic]:
    """Yields an error for a topic with a higher min.insync.replicas than replicas.

    Such a topic accepts no record with acks=all.
    """
    for topic in topics.desired:
        node = TopicNode(topic.cluster, topic.name)
        settings = topics.settings.get(node, TopicSettings(topic.config))
        least = settings.effective(MIN_ISR) or ""
        cluster = graph.cluster(node.cluster)
        live = cluster.topics.get(node.topic) if cluster is not None else None
        default = cluster.default_replication if cluster is not None else None
        replicas = topic.replication or (live.replication if live is not None else default)
        if replicas is None or not least.isdecimal() or int(least) <= replicas:
            continue
        declared = topic.replication is not None or MIN_ISR in topic.config
        ours = declared or isinstance(topic.origin, MirroredBy | QuarantineOf)
        if not ours and graph.exists(node):
            continue  # it was like this before, and the topology does not ask for it
        yield error(
            f"min.insync.replicas is {least} and there are {replicas} replicas: no record could be written"
            " with acks=all, as jobs write",
            f"declare replication: {least} or more, or min.insync.replicas: {replicas} or less",
            address=str(topic.address),
            source=topic.source,
            code="min-insync-above-replication",
        )


def declared_otherwise(topics: DesiredTopics, graph: ReplicationGraph) -> Iterator[Diagnostic]:
    """Yields a warning where a declared setting of a mirror, which wins, differs from its source's."""
    for topic in topics.desired:
        node = TopicNode(topic.cluster, topic.name)
        declared = graph.declared_topics.get(node)
        if not isinstance(topic.origin, Declared) or declared is None:
            continue
        mirrored = topics.mirrored.get(node, {})
        other = [key for key, value in declared.config.items() if mirrored.get(key, value) != value]
        if other:
            shown = ", ".join(
                f"{key}={declared.config[key]} (source: {mirrored[key]})" for key in sorted(other)
            )
            yield warning(
                f"{node} is a mirror and is declared differently from its source: {shown}",
                "the declared value is used; remove it from the topic to mirror the source's value",
                address=str(topic.address),
                source=topic.source,
                code="declared-differently",
            )
        if node in graph.live.incoming and declared.config.get(TIMESTAMP_TYPE, "CreateTime") != "CreateTime":
            yield warning(
                f"{node} is a mirror and is declared with {TIMESTAMP_TYPE}: {declared.config[TIMESTAMP_TYPE]}"
                ": copied records would get the time of the copy",
                f"remove {TIMESTAMP_TYPE} from the topic",
                address=str(topic.address),
                source=topic.source,
                code="mirror-timestamps",
            )


def retention(topics: DesiredTopics, graph: ReplicationGraph) -> Iterator[Diagnostic]:
    """Yields a warning for a mirror that deletes records earlier than its source.

    After a failover such a topic holds less than expected.
    """
    shorter: defaultdict[tuple[str, str], list[tuple[CopyEdge, int, int]]] = defaultdict(list)
    for edge in graph.live.edges:
        source_settings = topics.settings.get(edge.source)
        mirror_settings = topics.settings.get(edge.destination)
        if source_settings is None or mirror_settings is None:
            continue
        if mirror_settings.effective("cleanup.policy") == "compact":
            continue
        for key in ("retention.ms", "retention.bytes"):
            kept, left = _limit(source_settings, key), _limit(mirror_settings, key)
            # -1 means no limit.
            if kept is not None and left is not None and left >= 0 and (kept < 0 or left < kept):
                shorter[edge.flow, key].append((edge, kept, left))
    for (name, key), copies in sorted(shorter.items()):
        edge, kept, left = copies[0]
        node, source = edge.destination, edge.source.cluster
        like = "" if len(copies) == 1 else f" (of {node.topic})"
        which = counted(copy.destination.topic for copy, _, _ in copies)
        yield flow_diagnostic(
            warning,
            graph.flow(name),
            f"{node.cluster} keeps less than {source} of {which}: {key} is {readable(key, left)} at"
            f" {node.cluster} and {readable(key, kept)} at {source}{like}; older records are missing after a"
            " failover",
            f"declare {key} of the topic at {node.cluster}, or mirror every value: configs: {{sync: all}}",
            "shorter-retention",
        )


def _limit(settings: TopicSettings, key: str) -> int | None:
    try:
        return int(settings.effective(key) or "")
    except ValueError:
        return None
