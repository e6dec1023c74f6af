"""Finds the topics that each flow takes out of a list of topics, for all flows of a job together.

A job with many flows would otherwise try every topic for every flow, each few seconds. Only topics that are
new in the list are tried, and only for the flows that may take them by the beginning of their names.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from runtime.contract.spec.route import Router

NO_TOPICS: Mapping[str, str] = {}


class _SourceTopics(Struct):
    """The newest list of topics of a source, and what each flow takes of it."""

    router: Router
    topics: Mapping[str, object] = field(default_factory=dict)
    by_flow: dict[str, dict[str, str]] = field(default_factory=dict)

    def take(self, source: str, topics: Mapping[str, object]) -> None:
        """Takes a newer list."""
        if topics is self.topics:
            return
        for topic in self.topics.keys() - topics.keys():
            for flow in self.router.may_take(source, topic):
                self.by_flow.get(flow, {}).pop(topic, None)
        for topic in topics.keys() - self.topics.keys():
            for flow in self.router.may_take(source, topic):
                name = self.router.destination_topic(flow, topic)
                if name is not None:
                    self.by_flow.setdefault(flow, {})[topic] = name
        self.topics = topics


class SelectedTopics:
    """A SelectedTopics object keeps, for each source, what each flow takes of the newest list of topics."""

    def __init__(self) -> None:
        self._by_source: dict[str, _SourceTopics] = {}

    def of(self, router: Router, flow: str, source: str, topics: Mapping[str, object]) -> Mapping[str, str]:
        """Returns the topics that the flow takes, with their names at the destination.

        The result is valid until the next call. `topics` must not change after the call.
        """
        known = self._by_source.get(source)
        if known is None or known.router is not router:
            known = self._by_source[source] = _SourceTopics(router)
        known.take(source, topics)
        return known.by_flow.get(flow, NO_TOPICS)
