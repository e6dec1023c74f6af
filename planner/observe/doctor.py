"""Examines a live cluster for `repl doctor`: versions, features, rights, clock and round trip.

What a flow can do with a cluster, and what it cannot, follows from the API versions of its brokers. Which
rights a flow needs on a topic is pure; docs/operations.md lists the same rights. Brokers answer with the
operations that they would allow, whatever authorizer decides. Nothing is tried, and nothing is changed.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from planner.graph.routes import router_of
from planner.kafka.client import BrokerConnection, ClusterClient
from planner.kafka.failures import ClusterFailure, TooOld, meaning
from planner.model.managed_services import service_at
from planner.model.observed import (
    FEATURE_QUOTAS,
    FEATURE_REASSIGN,
    FEATURE_SHARE,
    BrokerFeature,
    BrokerReport,
    ClusterReport,
    RightReport,
    TopicRightsReport,
)
from planner.model.topology import Topology
from planner.observe.brokers import BrokerVersions, Versions
from planner.observe.metadata import identify, list_topics
from planner.observe.rights import not_in
from runtime.contract.spec import naming, topic_settings
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.administration import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
)
from runtime.kafka.protocol.fetch import FetchRequest
from runtime.kafka.protocol.groups import ListGroupsRequest, OffsetCommitRequest, OffsetFetchRequest
from runtime.kafka.protocol.metadata import (
    AnyMetadataRequest,
    DescribeQuorumRequest,
    MetadataRequest,
    TopicMetadata,
)
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
    router = router_of(topology)
    running = [flow for flow in topology.flows.values() if flow.runs]
    sources = [flow for flow in running if flow.source_cluster == cluster]
    mirrors = [flow for flow in running if flow.destination_cluster == cluster]
    declared = {topic.name for topic in topology.topics if topic.cluster == cluster}
    internal = {topic.name for topic in topic_settings.at_destination()} if mirrors else set()
    internal |= {topic.name for topic in topic_settings.at_source()} if sources else set()

    def uses(topic: str) -> Iterator[str]:
        if topic in internal:
            yield INTERNAL
        if naming.is_internal(topic):
            return
        if any(
            flow.copies(topic) and router.destination_topic(flow.name, topic) is not None for flow in sources
        ):
            yield SOURCE
        for flow in mirrors:
            route = router.routes[flow.name]
            source = route.source_topic(topic)
            if source is not None and route.answer(source).taken and flow.copies(source):
                yield MIRROR
                break
        if topic in declared:
            yield DECLARED

    topic_uses = {topic: tuple(uses(topic)) for topic in sorted({*topics, *declared, *internal})}
    return {topic: used for topic, used in topic_uses.items() if used}


async def read_topic_rights(
    client: ClusterClient, uses: Mapping[str, Sequence[str]]
) -> tuple[TopicRightsReport, ...]:
    """Returns the rights on each topic that exists, or may exist: an authorizer hides topics."""
    names = sorted(uses)
    reports: list[TopicRightsReport] = []
    for start in range(0, len(names), _TOPICS_A_REQUEST):
        request = AnyMetadataRequest(names[start : start + _TOPICS_A_REQUEST], rights=True)
        described = (await client.ask(request)).topics
        reports += (
            _rights_on(topic, uses[topic.name])
            for topic in described
            if topic.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    return tuple(sorted(reports, key=lambda report: report.topic))


def _rights_on(topic: TopicMetadata, uses: Sequence[str]) -> TopicRightsReport:
    needed = {operation: why for use in uses for operation, why in NEEDS[use].items()}
    if topic.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return TopicRightsReport(topic.name, tuple(uses), {"DESCRIBE": needed["DESCRIBE"]})
    if topic.rights is None:
        why = meaning(topic.error) if topic.error else "the broker does not tell"
        return TopicRightsReport(topic.name, tuple(uses), None, why)
    missing = not_in(topic.rights, needed)
    return TopicRightsReport(topic.name, tuple(uses), {operation: needed[operation] for operation in missing})


ApiVersion = tuple[Api, int]  # an API with the lowest version that a feature needs


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
        (Api.INIT_PRODUCER_ID, 3),
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
    ): ((Api.METADATA, 10),),
    BrokerFeature(
        "names of open transactions",
        "3.0",
        as_source="a transaction that holds back a partition is seen, and its transactional id is not named",
    ): (DescribeProducersRequest, ListTransactionsRequest, DescribeTransactionsRequest),
    BrokerFeature("truncation found by each fetch", "2.7", otherwise="only when the leader changes"): (
        (Api.FETCH, 12),
    ),
    BrokerFeature("fetch by topic id", "3.1", otherwise="by name; ids are asked for after the records"): (
        (Api.FETCH, 13),
    ),
    BrokerFeature("many groups in one request", "3.0", otherwise="one request for each"): (
        (Api.OFFSET_FETCH, 8),
        (Api.FIND_COORDINATOR, 4),
    ),
    BrokerFeature("states of groups", "2.6", otherwise="they are not shown"): ((Api.LIST_GROUPS, 4),),
    BrokerFeature(FEATURE_QUOTAS, "2.6", otherwise="none is planned, mirrored or imported"): (
        DescribeClientQuotasRequest,
        AlterClientQuotasRequest,
    ),
    BrokerFeature(FEATURE_SHARE, "4.2", otherwise="share groups stay behind when a flow ends"): (
        DescribeShareOffsetsRequest,
        AlterShareOffsetsRequest,
    ),
    BrokerFeature(FEATURE_REASSIGN, "2.4", otherwise="no plan moves replicas"): (
        (Api.ALTER_PARTITION_REASSIGNMENTS, 0),
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


def lacking(brokers: BrokerVersions) -> tuple[BrokerFeature, ...]:
    """Returns the features that a broker lacks, each with the first such broker."""
    return tuple(feature for feature in features_of(brokers) if feature.why)


def features_of(brokers: BrokerVersions) -> Iterator[BrokerFeature]:
    """Yields each feature, with the first broker that lacks it."""
    for feature, needs in BROKER_FEATURES.items():
        lacks = (
            replace(feature, broker=broker, why=why)
            for broker, versions in brokers.items()
            for need in needs
            if (why := _why_lacking(versions, need))
        )
        yield next(lacks, feature)


def release_of(versions: Versions) -> str:
    """Returns the release of Kafka whose requests a broker offers; other products offer a mixture."""
    offered = (release for release, api, version in _RELEASES if versions.get(api, (0, -1))[1] >= version)
    return next(offered, "older than 2.4")


def _why_lacking(versions: Versions, need: type[Request[Any]] | ApiVersion) -> str:
    match need:
        case (api, lowest):
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
    "DESCRIBE": "read ACLs and the controllers' clock",
    "DESCRIBE_CONFIGS": "read the brokers' defaults and client quotas",
    "ALTER_CONFIGS": "change client quotas",
    "CREATE": "create topics",
    "ALTER": "change ACLs and replicas",
    "IDEMPOTENT_WRITE": "write in transactions before Kafka 2.8",
}


async def examine(client: ClusterClient, timeout_s: float, topology: Topology) -> ClusterReport:
    """Asks every broker of the cluster. Raises ClusterFailure where none answers.

    The rights on topics are those that the flows of the topology need.
    """
    identity = await identify(client)
    client.add_brokers(identity.addresses.values())
    reached = await client.dial_each(identity.addresses, timeout_s)
    brokers = []
    try:
        for node, (host, port) in identity.addresses.items():
            if (connection := reached.connections.get(node)) is not None:
                brokers.append(await _broker(node, connection))
            else:
                brokers.append(BrokerReport(node, f"{host}:{port}", why=reached.unreachable[node].why))
    finally:
        reached.close()
    offset, why = await _clock_offset(client)
    listing = await list_topics(client)
    uses = uses_of(topology, client.name, (*listing.topics, *listing.internal))
    return ClusterReport(
        client.name,
        identity.id,
        tuple(brokers),
        tuple(
            features_of(
                {
                    f"{broker.node} ({broker.address})": broker.versions
                    for broker in brokers
                    if broker.versions is not None
                }
            )
        ),
        await _rights(client),
        offset,
        why,
        await read_topic_rights(client, uses),
        service_at(topology.clusters[client.name].bootstrap.split(",")),
    )


async def _broker(node: int, connection: BrokerConnection) -> BrokerReport:
    best = float("inf")
    try:
        for _ in range(_ROUND_TRIPS):
            began = time.perf_counter()
            await connection.call(AnyMetadataRequest(()))
            best = min(best, time.perf_counter() - began)
    except ClusterFailure as failure:
        return BrokerReport(node, connection.where, why=failure.why)
    versions = dict(connection.versions)
    return BrokerReport(node, connection.where, release_of(versions), round(best * 1000, 2), versions)


async def _clock_offset(client: ClusterClient) -> tuple[float | None, str]:
    """Returns the offset of the active controller's clock, by the middle of the shortest question."""
    best, offset = float("inf"), 0.0
    for _ in range(_ROUND_TRIPS):
        began, before = time.perf_counter(), time.time()
        try:
            answer = await client.ask(DescribeQuorumRequest())
        except TooOld:
            return None, _NO_CLOCK
        took = time.perf_counter() - began
        if answer.error:
            return None, f"the controller does not tell: {answer.error.name}"
        there = next((voter.caught_up_ms for voter in answer.voters if voter.node == answer.leader), -1)
        if there < 0:
            return None, "the controllers have no leader now"
        if took < best:
            best, offset = took, there - (before + took / 2) * 1000
    return round(offset, 1), ""


async def _rights(client: ClusterClient) -> tuple[RightReport, ...]:
    try:
        numbers = (await client.ask(AnyMetadataRequest(rights=True))).rights
    except ClusterFailure:
        numbers = None
    missing = not_in(numbers, _CLUSTER_RIGHTS)
    return tuple(
        RightReport(operation, None if numbers is None else operation not in missing, used_to)
        for operation, used_to in _CLUSTER_RIGHTS.items()
    )
