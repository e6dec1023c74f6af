"""The flows with what they take now."""

from collections.abc import Mapping, Sequence

from planner.graph.promoted import promoted_topics
from planner.graph.provenance import ReplicationLoop
from planner.graph.replication_graph import ReplicationGraph
from planner.graph.topic_graph import CopyEdge, TopicNode
from planner.graph.topics import standing_mirrors
from planner.model.desired import DesiredFlow
from planner.model.observed import Observed
from planner.model.topology import Flow, Provenance
from runtime.contract.spec.route import RouteDecision


def flows_of(
    world: ReplicationGraph,
    observed: Observed,
    provenance: Mapping[str, Provenance],
    native_only: frozenset[str],
    rounds: Sequence[ReplicationLoop],
) -> tuple[DesiredFlow, ...]:
    edges = world.real.by_flow()
    into = world.real.incoming()
    circling = {node for one in rounds for node in one.nodes}
    readable = {flow.name for flow in world.flows}
    found = []
    for name, flow in sorted(world.topology.flows.items()):
        own = edges.get(name, [])
        known = name in readable
        if world.carried.running(name):
            topics = tuple((edge.source.topic, edge.destination.topic) for edge in own)
        else:
            topics, known = tuple(sorted(standing_mirrors(world, observed, flow))), True
        found.append(
            DesiredFlow(
                flow=flow,
                topics=topics,
                hidden=tuple(sorted(world.real.left_out.get((name, RouteDecision.DENIED), ()))),
                provenance=_filter(flow, provenance[name], native_only).value,
                provenance_reason=_reason(flow, provenance[name], native_only, rounds),
                selection_known=known,
                native_only=name in native_only,
                shared=any(_is_shared(edge, circling, into) for edge in own),
                promoted=promoted_topics(world, observed, flow),
            )
        )
    return tuple(found)


def _filter(flow: Flow, chosen: Provenance, native_only: frozenset[str]) -> Provenance:
    """A flow that copies native records alone must know the others, and a way home what was salvaged from
    there: what a batch tells is enough for that.
    """
    knows = flow.name in native_only or flow.reverse_of is not None
    return Provenance.BATCH if chosen is Provenance.OFF and knows else chosen


def _reason(
    flow: Flow, chosen: Provenance, native_only: frozenset[str], rounds: Sequence[ReplicationLoop]
) -> str:
    """Returns why `auto` came to this filter; nothing where the topology names one."""
    if flow.provenance is not Provenance.AUTO:
        return ""
    source, destination = flow.source_cluster, flow.destination_cluster
    match chosen:
        case Provenance.OFF | Provenance.BATCH if flow.reverse_of is not None:
            return f"what came from {destination} is not copied back"
        case Provenance.OFF if flow.name in native_only:
            return f"only records that were produced at {source} are copied"
        case Provenance.OFF:
            return f"no flow brings these topics back to {source}"
        case Provenance.BATCH:
            return f"{source} and {destination} copy topics to each other under one name"
        case Provenance.HEADERS if any(one.longer and flow.name in one.flows for one in rounds):
            return "copies can come round over more than two clusters"
        case _:
            return "a flow of the same loop needs headers"


def _is_shared(edge: CopyEdge, circling: set[TopicNode], into: Mapping[TopicNode, list[CopyEdge]]) -> bool:
    return edge.destination in circling or len(into[edge.destination]) > 1
