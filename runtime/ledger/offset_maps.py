"""Builds the offset maps of flows from their sealed segments and the open span in their progress (R6).

`OffsetMapReader` reads the segments, and `OffsetMaps` caches built maps for callers that translate
repeatedly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from runtime.contract.records.ledger import (
    PartitionKey,
    Progress,
    SegmentKey,
    UnreadableRecord,
    decode_key,
    decode_segment,
    encode_key,
    partition_of,
)
from runtime.contract.records.offset_map import OffsetMap, Span
from runtime.contract.spec import naming
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import BrokerError, ErrorCode
from runtime.ledger.ledger import Ledger
from runtime.ledger.records import InternalTopicScan, TopicReplaced
from runtime.ledger.runs_files import RunsFiles


class OffsetMapReader:
    """The segments of all flows of a cluster, kept for repeated reads.

    `refresh` continues to read at its last position, and `get` costs little. The runs of large segments are
    kept in temporary files.
    """

    def __init__(self, cluster: KafkaCluster, ledger: Ledger) -> None:
        self._cluster = cluster
        self._ledger = ledger
        self._scans: dict[int, InternalTopicScan] = {}
        self._files = RunsFiles()
        self._partitions: dict[PartitionKey, PartitionKey] = {}  # one object for all segments of a partition
        self._segments: dict[PartitionKey, dict[SegmentKey, Span]] = {}
        self._unreadable: dict[str, dict[SegmentKey, UnreadableRecord]] = {}

    async def refresh(self, flow: str) -> None:
        """Reads the progress of a flow, then its segments.

        Progress must come first: the segments that it names were sealed before and can be read. Raises
        WireError, TopicReplaced, BatchFailure, and UnreadableRecord for a segment of this flow.
        """
        await self._ledger.refresh(flow)
        partition, scan = await self._scan(flow)
        try:
            await scan.refresh(taken=lambda: self._take_news(scan))
        except TopicReplaced:
            self._scans.pop(partition, None)  # another flow of this partition may have removed it
            self._segments.clear()
            self._unreadable.clear()
            raise
        if flow in self._unreadable:
            raise next(iter(self._unreadable[flow].values()))

    def get(self, key: PartitionKey) -> OffsetMap | None:
        """Returns the map of a partition as of the last refresh; None for one that was never copied."""
        progress = self._ledger.committed(key)
        return self._map(key, progress) if progress is not None else None

    def all(self, flow: str) -> dict[PartitionKey, OffsetMap]:
        """Returns the maps of all partitions that the flow ever copied, as of the last refresh."""
        progress = self._ledger.all_progress(flow)
        return {key: self._map(key, state) for key, state in progress.items()}

    def progress(self, flow: str) -> dict[PartitionKey, Progress]:
        """Returns the committed progress of every partition that the flow ever copied."""
        return self._ledger.all_progress(flow)

    def segments(self, key: PartitionKey) -> Mapping[SegmentKey, Span]:
        """Returns the sealed segments of a map's key and every incarnation, in no order."""
        return self._segments.get(key, {})

    def map_keys(self, flow: str) -> set[PartitionKey]:
        """Returns the keys of the flow's maps that have segments."""
        return {key for key, segments in self._segments.items() if key.flow == flow and segments}

    def spans(self, key: PartitionKey, progress: Progress) -> list[tuple[SegmentKey, Span]]:
        """Returns the sealed spans of the current incarnation, in order."""
        return sorted(
            (
                (number, span)
                for number, span in self.segments(progress.map_key(key)).items()
                if number.incarnation == progress.incarnation and number.number < progress.segments
            ),
            key=lambda item: item[0].number,
        )

    def sealing(self, key: PartitionKey, progress: Progress) -> bool:
        """Returns whether the newest segment that progress names can't be read yet.

        The marker of its transaction is not written yet at the segment's topic. Until then the map seems to
        begin later than it does.
        """
        newest = SegmentKey(progress.map_key(key), progress.incarnation, progress.segments - 1)
        stored = encode_key(newest)
        return newest not in self.segments(newest.of) and any(
            scan.fold.undecided(stored) for scan in self._scans.values()
        )

    def _map(self, key: PartitionKey, progress: Progress) -> OffsetMap:
        return OffsetMap(_with_open_span(self.spans(key, progress), progress))

    async def _scan(self, flow: str) -> tuple[int, InternalTopicScan]:
        """Returns the partition of the map topic that holds the flow's segments, and its scan.

        Raises WireError.
        """
        topic = (await self._cluster.topics([naming.OFFSET_MAP]))[naming.OFFSET_MAP]
        if topic.error is not ErrorCode.NONE:
            raise BrokerError(topic.error, naming.OFFSET_MAP)
        partition = partition_of(flow, len(topic.partitions))
        if partition not in self._scans:
            self._scans[partition] = InternalTopicScan(
                self._cluster, naming.OFFSET_MAP, partition, keep_values=False
            )
        return partition, self._scans[partition]

    def _take_news(self, scan: InternalTopicScan) -> None:
        for stored, value in scan.fold.news():
            try:
                key = decode_key(stored)
            except UnreadableRecord:  # It is no segment's key: a newer version may add other keys.
                continue
            if isinstance(key, SegmentKey):
                self._take_segment(key, value)

    def _take_segment(self, key: SegmentKey, value: bytes | None) -> None:
        """Keeps a segment, or the error of one that can't be read, which stops only its own flow (R7)."""
        key = key._replace(of=self._partitions.setdefault(key.of, key.of))
        unreadable = self._unreadable.pop(key.of.flow, {})
        unreadable.pop(key, None)
        segments = self._segments.setdefault(key.of, {})
        segments.pop(key, None)
        try:
            if value is not None:
                span = decode_segment(value)
                segments[key] = replace(span, encoded=self._files.store(span.encoded_runs()))
        except UnreadableRecord as error:
            unreadable[key] = error
        if unreadable:
            self._unreadable[key.of.flow] = unreadable


def _with_open_span(sealed: list[tuple[SegmentKey, Span]], progress: Progress) -> list[Span]:
    """Returns the sealed spans and the open span of the progress.

    Segments that were sealed after this progress may be merged with older ones by now. They contain the runs
    of the open span then.
    """
    spans = [span for _, span in sealed]
    merged = bool(spans) and spans[-1].end > progress.open_low
    return spans if merged else [*spans, progress.open_span()]


class CachedOffsetMap(Struct, frozen=True):
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

    @property
    def reader(self) -> OffsetMapReader:
        """The reader of the segments."""
        return self._maps

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
        first = sealed[0][0].number if sealed else progress.segments
        spans = _with_open_span(sealed, progress)
        offsets = OffsetMap(spans)
        whole = len(offsets.spans) == len(spans)
        cached = CachedOffsetMap(offsets, trimmed=whole and first > 0 and progress.incarnation == 0)
        self._cached[key] = (progress, cached)
        return cached


async def offset_maps_at(cluster: KafkaCluster) -> OffsetMaps | None:
    """Returns the offset maps of a cluster, or None where no job ever copied into it. Raises WireError."""
    topics = await cluster.topics([naming.LEDGER, naming.OFFSET_MAP])
    if any(topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for topic in topics.values()):
        return None
    return OffsetMaps(cluster, await Ledger.open(cluster))
