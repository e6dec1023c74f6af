"""Reads one partition of an internal topic, uncommitted, up to a high watermark taken now (fencing 2)."""

import asyncio

from runtime.batch import BatchFailure, PartitionLocation, walk
from runtime.contract.records.ledger import UnreadableRecord
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.codes import ErrorCode
from runtime.kafka.errors import BrokerError, ConnectionFailure, WireError
from runtime.kafka.fetch.once import fetch_once
from runtime.kafka.protocol.fetch import FetchedPartition, Isolation
from runtime.kafka.protocol.offsets import LATEST, TopicPartition
from runtime.kafka.queries.partitions import log_start, offsets_of
from runtime.kafka.timing import Patience
from runtime.ledger.fold import CommittedValues

_FETCH_BYTES = 8 << 20
_PAUSE_S = 0.1
# Scans use a connection of their own. A quota delays the connection on which it is exceeded, and must not
# delay the scans, which copying depends on.
_PURPOSE = "scan"


class TopicReplaced(Exception):
    """The internal topic was replaced since it was read, so its values are not valid any more."""


READ_FAILURES = (TopicReplaced, BatchFailure, UnreadableRecord)
"""The errors of reading an internal topic, beside WireError. A flow that needs its records stops (R7)."""


class InternalTopicScan:
    """A scan owns the read position in one partition of an internal topic; `fold` holds what was read."""

    def __init__(self, cluster: KafkaCluster, topic: str, partition: int) -> None:
        self.fold = CommittedValues()
        self._cluster = cluster
        self._topic = topic
        self._partition = partition
        self._topic_id: bytes | None = None
        self._reading = asyncio.Lock()

    async def refresh(self, within: float = 30.0) -> None:
        """Reads up to a high watermark that is taken after this call began.

        Raises WireError once the retries are over. The watermark comes from ListOffsets, not from a fetch.
        Right after an election, a leader's high watermark lags behind the records that were acknowledged
        before. Only ListOffsets reports this, with error 78, and is retried; a fetch shows the lower
        watermark.
        """
        async with self._reading:
            end = await self._end(within)
            while self.fold.position < end:
                answer = await self._fetch(within)
                if answer is None:
                    continue
                walked = walk(answer.records, PartitionLocation(self._topic, self._partition))
                if walked.failure is not None:
                    raise walked.failure
                before = self.fold.position
                self.fold.take(walked.sets)
                if self.fold.position > before:
                    continue
                if answer.high_watermark >= end:  # Compaction has removed the remaining records.
                    self.fold.position = end
                else:
                    await asyncio.sleep(_PAUSE_S)

    async def _end(self, within: float) -> int:
        """Returns the high watermark from the leader."""
        at = TopicPartition(self._topic, self._partition)
        return (await offsets_of(self._cluster, {at: LATEST}, within=within))[at]

    async def _fetch(self, within: float) -> FetchedPartition | None:
        """Fetches with retries; returns None where the log start and the position have moved."""
        timeout = Patience(within)
        while True:
            try:
                return await self._fetch_once()
            except WireError as error:
                retriable = isinstance(error, ConnectionFailure) or (
                    isinstance(error, BrokerError) and error.code.retriable
                )
                if not retriable or timeout.over():
                    raise
            await asyncio.sleep(_PAUSE_S)

    async def _fetch_once(self) -> FetchedPartition | None:
        """Fetches once. Raises WireError, and TopicReplaced where the topic's id has changed."""
        answer = await fetch_once(
            self._cluster,
            TopicPartition(self._topic, self._partition),
            self.fold.position,
            _FETCH_BYTES,
            _PURPOSE,
            isolation=Isolation.READ_UNCOMMITTED,
            by_epoch=True,
        )
        if self._topic_id not in (None, answer.topic_id):
            raise TopicReplaced(f"{self._topic} was recreated")
        self._topic_id = answer.topic_id
        if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            start = await log_start(self._cluster, TopicPartition(self._topic, self._partition))
            if start > self.fold.position:
                self.fold.skip_to(start)
                return None
        if answer.error is not ErrorCode.NONE:
            raise BrokerError(answer.error, f"{self._topic}-{self._partition}")
        return answer
