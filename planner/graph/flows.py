"""The desired flows: what each of them takes now, and by which provenance filter."""

from collections.abc import Mapping, Sequence

from planner.graph.provenance import ReplicationLoop
from planner.graph.replication_graph import ReplicationGraph
from planner.graph.topic_graph import CopyEdge, TopicNode
from planner.graph.topics import existing_mirrors
from planner.model.desired import DesiredFlow
from planner.model.observed import Observed
from planner.model.topology import Flow, Provenance
from runtime.contract.spec.route import RouteDecision


def flows_of(
    graph: ReplicationGraph,
    observed: Observed,
    provenance: Mapping[str, Provenance],
    native_only: frozenset[str],
    loops: Sequence[ReplicationLoop],
) -> tuple[DesiredFlow, ...]:
    """Returns every flow with the topics that it selects now."""
    edges = graph.live.by_flow()
    into = graph.live.incoming()
    looping = {node for one in loops for node in one.nodes}
    readable = {flow.name for flow in graph.flows}
    found = []
    for name, flow in sorted(graph.topology.flows.items()):
        own = edges.get(name, [])
        known = name in readable
        if graph.copied.is_running(name):
            topics = tuple((edge.source.topic, edge.destination.topic) for edge in own)
        else:
            topics, known = tuple(sorted(existing_mirrors(graph, observed, flow))), True
        found.append(
            DesiredFlow(
                flow=flow,
                topics=topics,
                hidden=tuple(sorted(graph.live.left_out.get((name, RouteDecision.DENIED), ()))),
                provenance=_filter(flow, provenance[name], native_only).value,
                provenance_reason=_reason(flow, provenance[name], native_only, loops),
                selection_known=known,
                native_only=name in native_only,
                shared=any(_is_shared(edge, looping, into) for edge in own),
                promoted=promoted_topics(graph, observed, flow),
            )
        )
    return tuple(found)


def _filter(flow: Flow, chosen: Provenance, native_only: frozenset[str]) -> Provenance:
    """Returns the provenance filter that the job uses.

    A flow that copies only native records must recognise the other records. A reverse flow must recognise
    records that came from its destination. Batch provenance is enough for both.
    """
    knows = flow.name in native_only or flow.reverse_of is not None
    return Provenance.BATCH if chosen is Provenance.OFF and knows else chosen


def _reason(
    flow: Flow, chosen: Provenance, native_only: frozenset[str], loops: Sequence[ReplicationLoop]
) -> str:
    """Returns why `auto` chose this filter; "" if the topology names one."""
    if flow.provenance is not Provenance.AUTO:
        return ""
    source, destination = flow.source_cluster, flow.destination_cluster
    match chosen:
        case Provenance.OFF | Provenance.BATCH if flow.reverse_of is not None:
            return f"what came from {destination} is not copied back"
        case Provenance.OFF if flow.name in native_only:
            return f"only records that were produced at {source} are copied"
        case Provenance.OFF:
            return f"no flow copies these topics back to {source}"
        case Provenance.BATCH:
            return f"{source} and {destination} copy topics to each other under one name"
        case Provenance.HEADERS if any(one.longer and flow.name in one.flows for one in loops):
            return "records can loop over more than two clusters"
        case _:
            return "a flow of the same loop needs headers"


def _is_shared(edge: CopyEdge, looping: set[TopicNode], into: Mapping[TopicNode, list[CopyEdge]]) -> bool:
    """Returns whether other flows or clients write the destination topic by design."""
    return edge.destination in looping or len(into[edge.destination]) > 1


def promoted_topics(graph: ReplicationGraph, observed: Observed, flow: Flow) -> tuple[str, ...]:
    """Returns the promoted topics of a flow, by their names at the source.

    If the source can't be read, the mirrors that the flow made tell them.
    """
    if not flow.promoted:
        return ()
    if flow.source_cluster in graph.names:
        router = graph.router
        topics_at_source = [
            one for one in graph.names[flow.source_cluster] if router.destination_topic(flow.name, one)
        ]
    else:
        topics_at_source = [topic for topic, _ in existing_mirrors(graph, observed, flow)]
    return tuple(sorted(topic for topic in topics_at_source if graph.copied.is_promoted(flow.name, topic)))
