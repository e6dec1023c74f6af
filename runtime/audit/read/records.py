"""Reads the topics of a cluster, and records of one topic with their origin: `repl read CLUSTER [TOPIC]`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import assert_never

from runtime.audit.ledger import AuditFailure, as_audit_failure, open_cluster, unanswered
from runtime.audit.partition_logs import LogBounds, fetch_records, log_bounds
from runtime.audit.read.record_tracer import ClusterLedger, KnownCluster, RecordTracer
from runtime.contract.client.endpoint import ClusterEndpoint
from runtime.contract.records.consumer_record import ConsumerRecord
from runtime.contract.records.ledger import UnreadableRecord
from runtime.contract.results.records import (
    ClusterContent,
    MirrorProgress,
    TopicContent,
    TopicRecords,
)
from runtime.contract.spec.flow import AtTimestamp, Earliest, Latest
from runtime.contract.spec.naming import TopicPartition
from runtime.contract.spec.route import is_reserved
from runtime.contract.spec.transform import quarantine_topic
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import BrokerError, ErrorCode, WireError
from runtime.kafka.protocol.fetch import Isolation
from runtime.kafka.protocol.metadata import TopicMetadata
from runtime.kafka.protocol.offsets import ListedOffset
from runtime.kafka.queries import list_offsets
from runtime.ledger.offset_maps import offset_maps_at

_RANGE_GROWTH = (
    4  # markers and gaps take offsets too: each attempt reads a range that is larger by this factor
)


Start = Earliest | Latest | AtTimestamp | tuple[int, int]  # or a partition, and the offset to begin at


async def read_records(
    known_cluster: KnownCluster,
    topic: str,
    start: Start,
    limit: int,
    within_s: float,
    names: Mapping[str, str],
    others: Mapping[str, KnownCluster],
) -> TopicRecords:
    """Reads committed records, each with its origin. Raises AuditFailure.

    `names` are those of known cluster ids. `others`: the other clusters of the topology, by name, where
    records may have been before.
    """
    name = known_cluster.reach.cluster
    async with open_cluster(known_cluster.reach, within_s) as cluster:
        topic_read = await _topic(cluster, name, topic)
        with as_audit_failure(name, "read another place of it: --from"):
            records, silent = await records_from(cluster, name, topic_read, start, limit, within_s)
        trace = RecordTracer(ClusterLedger(cluster, known_cluster, names), others, within_s)
        return TopicRecords(
            cluster=name,
            cluster_id=cluster.cluster_id,
            topic=topic,
            partitions=len(topic_read.partitions),
            records=await trace.views(topic, records),
            notes=[f"{at} has no leader that answers: its records are missing" for at in silent]
            + trace.notes,
        )


async def read_newest(
    reach: ClusterEndpoint, takes: Callable[[str], bool], limit: int, within_s: float
) -> list[ConsumerRecord]:
    """Returns the newest committed records of the topics that are taken, `limit` in all.

    Each topic has the same share of them. Raises AuditFailure.
    """
    async with open_cluster(reach, within_s) as cluster:
        topics = sorted(name for name in await cluster.all_topics() if takes(name))
        if not topics:
            raise AuditFailure(
                reach.cluster,
                "the cluster has no topic that the flow takes",
                "create the topics first (repl apply), correct topics.include, or try records of a file:"
                " --sample FILE",
            )
        records: list[ConsumerRecord] = []
        for at, topic in enumerate(topics):
            share = -(-(limit - len(records)) // (len(topics) - at))
            if share <= 0:
                break
            topic_read = await _topic(cluster, reach.cluster, topic)
            with as_audit_failure(reach.cluster, "read another place of it: repl read"):
                newest, _ = await records_from(cluster, reach.cluster, topic_read, Latest(), share, within_s)
            records += newest
        return records


async def _topic(cluster: KafkaCluster, name: str, topic: str) -> TopicMetadata:
    metadata = (await cluster.topics([topic], fresh=True))[topic]
    if metadata.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise AuditFailure(name, f"there is no topic {topic}", f"repl read {name} lists those there are")
    if metadata.error is not ErrorCode.NONE:
        raise BrokerError(metadata.error, f"topic {topic}")
    return metadata


async def records_from(
    cluster: KafkaCluster, name: str, topic: TopicMetadata, start: Start, limit: int, within_s: float
) -> tuple[list[ConsumerRecord], list[TopicPartition]]:
    """Returns the first, or the last, `limit` records of all partitions together, by time.

    With them it returns the partitions whose leader does not answer. Raises AuditFailure where none of those
    that are read does, or the partition does not exist; WireError, BatchFailure.
    """
    numbers = sorted(topic.partitions)
    if isinstance(start, tuple):
        if start[0] not in topic.partitions:
            hint = f"its partitions are 0 to {numbers[-1]}"
            raise AuditFailure(name, f"there is no {TopicPartition(topic.name, start[0])}", hint)
        numbers = [start[0]]
    places = [TopicPartition(topic.name, number) for number in numbers]
    logs = await log_bounds(cluster, places, within_s)
    match start:
        case Latest() | Earliest():
            begin = {at: log.start for at, log in logs.items()}
        case AtTimestamp(timestamp_ms):
            times = dict.fromkeys(logs, timestamp_ms)
            answers = await list_offsets(cluster, times, Isolation.READ_COMMITTED, within_s)
            begin = {
                at: listed.offset if listed.offset >= 0 else logs[at].end
                for at, listed in answers.items()
                if isinstance(listed, ListedOffset)
            }
        case (_, offset):
            begin = {at: max(offset, log.start) for at, log in logs.items()}
        case _:
            assert_never(start)
    if places and not begin:
        raise AuditFailure(name, f"{places[0]} has no leader that answers", unanswered(name))
    silent = [at for at in places if at not in begin]
    if isinstance(start, Latest):
        newest = await asyncio.gather(*(_newest(cluster, at, logs[at], limit) for at in begin))
        return _by_time(newest)[-limit:], silent
    wanted = (fetch_records(cluster, at, offset, logs[at].end, limit) for at, offset in begin.items())
    return _by_time(await asyncio.gather(*wanted))[:limit], silent


async def _newest(
    cluster: KafkaCluster, at: TopicPartition, log: LogBounds, limit: int
) -> list[ConsumerRecord]:
    back = limit
    while True:
        begin = max(log.end - back, log.start)
        records = await fetch_records(cluster, at, begin, log.end, log.end - begin)
        if len(records) >= limit or begin == log.start:
            return records[-limit:]
        back *= _RANGE_GROWTH


def _by_time(each: Sequence[list[ConsumerRecord]]) -> list[ConsumerRecord]:
    """Merges the partitions by time.

    Within a partition the order is that of offsets, whatever the timestamps.
    """
    rows: list[tuple[int, int, int, ConsumerRecord]] = []
    for records in each:
        latest = -1
        for record in records:
            latest = max(latest, record.timestamp)
            rows.append((latest, record.partition, record.offset, record))
    return [row[-1] for row in sorted(rows, key=lambda row: row[:-1])]


async def read_cluster(known_cluster: KnownCluster, within_s: float) -> ClusterContent:
    """Reads the topics and the flows' progress of a cluster. Raises AuditFailure."""
    async with open_cluster(known_cluster.reach, within_s) as cluster:
        every = await cluster.all_topics()
        topics = {name: topic for name, topic in every.items() if not is_reserved(name)}
        offsets = await _offsets(cluster, topics, within_s)
        notes: list[str] = []
        copied: list[MirrorProgress] = []
        try:
            copied = await _copied(cluster, known_cluster)
        except (WireError, UnreadableRecord) as error:
            notes.append(f"the ledger can't be read, so what was copied is not known: {error}")
        into: dict[str, set[str]] = {}
        for mirror in copied:
            into.setdefault(mirror.destination_topic, set()).add(mirror.flow)
            if mirror.quarantined:
                into.setdefault(quarantine_topic(mirror.destination_topic), set()).add(mirror.flow)
        return ClusterContent(
            cluster=known_cluster.reach.cluster,
            cluster_id=cluster.cluster_id,
            brokers=len(cluster.brokers),
            topics=[
                TopicContent(
                    topic=name,
                    partitions=len(topics[name].partitions),
                    offsets=offsets.get(name),
                    flows=sorted(into.get(name, ())),
                )
                for name in sorted(topics)
            ],
            hidden=len(every) - len(topics),
            copied=[mirror for mirror in copied if not is_reserved(mirror.destination_topic)],
            notes=notes,
        )


