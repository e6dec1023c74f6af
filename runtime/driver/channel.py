"""The way between driver and slots: words in the control topic, reports in the status topic.

Both lie at the destination, which every slot must reach anyway: nothing new has to be opened, and what
secures the clusters secures this. Here are the two halves: `post` a record, `Tail` a topic.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from runtime.batch import Batch, Where, walk
from runtime.copy.ledger_writer import BATCH_BYTES, send
from runtime.copy.records import Record, StoredRecord, build, chunks, plain, read
from runtime.copy.wire.asking import log_start, offsets_of
from runtime.copy.wire.cluster import Cluster
from runtime.copy.wire.codes import ErrorCode
from runtime.copy.wire.errors import BrokerError
from runtime.copy.wire.once import fetch_once
from runtime.copy.wire.protocol.fetch import Isolation
from runtime.copy.wire.protocol.offsets import LATEST, TopicPartition

_WAIT_MS = 500
_FETCH_BYTES = 4 << 20
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


class Tail:
    """Reads a topic on from an offset, as it grows: what is not transactional, which all words are."""

    def __init__(self, cluster: Cluster, topic: str, offset: int) -> None:
        self._cluster = cluster
        self._topic = topic
        self._offset = offset
        self._purpose = f"tail {topic}"
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
                    found.extend(one for one in read(batch) if one.offset >= self._offset)
                self._offset = batch.next_offset
        return found

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
