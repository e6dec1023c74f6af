"""Reads one partition of an internal topic up to a high watermark, as its newest committed values."""

import asyncio
import sys
from collections.abc import Callable

from runtime.batch import BatchFailure
from runtime.contract.records.ledger import UnreadableRecord
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.committed_values import CommittedValues
from runtime.kafka.errors import BrokerError, ConnectionFailure, ErrorCode, TimedOut, WireError
from runtime.kafka.fetch import fetch_once
from runtime.kafka.protocol.fetch import FetchedPartition, Isolation
from runtime.kafka.protocol.offsets import LATEST
from runtime.kafka.queries import log_start, offsets_of
from runtime.kafka.timing import RetryDeadline

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

    def __init__(
        self, cluster: KafkaCluster, topic: str, partition: int, *, keep_values: bool = True
    ) -> None:
        self.fold = CommittedValues(keep_values=keep_values)
        self._cluster = cluster
        self._at = TopicPartition(topic, partition)
        self._topic_id: bytes | None = None
        self._reading = asyncio.Lock()
        self._begun = 0
        self._done = 0  # the number of the newest read that came to its end

    async def refresh(
        self, within: float = 30.0, taken: Callable[[], None] = lambda: None, *, exact: bool = False
    ) -> None:
        """Reads up to a high watermark that is taken after this call began, with `exact` not further.

        `taken` is called after each change of the fold, so that a caller can take the news of a long topic by
        parts. Callers that wait at the same time share a read.
        Raises WireError once the retries are over, or nothing was read for `within` seconds.
        The watermark comes from ListOffsets, not from a fetch.
        Right after an election, a leader's high watermark lags behind the records that were acknowledged
        before. Only ListOffsets reports this, with error 78, and is retried; a fetch shows the lower
        watermark.
        """
        begun = self._begun
        async with self._reading:
            if self._done > begun:  # another caller's read began after this call
                taken()
                return
            self._begun += 1
            end = (await offsets_of(self._cluster, {self._at: LATEST}, within=within))[self._at]
            deadline = RetryDeadline(within)
            while self.fold.position < end:
                answer = await self._fetch(within)
                if answer is None:
                    taken()
                    continue
                before = self.fold.position
                self.fold.take_response(answer, self._at, end if exact else sys.maxsize)
                taken()
                if self.fold.position > before:
                    deadline.renew()
                    continue
                if answer.high_watermark >= end:  # Compaction has removed the remaining records.
                    self.fold.position = end
                elif deadline.over():  # Its leader may have lost records that another one had acknowledged.
                    why = f"it ends at {answer.high_watermark}, and {end} was its end before"
                    raise TimedOut(str(self._at), why, sent=True)
                else:
                    await asyncio.sleep(_PAUSE_S)
            self._done = self._begun

    async def _fetch(self, within: float) -> FetchedPartition | None:
        """Fetches with retries; returns None where the log start and the position have moved."""
        timeout = RetryDeadline(within)
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
            self._at,
            self.fold.position,
            _FETCH_BYTES,
            _PURPOSE,
            isolation=Isolation.READ_UNCOMMITTED,
            by_epoch=True,
        )
        if self._topic_id not in (None, answer.topic_id):
            raise TopicReplaced(f"{self._at.topic} was recreated")
        self._topic_id = answer.topic_id
        if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            start = await log_start(self._cluster, self._at)
            if start > self.fold.position:
                self.fold.skip_to(start)
                return None
            raise BrokerError(answer.error, str(self._at))
        return answer
