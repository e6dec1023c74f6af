"""The way between driver and slots: words in the control topic, reports in the status topic.

Both lie at the destination, which every slot must reach anyway: nothing new has to be opened, and what
secures the clusters secures this. Here are the two halves: `post` a record, `Tail` a topic.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from runtime.batch import Batch, BatchFailure, Where, walk
from runtime.driver.log import say
from runtime.kafka.cluster import Cluster
from runtime.kafka.codes import ErrorCode
from runtime.kafka.errors import BrokerError
from runtime.kafka.fetch.once import fetch_once
from runtime.kafka.protocol.fetch import Isolation
from runtime.kafka.protocol.offsets import LATEST, TopicPartition
from runtime.kafka.queries.partitions import log_start, offsets_of
from runtime.ledger.ledger_writer import BATCH_BYTES, send
from runtime.ledger.records import Record, StoredRecord, build, chunks, plain, read

_WAIT_MS = 500
_FETCH_BYTES = 4 << 20
_NOTED_S = 300.0
_PARTITION = 0  # control and status have one


def at(topic: str, partition: int = _PARTITION) -> TopicPartition:
    return TopicPartition(topic, partition)


async def post(
    cluster: Cluster,
    topic: str,
    records: Sequence[Record],
    purpose: str = "post",
    partition: int = _PARTITION,
) -> None:
    """Once, not in a transaction: who reads it knows older words from newer ones. Raises WireError."""
    for chunk in chunks(records, BATCH_BYTES):
        await send(
            cluster, at(topic, partition), plain(build(chunk, int(time.time() * 1000))), purpose=purpose
        )


async def end_of(cluster: Cluster, topic: str) -> int:
    """What is written from now on begins here."""
    return (await offsets_of(cluster, {at(topic): LATEST}))[at(topic)]


class Skipped:
    """Counts the records of a topic that can't be read, for the status and for the log.

    A record that can't be read ends nothing: anything that may write the topic could write one.
    """

    def __init__(self, topic: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.count = 0
        self._topic = topic
        self._clock = clock
        self._note = ""
        self._noted_at = 0.0

    @property
    def note(self) -> str:
        """What was skipped last, for some minutes; empty when nothing was."""
        return self._note if self._clock() - self._noted_at < _NOTED_S else ""

    def add(self, offset: int, why: str) -> None:
        """The log gets a line for every power of two, so that a flood of such records does not fill it."""
        self.count += 1
        self._noted_at = self._clock()
        self._note = f"{self._topic}: skipped the record at offset {offset}, which can't be read: {why}"
        if self.count & (self.count - 1) == 0:
            say(f"{self._note} ({self.count} in all)")


class Tail:
    """Reads a topic on from an offset, as it grows: what is not transactional, which all words are."""

    def __init__(self, cluster: Cluster, topic: str, offset: int, skipped: Skipped | None = None) -> None:
        self._cluster = cluster
        self._topic = topic
        self._offset = offset
        self._purpose = f"tail {topic}"
        self.skipped = skipped if skipped is not None else Skipped(topic)
        self._topic_id: bytes | None = None

    async def read(self) -> list[StoredRecord]:
        """What is new, or nothing after half a second. Raises WireError; then try again."""
        answer = await fetch_once(
            self._cluster,
            at(self._topic),
            self._offset,
            _FETCH_BYTES,
            self._purpose,
            isolation=Isolation.READ_UNCOMMITTED,
            wait_ms=_WAIT_MS,
            by_epoch=True,
        )
        if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._return_to_log(answer.topic_id)
            return []
        if answer.error is not ErrorCode.NONE:
            raise BrokerError(answer.error, self._topic)
        self._topic_id = answer.topic_id
        walked = walk(answer.records, Where(self._topic, _PARTITION))
        found: list[StoredRecord] = []
        for batch in walked.sets:
            if isinstance(batch, Batch) and batch.next_offset > self._offset:
                if not (batch.control or batch.transactional):
                    found.extend(one for one in self._records(batch) if one.offset >= self._offset)
                self._offset = batch.next_offset
        return found

    def _records(self, batch: Batch) -> list[StoredRecord]:
        """None of a batch that unpacks past the bound of memory, or not at all."""
        try:
            return read(batch, Where(self._topic, _PARTITION))
        except BatchFailure as failure:
            self.skipped.add(batch.base_offset, failure.why)
            return []

    async def _return_to_log(self, topic_id: bytes) -> None:
        """Continues at the log's start, or at its end where the log of the same topic was cut.

        Records before the end were read already, and a command is not carried out twice.
        """
        start = await log_start(self._cluster, at(self._topic))
        if start <= self._offset and self._topic_id == topic_id:
            self._offset = await end_of(self._cluster, self._topic)
        else:
            self._offset = start
        self._topic_id = topic_id


async def pause(seconds: float, until: asyncio.Event) -> None:
    """So long, or until the event."""
    waiting = asyncio.ensure_future(until.wait())
    try:
        await asyncio.wait([waiting], timeout=seconds)
    finally:
        waiting.cancel()
