"""Reads the topics of a cluster, and how far each flow into it has copied: `repl read CLUSTER`."""

from __future__ import annotations

import asyncio

from runtime.audit.ledger import ledger_of, open_cluster
from runtime.audit.read.records import ReadRecordsRequest
from runtime.contract.records.ledger import UnreadableRecord
from runtime.contract.spec.route import is_reserved
from runtime.contract.views.records_view import ClusterContentView, CopiedPartitionView, TopicContentView
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import WireError
from runtime.kafka.protocol.metadata import TopicMetadata
from runtime.kafka.protocol.offsets import EARLIEST, LATEST, ListedOffset, TopicPartition
from runtime.kafka.queries.partitions import list_offsets


async def read_cluster(asked: ReadRecordsRequest, within_s: float) -> ClusterContentView:
    """Reads the topics and the flows' progress of a cluster. Raises AuditFailure."""
    async with open_cluster(asked.reach, within_s) as cluster:
        every = await cluster.all_topics()
        topics = {name: topic for name, topic in every.items() if not is_reserved(name)}
        offsets = await _offsets(cluster, topics, within_s)
        notes: list[str] = []
        copied: list[CopiedPartitionView] = []
        try:
            copied = await _copied(cluster, asked)
        except (WireError, UnreadableRecord) as error:
            notes.append(f"the ledger can't be read, so what was copied is not known: {error}")
        into: dict[str, set[str]] = {}
        for one in copied:
            into.setdefault(one.destination_topic, set()).add(one.flow)
        return ClusterContentView(
            cluster=asked.reach.name,
            cluster_id=cluster.cluster_id,
            brokers=len(cluster.brokers),
            topics=[
                TopicContentView(
                    topic=name,
                    partitions=len(topics[name].partitions),
                    offsets=offsets.get(name),
                    flows=sorted(into.get(name, ())),
                )
                for name in sorted(topics)
            ],
            hidden=len(every) - len(topics),
            copied=[one for one in copied if not is_reserved(one.destination_topic)],
            notes=notes,
        )


async def _offsets(
    cluster: KafkaCluster, topics: dict[str, TopicMetadata], within_s: float
) -> dict[str, int]:
    """Returns the number of offsets of the topics whose every partition answers."""
    places = [TopicPartition(name, number) for name, topic in topics.items() for number in topic.partitions]
    if not places:
        return {}
    starts, ends = await asyncio.gather(
        list_offsets(cluster, dict.fromkeys(places, EARLIEST), within=within_s),
        list_offsets(cluster, dict.fromkeys(places, LATEST), within=within_s),
    )
    found: dict[str, int] = dict.fromkeys(topics, 0)
    for at in places:
        start, end = starts[at], ends[at]
        if isinstance(start, ListedOffset) and isinstance(end, ListedOffset) and at.topic in found:
            found[at.topic] += end.offset - start.offset
        else:
            found.pop(at.topic, None)
    return found


async def _copied(cluster: KafkaCluster, asked: ReadRecordsRequest) -> list[CopiedPartitionView]:
    opened = await ledger_of(cluster)
    if opened is None:
        return []
    found = []
    for flow, source in sorted(asked.flows.items()):
        await opened.ledger.refresh(flow)
        for key, one in sorted(opened.ledger.all_progress(flow).items()):
            found.append(
                CopiedPartitionView(
                    flow=flow,
                    source=source,
                    topic=key.topic,
                    partition=key.partition,
                    destination_topic=one.destination_topic,
                    position=one.position,
                    records=one.records,
                    last_timestamp_ms=one.last_timestamp if one.last_timestamp > 0 else None,
                    last_commit_ms=one.written_at if one.written_at > 0 else None,
                )
            )
    return found
