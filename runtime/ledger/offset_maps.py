"""Caches the offset maps of the flows into one cluster, for callers that translate repeatedly."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from runtime.contract.records.ledger import PartitionKey, Progress
from runtime.contract.records.offset_map import OffsetMap
from runtime.contract.spec import naming
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.codes import ErrorCode
from runtime.ledger.ledger import Ledger
from runtime.ledger.maps import OffsetMapReader


@dataclass(frozen=True, slots=True)
class CachedOffsetMap:
    """An offset map as it can be read now.

    `trimmed` means that its beginning was deleted, because the destination no longer holds those offsets.
    """

    offsets: OffsetMap
    trimmed: bool


class OffsetMaps:
    """The offset maps of the flows into one cluster, each built on request and cached."""

    def __init__(self, cluster: KafkaCluster, ledger: Ledger) -> None:
        self._ledger = ledger
        self._maps = OffsetMapReader(cluster, ledger)
        self._progress: dict[str, dict[PartitionKey, Progress]] = {}
        self._cached: dict[PartitionKey, tuple[Progress, CachedOffsetMap]] = {}

    async def refresh(self, flows: Iterable[str]) -> None:
        """Reads the progress and segments of flows. Raises WireError."""
        for flow in flows:
            await self._maps.refresh(flow)
            self._progress[flow] = self._ledger.all_progress(flow)

    def progress(self, flow: str) -> dict[PartitionKey, Progress]:
        """Returns the committed progress of a flow's partitions as of the last refresh."""
        return self._progress.get(flow, {})

    def map(self, key: PartitionKey) -> OffsetMap | None:
        """Returns the offset map of a partition, or None where there is none that can be read now."""
        cached = self.cached(key)
        return cached.offsets if cached is not None else None

    def sealing(self, key: PartitionKey) -> bool:
        """Returns whether a segment of the partition's map is being written: the map is then incomplete."""
        progress = self.progress(key.flow).get(key)
        return progress is not None and self._maps.sealing(key, progress)

    def cached(self, key: PartitionKey) -> CachedOffsetMap | None:
        """Returns the map of a partition and whether it is trimmed, or None where none can be read now."""
        progress = self.progress(key.flow).get(key)
        if progress is None or self._maps.sealing(key, progress):
            return None
        known = self._cached.get(key)
        if known is not None and known[0] == progress:
            return known[1]
        sealed = self._maps.spans(key, progress)
        numbers = [number.number for number, _ in sealed]
        first = numbers[0] if numbers else progress.segments
        whole = numbers == list(range(first, progress.segments))
        cached = CachedOffsetMap(
            OffsetMap([*(span for _, span in sealed), progress.open_span()]),
            trimmed=whole and first > 0 and progress.incarnation == 0,
        )
        self._cached[key] = (progress, cached)
        return cached


async def offset_maps_at(cluster: KafkaCluster) -> OffsetMaps | None:
    """Returns the offset maps of a cluster, or None where no job ever copied into it. Raises WireError."""
    topics = await cluster.topics([naming.LEDGER, naming.OFFSET_MAP])
    if any(topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for topic in topics.values()):
        return None
    return OffsetMaps(cluster, await Ledger.open(cluster))
