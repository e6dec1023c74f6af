"""Routes: which topics each flow takes, and what they are called there. Plan and job ask the same code.

Beside include, exclude and the default denials one rule keeps names from growing without end: a regex never
takes a topic that a flow made out of a topic of its own destination, unless it would arrive there as that
very topic. So `dc1.orders` at dc2 does not go back to dc1 as `dc2.dc1.orders`, over however many clusters it
came, while `orders`, which both sides hold under one name, does go both ways (provenance keeps its records
apart). A name that is written out literally is taken all the same.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from runtime.contract.spec.naming import is_internal
from runtime.contract.spec.rename import SAME_NAME, Rename, backward, forward
from runtime.contract.spec.selection import Answer, Rules, Selector

# Kafka's own: no client may write them, so no flow copies them.
BROKER_TOPICS = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
)


def is_reserved(topic: str) -> bool:
    """Whether no flow ever takes the topic: the product's own, or the brokers' own."""
    return is_internal(topic) or topic in BROKER_TOPICS


@dataclass(frozen=True, slots=True)
class Route:
    """One flow, as far as names go.

    A failback flow (`reverse_of`) has the rename of the flow it brings home, used backwards, and that flow's
    rules in `undoes`: it takes what that flow copied. Its own rules, where it has any, may only narrow this,
    by either name of a topic.
    """

    flow: str
    source: str
    destination: str
    rules: Rules
    rename: Rename = SAME_NAME
    undoes: Rules | None = None


class Verdict(Enum):
    TAKEN = "taken"
    DENIED = "denied"  # hidden by a default denial alone
    EXCLUDED = "excluded"
    RETURNS = "returns"  # it was made out of a topic of the flow's destination
    OUTSIDE = "outside"


class Way:
    """A route, compiled."""

    __slots__ = ("_home", "_rules", "route")

    def __init__(self, route: Route) -> None:
        self.route = route
        self._rules = Selector(route.rules)
        self._home = Selector(route.undoes) if route.undoes is not None else None

    def name_there(self, topic: str) -> str | None:
        """What a topic of the source is called at the destination; None where it has no name there."""
        if self._home is None:
            return forward(self.route.rename, topic, self.route.source)
        return backward(self.route.rename, topic, self.route.destination)

    def topic_here(self, name: str) -> str | None:
        """The topic of the source that would be called so at the destination."""
        if self._home is None:
            return backward(self.route.rename, name, self.route.source)
        return forward(self.route.rename, name, self.route.destination)

    def answer(self, topic: str) -> Answer:
        """What include, exclude and the denials say."""
        if is_reserved(topic):
            return Answer.OUTSIDE
        if self._home is None:
            return self._rules.answer(topic)
        name = self.name_there(topic)
        if name is None or not self._home.answer(name).taken:
            return Answer.OUTSIDE
        if not self.route.rules.include:
            return Answer.MATCHED
        own = {self._rules.answer(topic), self._rules.answer(name)}
        if Answer.EXCLUDED in own:
            return Answer.EXCLUDED
        return Answer.MATCHED if own != {Answer.OUTSIDE} else Answer.OUTSIDE

    @property
    def written_out(self) -> frozenset[str]:
        """The topics of the source that the flow names literally, there or not."""
        if self._home is None:
            return frozenset(name for name in self._rules.written_out if not is_reserved(name))
        topics = (self.topic_here(name) for name in self._home.written_out)
        return frozenset(
            topic for topic in topics if topic is not None and self.answer(topic) is not Answer.OUTSIDE
        )

    @property
    def open_ended(self) -> bool:
        """Whether the flow may take topics that nobody has named."""
        return (self._home or self._rules).open_ended


class Router:
    """All flows of a topology. What one of them takes may depend on the others, never on what exists."""

    __slots__ = ("_into", "_may_return", "ways")

    def __init__(self, routes: Iterable[Route]) -> None:
        self.ways = {route.flow: Way(route) for route in sorted(routes, key=lambda route: route.flow)}
        self._into: dict[str, list[Way]] = {}
        for way in self.ways.values():
            if way.route.undoes is None:  # a way back and its original are one way: only one of them runs
                self._into.setdefault(way.route.destination, []).append(way)
        self._may_return = {name for name, way in self.ways.items() if self._comes_round(way.route)}

    def verdict(self, flow: str, topic: str) -> Verdict:
        way = self.ways[flow]
        match way.answer(topic):
            case Answer.NAMED:
                return Verdict.TAKEN
            case Answer.MATCHED if way.route.undoes is None and self._returns(way, topic):
                return Verdict.RETURNS
            case Answer.MATCHED:
                return Verdict.TAKEN
            case Answer.DENIED:
                return Verdict.DENIED
            case Answer.EXCLUDED:
                return Verdict.EXCLUDED
            case _:
                return Verdict.OUTSIDE

    def name_there(self, flow: str, topic: str) -> str | None:
        """The topic's name at the destination if the flow takes it, else None."""
        if self.verdict(flow, topic) is not Verdict.TAKEN:
            return None
        return self.ways[flow].name_there(topic)

    def is_one(self, flow: str, topic: str) -> bool:
        """Whether copies of the destination's topic come back to this one: then neither is a mirror, and the
        settings of neither may follow the other's.
        """
        route = self.ways[flow].route
        there = (route.destination, self.ways[flow].name_there(topic))
        return any(origin == there for origin in self._origins(route.source, topic))

    def _comes_round(self, route: Route) -> bool:
        """Whether anything comes from the flow's destination to its source, and names change on the way."""
        seen: set[str] = set()
        waiting = [route.source]
        renamed = route.rename != SAME_NAME
        while waiting:
            for way in self._into.get(waiting.pop(), ()):
                renamed = renamed or way.route.rename != SAME_NAME
                if way.route.source not in seen:
                    seen.add(way.route.source)
                    waiting.append(way.route.source)
        return renamed and route.destination in seen

    def _returns(self, way: Way, topic: str) -> bool:
        """Whether the topic was made, step by step, out of one of the destination's under another name."""
        if way.route.flow not in self._may_return:
            return False
        name = way.name_there(topic)
        return any(
            cluster == way.route.destination and older != name
            for cluster, older in self._origins(way.route.source, topic, way.route.destination)
        )

    def _origins(self, cluster: str, topic: str, end: str | None = None) -> Iterator[tuple[str, str]]:
        """All that a topic was made of, step by step; what is at `end` is not followed any further."""
        seen = {(cluster, topic)}
        waiting = [(cluster, topic)]
        while waiting:
            for origin in self._made_of(*waiting.pop()):
                if origin in seen:
                    continue
                yield origin
                seen.add(origin)
                if origin[0] != end:
                    waiting.append(origin)

    def _made_of(self, cluster: str, topic: str) -> Iterator[tuple[str, str]]:
        for way in self._into.get(cluster, ()):
            older = way.topic_here(topic)
            if older is not None and way.answer(older).taken:
                yield way.route.source, older
