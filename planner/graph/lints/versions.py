"""What the versions of Kafka at both sides of a flow cannot do: it cannot run, or does something less."""

from collections.abc import Iterator, Mapping

from planner.graph.messages import counted, flow_diagnostic
from planner.graph.replication_graph import ReplicationGraph
from planner.graph.topics import DesiredTopics
from planner.model.desired import Declared
from planner.model.diagnostic import Diagnostic, error, note
from planner.model.observed import LackingFeature, Observed
from planner.model.topology import Flow
from runtime.contract.spec.mirror import NEVER, lacks


def features(graph: ReplicationGraph, observed: Observed) -> Iterator[Diagnostic]:
    """Says of each flow what a cluster of it lacks: an error where the flow could not run."""
    for flow in graph.flows:
        if not graph.copied.is_running(flow.name):
            continue
        for name, is_source in ((flow.source_cluster, True), (flow.destination_cluster, False)):
            cluster = observed.reachable(name)
            for one in cluster.lacking if cluster is not None else ():
                consequence = one.feature.as_source if is_source else one.feature.as_destination
                if consequence and (flow.groups.sync or not one.feature.for_groups):
                    yield _lacking(flow, name, one, consequence)


def _lacking(flow: Flow, cluster: str, one: LackingFeature, consequence: str) -> Diagnostic:
    needed = one.feature.required
    return flow_diagnostic(
        error if needed else note,
        flow,
        f"broker {one.broker} of {cluster} lacks {one.feature.name} (Kafka {one.feature.since}):"
        f" {consequence} ({one.why})",
        f"upgrade {cluster} to Kafka {one.feature.since} or newer" if needed else "",
        code="version-required" if needed else "version-lacks",
    )


def settings(wanted: DesiredTopics, graph: ReplicationGraph, observed: Observed) -> Iterator[Diagnostic]:
    """Says which settings of topics the version of a cluster lacks."""
    for topic in wanted.desired:
        cluster = observed.reachable(topic.cluster)
        if cluster is None or not isinstance(topic.origin, Declared):
            continue
        lacking = sorted(key for key in topic.config.keys() - topic.mirrored if lacks(cluster.defaults, key))
        if lacking:
            yield error(
                f"{counted(lacking, 'setting')} is unknown to the version of Kafka at {topic.cluster}",
                "take it out of config of the topic",
                address=str(topic.address),
                source=topic.source,
                code="setting-unknown",
            )
    for flow in graph.flows:
        there = observed.reachable(flow.destination_cluster)
        left_out = _left_out(flow, wanted, there.defaults if there is not None else {}, graph)
        if left_out:
            yield flow_diagnostic(
                note,
                flow,
                f"{counted(left_out, 'setting')} of its topics at {flow.source_cluster} is unknown to the"
                f" version of Kafka at {flow.destination_cluster}: mirrors go without",
                "",
                code="setting-left-out",
            )


def _left_out(
    flow: Flow, wanted: DesiredTopics, known: Mapping[str, str], graph: ReplicationGraph
) -> set[str]:
    sources = {edge.source for edge in graph.live.edges if edge.flow == flow.name}
    explicit = (wanted.settings[node].explicit for node in sources if node in wanted.settings)
    return {key for one in explicit for key in one if lacks(known, key) and key not in NEVER}
