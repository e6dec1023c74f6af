"""Reads records of a flow's source that never reached the destination, by the ledger: `repl salvage`.

It only reads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from msgspec import Struct

from runtime.audit.ledger import LedgerNotFound, NothingCopied, UnreadableLedger, ledger_of, producers_at
from runtime.audit.partition_logs import (
    CommittedRecordReader,
    FetchedRecord,
    OpenTransactionTimeout,
    RecordsExpired,
    open_spec,
)
from runtime.audit.verify.provenance import ProvenanceFilter
from runtime.batch import BatchFailure
from runtime.contract.records.ledger import (
    NO_ORPHANS,
    Orphans,
    PartitionKey,
    Progress,
    UnreadableRecord,
    uncopied_ranges,
)
from runtime.contract.records.offset_map import OffsetMap
from runtime.contract.records.provenance import ClusterTopic, origins
from runtime.contract.spec.jobspec import ClusterSpec, FlowSpec
from runtime.contract.spec.naming import is_other_topic
from runtime.contract.spec.route import Router, is_reserved
from runtime.contract.views.records_view import SalvagedPartition, SalvagedRecord, SalvageView
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import WireError
from runtime.kafka.protocol.fetch import Isolation
from runtime.kafka.protocol.metadata import TopicMetadata
from runtime.kafka.protocol.offsets import EARLIEST, LATEST, ListedOffset, TopicPartition
from runtime.kafka.queries import list_offsets
from runtime.slot.budget import TokenBucket

SHOWN = 10


class SalvageCounter:
    """Counts one partition's salvaged records; it keeps the first of them, the last one and the time
    range.
    """

    def __init__(self, cluster: str, cluster_id: str, key: PartitionKey, destination_topic: str) -> None:
        self.stretches: list[tuple[int, int, str]] = []
        self.kept_back = 0
        self.lost = 0
        self._cluster, self._cluster_id = cluster, cluster_id
        self._key, self._destination_topic = key, destination_topic
        self._records = self._bytes = 0
        self._first: list[SalvagedRecord] = []
        self._last: SalvagedRecord | None = None
        self._earliest: int | None = None
        self._latest: int | None = None

    def counted(self, record: FetchedRecord, flow: str | None) -> SalvagedRecord:
        """Counts a record and returns it as it is shown."""
        salvaged = SalvagedRecord(
            cluster=self._cluster,
            cluster_id=self._cluster_id,
            topic=self._key.topic,
            partition=self._key.partition,
            offset=record.offset,
            timestamp_ms=record.timestamp if record.timestamp >= 0 else None,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            came_from=[
                (hop.cluster, hop.topic, hop.partition, hop.offset) for hop in origins(record.headers)
            ],
            flow=flow,
        )
        self._records += 1
        self._bytes += len(record.key or b"") + len(record.value or b"")
        if len(self._first) < SHOWN:
            self._first.append(salvaged)
        self._last = salvaged
        if (at := salvaged.timestamp_ms) is not None:
            self._earliest = at if self._earliest is None else min(self._earliest, at)
            self._latest = at if self._latest is None else max(self._latest, at)
        return salvaged

    def view(self, *, begun: bool, unread: str = "") -> SalvagedPartition:
        """Returns the result for the partition. `unread` says why it was not read to its end."""
        return SalvagedPartition(
            topic=self._key.topic,
            partition=self._key.partition,
            destination_topic=self._destination_topic,
            stretches=self.stretches,
            records=self._records,
            bytes=self._bytes,
            kept_back=self.kept_back,
            lost=self.lost,
            begun=begun,
            first_offset=self._first[0].offset if self._first else None,
            last_offset=self._last.offset if self._last is not None else None,
            first_timestamp_ms=self._earliest,
            last_timestamp_ms=self._latest,
            first=self._first,
            unread=unread,
        )


class SalvageRequest(Struct, frozen=True):
    """Describes a salvage.

    `router` holds all flows of the topology: it finds topics that the flow never reached.
    """

    flow: FlowSpec
    source: ClusterSpec
    destination: ClusterSpec
    router: Router
    within_s: float = 10.0


class _Ledger(Struct, frozen=True):
    state: str
    progress: Mapping[PartitionKey, Progress]
    maps: Mapping[PartitionKey, OffsetMap]
    orphans: Mapping[PartitionKey, Orphans]
    destination_id: str


async def salvage(asked: SalvageRequest, take: Callable[[SalvagedRecord], None]) -> SalvageView:
    """Reads all records that were not copied and passes each to `take`, partition by partition, in order.

    Raises AuditFailure.
    """
    ledger = await _read_ledger(asked)
    flow = asked.flow
    async with open_spec(asked.source, flow.source) as source:
        known = await source.all_topics()
        producers = await producers_at(source)
        found = []
        for key, destination_topic in sorted(_places(asked, ledger, known).items()):
            filter_ = ProvenanceFilter(
                flow, key.topic, ClusterTopic(ledger.destination_id, destination_topic), producers
            )
            one = _Partition(asked, source, key, destination_topic, filter_, ledger)
            found.append(await one.salvaged(known, take))
        return SalvageView(
            flow=flow.name,
            state=ledger.state,
            source=flow.source,
            source_id=source.cluster_id,
            destination=flow.destination,
            partitions=found,
        )


async def _read_ledger(asked: SalvageRequest) -> _Ledger:
    flow = asked.flow
    async with open_spec(asked.destination, flow.destination) as destination:
        opened = await ledger_of(destination)
        if opened is None:
            raise LedgerNotFound(flow.destination)
        try:
            await opened.refresh(flow.name)
            progress = opened.ledger.all_progress(flow.name)
            generation = opened.ledger.generation(flow.name)
            maps = opened.maps.all(flow.name)
            orphans = opened.ledger.orphans(flow.name)
        except UnreadableRecord as error:
            raise UnreadableLedger(flow.destination, str(error)) from error
        own = {key: one for key, one in progress.items() if not is_reserved(key.topic)}
        if not own:
            raise NothingCopied(flow.destination, flow.name)
        state = generation.state if generation else "unknown"
        return _Ledger(state, own, maps, orphans, destination.cluster_id)


def _places(
    asked: SalvageRequest, ledger: _Ledger, known: Mapping[str, TopicMetadata]
) -> dict[PartitionKey, str]:
    """Returns the partitions that the flow copied, and those that it would have taken and never reached."""
    name = asked.flow.name
    places = {key: one.destination_topic for key, one in ledger.progress.items()}
    for topic in known.values():
        destination_topic = asked.router.destination_topic(name, topic.name)
        if destination_topic is not None:
            for partition in topic.partitions:
                places.setdefault(PartitionKey(name, topic.name, partition), destination_topic)
    return places


class _Partition:
    def __init__(
        self,
        asked: SalvageRequest,
        source: KafkaCluster,
        key: PartitionKey,
        destination_topic: str,
        filter_: ProvenanceFilter,
        ledger: _Ledger,
    ) -> None:
        self._progress = ledger.progress.get(key)
        self._orphans, self._map = ledger.orphans.get(key, NO_ORPHANS), ledger.maps.get(key)
        self._asked, self._source, self._key = asked, source, key
        self._filter = filter_
        self._at = TopicPartition(key.topic, key.partition)
        self._count = SalvageCounter(asked.flow.source, source.cluster_id, key, destination_topic)

    async def salvaged(
        self, known: Mapping[str, TopicMetadata], take: Callable[[SalvagedRecord], None]
    ) -> SalvagedPartition:
        count, progress = self._count, self._progress
        topic = known.get(self._key.topic)
        if topic is None or (progress is not None and is_other_topic(progress.source_topic_id, topic.id)):
            gone = (
                "is not there any more"
                if topic is None
                else "is not the topic that was copied: it was recreated"
            )
            return count.view(begun=progress is not None, unread=f"{self._key.topic} {gone}")
        try:
            start, end = await self._log()
            for low, high, why in uncopied_ranges(progress, self._orphans, self._map, topic.id, end):
                count.lost += max(min(start, high) - low, 0)
                if max(low, start) < high:
                    count.stretches.append((max(low, start), high, why))
                    await self._read(topic, max(low, start), high, take)
        except (WireError, BatchFailure, RecordsExpired, OpenTransactionTimeout) as error:
            return count.view(begun=progress is not None, unread=str(error))
        return count.view(begun=progress is not None)

    async def _log(self) -> tuple[int, int]:
        within = self._asked.within_s
        starts = await list_offsets(self._source, {self._at: EARLIEST}, within=within)
        ends = await list_offsets(self._source, {self._at: LATEST}, Isolation.READ_COMMITTED, within)
        start, end = starts[self._at], ends[self._at]
        if not isinstance(start, ListedOffset) or not isinstance(end, ListedOffset):
            raise OpenTransactionTimeout("it has no leader that answers")
        return start.offset, end.offset

    async def _read(
        self, topic: TopicMetadata, low: int, high: int, take: Callable[[SalvagedRecord], None]
    ) -> None:
        bucket = TokenBucket(None, time.monotonic)
        side = CommittedRecordReader(
            self._source, self._at, topic.id, low, high, bucket, self._asked.within_s
        )
        while not side.ended:
            for record in await side.next():
                if self._filter.drops(record) or self._filter.originated_at_destination(record):
                    self._count.kept_back += 1
                else:
                    owner = self._filter.producers.get(record.producer_id)
                    take(self._count.counted(record, owner.flow if owner is not None else None))
