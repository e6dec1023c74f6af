"""Expands a topology over what the clusters hold into the desired state, and says what must be read for that.

Names are read first, then details of the topics that the topology is about. The order of the YAML has no
effect.
"""

from collections.abc import Iterable, Sequence
from pathlib import PurePath

from planner.graph.acls import acls_known, acls_of
from planner.graph.cutovers import cutovers, live_waves, planned_waves, source_of
from planner.graph.jobs import flows_of, jobs_of
from planner.graph.lints import flows as flow_lints
from planner.graph.lints import loops
from planner.graph.lints import topics as topic_lints
from planner.graph.lints.flows import endpoints, jobs, states
from planner.graph.lints.loops import TopicMerge, merges_of
from planner.graph.lints.security import logins, security
from planner.graph.lints.transforms import filtered_keys, quarantine_names, transforms
from planner.graph.quotas import quotas_of, quotas_unknown
from planner.graph.replication_graph import (
    ReplicationGraph,
    ReplicationLoop,
    TopicNode,
    provenance_of,
    replication_graph_of,
    replication_loops,
)
from planner.graph.schemas import (
    imported_both_ways,
    schema_topic_copied,
    schema_topics,
    schemas_unknown,
    subjects_of,
)
from planner.graph.topics import DesiredTopics, quarantine_nodes, topics_of
from planner.model.address import Kind, flow_address, topic_address
from planner.model.desired import Desired
from planner.model.diagnostic import Diagnostic
from planner.model.observed import (
    DECLARED,
    ClusterDetailsRequest,
    Observed,
    ObservedCluster,
)
from planner.model.topology import Fence, OnRemove, Topology
from runtime.contract.spec.route import is_reserved
from runtime.contract.spec.topic_settings import ALWAYS

# Effective values that are mirrored or that lints compare, wherever they are set.
EFFECTIVE = frozenset({*ALWAYS, "retention.ms", "retention.bytes", "min.insync.replicas"})


def read_requests(topology: Topology, observed: Observed) -> dict[str, ClusterDetailsRequest]:
    """Returns the details to read of each cluster, once its names and its registry are read.

    Topics are asked for by name, since a listing leaves out topics without the right to describe them. What
    leaves the topology is read too: a delete shows how many bytes and which readers are lost.
    """
    clusters = [cluster for name in sorted(topology.clusters) if (cluster := observed.reachable(name))]
    names = {cluster.name: cluster.topics.keys() | cluster.hidden for cluster in clusters}
    graph = replication_graph_of(topology, observed, names)
    sources = [source for source in _recorded_mirrors(topology, clusters).values() if source is not None]
    return {cluster.name: _read_request(cluster, graph, sources) for cluster in clusters}


def _read_request(
    cluster: ObservedCluster, graph: ReplicationGraph, sources: Iterable[TopicNode]
) -> ClusterDetailsRequest:
    name, topology, flows = cluster.name, graph.topology, graph.topology.flows.values()
    declared = [topic for topic in topology.topics if topic.cluster == name]
    topics = {topic.name for topic in declared}
    # Without the right to describe it, a topic is in no listing: only its name tells it from a deleted one.
    topics |= {node.topic for node in sources if node.cluster == name and node.topic not in cluster.topics}
    every_key = set()
    for edge in (*graph.live.edges, *graph.declared.edges):
        nodes = (edge.source, edge.destination, *quarantine_nodes(graph, [edge]))
        topics.update(node.topic for node in nodes if node.cluster == name)
        if edge.source.cluster == name and graph.flow(edge.flow).configs.sync == "all":
            every_key.add(edge.source.topic)
    entries = [entry for entry in cluster.owned if entry.topology == topology.name]
    owned_topics = {entry.address.name: entry for entry in entries if entry.address.kind is Kind.TOPIC}
    read = {topic for topic in topics if not is_reserved(topic)}
    # A topic that is not declared any more leaves the topology, even if a flow still reads it.
    named = {topic.name for topic in declared}
    leaving = frozenset(
        topic for topic, entry in owned_topics.items() if topic not in (named if entry.flow is None else read)
    )
    keys = EFFECTIVE | {key for topic in declared for key in topic.config}
    mirrored = [flow for flow in flows if name in flow.ends]
    syncing = [flow for flow in graph.flows if flow.source_cluster == name and flow.groups.sync]
    running = [flow for flow in syncing if flow.runs]
    moving = [cutover for cutover in topology.cutovers if source_of(cutover, topology) == name]
    waves = [wave for wave in live_waves(graph) if wave.cutover in moving]
    fences = {cutover.fence for cutover in moving}
    return ClusterDetailsRequest(
        configs={topic: None if topic in every_key else keys for topic in read | owned_topics.keys()},
        acls=any(acl.rule.cluster == name for acl in topology.acls)
        or any(flow.acls_sync for flow in mirrored)
        or any(flow.protect == "acl" and flow.destination_cluster == name for flow in flows)
        or Fence.ACL in fences
        or any(entry.address.kind is Kind.ACL for entry in entries),
        quotas=any(quota.cluster == name for quota in topology.quotas)
        or any(flow.quotas_sync for flow in mirrored)
        or Fence.QUOTA in fences
        or any(entry.address.kind is Kind.QUOTA for entry in entries),
        scram_users=any(flow.quotas_sync or flow.acls_sync for flow in mirrored),
        sizes=leaving.union(*(wave.names for wave in waves)),
        # A lint checks whether the named groups read what is copied.
        groups=frozenset(group for flow in syncing for group in flow.groups.selector.written_out),
        every_group=bool(leaving) or any(not wave.is_moved for wave in waves),
        denied_groups=any(flow.groups.default_exclude for flow in running),
        group_kinds=bool(running),
        schemas=schema_topics(graph, cluster),
        subject_modes=any(flow.schemas.sync and flow.destination_cluster == name for flow in flows),
    )


