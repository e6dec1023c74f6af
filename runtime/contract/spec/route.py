"""Routes decide which topics each flow takes, and their names at the destination.

Plan and job use the same code. Beside include, exclude and the default denials one rule keeps names from
growing without end: a regex never takes a topic that a flow made out of a topic of its own destination,
unless the topic would arrive there under its original name. So `dc1.orders` at dc2 is not copied back to dc1
as `dc2.dc1.orders`, over however many clusters it came. `orders`, which both sides hold under one name, is
copied in both directions (provenance keeps its records apart). A name that is written out literally is always
taken.
"""

from collections.abc import Iterable, Iterator

from runtime.contract.spec.jobspec import JobSpec, Route
from runtime.contract.spec.naming import is_internal
from runtime.contract.spec.rename import SAME_NAME, backward, forward
from runtime.contract.spec.selection import SelectionResult, Selector

# Kafka's own topics: no client may write them, so no flow copies them.
BROKER_TOPICS = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
)


def is_reserved(topic: str) -> bool:
    """Returns whether no flow ever takes the topic: it is the product's own, or the brokers' own."""
    return is_internal(topic) or topic in BROKER_TOPICS


class CompiledRoute:
    """Holds a route with its compiled rules."""

    __slots__ = ("_home", "_rules", "route")

    def __init__(self, route: Route) -> None:
        self.route = route
        self._rules = Selector(route.topics)
        self._home = Selector(route.undoes) if route.undoes is not None else None

    def destination_topic(self, topic: str) -> str | None:
        """Returns the name of a source topic at the destination; None where it has no name there."""
        if self._home is None:
            return forward(self.route.rename, topic, self.route.source)
        return backward(self.route.rename, topic, self.route.destination)

    def source_topic(self, name: str) -> str | None:
        """Returns the source topic that would have this name at the destination."""
        if self._home is None:
            return backward(self.route.rename, name, self.route.source)
        return forward(self.route.rename, name, self.route.destination)

    def answer(self, topic: str) -> SelectionResult:
        """Returns the result of include, exclude and the denials for a topic."""
        if is_reserved(topic):
            return SelectionResult.OUTSIDE
        if self._home is None:
            return self._rules.answer(topic)
        name = self.destination_topic(topic)
        if name is None or not self._home.answer(name).taken:
            return SelectionResult.OUTSIDE
        if not self.route.topics.include:
            return SelectionResult.MATCHED
        results = {self._rules.answer(topic), self._rules.answer(name)}
        if SelectionResult.EXCLUDED in results:
            return SelectionResult.EXCLUDED
        return SelectionResult.MATCHED if results != {SelectionResult.OUTSIDE} else SelectionResult.OUTSIDE

    @property
    def written_out(self) -> frozenset[str]:
        """Returns the source topics that the flow names literally, whether they exist or not."""
        if self._home is None:
            return frozenset(name for name in self._rules.written_out if not is_reserved(name))
        topics = (self.source_topic(name) for name in self._home.written_out)
        return frozenset(
            topic
            for topic in topics
            if topic is not None and self.answer(topic) is not SelectionResult.OUTSIDE
        )

    @property
    def prefixes(self) -> frozenset[str]:
        """Returns texts of which every topic begins with one for which `answer` is not `OUTSIDE`."""
        return self._rules.include.prefixes if self._home is None else frozenset({""})

    @property
    def open_ended(self) -> bool:
        """Returns whether the flow may take topics that its rules do not name literally."""
        return (self._home or self._rules).open_ended


class _FlowsByPrefix:
    """Finds the flows of one source that may take a topic, without a look at all other flows.

    The names that a regex matches begin with a text that follows from the regex.
    """

    __slots__ = ("_by_length",)

    def __init__(self, routes: Iterable[CompiledRoute]) -> None:
        self._by_length: dict[int, dict[str, list[str]]] = {}
        for compiled in routes:
            for prefix in compiled.prefixes:
                self._by_length.setdefault(len(prefix), {}).setdefault(prefix, []).append(compiled.route.name)

    def of(self, topic: str) -> list[str]:
        """Returns the flows, in the order of their names."""
        flows: set[str] = set()
        for length, by_prefix in self._by_length.items():
            flows.update(by_prefix.get(topic[:length], ()))
        return sorted(flows)


