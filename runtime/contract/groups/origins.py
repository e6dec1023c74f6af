"""Finds the origins of a topic that several clusters hold under one name. It is pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from runtime.contract.spec.route import CompiledRoute, RouteDecision, Router


@dataclass(frozen=True, slots=True)
class SourceTopicWriter:
    """Describes a flow that writes a topic of our source cluster.

    `flow` writes `topic` there. `destination_flow` copies the same records to our destination; it is None
    where they come from there.
    """

    flow: str
    topic: str
    destination_flow: str | None


def origins_of(router: Router, flow: str, topic: str) -> tuple[SourceTopicWriter, ...]:
    """Returns the other flows into a topic of a flow's source: they make its offsets inexact.

    A flow counts only if its records also end in the topic in which ours end; records that our flow passes on
    are in its own map.
    """
    return tuple(_origins(router, router.ways[flow], topic))


def _origins(router: Router, mine: CompiledRoute, topic: str) -> Iterator[SourceTopicWriter]:
    source, destination = mine.route.source, mine.route.destination
    name = mine.name_there(topic) or ""
    for writer in _into(router, source, topic):
        older = writer.topic_here(topic)
        if older is None:
            continue
        if writer.route.source == destination:
            # After a failback, the flow's own map contains the records that its opposite copied.
            if older == name and mine.route.undoes is writer.route.undoes is None:
                yield SourceTopicWriter(writer.route.flow, older, None)
            continue
        for other in _into(router, destination, name):
            if other.route.source == writer.route.source and other.topic_here(name) == older:
                yield SourceTopicWriter(writer.route.flow, older, other.route.flow)


def _into(router: Router, cluster: str, topic: str) -> Iterator[CompiledRoute]:
    """Yields the flows that write a topic of a cluster."""
    for name, way in router.ways.items():
        older = way.topic_here(topic) if way.route.destination == cluster else None
        if older is not None and router.verdict(name, older) is RouteDecision.TAKEN:
            yield way