async def _offsets(
    cluster: KafkaCluster, topics: dict[str, TopicMetadata], within_s: float
) -> dict[str, int]:
    """Returns the number of offsets of the topics whose every partition answers."""
    places = [TopicPartition(name, number) for name, topic in topics.items() for number in topic.partitions]
    logs = await log_bounds(cluster, places, within_s, Isolation.READ_UNCOMMITTED)
    silent = {at.topic for at in places if at not in logs}
    offsets = {name: 0 for name in topics if places and name not in silent}
    for at, (start, end) in logs.items():
        if at.topic in offsets:
            offsets[at.topic] += end - start
    return offsets


async def _copied(cluster: KafkaCluster, known_cluster: KnownCluster) -> list[MirrorProgress]:
    opened = await offset_maps_at(cluster, fresh=True)
    if opened is None:
        return []
    copied = []
    for flow, source in sorted(known_cluster.flows.items()):
        await opened.ledger.refresh(flow)
        for key, made in sorted(opened.ledger.all_progress(flow).items()):
            copied.append(
                MirrorProgress(
                    flow=flow,
                    source=source,
                    topic=key.topic,
                    partition=key.partition,
                    destination_topic=made.destination_topic,
                    position=made.position,
                    records=made.records,
                    last_timestamp_ms=made.last_timestamp if made.last_timestamp > 0 else None,
                    last_commit_ms=made.written_at if made.written_at > 0 else None,
                    quarantined=made.quarantined,
                )
            )
    return copied
