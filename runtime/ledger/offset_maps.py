"""Builds the offset maps of flows from their sealed segments and the open span in their progress (R6)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

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

_POLL_S = 0.02


class OffsetMaps:
    """The offset maps of the flows into one cluster, each built on request and kept.

    `refresh` continues to read at its last position. The runs of large segments are kept in temporary files.
    """

    def __init__(self, cluster: KafkaCluster, ledger: Ledger) -> None:
        self.cluster, self.ledger = cluster, ledger
        self._progress: dict[str, dict[PartitionKey, Progress]] = {}
        self._built: dict[PartitionKey, tuple[Progress, OffsetMap]] = {}
        self._scans: dict[int, InternalTopicScan] = {}
        self._files = RunsFiles()
        self._partitions: dict[PartitionKey, PartitionKey] = {}  # one object for all segments of a partition
        self._segments: dict[PartitionKey, dict[SegmentKey, Span]] = {}
        self._unreadable: dict[str, dict[SegmentKey, UnreadableRecord]] = {}

    async def refresh(self, flow: str) -> None:
        """Reads the progress of a flow, then its segments.

        Progress must come first: the segments that it names were sealed before and can be read. Raises
        WireError, TopicReplaced, BatchFailure, and UnreadableRecord for a record of this flow.
        """
        await self.ledger.refresh(flow)
        progress = self.ledger.all_progress(flow)
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
        self._progress[flow] = progress

    async def decided(self, flow: str, within: float = 10.0) -> None:
        """Refreshes until every map of the flow can be read.

        A broker acknowledges the end of a transaction before its markers are written. Raises what `refresh`
        raises, and WireError where a segment can't be read for longer than `within` seconds.
        """
        await self.refresh(flow)
        until = time.monotonic() + within
        while any(map(self.sealing, self.progress(flow))):
            if time.monotonic() > until:
                raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS, f"the offset map of {flow}")
            await asyncio.sleep(_POLL_S)
            await self.refresh(flow)

    def progress(self, flow: str) -> dict[PartitionKey, Progress]:
        """Returns the committed progress of a flow's partitions as of the last refresh."""
        return self._progress.get(flow, {})

    def get(self, key: PartitionKey) -> OffsetMap | None:
        """Returns the offset map of a partition, or None where there is none that can be read now."""
        progress = self.progress(key.flow).get(key)
        if progress is None or self.sealing(key):
            return None
        cached = self._built.get(key)
        if cached is not None and cached[0] == progress:
            return cached[1]
        sealed = self.spans(key, progress)
        first = sealed[0][0].number if sealed else progress.segments
        spans = [span for _, span in sealed]
        # Segments that were sealed after this progress may be merged with older ones by now. They contain the
        # runs of the open span then.
        if not spans or spans[-1].end <= progress.open_low:
            spans.append(progress.open_span())
        offsets = OffsetMap(spans, is_trimmed=first > 0 and progress.incarnation == 0)
        self._built[key] = (progress, offsets)
        return offsets

    def all(self, flow: str) -> dict[PartitionKey, OffsetMap]:
        """Returns the offset maps of a flow that can be read now."""
        maps = ((key, self.get(key)) for key in self.progress(flow))
        return {key: offsets for key, offsets in maps if offsets is not None}

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

    def sealing(self, key: PartitionKey) -> bool:
        """Returns whether the newest segment that a partition's progress names can't be read yet.

        The marker of its transaction is not written yet at the segment's topic. Until then the map seems to
        begin later than it does.
        """
        progress = self.progress(key.flow).get(key)
        if progress is None:
            return False
        newest = SegmentKey(progress.map_key(key), progress.incarnation, progress.segments - 1)
        stored = encode_key(newest)
        return newest not in self.segments(newest.of) and any(
            scan.fold.undecided(stored) for scan in self._scans.values()
        )

    async def _scan(self, flow: str) -> tuple[int, InternalTopicScan]:
        """Returns the partition of the map topic that holds the flow's segments, and its scan.

        Raises WireError.
        """
        topic = (await self.cluster.topics([naming.OFFSET_MAP]))[naming.OFFSET_MAP]
        if topic.error is not ErrorCode.NONE:
            raise BrokerError(topic.error, naming.OFFSET_MAP)
        partition = partition_of(flow, len(topic.partitions))
        if partition not in self._scans:
            self._scans[partition] = InternalTopicScan(
                self.cluster, naming.OFFSET_MAP, partition, keep_values=False
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


async def offset_maps_at(cluster: KafkaCluster, *, fresh: bool = False) -> OffsetMaps | None:
    """Returns the offset maps of a cluster, or None where no job ever copied into it. Raises WireError."""
    topics = await cluster.topics([naming.LEDGER, naming.OFFSET_MAP], fresh=fresh)
    if any(topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for topic in topics.values()):
        return None
    return OffsetMaps(cluster, await Ledger.open(cluster))
