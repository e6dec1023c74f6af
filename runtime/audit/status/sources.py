"""Reads what a status needs of one cluster: its connection, its ledger, and its first uncopied records."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from runtime.audit.ledger import (
    OPEN_WITHIN_S,
    AuditFailure,
    ClusterAccess,
    OpenLedger,
    connect,
    ledger_of,
    unanswered,
)
from runtime.audit.status.facts import LedgerFacts
from runtime.batch import Batch, PartitionLocation, RecordSet, records, walk
from runtime.batch.failure import BatchFailure
from runtime.contract.records import job_status
from runtime.contract.records.job_status import (
    EndsKey,
    JobKey,
    JobStatus,
    SlotKey,
    SlotReport,
    SourceEnds,
    StandbyKey,
    StandbyStatus,
)
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.records.record_values import UnreadableValue
from runtime.contract.spec import naming
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.codes import ErrorCode
from runtime.kafka.errors import BrokerError, WireError
from runtime.kafka.fetch.once import fetch_once
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.timing import in_time
from runtime.ledger.scan import InternalTopicScan

_RETRY_WITHIN_S = 0.5
_PARTITION = 0
MOST = 50  # partitions in one inspection: a batch may have a megabyte
_CONCURRENT = 8
_MIN_FETCH_BYTES = 1  # brokers send the first batch whole, however small the limit is


class ReconnectingCluster:
    """Holds the connection to a cluster.

    Call `cluster` for each use, `drop` after a failure, and `close` at the end.
    """

    def __init__(self, reach: ClusterAccess) -> None:
        self.reach = reach
        self._cluster: KafkaCluster | None = None
        self._opening: asyncio.Task[KafkaCluster] | None = None
        self._why = ""

    async def cluster(self, within: float) -> KafkaCluster:
        """Returns the open cluster. Raises AuditFailure.

        An attempt that takes longer continues in the background, for the next call.
        """
        if self._cluster is not None:
            return self._cluster
        if self._opening is None:
            self._opening = asyncio.ensure_future(connect(self.reach, OPEN_WITHIN_S))
        # A cluster that did not answer before gets a short timeout, so that it does not delay the others.
        done, _ = await asyncio.wait([self._opening], timeout=_RETRY_WITHIN_S if self._why else within)
        if not done:
            self._why = self._why or f"no answer within {within:g} s"
            raise AuditFailure(self.reach.name, self._why, unanswered(self.reach.name))
        opening, self._opening = self._opening, None
        try:
            self._cluster = opening.result()
        except AuditFailure as failure:
            self._why = failure.why
            raise
        self._why = ""
        return self._cluster

    async def drop(self) -> None:
        """Closes the cluster; the next call of `cluster` opens it again."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            await cluster.close()

    async def close(self) -> None:
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
            await asyncio.wait([opening])
            if not opening.cancelled() and opening.exception() is None:
                await opening.result().close()
        await self.drop()


class StatusLedgerReader:
    """Reads one destination, as long as its cluster stays open. Raises WireError."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self.cluster = cluster
        self._ledger: OpenLedger | None = None
        self._status: InternalTopicScan | None = None
        self._jobs: dict[str, JobStatus] = {}
        self._reports: dict[tuple[str, int], SlotReport] = {}
        self._ends: dict[tuple[str, str], SourceEnds] = {}
        self._standbys: dict[tuple[str, str], StandbyStatus] = {}

    async def read(self, flows: Sequence[str], within: float) -> LedgerFacts:
        """Reads reports before the ledger: so a job's report is never newer than the committed progress."""
        await self._read_status(within)
        if self._ledger is None:
            self._ledger = await ledger_of(self.cluster)
        if self._ledger is None:
            return LedgerFacts(
                jobs=dict(self._jobs), reports=dict(self._reports), standbys=dict(self._standbys)
            )
        ledger = self._ledger.ledger
        await asyncio.gather(*(ledger.refresh(flow, within) for flow in flows))
        return LedgerFacts(
            progress={flow: ledger.all_progress(flow) for flow in flows},
            generations=ledger.generations(),
            jobs=dict(self._jobs),
            reports=dict(self._reports),
            ends=dict(self._ends),
            standbys=dict(self._standbys),
        )

    async def _read_status(self, within: float) -> None:
        if self._status is None:
            topic = (await self.cluster.topics([naming.STATUS], fresh=True))[naming.STATUS]
            if topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return
            if topic.error is not ErrorCode.NONE:
                raise BrokerError(topic.error, naming.STATUS)
            self._status = InternalTopicScan(self.cluster, naming.STATUS, _PARTITION)
        await self._status.refresh(within)
        for key, value in self._status.fold.news():
            self._take(key, value)

    def _take(self, stored: bytes, value: bytes | None) -> None:
        """Stores one record. A record that a newer version wrote is ignored."""
        try:
            match job_status.decode_key(stored):
                case JobKey(job) if value is not None:
                    self._jobs[job] = job_status.decode_job(value)
                case SlotKey(job, slot) if value is not None:
                    self._reports[job, slot] = job_status.decode_slot(value)
                case EndsKey(job, flow) if value is not None:
                    self._ends[job, flow] = job_status.decode_ends(value)
                case StandbyKey(job, standby) if value is not None:
                    self._standbys[job, standby] = job_status.decode_standby(value)
                case StandbyKey(job, standby):
                    self._standbys.pop((job, standby), None)
                case _:
                    pass
        except UnreadableValue:
            return


async def first_missing(
    cluster: KafkaCluster, positions: Mapping[PartitionKey, int], within: float
) -> dict[PartitionKey, int]:
    """Returns timestamps by partition, for those that could be read.

    It raises nothing: the timestamp is one estimate of several.
    """
    limit = asyncio.Semaphore(_CONCURRENT)
    found: dict[PartitionKey, int] = {}

    async def inspect(key: PartitionKey, position: int) -> None:
        async with limit:
            try:
                timestamp = await in_time(_timestamp(cluster, key, position), within, "reading a record")
            except (WireError, BatchFailure):
                return
        if timestamp is not None and timestamp >= 0:
            found[key] = timestamp

    await asyncio.gather(*(inspect(key, position) for key, position in positions.items()))
    return found


async def _timestamp(cluster: KafkaCluster, key: PartitionKey, position: int) -> int | None:
    answer = await fetch_once(
        cluster, TopicPartition(key.topic, key.partition), position, _MIN_FETCH_BYTES, "look"
    )
    if answer.error is not ErrorCode.NONE:
        return None
    where = PartitionLocation(key.topic, key.partition)
    behind = (one for one in walk(answer.records, where).sets if one.next_offset > position)
    first = next(behind, None)
    return _written(first, position, where) if first is not None else None


def _written(found: RecordSet, position: int, where: PartitionLocation) -> int | None:
    if isinstance(found, Batch):
        return found.max_timestamp if found.log_append_time else found.base_timestamp
    return next((one.timestamp for one in records(found, where) if one.offset >= position), None)
