"""How many bytes topics hold, as the brokers' disks tell."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from planner.kafka.connections import BlockingConnection, Unreadable
from planner.kafka.connections.failure import meaning
from planner.model.observed import ObservedTopic
from runtime.kafka.protocol.log_dirs import DescribeLogDirsRequest
from runtime.kafka.protocol.offsets import TopicPartition


def read_sizes(
    connections: Iterable[BlockingConnection], topics: Mapping[str, ObservedTopic]
) -> dict[str, int]:
    """Bytes of one copy of each topic: of every partition the largest replica."""
    largest: dict[tuple[str, int], int] = defaultdict(int)
    for connection in connections:
        for name, partition, size in _of_broker(connection, topics):
            largest[name, partition] = max(largest[name, partition], size)
    sizes = dict.fromkeys(topics, 0)
    for (name, _), size in largest.items():
        sizes[name] += size
    return sizes


def _of_broker(
    connection: BlockingConnection, topics: Mapping[str, ObservedTopic]
) -> Iterable[tuple[str, int, int]]:
    asked = [
        TopicPartition(name, partition)
        for name, topic in topics.items()
        for partition in range(topic.partitions)
    ]
    answer = connection.call(DescribeLogDirsRequest(asked))
    if answer.error:
        raise Unreadable(
            f"not authorized to describe the log directories ({meaning(answer.error)})",
            "it needs DESCRIBE on the cluster",
        )
    return ((place.topic, place.partition, size) for place, size in answer.replicas)
