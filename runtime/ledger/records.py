"""Reads the records of the internal topics.

`CommittedValues` folds batches into the newest committed value
of each key: batches are read uncommitted, and control markers resolve their transactions (fencing 2); it is
pure. `InternalTopicScan` reads the batches of one partition up to a high watermark.
"""

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from runtime.batch import Batch, BatchFailure, Record, RecordSet, marker_type, walk
from runtime.contract.records.ledger import UnreadableRecord
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import BrokerError, ConnectionFailure, ErrorCode, TimedOut, WireError
from runtime.kafka.fetch import fetch_once
from runtime.kafka.protocol.fetch import FetchedPartition, Isolation
from runtime.kafka.protocol.offsets import LATEST, TopicPartition
from runtime.kafka.queries import log_start, offsets_of
from runtime.kafka.records import read
from runtime.kafka.timing import RetryDeadline

_COMMIT = 1
_FETCH_BYTES = 8 << 20
_PAUSE_S = 0.1
# Scans use a connection of their own. A quota delays the connection on which it is exceeded, and must not
# delay the scans, which copying depends on.
_PURPOSE = "scan"


class CommittedValue(NamedTuple):
    """The newest committed value of a key, None for a tombstone, and its offset."""

    offset: int
    value: bytes | None


class _Open(NamedTuple):
    """The records that a producer id wrote under one epoch since its last marker.

    `newest` is the last offset of each key.
    """

    epoch: int
    records: list[Record]
    newest: dict[bytes, int]

    def extend(self, records: Iterable[Record]) -> None:
        """Appends records."""
        for record in records:
            self.records.append(record)
            if record.key is not None:
                self.newest[record.key] = record.offset


class CommittedValues:
    """A fold holds the newest committed value of each key, and the keys with an undecided newer value.

    Records of a producer id wait for its marker: a commit applies them, an abort drops them. Compaction may
    have removed superseded records, and markers without data. It keeps the marker of any record that is
    left. It may also remove a marker for which a fold still waits that has read the record before. The
    record was then aborted or superseded, and the id's next epoch shows that its transaction is over
    (fencing 1).

    Without `keep_values`, only `news` returns values, and a value leaves the memory with that.

    A tombstone is held only while an open transaction has written its key, because that record may be older
    and must not replace it. So deleted keys take no memory (R8).
    """

    def __init__(self, *, keep_values: bool = True) -> None:
        self.position = 0
        self._keep_values = keep_values
        self._kept: dict[bytes, CommittedValue] = {}
        self._open: dict[int, _Open] = {}
        self._changed: set[bytes] = set()

    def get(self, key: bytes) -> bytes | None:
        """Returns the newest committed value of a key."""
        kept = self._kept.get(key)
        return kept.value if kept else None

    def offset(self, key: bytes) -> int:
        """Returns the offset of the newest committed value of a key, or -1 without one."""
        kept = self._kept.get(key)
        return kept.offset if kept is not None and kept.value is not None else -1

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Returns all keys with their newest committed values, without tombstones."""
        return ((key, kept.value) for key, kept in self._kept.items() if kept.value is not None)

    def news(self) -> list[tuple[bytes, bytes | None]]:
        """Returns the keys whose committed value changed since the last call; None is a removed value."""
        changed, self._changed = self._changed, set()
        found = [(key, self.get(key)) for key in changed]
        if not self._keep_values:
            for key, value in found:
                if value:
                    self._kept[key] = CommittedValue(self._kept[key].offset, b"")
        return found

    def undecided(self, key: bytes) -> bool:
        """Returns whether an open transaction has written the key after its committed value."""
        kept = self._kept.get(key)
        since = kept.offset if kept else -1
        return any(pending.newest.get(key, -1) > since for pending in self._open.values())

    def take(self, sets: Iterable[RecordSet], end: int = sys.maxsize) -> None:
        """Takes in the batches that end behind the position, and moves the position to their end.

        Batches that begin at `end` or later are left for another call.
        """
        for batch in sets:
            if isinstance(batch, Batch) and self.position < batch.next_offset and batch.base_offset < end:
                self._take_batch(batch)
                self.position = batch.next_offset

    def skip_to(self, start: int) -> None:
        """Continues at a log start offset that moved past the position.

        The markers between the two are gone, so a transaction that was open there stays undecided for ever.
        Its keys are dropped, with their older values: a reader that begins now finds neither.
        """
        dropped, self._open = self._open, {}
        for pending in dropped.values():
            for key, offset in pending.newest.items():
                kept = self._kept.get(key)
                if kept is not None and kept.offset < offset:
                    del self._kept[key]
                    self._changed.add(key)
            self._drop_tombstones(pending.newest)
        self.position = start

    def _take_batch(self, batch: Batch) -> None:
        """Applies a marker, collects transactional records, or applies records outside a transaction."""
        if batch.control:
            self._end_transaction(batch.producer_id, batch)
        elif batch.transactional:
            pending = self._open.get(batch.producer_id)
            if pending is None or pending.epoch != batch.producer_epoch:
                self._end_transaction(batch.producer_id, None)
                pending = self._open[batch.producer_id] = _Open(batch.producer_epoch, [], {})
            pending.extend(self._unread(batch))
        else:
            records = self._unread(batch)
            self._apply(records)
            self._drop_tombstones({one.key for one in records if one.key is not None})

    def _end_transaction(self, producer_id: int, marker: Batch | None) -> None:
        """Ends the open transaction of a producer id; applies its records if the marker commits them."""
        pending = self._open.pop(producer_id, None)
        if pending is None:
            return
        if marker is not None and pending.epoch == marker.producer_epoch and marker_type(marker) == _COMMIT:
            self._apply(pending.records)
        self._drop_tombstones(pending.newest)

    def _unread(self, batch: Batch) -> list[Record]:
        """Returns the records of a batch that are not read yet."""
        return [record for record in read(batch) if record.offset >= self.position]

    def _apply(self, records: Iterable[Record]) -> None:
        """Applies records by their offsets, not by the order of markers, as compaction does.

        Compaction keeps the record with the highest offset of a key.
        """
        for offset, _, key, value, _ in records:
            if key is None:
                continue
            kept = self._kept.get(key)
            if kept is None or kept.offset < offset:
                self._kept[key] = CommittedValue(offset, value)
                self._changed.add(key)

    def _drop_tombstones(self, keys: Iterable[bytes]) -> None:
        """Drops the tombstones of keys that no open transaction has written."""
        for key in keys:
            kept = self._kept.get(key)
            if kept is None or kept.value is not None:
                continue
            if not any(key in pending.newest for pending in self._open.values()):
                del self._kept[key]


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
                walked = walk(answer.records, self._at)
                if walked.failure is not None:
                    raise walked.failure
                before = self.fold.position
                self.fold.take(walked.sets, end if exact else sys.maxsize)
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
