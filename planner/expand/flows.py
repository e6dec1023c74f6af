"""The flows with what they take now."""

from collections.abc import Mapping, Sequence

from planner.expand.graph import Edge, Node
from planner.expand.loops import Round
from planner.expand.promoted import promoted_topics
from planner.expand.topics import standing_mirrors
from planner.expand.world import World
from planner.model.desired import DesiredFlow
from planner.model.observed import Observed
from planner.model.topology import Flow, Provenance
from runtime.contract.route import Verdict


def flows_of(
    world: World,
    observed: Observed,
    provenance: Mapping[str, Provenance],
    native_only: frozenset[str],
    rounds: Sequence[Round],
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
                hidden=tuple(sorted(world.real.left_out.get((name, Verdict.DENIED), ()))),
                provenance=_filter(flow, provenance[name], native_only).value,
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


def _is_shared(edge: Edge, circling: set[Node], into: Mapping[Node, list[Edge]]) -> bool:
    return edge.destination in circling or len(into[edge.destination]) > 1
