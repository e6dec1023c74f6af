"""Reads records of a flow's source that never reached the destination, by the ledger: `repl salvage`.

It only reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from runtime.audit.ledger import copied_progress, existing_ledger, producers_at
from runtime.audit.partition_logs import (
    CommittedRecordReader,
    LogBounds,
    OpenTransactionTimeout,
    RecordsExpired,
    log_bounds,
    open_spec,
)
from runtime.audit.verify.provenance import ProvenanceFilter
from runtime.batch import BatchFailure
from runtime.contract.records.consumer_record import ConsumerRecord
from runtime.contract.records.ledger import (
    Orphans,
    PartitionKey,
    Progress,
)
from runtime.contract.records.provenance import ClusterTopic
from runtime.contract.results.records import Salvage, SalvagedPartition, SalvagedRecord
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.contract.spec.naming import TopicPartition, is_other_topic
from runtime.contract.spec.route import router_of
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import ErrorCode, WireError
from runtime.kafka.protocol.metadata import TopicMetadata
from runtime.kafka.protocol.offsets import LATEST
from runtime.kafka.queries import known_offsets
from runtime.ledger.offset_maps import OffsetMaps


async def salvage(
    job: JobSpec, flow: FlowSpec, within_s: float, take: Callable[[SalvagedRecord], None]
) -> Salvage:
    """Reads all records that were not copied and passes each to `take`, partition by partition, in order.

    The job's routes are all flows of the topology: they find topics that the flow never reached. Raises
    AuditFailure.
    """
    async with open_spec(job.clusters[flow.destination], flow.destination) as destination:
        opened = await existing_ledger(destination, flow.destination)
        progress = await copied_progress(opened, flow.destination, flow.name)
        orphans, generation = opened.ledger.orphans(flow.name), opened.ledger.generation(flow.name)
        destination_id = destination.cluster_id
    async with open_spec(job.clusters[flow.source], flow.source) as source:
        listed = await source.all_topics()
        copied = {key.topic for key in progress} - listed.keys()
        topics = {**listed, **await source.topics(copied, fresh=True)}
        places = _places(job, flow.name, progress, listed)
        exist = [key.at for key in places if not topics[key.topic].error]
        # In this order: only an open transaction keeps the last stable offset below an earlier
        # high watermark.
        highs = await known_offsets(source, exist, LATEST, within=within_s)
        logs = await log_bounds(source, exist, within_s)
        producers = await producers_at(source)
        partitions = []
        for key, destination_topic in sorted(places.items()):
            filter_ = ProvenanceFilter(
                flow, key.topic, ClusterTopic(destination_id, destination_topic), producers
            )
            partition = _Partition(flow, source, filter_, key.partition, within_s)
            log, high = logs.get(key.at), highs.get(key.at)
            await partition.read(topics[key.topic], log, high, opened, orphans[key], take)
            partitions.append(partition.result)
        return Salvage(
            flow=flow.name,
            state=generation.state if generation is not None else "unknown",
            source=flow.source,
            source_id=source.cluster_id,
            destination=flow.destination,
            partitions=partitions,
        )


def _places(
    job: JobSpec, name: str, progress: Mapping[PartitionKey, Progress], listed: Mapping[str, TopicMetadata]
) -> dict[PartitionKey, str]:
    """Returns the partitions that the flow copied, and those that it would have taken and never reached."""
    router = router_of(job)
    places = {key: made.destination_topic for key, made in progress.items()}
    for topic in listed.values():
        destination_topic = router.destination_topic(name, topic.name)
        if destination_topic is not None:
            for partition in topic.partitions:
                places.setdefault(PartitionKey(name, topic.name, partition), destination_topic)
    return places


class _Partition:
    """Reads one partition, and counts its salvaged records in `result`."""

    def __init__(
        self, flow: FlowSpec, source: KafkaCluster, filter_: ProvenanceFilter, partition: int, within_s: float
    ) -> None:
        self._flow, self._source, self._filter, self._within_s = flow, source, filter_, within_s
        self._at = TopicPartition(filter_.topic, partition)
        self.result = SalvagedPartition(
            topic=filter_.topic, partition=partition, destination_topic=filter_.home.topic, begun=False
        )

    async def read(
        self,
        topic: TopicMetadata,
        log: LogBounds | None,
        high: int | None,
        opened: OffsetMaps,
        orphans: Orphans,
        take: Callable[[SalvagedRecord], None],
    ) -> None:
        """Reads what was not copied up to the last stable offset. `high` is the high watermark."""
        result, key = self.result, PartitionKey(self._flow.name, *self._at)
        progress = opened.progress(key.flow).get(key)
        result.begun = progress is not None
        if topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            result.unread = f"{self._at.topic} is not there any more"
        elif topic.error:
            result.unread = f"the metadata of {self._at.topic} can't be read: {topic.error.name}"
        elif progress is not None and is_other_topic(progress.source_topic_id, topic.id):
            result.unread = f"{self._at.topic} is not the topic that was copied: it was recreated"
        elif log is None or high is None:
            result.unread = "it has no leader that answers"
        if result.unread or log is None:
            return
        start, end = log
        result.open_from = end if high is not None and high > end else None
        try:
            for low, stop, why in orphans.uncopied(progress, opened.get(key), topic.id, end):
                result.lost += max(min(start, stop) - low, 0)
                if max(low, start) < stop:
                    result.stretches.append((max(low, start), stop, why))
                    await self._read(topic, max(low, start), stop, take)
        except (WireError, BatchFailure, OpenTransactionTimeout) as error:
            result.unread = str(error)

    async def _read(
        self, topic: TopicMetadata, low: int, high: int, take: Callable[[SalvagedRecord], None]
    ) -> None:
        while low < high:
            side = CommittedRecordReader(self._source, self._at, topic.id, low, high, self._within_s)
            try:
                async for records in side:
                    for record in records:
                        self._take(record, take)
                return
            except RecordsExpired as expired:  # retention went on meanwhile
                self.result.lost += min(expired.start, high) - side.position
                low = expired.start

    def _take(self, record: ConsumerRecord, take: Callable[[SalvagedRecord], None]) -> None:
        if self._filter.drops(record) or self._filter.originated_at_destination(record):
            self.result.kept_back += 1
            return
        owner = self._filter.producers.get(record.producer_id)
        salvaged = SalvagedRecord(
            cluster=self._flow.source,
            cluster_id=self._source.cluster_id,
            record=record,
            flow=owner.flow if owner is not None else None,
            registry=self._flow.source if self._flow.schemas.sync else None,
        )
        self.result.count(salvaged)
        take(salvaged)
