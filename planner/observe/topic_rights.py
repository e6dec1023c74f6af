"""Reads which rights a principal has on the topics of its flows, for `repl doctor`.

What a flow needs is pure; docs/operations.md lists the same rights. Brokers answer with the operations that
they would allow, whatever authorizer decides: nothing is tried.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from planner.graph.routes import CopiedTopics, router_of
from planner.kafka import ClusterEndpoint, admin, explain
from planner.kafka.errors import error_of
from planner.model.observed import TopicRightsReport
from planner.model.topology import Topology
from runtime.contract.spec import naming, topic_settings
from runtime.contract.spec.route import CompiledRoute

SOURCE = "source of a flow"
MIRROR = "mirror of a flow"
INTERNAL = "internal topic"
DECLARED = "declared topic"

_FOR_READING: Mapping[str, str] = {
    "DESCRIBE": "see the topic",
    "READ": "copy its records",
    "DESCRIBE_CONFIGS": "mirror its settings",
}
_FOR_WRITING: Mapping[str, str] = {
    "DESCRIBE": "see the topic",
    "READ": "find foreign records",
    "WRITE": "copy records to it",
    "ALTER": "add partitions",
    "ALTER_CONFIGS": "mirror settings",
}
_FOR_INTERNAL: Mapping[str, str] = {
    "DESCRIBE": "see the topic",
    "READ": "read progress and commands",
    "WRITE": "write progress and reports",
}
_FOR_APPLYING: Mapping[str, str] = {
    "DESCRIBE": "see the topic",
    "ALTER": "add partitions",
    "ALTER_CONFIGS": "change settings",
}
NEEDS: Mapping[str, Mapping[str, str]] = {
    SOURCE: _FOR_READING,
    MIRROR: _FOR_WRITING,
    INTERNAL: _FOR_INTERNAL,
    DECLARED: _FOR_APPLYING,
}
_TOPICS_A_REQUEST = 1_000


def uses_of(topology: Topology, cluster: str, topics: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Returns how the topology uses topics of a cluster: those of `topics`, and those that it names itself.

    A topic that the principal may not describe is in no listing, so names from the topology are added.
    """
    router, copied = router_of(topology), CopiedTopics(topology)
    running = [flow for flow in topology.flows.values() if copied.is_running(flow.name)]
    sources = [flow.name for flow in running if flow.source_cluster == cluster]
    mirrors = [flow.name for flow in running if flow.destination_cluster == cluster]
    declared = {one.name for one in topology.topics if one.cluster == cluster}
    internal = {one.name for one in topic_settings.at_destination()} if mirrors else set()
    internal |= {one.name for one in topic_settings.at_source()} if sources else set()

    def uses(topic: str) -> Iterator[str]:
        if topic in internal:
            yield INTERNAL
        if naming.is_internal(topic):
            return
        if any(
            copied.copies(flow, topic) and router.destination_topic(flow, topic) is not None
            for flow in sources
        ):
            yield SOURCE
        if any(_mirrors(router.routes[flow], copied, topic) for flow in mirrors):
            yield MIRROR
        if topic in declared:
            yield DECLARED

    found = {topic: tuple(uses(topic)) for topic in sorted({*topics, *declared, *internal})}
    return {topic: used for topic, used in found.items() if used}


def _mirrors(route: CompiledRoute, copied: CopiedTopics, topic: str) -> bool:
    """Returns whether a flow fills the topic at its destination."""
    source = route.source_topic(topic)
    return source is not None and route.answer(source).taken and copied.copies(route.route.flow, source)


def read_topic_rights(
    endpoint: ClusterEndpoint, uses: Mapping[str, Sequence[str]], timeout_s: float
) -> tuple[TopicRightsReport, ...]:
    """Returns the rights on each topic that exists, or may exist: an authorizer hides topics."""
    client = admin(endpoint)  # lives until the answers are there
    names = sorted(uses)
    found: list[TopicRightsReport] = []
    for start in range(0, len(names), _TOPICS_A_REQUEST):
        some = {name: uses[name] for name in names[start : start + _TOPICS_A_REQUEST]}
        found += _read(client, some, timeout_s)
    return tuple(found)


def _read(
    client: AdminClient, uses: Mapping[str, Sequence[str]], timeout_s: float
) -> Iterator[TopicRightsReport]:
    asked = client.describe_topics(
        TopicCollection(list(uses)), include_authorized_operations=True, request_timeout=timeout_s
    )
    for topic, answer in asked.items():
        needed = {operation: why for use in uses[topic] for operation, why in NEEDS[use].items()}
        try:
            allowed = answer.result(timeout_s + 5).authorized_operations
        except KafkaException as failure:
            error = error_of(failure)
            code = error.code() if error is not None else None
            if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
                continue
            if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                yield TopicRightsReport(topic, tuple(uses[topic]), {"DESCRIBE": needed["DESCRIBE"]})
            else:
                yield TopicRightsReport(topic, tuple(uses[topic]), None, explain(failure))
            continue
        if allowed is None:
            yield TopicRightsReport(topic, tuple(uses[topic]), None, "the broker does not tell")
            continue
        names = {one.name for one in allowed}
        missing = {operation: why for operation, why in needed.items() if operation not in names}
        yield TopicRightsReport(topic, tuple(uses[topic]), missing)
