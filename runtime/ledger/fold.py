"""An internal topic's partition, read uncommitted and resolved by control markers (fencing 2). Pure."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from runtime.batch import Batch, RecordSet, marker_type
from runtime.ledger.records import StoredRecord, read

_COMMIT = 1


class Kept(NamedTuple):
    offset: int
    value: bytes | None


class _Open(NamedTuple):
    """What a producer id wrote under its epoch since its last marker. `newest` is the last offset by key."""

    epoch: int
    records: list[StoredRecord]
    newest: dict[bytes, int]

    def extend(self, records: Iterable[StoredRecord]) -> None:
        for record in records:
            self.records.append(record)
            if record.key is not None:
                self.newest[record.key] = record.offset


class Fold:
    """The newest committed value of each key, and the keys whose newest value is not decided yet.

    Records of a producer id wait until its marker: a commit applies them, an abort drops them. Compaction may
    have taken superseded records and markers without data; it keeps the marker of any record that is left.
    It may also take a marker that somebody who read the record before still waits for. Then the record was
    aborted or superseded; the id's next epoch says that its transaction is over (fencing 1).
    """

    def __init__(self) -> None:
        self.position = 0
        self._kept: dict[bytes, Kept] = {}
        self._open: dict[int, _Open] = {}
        self._news: set[bytes] = set()

    def get(self, key: bytes) -> bytes | None:
        kept = self._kept.get(key)
        return kept.value if kept else None

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        return ((key, kept.value) for key, kept in self._kept.items() if kept.value is not None)

    def news(self) -> list[tuple[bytes, bytes | None]]:
        """Keys whose committed value changed since this was last asked, None where it was taken away."""
        changed, self._news = self._news, set()
        return [(key, self.get(key)) for key in changed]

    def undecided(self, key: bytes) -> bool:
        """Whether an open transaction has written the key, behind what is committed."""
        kept = self._kept.get(key)
        since = kept.offset if kept else -1
        return any(pending.newest.get(key, -1) > since for pending in self._open.values())

    def open_producers(self) -> frozenset[int]:
        return frozenset(self._open)

    def take(self, sets: Iterable[RecordSet]) -> None:
        """Reads on."""
        for batch in sets:
            if isinstance(batch, Batch) and batch.next_offset > self.position:
                self._batch(batch)
                self.position = batch.next_offset

    def skip_to(self, start: int) -> None:
        """Continues at a log start offset that moved past the position.

        The markers between the two are gone, so a transaction that was open there stays undecided for ever.
        Its keys are dropped with what they held before: a reader that begins now finds neither.
        """
        for pending in self._open.values():
            for key, offset in pending.newest.items():
                kept = self._kept.get(key)
                if kept is not None and kept.offset < offset:
                    del self._kept[key]
                    self._news.add(key)
        self._open.clear()
        self.position = start

    def _batch(self, batch: Batch) -> None:
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
            pending.extend(self._wanted(batch))
        else:
            self._apply(self._wanted(batch))

    def _wanted(self, batch: Batch) -> list[StoredRecord]:
        return [record for record in read(batch) if record.offset >= self.position]

    def _apply(self, records: Iterable[StoredRecord]) -> None:
        """By offset, not by marker: compaction keeps the record with the highest offset too."""
        for offset, key, value in records:
            if key is None:
                continue
            kept = self._kept.get(key)
            if kept is None or kept.offset < offset:
                self._kept[key] = Kept(offset, value)
                self._news.add(key)
