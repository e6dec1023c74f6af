"""Where the records of a topic come from that several clusters hold under one name. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from runtime.contract.spec.route import Router, Verdict, Way


@dataclass(frozen=True, slots=True)
class Origin:
    """A flow that writes a topic of our source. `brings` brings the same records to our destination, None
    where they come from there.
    """

    back: str
    topic: str
    brings: str | None


def origins_of(router: Router, flow: str, topic: str) -> tuple[Origin, ...]:
    """Beside a flow's own: what makes offsets of the topic have no exact translation. Only what ends in the
    very topic that ours ends in counts; what our flow passes on is in its own map.
    """
    return tuple(_origins(router, router.ways[flow], topic))


def _origins(router: Router, mine: Way, topic: str) -> Iterator[Origin]:
    source, destination = mine.route.source, mine.route.destination
    name = mine.name_there(topic) or ""
    for back in _into(router, source, topic):
        older = back.topic_here(topic)
        if older is None:
            continue
        if back.route.source == destination:
            # A flow that turned round has what its opposite copied in its own map.
            if older == name and mine.route.undoes is back.route.undoes is None:
                yield Origin(back.route.flow, older, None)
            continue
        for brings in _into(router, destination, name):
            if brings.route.source == back.route.source and brings.topic_here(name) == older:
                yield Origin(back.route.flow, older, brings.route.flow)


def _into(router: Router, cluster: str, topic: str) -> Iterator[Way]:
    """The flows that write a topic of a cluster."""
    for name, way in router.ways.items():
        older = way.topic_here(topic) if way.route.destination == cluster else None
        if older is not None and router.verdict(name, older) is Verdict.TAKEN:
            yield way
