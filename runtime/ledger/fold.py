"""Pure code resolves an internal topic's partition, read uncommitted, by control markers (fencing 2)."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from runtime.batch import Batch, RecordSet, marker_type
from runtime.ledger.records import StoredRecord, read

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
    records: list[StoredRecord]
    newest: dict[bytes, int]

    def extend(self, records: Iterable[StoredRecord]) -> None:
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
    """

    def __init__(self) -> None:
        self.position = 0
        self._kept: dict[bytes, CommittedValue] = {}
        self._open: dict[int, _Open] = {}
        self._changed: set[bytes] = set()

    def get(self, key: bytes) -> bytes | None:
        """Returns the newest committed value of a key."""
        kept = self._kept.get(key)
        return kept.value if kept else None

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Returns all keys with their newest committed values, without tombstones."""
        return ((key, kept.value) for key, kept in self._kept.items() if kept.value is not None)

    def news(self) -> list[tuple[bytes, bytes | None]]:
        """Returns the keys whose committed value changed since the last call; None is a removed value."""
        changed, self._changed = self._changed, set()
        return [(key, self.get(key)) for key in changed]

    def undecided(self, key: bytes) -> bool:
        """Returns whether an open transaction has written the key after its committed value."""
        kept = self._kept.get(key)
        since = kept.offset if kept else -1
        return any(pending.newest.get(key, -1) > since for pending in self._open.values())

    def take(self, sets: Iterable[RecordSet]) -> None:
        """Takes in the batches that end behind the position, and moves the position to their end."""
        for batch in sets:
            if isinstance(batch, Batch) and batch.next_offset > self.position:
                self._take_batch(batch)
                self.position = batch.next_offset

    def skip_to(self, start: int) -> None:
        """Continues at a log start offset that moved past the position.

        The markers between the two are gone, so a transaction that was open there stays undecided for ever.
        Its keys are dropped, with their older values: a reader that begins now finds neither.
        """
        for pending in self._open.values():
            for key, offset in pending.newest.items():
                kept = self._kept.get(key)
                if kept is not None and kept.offset < offset:
                    del self._kept[key]
                    self._changed.add(key)
        self._open.clear()
        self.position = start

    def _take_batch(self, batch: Batch) -> None:
        """Applies a marker, collects transactional records, or applies records outside a transaction."""
        if batch.control:
            pending = self._open.pop(batch.producer_id, None)
            if (
                pending is not None
                and pending.epoch == batch.producer_epoch
                and marker_type(batch) == _COMMIT
            ):
                self._apply(pending.records)
        elif batch.transactional:
            pending = self._open.get(batch.producer_id)
            if pending is None or pending.epoch != batch.producer_epoch:
                pending = self._open[batch.producer_id] = _Open(batch.producer_epoch, [], {})
            pending.extend(self._unread(batch))
        else:
            self._apply(self._unread(batch))

    def _unread(self, batch: Batch) -> list[StoredRecord]:
        """Returns the records of a batch that are not read yet."""
        return [record for record in read(batch) if record.offset >= self.position]

    def _apply(self, records: Iterable[StoredRecord]) -> None:
        """Applies records by their offsets, not by the order of markers, as compaction does.

        Compaction keeps the record with the highest offset of a key.
        """
        for offset, key, value in records:
            if key is None:
                continue
            kept = self._kept.get(key)
            if kept is None or kept.offset < offset:
                self._kept[key] = CommittedValue(offset, value)
                self._changed.add(key)
