"""Reads one partition of an internal topic on, uncommitted, up to a high watermark taken now (fencing 2)."""

import asyncio

from runtime.batch import BatchFailure, Where, walk
from runtime.contract.records.ledger import UnreadableRecord
from runtime.kafka.cluster import Cluster
from runtime.kafka.codes import ErrorCode
from runtime.kafka.errors import BrokerError, ConnectionFailure, WireError
from runtime.kafka.fetch.once import fetch_once
from runtime.kafka.protocol.fetch import FetchedPartition, Isolation
from runtime.kafka.protocol.offsets import LATEST, TopicPartition
from runtime.kafka.queries.partitions import log_start, offsets_of
from runtime.kafka.timing import Patience
from runtime.ledger.fold import Fold

_FETCH_BYTES = 8 << 20
_PAUSE_S = 0.1
_PURPOSE = "scan"  # a quota holds up the connection that it is exceeded on: not what steers the copying


class TopicReplaced(Exception):
    """The internal topic is not the one that was read before: what was read means nothing any more."""


READ_FAILURES = (TopicReplaced, BatchFailure, UnreadableRecord)
"""What reading an internal topic raises beside WireError. A flow that needs what can't be read stops (R7)."""


class Scan:
    """`fold` holds what was read so far."""

    def __init__(self, cluster: Cluster, topic: str, partition: int) -> None:
        self.fold = Fold()
        self._cluster = cluster
        self._topic = topic
        self._partition = partition
        self._topic_id: bytes | None = None
        self._reading = asyncio.Lock()

    async def refresh(self, within: float = 30.0) -> None:
        """Reads up to a high watermark that is taken after this call began; raises WireError in the end.

        The watermark is asked for, not taken from a fetch: right after an election a leader's own lags
        behind what was acknowledged before, and only ListOffsets says so (error 78, asked again) instead of
        showing it.
        """
        async with self._reading:
            end = await self._end(within)
            while self.fold.position < end:
                answer = await self._fetch(within)
                if answer is None:
                    continue
                walked = walk(answer.records, Where(self._topic, self._partition))
                if walked.failure is not None:
                    raise walked.failure
                before = self.fold.position
                self.fold.take(walked.sets)
                if self.fold.position > before:
                    continue
                if answer.high_watermark >= end:  # compaction took all that was left
                    self.fold.position = end
                else:
                    await asyncio.sleep(_PAUSE_S)

    async def _end(self, within: float) -> int:
        at = TopicPartition(self._topic, self._partition)
        return (await offsets_of(self._cluster, {at: LATEST}, within=within))[at]

    async def _fetch(self, within: float) -> FetchedPartition | None:
        """Returns None where the log's start moved and the position with it."""
        patience = Patience(within)
        while True:
            try:
                return await self._fetch_once()
            except WireError as error:
                retriable = isinstance(error, ConnectionFailure) or (
                    isinstance(error, BrokerError) and error.code.retriable
                )
                if not retriable or patience.over():
                    raise
            await asyncio.sleep(_PAUSE_S)

    async def _fetch_once(self) -> FetchedPartition | None:
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
