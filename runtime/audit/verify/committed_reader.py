"""Reads committed records of one side of a partition, at a limited rate and with bounded memory."""

from __future__ import annotations

import asyncio

from runtime.audit.read.records_fetch import FetchedRecord
from runtime.batch import AbortedTransactions, Batch, PartitionLocation, RecordSet, records, walk
from runtime.batch.layout import NO_PRODUCER
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.codes import ErrorCode
from runtime.kafka.errors import BrokerError, ConnectionFailure, WireError
from runtime.kafka.fetch.once import fetch_once
from runtime.kafka.protocol.fetch import FetchedPartition
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.queries.partitions import log_start
from runtime.kafka.timing import Patience
from runtime.slot.budget import TokenBucket

_FETCH_BYTES = 2 << 20
_PAUSE_S = 0.1
_SETTLE_S = 2.0  # a new leader's high watermark lags for a short time


class RecordsExpired(Exception):
    """Retention deleted records that were still to be read."""


class OpenTransactionTimeout(Exception):
    """An open transaction before the end does not end in time."""


class CommittedRecordReader:
    """Reads one side: call `next` until `ended`. Raises WireError, BatchFailure, Passed, Stalled."""

    def __init__(
        self,
        cluster: KafkaCluster,
        at: TopicPartition,
        topic_id: bytes,
        low: int,
        high: int,
        bucket: TokenBucket,
        within_s: float,
    ) -> None:
        self.position = low
        self._cluster = cluster
        self._at = at
        self._where = PartitionLocation(at.topic, at.partition)
        self._topic_id = topic_id
        self._high = high
        self._bucket = bucket
        self._within_s = within_s

    @property
    def ended(self) -> bool:
        return self.position >= self._high

    async def next(self) -> list[FetchedRecord]:
        """Returns the records of one fetch: the list may be empty."""
        answer = await self._answer()
        self._bucket.take(len(answer.records))
        walked = walk(answer.records, self._where)
        if walked.failure is not None and not walked.sets:
            raise walked.failure
        if not walked.sets:
            self.position = self._high  # compaction removed the remaining records, or the log ends before
        aborted = AbortedTransactions(answer.aborted)
        found: list[FetchedRecord] = []
        begin = self.position
        for member in walked.sets:
            if not isinstance(member, Batch) or aborted.keeps(member):
                found += self._records(member, begin)
            self.position = max(self.position, member.next_offset)
            if self.ended:
                break
        return found

    def _records(self, member: RecordSet, begin: int) -> list[FetchedRecord]:
        producer = member.producer_id if isinstance(member, Batch) else NO_PRODUCER
        return [
            FetchedRecord(self._where.partition, *one, producer)
            for one in records(member, self._where)
            if begin <= one.offset < self._high
        ]

    async def _answer(self) -> FetchedPartition:
        """Returns a response that holds records, or one that shows that no more records follow."""
        settling, timeout = Patience(_SETTLE_S), Patience(self._within_s)
        while True:
            while (wait := self._bucket.wait_s()) > 0:
                await asyncio.sleep(wait)
                timeout.extend(wait)
            try:
                answer = await self._fetch()
                if len(answer.records) or answer.last_stable_offset >= self._high:
                    return answer
                settled, timed_out = settling.over(), timeout.over()
                if answer.high_watermark < self._high and settled:
                    return answer  # the log ends before: the records behind its end are missing
                if timed_out:
                    raise OpenTransactionTimeout(
                        f"a transaction is open at offset {answer.last_stable_offset}"
                    )
            except WireError as error:
                if not _retriable(error) or timeout.over():
                    raise
            await asyncio.sleep(_PAUSE_S)

    async def _fetch(self) -> FetchedPartition:
        answer = await fetch_once(
            self._cluster, self._at, self.position, _FETCH_BYTES, "verify", topic_id=self._topic_id
        )
        if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            start = await log_start(self._cluster, self._at)
            if start > self.position:
                raise RecordsExpired(f"retention took the offsets below {start} meanwhile")
        if answer.error is not ErrorCode.NONE:
            raise BrokerError(answer.error, str(self._where))
        return answer


def _retriable(error: WireError) -> bool:
    gone = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if isinstance(error, BrokerError):
        return error.code.retriable and error.code not in gone
    return isinstance(error, ConnectionFailure)
