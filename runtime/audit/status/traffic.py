"""Measures what producers write to a whole cluster: the growth of end offsets and of log sizes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from runtime.contract.results.status import ClusterTraffic
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import ErrorCode, WireError
from runtime.kafka.protocol.administration import DescribeLogDirsRequest
from runtime.kafka.protocol.metadata import TopicMetadata
from runtime.kafka.protocol.offsets import LATEST
from runtime.kafka.queries import known_offsets

AGAIN_S = 10.0  # asking for every partition of a cluster costs more than asking for those of the flows
_INTERNAL = "__"  # the topics of Kafka and of repl begin so


class _Sample(Struct, frozen=True):
    """Holds end offsets and the leaders' log sizes in bytes; `sizes` is None where they may not be read."""

    at_s: float
    ends: Mapping[TopicPartition, int]
    sizes: Mapping[TopicPartition, int] | None

    def since(self, before: _Sample) -> ClusterTraffic:
        """Returns the traffic since an earlier sample."""
        elapsed_s, sizes = self.at_s - before.at_s, None
        if before.sizes is not None and self.sizes is not None:
            sizes = _growth(before.sizes, self.sizes) / elapsed_s
        return ClusterTraffic(
            over_ms=round(elapsed_s * 1000),
            records_per_s=_growth(before.ends, self.ends) / elapsed_s,
            bytes_per_s=sizes,
        )


@dataclass(slots=True)
class TrafficReader:
    """Samples one cluster at most every `again_s`, and compares each sample with the one before."""

    again_s: float = AGAIN_S
    _last: _Sample | None = None
    _traffic: ClusterTraffic | None = None
    _tried_at_s: float = field(default=float("-inf"))

    async def read(
        self, cluster: KafkaCluster, topics: Mapping[str, TopicMetadata], within_s: float
    ) -> ClusterTraffic | None:
        """Returns the traffic between the last two samples; None before the second one.

        It raises nothing: a sample that fails leaves the traffic unknown until the next one.
        """
        now_s = time.monotonic()
        if now_s - self._tried_at_s < self.again_s:
            return self._traffic
        self._tried_at_s = now_s
        try:
            async with asyncio.timeout(within_s):
                sample = await _sample(cluster, topics, within_s)
        except (WireError, TimeoutError):
            self._last = self._traffic = None
            return None
        self._traffic = sample.since(self._last) if self._last is not None else None
        self._last = sample
        return self._traffic


def _growth(before: Mapping[TopicPartition, int], now: Mapping[TopicPartition, int]) -> int:
    """Returns the growth of all partitions that both samples have. One that shrank was cut or deleted."""
    return sum(max(value - before[key], 0) for key, value in now.items() if key in before)


async def _sample(cluster: KafkaCluster, topics: Mapping[str, TopicMetadata], within_s: float) -> _Sample:
    """Raises WireError."""
    leaders = {
        TopicPartition(name, number): partition.leader
        for name, topic in topics.items()
        if topic.error is ErrorCode.NONE and not name.startswith(_INTERNAL)
        for number, partition in topic.partitions.items()
        if partition.leader >= 0
    }
    at_s = time.monotonic()
    ends, sizes = await asyncio.gather(
        known_offsets(cluster, leaders, LATEST, within=within_s), _sizes(cluster, leaders)
    )
    return _Sample(at_s, ends, sizes)


async def _sizes(
    cluster: KafkaCluster, leaders: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int] | None:
    """Returns the log sizes by partition, from its leader; None without the right to read them."""
    by_node: dict[int, list[TopicPartition]] = {}
    for key, node in leaders.items():
        by_node.setdefault(node, []).append(key)
    answers = await asyncio.gather(
        *(cluster.call(node, DescribeLogDirsRequest(some)) for node, some in by_node.items())
    )
    sizes: dict[TopicPartition, int] = {}
    for directories in answers:
        if isinstance(directories, ErrorCode):
            return None
        for directory in directories:
            for key, size in directory.replicas.items():
                sizes[key] = max(size, sizes.get(key, 0))  # a replica that moves between disks occurs twice
    return sizes if sizes or not leaders else None