class Router:
    """Holds all flows of a topology.

    The topics that one flow takes may depend on the other flows, never on the topics that exist.
    """

    __slots__ = ("_from", "_into", "_may_return", "routes")

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = {
            route.name: CompiledRoute(route) for route in sorted(routes, key=lambda route: route.name)
        }
        self._into: dict[str, list[CompiledRoute]] = {}
        for compiled in self.routes.values():
            # A flow and its reverse count once: only one of them runs at a time.
            if compiled.route.undoes is None:
                self._into.setdefault(compiled.route.destination, []).append(compiled)
        self._may_return = {name for name, compiled in self.routes.items() if self._has_cycle(compiled.route)}
        self._from: dict[str, _FlowsByPrefix] = {}

    def may_take(self, source: str, topic: str) -> list[str]:
        """Returns the flows of a source that may take a topic, in order; to all others it is `OUTSIDE`."""
        flows = self._from.get(source)
        if flows is None:
            routes = [compiled for compiled in self.routes.values() if compiled.route.source == source]
            flows = self._from[source] = _FlowsByPrefix(routes)
        return flows.of(topic)

    def verdict(self, flow: str, topic: str) -> SelectionResult:
        """Returns whether a flow takes a topic, and why not."""
        compiled = self.routes[flow]
        answer = compiled.answer(topic)
        matched = answer is SelectionResult.MATCHED and compiled.route.undoes is None
        return SelectionResult.RETURNS if matched and self._returns(compiled, topic) else answer

    def destination_topic(self, flow: str, topic: str) -> str | None:
        """Returns the topic's name at the destination if the flow takes it, else None."""
        return self.routes[flow].destination_topic(topic) if self.verdict(flow, topic).taken else None

    def is_one(self, flow: str, topic: str) -> bool:
        """Returns whether the topic at the destination is an origin of the same topic at the source.

        Then flows copy in both directions, and neither topic is a mirror: the settings of neither follow
        those of the other.
        """
        route = self.routes[flow].route
        mirror = (route.destination, self.routes[flow].destination_topic(topic))
        return any(origin == mirror for origin in self._origins(route.source, topic))

    def _has_cycle(self, route: Route) -> bool:
        """Returns whether flows lead from this flow's destination to its source, and one of them renames
        topics.
        """
        seen: set[str] = set()
        waiting = [route.source]
        renamed = route.rename != SAME_NAME
        while waiting:
            for compiled in self._into.get(waiting.pop(), ()):
                renamed = renamed or compiled.route.rename != SAME_NAME
                if compiled.route.source not in seen:
                    seen.add(compiled.route.source)
                    waiting.append(compiled.route.source)
        return renamed and route.destination in seen

    def _returns(self, compiled: CompiledRoute, topic: str) -> bool:
        """Returns whether a topic of the destination is an origin of this topic, under another name."""
        if compiled.route.name not in self._may_return:
            return False
        name = compiled.destination_topic(topic)
        return any(
            cluster == compiled.route.destination and older != name
            for cluster, older in self._origins(compiled.route.source, topic, compiled.route.destination)
        )

    def _origins(self, cluster: str, topic: str, end: str | None = None) -> Iterator[tuple[str, str]]:
        """Yields every topic that this topic was copied from, over any hops.

        Topics at `end` are not traced further.
        """
        seen = {(cluster, topic)}
        waiting = [(cluster, topic)]
        while waiting:
            for origin in self.direct_origins(*waiting.pop()):
                if origin in seen:
                    continue
                yield origin
                seen.add(origin)
                if origin[0] != end:
                    waiting.append(origin)

    def direct_origins(self, cluster: str, topic: str) -> Iterator[tuple[str, str]]:
        """Yields the topics from which flows copy directly into this topic."""
        for compiled in self._into.get(cluster, ()):
            older = compiled.source_topic(topic)
            if older is not None and compiled.answer(older).taken:
                yield compiled.route.source, older


_newest: list[tuple[JobSpec, Router]] = []


def router_of(spec: JobSpec) -> Router:
    """Returns the names of the whole topology; a job whose spec holds no routes has only its own flows.

    All flows of a job get the same router for the same spec: each holds every route. Specs are compared by
    identity: they never change, and a comparison would go through all flows.
    """
    for other, router in _newest:
        if other is spec:
            return router
    router = Router(routes_of(spec))
    _newest[:] = [(spec, router), *_newest[:1]]
    return router


def routes_of(spec: JobSpec) -> list[Route]:
    """Returns a route for each flow that the job knows."""
    routed = {route.name for route in spec.routes}
    routes = [
        Route(
            name=flow.name,
            source=flow.source_name,
            destination=flow.destination_name,
            topics=flow.topics,
            rename=flow.rename,
        )
        for flow in spec.flows
        if flow.name not in routed
    ]
    return [*spec.routes, *routes]
