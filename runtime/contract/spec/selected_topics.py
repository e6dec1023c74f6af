"""Finds the topics that each flow takes out of a list of topics, for all flows of a job together.

A job with many flows would otherwise try every topic for every flow, each few seconds. Only topics that are
new in the list are tried, and only for the flows that may take them by the beginning of their names.
"""

from __future__ import annotations

from collections.abc import Mapping

from runtime.contract.spec.route import Router

NO_TOPICS: Mapping[str, str] = {}


class SelectedTopics:
    """Keeps, for each source, its newest topics and what each flow takes of them."""

    def __init__(self) -> None:
        self._by_source: dict[str, tuple[Router, Mapping[str, object], dict[str, dict[str, str]]]] = {}

    def of(self, router: Router, flow: str, source: str, topics: Mapping[str, object]) -> Mapping[str, str]:
        """Returns the topics that the flow takes, with their names at the destination.

        The result is valid until the next call. `topics` must not change after the call.
        """
        cached = self._by_source.get(source)
        if cached is None or cached[0] is not router:
            cached = router, {}, {}
        _, before, by_flow = cached
        if topics is not before:
            for topic in before.keys() - topics.keys():
                for name in router.may_take(source, topic):
                    by_flow.get(name, {}).pop(topic, None)
            for topic in topics.keys() - before.keys():
                for name in router.may_take(source, topic):
                    if (there := router.destination_topic(name, topic)) is not None:
                        by_flow.setdefault(name, {})[topic] = there
            self._by_source[source] = router, topics, by_flow
        return by_flow.get(flow, NO_TOPICS)