_CURRENT_FOLDER = PurePath()


def expand(topology: Topology, observed: Observed, folder: PurePath = _CURRENT_FOLDER) -> Desired:
    """Returns the desired state of all clusters, with every lint.

    Whatever depends on a cluster that could not be read is in `unknown`. Relative paths of the topology start
    at `folder`.
    """
    graph = replication_graph_of(
        topology,
        observed,
        names={
            name: {*cluster.topics, *cluster.hidden} - topics_to_delete(topology, cluster)
            for name, cluster in observed.live.items()
        },
        undescribable={name: cluster.hidden for name, cluster in observed.live.items()},
        mirrors=_recorded_mirrors(topology, observed.live.values()),
    )
    edges = graph.every_edge
    loops_found = replication_loops(edges)
    merges, native_only = merges_of(edges, loops_found, _unfiltered(topology))
    provenance = provenance_of(graph)
    wanted = topics_of(graph, provenance)
    acls, about_acls = acls_of(graph)
    quotas, about_quotas = quotas_of(graph)
    subjects, about_subjects = subjects_of(graph)
    flows = flows_of(graph, provenance, native_only, loops_found)
    return Desired(
        topology=topology.name,
        topics=wanted.desired,
        acls=tuple(acls),
        quotas=tuple(quotas),
        subjects=tuple(subjects),
        flows=flows,
        jobs=jobs_of(topology, observed, flows, folder),
        unknown=_unknown(graph),
        waves=tuple(planned_waves(graph)),
        diagnostics=_in_order(
            [
                *_without_clusters(graph, loops_found, merges),
                *_with_clusters(graph, wanted),
                *about_acls,
                *about_quotas,
                *about_subjects,
            ]
        ),
    )


def _recorded_mirrors(
    topology: Topology, clusters: Iterable[ObservedCluster]
) -> dict[TopicNode, TopicNode | None]:
    """Returns the topics that these registries know as mirrors, each with its source if they name it."""
    return {
        TopicNode(cluster.name, entry.address.name): TopicNode(*entry.source) if entry.source else None
        for cluster in clusters
        for entry in cluster.owned
        if entry.topology == topology.name and (entry.source is not None or entry.mirrored)
    }


def topics_to_delete(topology: Topology, cluster: ObservedCluster) -> frozenset[str]:
    """Returns the topics that this plan deletes: declared before with `on_remove: delete`, and no longer
    declared.

    No mirror is made of them. A topic that a flow makes stays desired all the same.
    """
    declared = {topic.name for topic in topology.topics if topic.cluster == cluster.name}
    return frozenset(
        entry.address.name
        for entry in cluster.owned
        if entry.topology == topology.name
        and entry.address.kind is Kind.TOPIC
        and entry.origin == DECLARED
        and entry.on_remove is OnRemove.DELETE
        and entry.address.name not in declared
        and (live := cluster.topics.get(entry.address.name)) is not None
        and not entry.is_another(live.id)
    )


