"""An internal topic's partition, read uncommitted and resolved by control markers (fencing 2). Pure."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from runtime.batch import Batch, RecordSet, marker_type
from runtime.copy.records import StoredRecord, read

_COMMIT = 1


class Kept(NamedTuple):
    offset: int
    value: bytes | None


class Fold:
    """The newest committed value of each key, and the keys whose newest value is not decided yet.

    Records of a producer id wait until its marker: a commit applies them, an abort drops them. Compaction may
    have taken superseded records and markers without data; it keeps the marker of any record that is left.
    """

    def __init__(self) -> None:
        self.position = 0
        self._kept: dict[bytes, Kept] = {}
        self._open: dict[int, list[StoredRecord]] = {}
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
        """Whether an open transaction has written the key."""
        return any(record.key == key for records in self._open.values() for record in records)

    def open_producers(self) -> frozenset[int]:
        return frozenset(self._open)

    def take(self, sets: Iterable[RecordSet]) -> None:
        """Reads on."""
        for batch in sets:
            if isinstance(batch, Batch) and batch.next_offset > self.position:
                self._batch(batch)
                self.position = batch.next_offset

    def _batch(self, batch: Batch) -> None:
        if batch.control:
            records = self._open.pop(batch.producer_id, [])
            if marker_type(batch) == _COMMIT:
                self._apply(records)
        elif batch.transactional:
            self._open.setdefault(batch.producer_id, []).extend(self._wanted(batch))
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
