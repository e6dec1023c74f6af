"""Examines a live cluster for `repl doctor`: versions, features, rights, clock and round trip.

What a flow can do with a cluster, and what it cannot, follows from the API versions of its brokers. Which
rights a flow needs on a topic is pure; docs/operations.md lists the same rights. Brokers answer with the
operations that they would allow, whatever authorizer decides. Nothing is tried, and nothing is changed.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient

from planner.graph.routes import CopiedTopics, router_of
from planner.kafka import ClusterEndpoint, admin, explain
from planner.kafka.clients import error_of
from planner.kafka.connection_errors import Refused, WireFailure
from planner.kafka.connections import BlockingConnection, Session
from planner.model.observed import (
    FEATURE_QUOTAS,
    FEATURE_SHARE,
    BrokerFeature,
    BrokerReport,
    ClusterReport,
    FeatureReport,
    LackingFeature,
    RightReport,
    TopicRightsReport,
)
from planner.model.topology import Topology
from planner.observe.brokers import BrokerVersions, Versions, reach_each
from planner.observe.metadata import identify, list_topics
from runtime.contract.client.settings import ClientSettingsError, wire_settings
from runtime.contract.spec import naming, topic_settings
from runtime.contract.spec.route import CompiledRoute
from runtime.kafka.protocol.administration import AlterClientQuotasRequest, DescribeClientQuotasRequest
from runtime.kafka.protocol.fetch import FetchRequest
from runtime.kafka.protocol.groups import ListGroupsRequest, OffsetCommitRequest, OffsetFetchRequest
from runtime.kafka.protocol.metadata import AnyMetadataRequest, DescribeQuorumRequest, MetadataRequest
from runtime.kafka.protocol.offsets import EpochEndsRequest, ListOffsetsRequest
from runtime.kafka.protocol.produce import ProduceRequest
from runtime.kafka.protocol.request import Api, Request
from runtime.kafka.protocol.share_groups import (
    AlterShareOffsetsRequest,
    DescribeShareOffsetsRequest,
)
from runtime.kafka.protocol.transactions import (
    AddPartitionsRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTransactionRequest,
    FindCoordinatorRequest,
    FindCoordinatorsRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
)

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


class ApiVersion(NamedTuple):
    """The lowest version of an API that a feature needs."""

    api: Api
    lowest: int


# What a flow does with a cluster, by the requests of the client that copies. A newer release may lack a
# feature again, when it drops the versions that this client speaks.
BROKER_FEATURES: Mapping[BrokerFeature, tuple[type[Request[Any]] | ApiVersion, ...]] = {
    BrokerFeature(
        "copy from",
        "2.4",
        as_source="no flow can read from it",
        as_destination="no job can read its own records there",
        required=True,
    ): (MetadataRequest, FetchRequest, ListOffsetsRequest, EpochEndsRequest),
    BrokerFeature(
        "copy to, exactly once",
        "2.5",
        as_destination="no flow can write to it in transactions",
        required=True,
    ): (
        FindCoordinatorRequest,
        ApiVersion(Api.INIT_PRODUCER_ID, 3),
        InitProducerIdRequest,
        AddPartitionsRequest,
        ProduceRequest,
        EndTransactionRequest,
    ),
    BrokerFeature(
        "consumer groups",
        "2.4",
        as_source="its consumer groups cannot be read",
        as_destination="consumer groups cannot be written there",
        required=True,
        for_groups=True,
    ): (FindCoordinatorRequest, ListGroupsRequest, OffsetFetchRequest, OffsetCommitRequest),
    BrokerFeature(
        "topic ids",
        "2.8",
        as_source="a recreated topic is recognised by its leader epoch and its end alone",
        as_destination="a recreated mirror is recognised by its leader epoch and its end alone",
    ): (ApiVersion(Api.METADATA, 10),),
    BrokerFeature(
        "names of open transactions",
        "3.0",
        as_source="a transaction that holds back a partition is seen, and its transactional id is not named",
    ): (DescribeProducersRequest, ListTransactionsRequest, DescribeTransactionsRequest),
    BrokerFeature("truncation told by each fetch", "2.7", otherwise="it is found when the leader changes"): (
        ApiVersion(Api.FETCH, 12),
    ),
    BrokerFeature("fetch by topic id", "3.1", otherwise="by name; ids are asked for after the records"): (
        ApiVersion(Api.FETCH, 13),
    ),
    BrokerFeature("many groups in one request", "3.0", otherwise="one request for each"): (
        ApiVersion(Api.OFFSET_FETCH, 8),
        FindCoordinatorsRequest,
    ),
    BrokerFeature("states of groups", "2.6", otherwise="they are not shown"): (
        ApiVersion(Api.LIST_GROUPS, 4),
    ),
    BrokerFeature(FEATURE_QUOTAS, "2.6", otherwise="none is planned, mirrored or imported"): (
        DescribeClientQuotasRequest,
        AlterClientQuotasRequest,
    ),
    BrokerFeature(FEATURE_SHARE, "4.2", otherwise="share groups stay behind when a flow ends"): (
        DescribeShareOffsetsRequest,
        AlterShareOffsetsRequest,
    ),
    BrokerFeature("reassignment of replicas", "2.4", otherwise="no plan moves replicas"): (
        ApiVersion(Api.ALTER_PARTITION_REASSIGNMENTS, 0),
    ),
}

# The newest first: a version of an API that came with a release of Kafka.
_RELEASES = (
    ("4.4", Api.API_VERSIONS, 5),
    ("4.3", Api.DESCRIBE_LOG_DIRS, 5),
    ("4.2", Api.LIST_OFFSETS, 11),
    ("4.1", Api.PRODUCE, 13),
    ("4.0", Api.PRODUCE, 12),
    ("3.9", Api.FETCH, 17),
    ("3.7", Api.FETCH, 16),
    ("3.5", Api.FETCH, 15),
    ("3.1", Api.FETCH, 13),
    ("3.0", Api.LIST_TRANSACTIONS, 0),
    ("2.8", Api.DESCRIBE_PRODUCERS, 0),
    ("2.7", Api.FETCH, 12),
    ("2.6", Api.LIST_GROUPS, 4),
    ("2.5", Api.INIT_PRODUCER_ID, 3),
    ("2.4", Api.METADATA, 9),
)


def lacking(brokers: Iterable[BrokerVersions]) -> tuple[LackingFeature, ...]:
    """Returns the features that a broker lacks, each with the first such broker."""
    listed = list(brokers)
    found = []
    for feature, needs in BROKER_FEATURES.items():
        for one in listed:
            why = next((why for need in needs if (why := _why_lacking(one.versions, need))), "")
            if why:
                found.append(LackingFeature(feature, one.broker, why))
                break
    return tuple(found)


def release_of(versions: Versions) -> str:
    """Returns the release of Kafka whose requests a broker offers; other products offer a mixture."""
    offered = (release for release, api, version in _RELEASES if versions.get(api, (0, -1))[1] >= version)
    return next(offered, "older than 2.4")


def _why_lacking(versions: Versions, need: type[Request[Any]] | ApiVersion) -> str:
    match need:
        case ApiVersion(api, lowest):
            highest = None
        case _:
            api, (lowest, highest) = need.API, need.VERSIONS
    offered = versions.get(api)
    if offered is None:
        return f"{_name(api)} is not offered"
    if offered[1] >= lowest and (highest is None or offered[0] <= highest):
        return ""
    needed = f"{lowest} or higher" if highest is None else f"{lowest} to {highest}"
    return f"{_name(api)} is offered in versions {offered[0]} to {offered[1]}, needed is {needed}"


def _name(api: Api) -> str:
    return "".join(word.capitalize() for word in api.name.split("_"))


_ROUND_TRIPS = 5  # the shortest counts: the others waited for something else
_NO_CLOCK = "this version tells no time: DescribeQuorum came with Kafka 3.3, in KRaft mode"

# What the operations of a cluster are needed for; docs/operations.md lists all rights.
_CLUSTER_RIGHTS = {
    AclOperation.DESCRIBE: "read ACLs and the controllers' clock",
    AclOperation.DESCRIBE_CONFIGS: "read the brokers' defaults and client quotas",
    AclOperation.ALTER_CONFIGS: "change client quotas",
    AclOperation.CREATE: "create topics",
    AclOperation.ALTER: "change ACLs and replicas",
    AclOperation.IDEMPOTENT_WRITE: "write in transactions before Kafka 2.8",
}


def examine(endpoint: ClusterEndpoint, timeout_s: float, topology: Topology) -> ClusterReport:
    """Asks every broker of the cluster. Raises WireFailure where none answers.

    The rights on topics are those that the flows of the topology need.
    """
    try:
        settings = wire_settings(endpoint.bootstrap, endpoint.settings, endpoint.token_command)
    except ClientSettingsError as wrong:
        raise Refused(str(wrong), f"look at client: of cluster {endpoint.cluster}") from None
    session = Session(settings, timeout_s)
    try:
        identity = session.ask(identify)
        session.add_brokers((one.host, one.port) for one in identity.brokers)
        reached = reach_each(session, identity.brokers, timeout_s)
        try:
            brokers = []
            for one in identity.brokers:
                address = f"{one.host}:{one.port}"
                if (connection := reached.connections.get(one.id)) is not None:
                    brokers.append(_broker(one.id, address, connection))
                else:
                    brokers.append(BrokerReport(one.id, address, why=reached.unreachable[one.id].why))
            offset, why = session.ask(_clock_offset)
            listing = session.ask(list_topics)
        finally:
            reached.close()
    finally:
        session.close()
    return ClusterReport(
        endpoint.cluster,
        identity.id,
        tuple(brokers),
        tuple(_features(brokers)),
        _rights(endpoint, timeout_s),
        offset,
        why,
        read_topic_rights(
            endpoint,
            uses_of(topology, endpoint.cluster, (*listing.topics, *listing.internal)),
            timeout_s,
        ),
    )


def _broker(node: int, address: str, connection: BlockingConnection) -> BrokerReport:
    best = float("inf")
    try:
        for _ in range(_ROUND_TRIPS):
            began = time.perf_counter()
            connection.call(AnyMetadataRequest(()))
            best = min(best, time.perf_counter() - began)
    except WireFailure as failure:
        return BrokerReport(node, address, why=failure.why)
    versions = dict(connection.versions)
    return BrokerReport(node, address, release_of(versions), round(best * 1000, 2), versions)


def _features(brokers: Iterable[BrokerReport]) -> Iterable[FeatureReport]:
    offered = [
        BrokerVersions(f"{one.node} ({one.address})", one.versions)
        for one in brokers
        if one.versions is not None
    ]
    missing = {one.feature: one for one in lacking(offered)}
    for feature in BROKER_FEATURES:
        one = missing.get(feature)
        yield FeatureReport(feature) if one is None else FeatureReport(feature, one.broker, one.why)


def _clock_offset(connection: BlockingConnection) -> tuple[float | None, str]:
    """Returns the offset of the active controller's clock, by the middle of the shortest question."""
    if DescribeQuorumRequest.API not in connection.versions:
        return None, _NO_CLOCK
    best, offset = float("inf"), 0.0
    for _ in range(_ROUND_TRIPS):
        began, before = time.perf_counter(), time.time()
        answer = connection.call(DescribeQuorumRequest())
        took = time.perf_counter() - began
        if answer.error:
            return None, f"the controller does not tell: {answer.error.name}"
        there = next((one.caught_up_ms for one in answer.voters if one.node == answer.leader), -1)
        if there < 0:
            return None, "the controllers have no leader now"
        if took < best:
            best, offset = took, there - (before + took / 2) * 1000
    return round(offset, 1), ""


def _rights(endpoint: ClusterEndpoint, timeout_s: float) -> tuple[RightReport, ...]:
    client = admin(endpoint)  # lives until the answer is there
    asked = client.describe_cluster(include_authorized_operations=True, request_timeout=timeout_s)
    try:
        allowed = asked.result(timeout_s + 5).authorized_operations
    except KafkaException:
        allowed = None
    return tuple(
        RightReport(operation.name, None if allowed is None else operation in allowed, used_to)
        for operation, used_to in _CLUSTER_RIGHTS.items()
    )
