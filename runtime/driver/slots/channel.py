"""This module connects driver and slots: commands in the control topic, reports in the status topic.

Both topics are at the destination, which every slot must reach anyway: no further connection has to be
opened, and the security of the clusters covers the channel. `post` writes records, and a `TopicTail` reads a
topic.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence

from runtime.batch import Batch, BatchFailure, Record, walk
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import ErrorCode, WireError
from runtime.kafka.fetch import fetch_once
from runtime.kafka.protocol.fetch import Isolation
from runtime.kafka.protocol.offsets import LATEST
from runtime.kafka.queries import log_start, offsets_of
from runtime.kafka.records import InternalRecord, batches_of, plain, read
from runtime.ledger.transaction_writer import send
from runtime.slot.log import log_driver_message

_WAIT_MS = 500
COMMANDS_WAIT_MS = 5_000  # brokers answer at once when a command comes
_FETCH_BYTES = 4 << 20
_NOTE_SHOWN_S = 300.0
_RETRY_S = 0.5
_PARTITION = 0  # control and status have one


def at(topic: str, partition: int = _PARTITION) -> TopicPartition:
    """Returns the address of a partition."""
    return TopicPartition(topic, partition)


async def post(
    cluster: KafkaCluster,
    topic: str,
    records: Sequence[InternalRecord],
    purpose: str = "post",
    partition: int = _PARTITION,
    within: float = 15.0,
) -> None:
    """Sends records without a transaction, each once; readers can tell old commands from new ones.

    Raises WireError.
    """
    for batch in batches_of(records):
        await send(cluster, at(topic, partition), plain(batch), purpose=purpose, within=within)


async def end_of(cluster: KafkaCluster, topic: str) -> int:
    """Returns the end offset of the topic: later records are written at or after it. Raises WireError."""
    return (await offsets_of(cluster, {at(topic): LATEST}))[at(topic)]


class UnreadableRecordCounter:
    """An UnreadableRecordCounter counts records of a topic that can't be read, for the status and the log.

    A record that can't be read stops nothing, because any writer of the topic could write one.
    """

    def __init__(self, topic: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.count = 0
        self._topic = topic
        self._clock = clock
        self._note = ""
        self._noted_at = 0.0

    @property
    def note(self) -> str:
        """The text of the last skipped record, for five minutes.

        It is empty after that, or when no record was skipped.
        """
        return self._note if self._clock() - self._noted_at < _NOTE_SHOWN_S else ""

    def add(self, offset: int, why: str) -> None:
        """Counts a skipped record.

        The log gets a line for every power of two, so that many such records do not fill it.
        """
        self.count += 1
        self._noted_at = self._clock()
        self._note = f"{self._topic}: skipped the record at offset {offset}, which can't be read: {why}"
        if self.count & (self.count - 1) == 0:
            log_driver_message(f"{self._note} ({self.count} in all)")


class TopicTail:
    """Reads the non-transactional records of a topic from an offset on, as the topic grows.

    All commands and reports are such records. A read without news lasts `wait_ms`.
    """

    def __init__(
        self,
        cluster: KafkaCluster,
        topic: str,
        offset: int,
        skipped: UnreadableRecordCounter | None = None,
        wait_ms: int = _WAIT_MS,
    ) -> None:
        self.cluster = cluster
        self._topic = topic
        self._offset = offset
        self._wait_ms = wait_ms
        self._purpose = f"tail {topic}"
        self.skipped = skipped if skipped is not None else UnreadableRecordCounter(topic)
        self._topic_id: bytes | None = None
        self._lost = False  # whether records were deleted, or lie in a corrupt log, before they were read
        self._moved = asyncio.Event()

    async def handled(self, offset: int) -> bool:
        """Waits until the caller of `records` has handled all records below the offset.

        Returns False where some of them were deleted before they were read, or can't be read. It may be
        called from another task than the caller's, which must not wait while it handles a record.
        """
        while self._offset < offset and not self._lost:
            self._moved.clear()
            await self._moved.wait()
        return not self._lost

    async def records(self) -> AsyncIterator[Record]:
        """Yields each record as it comes, until cancelled; it reads on while the cluster does not answer."""
        while True:
            try:
                records = await self.read()
            except WireError:
                await asyncio.sleep(_RETRY_S)
                continue
            for record in records:
                yield record

    async def read(self) -> list[Record]:
        """Returns new records, or none after `wait_ms`. Raises WireError; the caller then retries."""
        answer = await fetch_once(
            self.cluster,
            at(self._topic),
            self._offset,
            _FETCH_BYTES,
            self._purpose,
            isolation=Isolation.READ_UNCOMMITTED,
            wait_ms=self._wait_ms,
            by_epoch=True,
            within=self._wait_ms / 1000 + self.cluster.settings.request_timeout_s,
        )
        if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._return_to_log(answer.topic_id)
            return []
        self._topic_id = answer.topic_id
        walked = walk(answer.records, at(self._topic))
        if walked.failure is not None and not walked.sets:
            await self._skip_to_end(walked.failure)
            return []
        records: list[Record] = []
        for batch in walked.sets:
            if isinstance(batch, Batch) and batch.next_offset > self._offset:
                if not (batch.control or batch.transactional):
                    records.extend(record for record in self._records(batch) if record.offset >= self._offset)
                self._offset = batch.next_offset
                self._moved.set()
        return records

    def _records(self, batch: Batch) -> list[Record]:
        """Returns the records of a batch.

        There are none when the batch can't be decoded or exceeds the memory bound.
        """
        try:
            return read(batch, at(self._topic))
        except BatchFailure as failure:
            self.skipped.add(batch.base_offset, failure.why)
            return []

    async def _skip_to_end(self, failure: BatchFailure) -> None:
        """Continues at the end behind a corrupt batch, of which the length is not known either."""
        end = await end_of(self.cluster, self._topic)
        self.skipped.add(failure.offset, failure.why)
        self._offset, self._lost = end, True
        self._moved.set()

    async def _return_to_log(self, topic_id: bytes) -> None:
        """Continues at the log start, or at the end offset where the log of the same topic was truncated.

        Records before the end were read already, and a command must not be carried out twice.
        """
        self._lost = True
        self._moved.set()
        start = await log_start(self.cluster, at(self._topic))
        if start <= self._offset and self._topic_id == topic_id:
            self._offset = await end_of(self.cluster, self._topic)
        else:
            self._offset = start
        self._topic_id = topic_id


async def pause(seconds: float, until: asyncio.Event) -> None:
    """Waits for some seconds, or until the event is set."""
    waiting = asyncio.ensure_future(until.wait())
    try:
        await asyncio.wait([waiting], timeout=seconds)
    finally:
        waiting.cancel()
