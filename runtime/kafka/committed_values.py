"""Folds the records of a log into the newest committed value of each key. It is pure.

Batches are read uncommitted, and control markers resolve their transactions (fencing 2): an open transaction
of one producer hides nothing that others have committed behind it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from runtime.batch import Batch, Record, RecordSet, marker_type, walk
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.protocol.fetch import FetchedPartition
from runtime.kafka.records import read

_COMMIT = 1


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
        changes = [(key, self.get(key)) for key in changed]
        if not self._keep_values:
            for key, value in changes:
                if value:
                    self._kept[key] = CommittedValue(self._kept[key].offset, b"")
        return changes

    def undecided(self, key: bytes) -> bool:
        """Returns whether an open transaction has written the key after its committed value."""
        kept = self._kept.get(key)
        since = kept.offset if kept else -1
        return any(pending.newest.get(key, -1) > since for pending in self._open.values())

    def take(self, sets: Iterable[RecordSet], at: TopicPartition, end: int = sys.maxsize) -> None:
        """Takes in the batches that end behind the position, and moves the position to their end.

        Batches that begin at `end` or later are left for another call. Raises BatchFailure for one that is
        corrupt, in the partition `at`.
        """
        for batch in sets:
            if isinstance(batch, Batch) and self.position < batch.next_offset and batch.base_offset < end:
                self._take_batch(batch, at)
                self.position = batch.next_offset

    def take_response(self, response: FetchedPartition, at: TopicPartition, end: int = sys.maxsize) -> None:
        """Takes in the batches of a response as `take` does. Raises BatchFailure for one that is corrupt."""
        walked = walk(response.records, at)
        if walked.failure is not None:
            raise walked.failure
        self.take(walked.sets, at, end)

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

    def _take_batch(self, batch: Batch, at: TopicPartition) -> None:
        """Applies a marker, collects transactional records, or applies records outside a transaction."""
        if batch.control:
            self._end_transaction(batch.producer_id, batch)
        elif batch.transactional:
            pending = self._open.get(batch.producer_id)
            if pending is None or pending.epoch != batch.producer_epoch:
                self._end_transaction(batch.producer_id, None)
                pending = self._open[batch.producer_id] = _Open(batch.producer_epoch, [], {})
            pending.extend(self._unread(batch, at))
        else:
            records = self._unread(batch, at)
            self._apply(records)
            self._drop_tombstones({record.key for record in records if record.key is not None})

    def _end_transaction(self, producer_id: int, marker: Batch | None) -> None:
        """Ends the open transaction of a producer id; applies its records if the marker commits them."""
        pending = self._open.pop(producer_id, None)
        if pending is None:
            return
        if marker is not None and pending.epoch == marker.producer_epoch and marker_type(marker) == _COMMIT:
            self._apply(pending.records)
        self._drop_tombstones(pending.newest)

    def _unread(self, batch: Batch, at: TopicPartition) -> list[Record]:
        """Returns the records of a batch that are not read yet."""
        return [record for record in read(batch, at) if record.offset >= self.position]

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
