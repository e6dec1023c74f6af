"""Finds brokers that are too old, and reads what only all brokers together can tell: groups and sizes."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from planner.kafka.client import BrokerConnection
from planner.kafka.failures import Unreadable, meaning
from planner.model.diagnostic import Diagnostic, error
from planner.model.observed import SHARE, STREAMS, ObservedTopic
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.administration import DescribeLogDirsRequest
from runtime.kafka.protocol.groups import (
    MANY_GROUPS,
    CommittedOffset,
    ListedGroup,
    ListGroupsRequest,
    OffsetFetchRequest,
    Offsets,
)
from runtime.kafka.protocol.request import Api
from runtime.kafka.protocol.share_groups import DescribeShareOffsetsRequest

PRODUCE, FETCH = 0, 1
INIT_PRODUCER_ID, ADD_PARTITIONS, END_TRANSACTION = 22, 24, 26
INCREMENTAL_ALTER_CONFIGS = 44

Versions = Mapping[int, tuple[int, int]]

# what every plan needs of a broker, with the release that has it: the API keys, each with its first version
_REQUIRED: Mapping[str, Mapping[int, int]] = {
    "message format v2 (Kafka 0.11)": {PRODUCE: 3, FETCH: 4},
    "transactions (Kafka 0.11)": {INIT_PRODUCER_ID: 0, ADD_PARTITIONS: 0, END_TRANSACTION: 0},
    "incremental config changes (Kafka 2.3)": {INCREMENTAL_ALTER_CONFIGS: 0},
}


BrokerVersions = Mapping[str, Versions]  # what each broker answers to ApiVersions, by "2 (10.0.0.2:9092)"


def too_old(cluster: str, brokers: BrokerVersions) -> Iterator[Diagnostic]:
    """Yields an error for each broker with which nothing can be planned."""
    for broker, versions in brokers.items():
        lacks = [
            feature
            for feature, needs in _REQUIRED.items()
            if any(versions.get(key, (0, -1))[1] < version for key, version in needs.items())
        ]
        if lacks:
            yield error(
                f"broker {broker} of {cluster} is too old: it lacks {' and '.join(lacks)}",
                "upgrade it to Kafka 2.3 or newer",
                code="broker-too-old",
            )


_GROUPS_A_REQUEST = 500


async def read_groups(
    connections: Iterable[BrokerConnection], wanted: Callable[[str], bool]
) -> dict[str, frozenset[str]]:
    """Returns the topics that each wanted group has committed offsets for.

    Each broker knows the groups that it coordinates. A group that never committed has no topics.
    """
    group_topics: dict[str, frozenset[str]] = {}
    for connection in connections:
        listed = await _listed(connection)
        groups = [
            group.name for group in listed if group.protocol_type in ("consumer", "") and wanted(group.name)
        ]
        newest = connection.versions.get(Api.OFFSET_FETCH, (0, 0))[1]
        most = _GROUPS_A_REQUEST if newest >= MANY_GROUPS else 1
        for start in range(0, len(groups), most):
            group_topics |= await _committed_topics(connection, groups[start : start + most])
    return dict(sorted(group_topics.items()))


async def read_group_kinds(connections: Iterable[BrokerConnection]) -> dict[str, dict[str, frozenset[str]]]:
    """Returns the share groups and the streams groups, each with the topics that it has a position in."""
    kinds: dict[str, dict[str, frozenset[str]]] = {SHARE: {}, STREAMS: {}}
    for connection in connections:
        listed = await _listed(connection)
        share, streams = ([group.name for group in listed if group.kind == kind] for kind in (SHARE, STREAMS))
        for start in range(0, len(streams), _GROUPS_A_REQUEST):
            kinds[STREAMS] |= await _committed_topics(connection, streams[start : start + _GROUPS_A_REQUEST])
        for start in range(0, len(share), _GROUPS_A_REQUEST):
            kinds[SHARE] |= await _started_topics(connection, share[start : start + _GROUPS_A_REQUEST])
    return kinds


async def _started_topics(connection: BrokerConnection, groups: list[str]) -> dict[str, frozenset[str]]:
    """Returns the topics of which each share group has a start offset; none where the broker can't tell."""
    lowest, _ = DescribeShareOffsetsRequest.VERSIONS
    if connection.versions.get(Api.DESCRIBE_SHARE_GROUP_OFFSETS, (0, -1))[1] < lowest:
        return dict.fromkeys(groups, frozenset())
    return _topics("share group", await connection.call(DescribeShareOffsetsRequest(groups)))


async def _listed(connection: BrokerConnection) -> Sequence[ListedGroup]:
    groups = await connection.call(ListGroupsRequest())
    if isinstance(groups, ErrorCode):
        raise Unreadable(f"{connection.where} does not list its groups ({meaning(groups)})")
    return groups


async def _committed_topics(connection: BrokerConnection, groups: list[str]) -> dict[str, frozenset[str]]:
    return _topics("group", await connection.call(OffsetFetchRequest(groups)))


def _topics(kind: str, groups: Mapping[str, Offsets | ErrorCode]) -> dict[str, frozenset[str]]:
    topics = {}
    for name, offsets in groups.items():
        if isinstance(offsets, ErrorCode):
            raise Unreadable(f"{kind} {name} can't be read ({meaning(offsets)})")
        topics[name] = frozenset(
            place.topic
            for place, committed in offsets.items()
            if isinstance(committed, CommittedOffset) and committed.offset >= 0
        )
    return topics


async def read_sizes(
    connections: Iterable[BrokerConnection], topics: Mapping[str, ObservedTopic]
) -> dict[str, int]:
    """Returns the bytes of one copy of each topic: the sum of the largest replica of every partition."""
    largest: dict[tuple[str, int], int] = defaultdict(int)
    for connection in connections:
        for name, partition, size in await _replica_sizes(connection, topics):
            largest[name, partition] = max(largest[name, partition], size)
    sizes = dict.fromkeys(topics, 0)
    for (name, _), size in largest.items():
        sizes[name] += size
    return sizes


async def _replica_sizes(
    connection: BrokerConnection, topics: Mapping[str, ObservedTopic]
) -> Iterable[tuple[str, int, int]]:
    partitions = [
        TopicPartition(name, partition)
        for name, topic in topics.items()
        for partition in range(topic.partitions)
    ]
    directories = await connection.call(DescribeLogDirsRequest(partitions))
    if isinstance(directories, ErrorCode):
        raise Unreadable(
            f"not authorized to describe the log directories ({meaning(directories)})",
            "it needs DESCRIBE on the cluster",
        )
    return (
        (place.topic, place.partition, size)
        for directory in directories
        for place, size in directory.replicas.items()
    )