def lint_offline(topology: Topology) -> tuple[Diagnostic, ...]:
    """Returns what can be checked without any cluster, from the topology alone."""
    graph = replication_graph_of(topology, Observed({}), {}, offline=True)
    edges = graph.every_edge
    loops_found = replication_loops(edges)
    merges, _ = merges_of(edges, loops_found, _unfiltered(topology))
    wanted = topics_of(graph, provenance_of(graph))
    return _in_order(
        [
            *_without_clusters(graph, loops_found, merges),
            *topic_lints.fewer_partitions(graph, wanted.partitions),
            *topic_lints.min_insync(wanted, graph),
            *filtered_keys(graph, wanted),
        ]
    )


def _without_clusters(
    graph: ReplicationGraph, loops_found: Sequence[ReplicationLoop], merges: Sequence[TopicMerge]
) -> Iterable[Diagnostic]:
    named = [*graph.live.edges, *graph.declared.edges]
    certain = {*graph.live.nodes, *graph.declared.nodes}
    yield from states(graph.topology)
    yield from jobs(graph.topology)
    yield from transforms(graph.topology)
    yield from endpoints(graph.topology)
    yield from logins(graph.topology)
    yield from security(graph.topology)
    yield from schema_topic_copied(graph)
    yield from imported_both_ways(graph)
    yield from flow_lints.reserved_names(graph)
    yield from flow_lints.flows_without_topics(graph)
    yield from topic_lints.illegal_names(graph, named)
    yield from quarantine_names(graph, [*named, *graph.sampled.edges])
    collisions = [merge for merge in merges if not merge.twice and merge.node in certain]
    yield from topic_lints.collisions(graph, collisions)
    yield from topic_lints.metric_collisions(graph)
    yield from loops.provenance_of_loops(graph, loops_found)
    yield from loops.identity_merges(graph, loops_found)
    yield from loops.duplicate_paths(graph, [merge for merge in merges if merge.twice])


def _with_clusters(graph: ReplicationGraph, wanted: DesiredTopics) -> Iterable[Diagnostic]:
    yield from cutovers(graph)
    yield from flow_lints.selections(graph)
    yield from flow_lints.groups_without_data(graph)
    yield from flow_lints.hidden_groups(graph)
    yield from flow_lints.share_groups(graph)
    yield from flow_lints.streams_groups(graph)
    yield from topic_lints.fewer_partitions(graph, wanted.partitions)
    yield from topic_lints.replication(wanted.desired, graph)
    yield from topic_lints.internal_replication(graph)
    yield from topic_lints.min_insync(wanted, graph)
    yield from topic_lints.declared_otherwise(wanted, graph)
    yield from topic_lints.retention(wanted, graph)
    yield from filtered_keys(graph, wanted)
    yield from flow_lints.missing_features(graph)
    yield from flow_lints.missing_settings(wanted, graph)


def _unfiltered(topology: Topology) -> frozenset[str]:
    return frozenset(flow.name for flow in topology.flows.values() if flow.provenance == "off")


def _unknown(graph: ReplicationGraph) -> dict[str, str]:
    """Returns why objects of clusters that answered can't be known, by address."""
    unknown: dict[str, str] = {}
    for flow in graph.flows:
        if not flow.runs:
            continue
        address = str(flow_address(flow.name))
        if why := quotas_unknown(flow, graph) or schemas_unknown(flow, graph):
            unknown[address] = why
        elif flow.acls_sync or flow.protect != "off":
            for cluster in flow.ends:
                live = graph.cluster(cluster)
                if live is not None and "acls" in live.unreadable and not acls_known(flow, graph):
                    unknown[address] = f"the ACLs of {cluster} could not be read: {live.unreadable['acls']}"
    for node in graph.live.nodes:
        if graph.is_undescribable(node) and any(
            flow.source_cluster == node.cluster and graph.router.routes[flow.name].answer(node.topic).taken
            for flow in graph.flows
            if flow.copies(node.topic)
        ):
            hiding = graph.cluster(node.cluster)
            assert hiding is not None
            unknown[str(topic_address(*node))] = hiding.why_hidden(node.topic)
    return dict(sorted(unknown.items()))


def _in_order(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Returns the diagnostics without duplicates: errors first, then by address."""
    rank = {"error": 0, "warning": 1, "note": 2}
    return tuple(
        sorted(
            dict.fromkeys(diagnostics),
            key=lambda problem: (
                rank[problem.severity.value],
                problem.address or "",
                problem.code,
                problem.summary,
            ),
        )
    )
