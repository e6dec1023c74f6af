"""How many bytes topics hold, as the brokers' disks tell."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from kafka.protocol.admin import DescribeLogDirsRequest, DescribeLogDirsResponse

from planner.model.observed import ObservedTopic
from planner.observe.asking import NONE, Unreadable, meaning, version_of
from planner.observe.wire import Connection

_OLDEST, _NEWEST, _WITH_ERROR = 1, 4, 3


def read_sizes(connections: Iterable[Connection], topics: Mapping[str, ObservedTopic]) -> dict[str, int]:
    """Bytes of one copy of each topic: of every partition the largest replica."""
    largest: dict[tuple[str, int], int] = defaultdict(int)
    for connection in connections:
        for name, partition, size in _of_broker(connection, topics):
            largest[name, partition] = max(largest[name, partition], size)
    sizes = dict.fromkeys(topics, 0)
    for (name, _), size in largest.items():
        sizes[name] += size
    return sizes


def _of_broker(connection: Connection, topics: Mapping[str, ObservedTopic]) -> Iterable[tuple[str, int, int]]:
    version = version_of(connection, DescribeLogDirsRequest, _NEWEST, _OLDEST)
    asked = DescribeLogDirsRequest.DescribableLogDirTopic
    request = DescribeLogDirsRequest(
        topics=[asked(topic=name, partitions=list(range(topic.partitions))) for name, topic in topics.items()]
    )
    answer = connection.call(request, DescribeLogDirsResponse, version)
    code = answer.error_code if version >= _WITH_ERROR else NONE
    if code != NONE:
        raise Unreadable(
            f"not authorized to describe the log directories ({meaning(code)})",
            "it needs DESCRIBE on the cluster",
        )
    return (
        (topic.name, partition.partition_index, partition.partition_size)
        for result in answer.results
        for topic in result.topics
        for partition in topic.partitions
    )
