"""Reads records of one topic with their provenance: `repl read CLUSTER TOPIC`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from runtime.audit.ledger import AuditFailure, ClusterAccess, open_cluster, unanswered
from runtime.audit.read.record_tracer import ClusterLedger, KnownCluster, RecordTracer
from runtime.audit.read.records_fetch import FetchedRecord, fetch_records
from runtime.batch.failure import BatchFailure
from runtime.contract.views.records_view import RecordsView
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.codes import ErrorCode
from runtime.kafka.errors import BrokerError
from runtime.kafka.protocol.fetch import Isolation
from runtime.kafka.protocol.offsets import EARLIEST, LATEST, ListedOffset, TopicPartition
from runtime.kafka.queries.partitions import list_offsets

_RANGE_GROWTH = (
    4  # markers and gaps take offsets too: each attempt reads a range that is larger by this factor
)


@dataclass(frozen=True, slots=True)
class ReadFromEarliest:
    """Reads from the log's start on."""


@dataclass(frozen=True, slots=True)
class ReadNewest:
    """Reads the newest records."""


@dataclass(frozen=True, slots=True)
class ReadFromTimestamp:
    """Reads from this time on."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ReadFromOffset:
    """Reads one partition, from this offset on."""

    partition: int
    offset: int


Start = ReadFromEarliest | ReadNewest | ReadFromTimestamp | ReadFromOffset


@dataclass(frozen=True, slots=True)
class ReadRecordsRequest:
    """Describes the cluster to read: the flows into it with their sources' names, and the names of known
    cluster ids.

    `others`: the other clusters of the topology, by name, where records may have been before.
    """

    reach: ClusterAccess
    flows: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, KnownCluster] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Log:
    at: TopicPartition
    start: int
    end: int


async def read_records(
    asked: ReadRecordsRequest, topic: str, start: Start, limit: int, within_s: float
) -> RecordsView:
    """Reads committed records. Raises AuditFailure."""
    name = asked.reach.name
    async with open_cluster(asked.reach, within_s) as cluster:
        logs = await _logs(cluster, name, topic, within_s)
        try:
            found = await _found(cluster, logs, start, limit, within_s)
        except BatchFailure as failure:
            raise AuditFailure(name, str(failure), "read another place of it: --from") from failure
        first = ClusterLedger(cluster, KnownCluster(asked.reach, asked.flows), asked.names)
        trace = RecordTracer(first, asked.others, within_s)
        return RecordsView(
            cluster=name,
            cluster_id=cluster.cluster_id,
            topic=topic,
            partitions=len(logs),
            records=await trace.views(topic, found),
            notes=trace.notes,
        )


async def _logs(cluster: KafkaCluster, name: str, topic: str, within_s: float) -> list[_Log]:
    known = (await cluster.topics([topic], fresh=True))[topic]
    if known.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise AuditFailure(name, f"there is no topic {topic}", f"repl read {name} lists those there are")
    if known.error is not ErrorCode.NONE:
        raise BrokerError(known.error, f"topic {topic}")
    places = [TopicPartition(topic, number) for number in sorted(known.partitions)]
    starts, ends = await asyncio.gather(
        list_offsets(cluster, dict.fromkeys(places, EARLIEST), within=within_s),
        list_offsets(cluster, dict.fromkeys(places, LATEST), Isolation.READ_COMMITTED, within_s),
    )
    logs = []
    for at in places:
        start, end = starts[at], ends[at]
        if not isinstance(start, ListedOffset) or not isinstance(end, ListedOffset):
            raise AuditFailure(name, f"{topic}-{at.partition} has no leader that answers", unanswered(name))
        logs.append(_Log(at, start.offset, end.offset))
    return logs


async def _found(
    cluster: KafkaCluster, logs: Sequence[_Log], start: Start, limit: int, within_s: float
) -> list[FetchedRecord]:
    """Returns the first, or the last, `limit` records of all partitions together, by time."""
    match start:
        case ReadNewest():
            each = await asyncio.gather(*(_newest(cluster, log, limit) for log in logs))
            return _by_time(each)[-limit:]
        case ReadFromEarliest():
            begin = {log.at: log.start for log in logs}
        case ReadFromTimestamp(timestamp_ms):
            places = dict.fromkeys((log.at for log in logs), timestamp_ms)
            answers = await list_offsets(cluster, places, Isolation.READ_COMMITTED, within_s)
            begin = {
                at: one.offset
                for at, one in answers.items()
                if isinstance(one, ListedOffset) and one.offset >= 0
            }
        case ReadFromOffset(partition, offset):
            begin = {log.at: max(offset, log.start) for log in logs if log.at.partition == partition}
        case _:
            assert_never(start)
    ends = {log.at: log.end for log in logs}
    wanted = (fetch_records(cluster, at, offset, ends[at], limit) for at, offset in begin.items())
    return _by_time(await asyncio.gather(*wanted))[:limit]


async def _newest(cluster: KafkaCluster, log: _Log, limit: int) -> list[FetchedRecord]:
    back = limit
    while True:
        begin = max(log.end - back, log.start)
        found = await fetch_records(cluster, log.at, begin, log.end, log.end - begin)
        if len(found) >= limit or begin == log.start:
            return found[-limit:]
        back *= _RANGE_GROWTH


def _by_time(each: Sequence[list[FetchedRecord]]) -> list[FetchedRecord]:
    """Merges the partitions by time.

    Within a partition the order is that of offsets, whatever the timestamps.
    """
    found: list[tuple[int, int, int, FetchedRecord]] = []
    for some in each:
        latest = -1
        for one in some:
            latest = max(latest, one.timestamp)
            found.append((latest, one.partition, one.offset, one))
    return [row[-1] for row in sorted(found, key=lambda row: row[:-1])]
