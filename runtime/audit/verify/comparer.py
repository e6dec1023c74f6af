"""Compares two sequences of normalised records, whatever they are read from: topics, files or a backup.

Where neither side may have lost records, the two are compared as sequences, and the offset map is checked
against the result: so a missing record makes one difference, not one for every record behind it. Where
compaction removed records, or each copy names its offset at the source, the offsets show which two records
belong together.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Sequence

from runtime.audit.verify.pieces import (
    ComparedRecord,
    DifferenceKind,
    RecordContent,
    RecordDifference,
    VerifiedPiece,
)

WINDOW = 512  # the distance over which a moved record is recognized
RECENT = 8_192
LIMIT = 100  # differences in a piece; more of them give no further information


class _Side:
    """Holds the records of one side that were read, and not compared yet."""

    def __init__(self, chunks: AsyncIterator[Sequence[ComparedRecord]], window: int) -> None:
        self.records: deque[ComparedRecord] = deque()
        self.ended = False
        self._chunks, self._window = chunks, window

    @property
    def full(self) -> bool:
        """Returns whether the records suffice to decide about the first one."""
        return self.ended or len(self.records) >= self._window

    @property
    def exhausted(self) -> bool:
        return self.ended and not self.records

    @property
    def head(self) -> ComparedRecord | None:
        return self.records[0] if self.records else None

    async def fill(self) -> None:
        while not self.full:
            chunk = await anext(self._chunks, None)
            if chunk is None:
                self.ended = True
            else:
                self.records.extend(chunk)

    def place_of(self, content: RecordContent) -> int | None:
        """Returns how far ahead a record with this content is."""
        return next((at for at, record in enumerate(self.records) if record.content == content), None)


class RecordComparer:
    """Compares two sequences of records, and notes counts and differences in the result of a piece.

    `in_order`: both sides hold all records, in one order. Otherwise offsets decide: where `source_only` or
    `destination_only`, compaction may have removed the other one of a record that is on this side alone.
    """

    def __init__(
        self,
        result: VerifiedPiece,
        *,
        in_order: bool,
        source_only: bool = False,
        destination_only: bool = False,
        limit: int = LIMIT,
        window: int = WINDOW,
    ) -> None:
        self._result, self._low = result, result.end
        self._in_order = in_order
        self._source_only, self._destination_only = source_only, destination_only
        self._limit, self._window = limit, window
        self._shift = 0  # of the last pair: the distance from its destination offset by the map
        self._net = 0  # extra records less missing ones: the shift that they explain
        self._recent: OrderedDict[RecordContent, int] = OrderedDict()
        self._lost: set[RecordContent] = set()
        self._surplus: set[RecordContent] = set()
        self._damaged: list[tuple[int, int]] = []
        # The destination offset of the last record that was compared by its offset.
        self._last: int | None = None

    async def run(
        self,
        source: AsyncIterator[Sequence[ComparedRecord]],
        destination: AsyncIterator[Sequence[ComparedRecord]],
    ) -> None:
        """Compares to the end of both sides, or until the limit of differences is reached.

        Raises what the iterators raise; the result then holds what was compared before.
        """
        here, there = _Side(source, self._window), _Side(destination, self._window)
        step = self._by_order if self._in_order else self._by_offset
        while not self._full and not (here.exhausted and there.exhausted):
            filled = asyncio.gather(here.fill(), there.fill(), return_exceptions=True)
            for failure in await filled:  # both have ended, so each damaged file that was read is noted
                if failure is not None:
                    raise failure
            while not self._full and step(here, there):
                pass
        self._result.more = self._full

    def damaged(self, first: int, end: int, path: str, why: str) -> None:
        """Notes a file whose records `first … end-1` can't be compared: they are not missing one by one."""
        self._damaged.append((first, end))
        near = max(min(self._result.end, first), self._low)
        why = f"source offsets {first} to {end - 1}: {why}"
        self._result.edits.append(
            RecordDifference("damaged", near, ComparedRecord(first), file=path, why=why)
        )

    @property
    def _full(self) -> bool:
        return len(self._result.edits) >= self._limit

    def _by_offset(self, here: _Side, there: _Side) -> bool:
        source, destination = here.head, there.head
        if (source is None and not here.ended) or (destination is None and not there.ended):
            return False
        if source is None and destination is None:
            return False
        if source is not None and source.at is None:
            self._missing(here.records.popleft())
        elif destination is None or (source is not None and (source.at or 0) < destination.offset):
            self._at_source_alone(here.records.popleft())
        elif source is None or destination.offset < (source.at or 0):
            self._at_destination_alone(there.records.popleft())
        else:
            self._last = destination.offset
            source, destination = here.records.popleft(), there.records.popleft()
            if not source.travels:
                self._extra(destination, "not let through by the flow's transform")
            elif source.content == destination.content:
                self._match(source, destination)
            else:
                self._changed(source, destination)
        return True

    def _at_source_alone(self, record: ComparedRecord) -> None:
        if not record.travels:
            self._result.filtered += 1
        elif self._source_only:
            self._result.compacted += 1
        elif not any(low <= record.offset < end for low, end in self._damaged):
            self._missing(record)

    def _at_destination_alone(self, record: ComparedRecord) -> None:
        if record.at is not None and record.offset == self._last:
            self._note("extra", None, record, record.at)
        elif record.at is not None and self._destination_only:
            self._result.compacted += 1
        else:
            self._extra(record)
        self._last = record.offset

    def _by_order(self, here: _Side, there: _Side) -> bool:
        source, destination = here.head, there.head
        if source is not None and destination is not None and source.content == destination.content:
            self._match(here.records.popleft(), there.records.popleft())
            return True
        if (source is None and destination is None) or not (here.full and there.full):
            return False  # too few records to decide
        if destination is None:
            self._missing(here.records.popleft())
        elif source is None:
            self._extra(there.records.popleft())
        else:
            self._differ(source, destination, here, there)
        return True

    def _differ(self, source: ComparedRecord, destination: ComparedRecord, here: _Side, there: _Side) -> None:
        ahead, behind = here.place_of(destination.content), there.place_of(source.content)
        if ahead is None and behind is None:
            missing, extra = self._unknown(source, destination)
        else:
            missing = behind is None or (ahead is not None and ahead <= behind)
            extra = not missing
        if not missing and not extra:
            self._changed(here.records.popleft(), there.records.popleft())
        if missing:
            self._missing(here.records.popleft())
        if extra:
            self._extra(there.records.popleft())

    def _unknown(self, source: ComparedRecord, destination: ComparedRecord) -> tuple[bool, bool]:
        """Returns whether the first is missing and the second is extra: neither is ahead at the other side.

        They are one record that was changed where the second is at the place of the first, unless one of them
        was compared before.
        """
        due = source.at + self._shift if source.at is not None else None
        if due is None or due < destination.offset:
            return True, False
        if destination.offset < due:
            return False, True
        content = destination.content
        seen = content in self._recent or content in self._lost or source.content in self._surplus
        return seen, seen

    def _match(self, source: ComparedRecord, destination: ComparedRecord) -> None:
        self._result.compared += 1
        self._recent[source.content] = source.offset
        if len(self._recent) > RECENT:
            self._recent.popitem(last=False)
        if source.at is None:
            self._note("moved", source, destination)
        elif (shift := destination.offset - source.at) != self._shift:
            self._shift = shift
            if shift not in (0, self._net):
                self._note("moved", source, destination)
        self._result.end = source.offset + 1

    def _missing(self, source: ComparedRecord) -> None:
        self._net -= 1
        self._lost.add(source.content)
        self._note("missing", source)

    def _extra(self, destination: ComparedRecord, why: str = "") -> None:
        self._net += 1
        self._surplus.add(destination.content)
        has_place = destination.at is not None and not self._in_order
        twin = None if has_place else self._recent.get(destination.content)
        self._note("extra", None, destination, twin, why)

    def _changed(self, source: ComparedRecord, destination: ComparedRecord) -> None:
        self._result.compared += 1
        self._note("changed", source, destination)
        if not self._in_order and not self._source_only:  # its offset alone says which copy is its own
            self._result.end = source.offset + 1

    def _note(
        self,
        what: DifferenceKind,
        source: ComparedRecord | None = None,
        destination: ComparedRecord | None = None,
        twin: int | None = None,
        why: str = "",
    ) -> None:
        file = destination.file if destination is not None else ""
        near = self._result.end
        self._result.edits.append(RecordDifference(what, near, source, destination, twin, file, why))
