"""The offset maps of flows, put together from their segments and the ends that progress carries (R6)."""

from __future__ import annotations

from runtime.contract.records.ledger import (
    LedgerKey,
    LedgerValue,
    PartitionKey,
    Progress,
    Segment,
    SegmentKey,
    UnreadableRecord,
    decode_key,
    decode_segment,
    encode_key,
    partition_of,
)
from runtime.contract.records.offset_map import OffsetMap, Span, trimmable
from runtime.contract.spec import naming
from runtime.kafka.cluster import Cluster
from runtime.kafka.protocol.offsets import EARLIEST, ListedOffset, TopicPartition
from runtime.kafka.queries.partitions import list_offsets
from runtime.ledger.ledger import Ledger
from runtime.ledger.ledger_writer import LedgerWriter
from runtime.ledger.scan import Scan, TopicReplaced


class Maps:
    """Kept by who asks again and again: `refresh` reads on from where it was, `get` costs little."""

    def __init__(self, cluster: Cluster, ledger: Ledger) -> None:
        self._cluster = cluster
        self._ledger = ledger
        self._scans: dict[int, Scan] = {}
        self._segments: dict[PartitionKey, dict[SegmentKey, Segment]] = {}
        self._unreadable: dict[str, dict[SegmentKey, UnreadableRecord]] = {}

    async def refresh(self, flow: str) -> None:
        """Progress first: it names the segments that were sealed by then, and those are there to be read.

        Raises WireError, TopicReplaced, BatchFailure, and UnreadableRecord for a segment of this flow.
        """
        await self._ledger.refresh(flow)
        partition, scan = await self._scan(flow)
        try:
            await scan.refresh()
        except TopicReplaced:
            del self._scans[partition]
            self._segments.clear()
            self._unreadable.clear()
            raise
        self._take_in(scan)
        if flow in self._unreadable:
            raise next(iter(self._unreadable[flow].values()))

    def get(self, key: PartitionKey) -> OffsetMap | None:
        """As of the last refresh; None for what was never copied."""
        progress = self._ledger.committed(key)
        return self._map(key, progress) if progress is not None else None

    def all(self, flow: str) -> dict[PartitionKey, OffsetMap]:
        progress = self._ledger.all_progress(flow)
        return {key: self._map(key, state) for key, state in progress.items()}

    def segments(self, key: PartitionKey) -> dict[SegmentKey, Segment]:
        """Of every incarnation, in no order."""
        return self._segments.get(key, {})

    def spans(self, key: PartitionKey, progress: Progress) -> list[tuple[SegmentKey, Span]]:
        """The sealed ones of the current incarnation, in order."""
        return sorted(
            (
                (number, one.span())
                for number, one in self.segments(key).items()
                if number.incarnation == progress.incarnation and number.number < progress.segments
            ),
            key=lambda item: item[0].number,
        )

    def sealing(self, key: PartitionKey, progress: Progress) -> bool:
        """Whether the newest segment that progress names can't be seen yet: its topic's marker is still to
        come. Until then the map only seems to begin later.
        """
        newest = SegmentKey(key, progress.incarnation, progress.segments - 1)
        stored = encode_key(newest)
        return newest not in self.segments(key) and any(
            scan.fold.undecided(stored) for scan in self._scans.values()
        )

    def _map(self, key: PartitionKey, progress: Progress) -> OffsetMap:
        return OffsetMap([*(span for _, span in self.spans(key, progress)), progress.open_span()])

    async def _scan(self, flow: str) -> tuple[int, Scan]:
        topic = (await self._cluster.topics([naming.OFFSET_MAP]))[naming.OFFSET_MAP]
        partition = partition_of(flow, max(len(topic.partitions), 1))
        if partition not in self._scans:
            self._scans[partition] = Scan(self._cluster, naming.OFFSET_MAP, partition)
        return partition, self._scans[partition]

    def _take_in(self, scan: Scan) -> None:
        for stored, value in scan.fold.news():
            try:
                key = decode_key(stored)
            except UnreadableRecord:  # of no segment: a newer version may add other keys
                continue
            if isinstance(key, SegmentKey):
                self._take_segment(key, value)

    def _take_segment(self, key: SegmentKey, value: bytes | None) -> None:
        """One that can't be read is kept as such: only its own flow waits for it (R7)."""
        unreadable = self._unreadable.pop(key.of.flow, {})
        unreadable.pop(key, None)
        segments = self._segments.setdefault(key.of, {})
        segments.pop(key, None)
        try:
            if value is not None:
                segments[key] = decode_segment(value)
        except UnreadableRecord as error:
            unreadable[key] = error
        if unreadable:
            self._unreadable[key.of.flow] = unreadable


async def read_map(cluster: Cluster, flow: str) -> dict[PartitionKey, OffsetMap]:
    """Every partition the flow ever copied, read once."""
    maps = Maps(cluster, await Ledger.open(cluster))
    await maps.refresh(flow)
    return maps.all(flow)


async def trim_map(cluster: Cluster, writer: LedgerWriter, flow: str) -> int:
    """Takes segments away that hold nothing the destination still has (R6); how many. A duty of the driver.

    Those of older incarnations go too: what they map was recreated or truncated.
    """
    ledger = await Ledger.open(cluster)
    maps = Maps(cluster, ledger)
    await maps.refresh(flow)
    states = ledger.all_progress(flow)
    places = {key: TopicPartition(state.destination_topic, key.partition) for key, state in states.items()}
    starts = await list_offsets(cluster, dict.fromkeys(places.values(), EARLIEST))
    gone: dict[LedgerKey, LedgerValue | None] = {}
    for key, state in states.items():
        gone.update((old, None) for old in maps.segments(key) if old.incarnation < state.incarnation)
        start = starts[places[key]]
        if isinstance(start, ListedOffset):
            sealed = maps.spans(key, state)
            count = trimmable([*(span for _, span in sealed), state.open_span()], start.offset)
            gone.update((number, None) for number, _ in sealed[:count])
    if gone:
        await writer.commit(gone)
    return len(gone)
