"""The offset map of one partition says which destination offset holds which source record. It is exact (R6).

A run is a range of records that are contiguous at both ends. Between runs there may be anything that was not
copied: compaction gaps, transaction markers, aborted data, dropped records, and at the destination records of
other writers. A span covers the source offsets `low … end-1`: each of them is in one of its runs, or was
decided not to be copied. A map is a sequence of spans. Offsets below the first span are `UnmappedOffset`;
from the end of the last span on nothing is decided (`NotYetCopied`). The map never gives a wrong number.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple


class Run(NamedTuple):
    """Maps source offsets `source … source+records-1` to destination offsets `destination …
    destination+records-1`.
    """

    source: int
    destination: int
    records: int

    @property
    def source_end(self) -> int:
        return self.source + self.records

    @property
    def destination_end(self) -> int:
        return self.destination + self.records


def append(runs: list[Run], run: Run) -> None:
    """Adds a run behind the others, and joins it to the last run where both are contiguous at both sides.

    Raises ValueError for a run that is empty or overlaps the last one.
    """
    if run.records <= 0:
        raise ValueError(f"a run of {run.records} records")
    if not runs:
        runs.append(run)
        return
    last = runs[-1]
    source_gap, destination_gap = run.source - last.source_end, run.destination - last.destination_end
    if source_gap < 0 or destination_gap < 0:
        raise ValueError(f"{run} lies before the end of {last}")
    if source_gap == destination_gap == 0:
        runs[-1] = Run(last.source, last.destination, last.records + run.records)
    else:
        runs.append(run)


@dataclass(frozen=True, slots=True)
class MappedOffset:
    """Gives the destination offset of the first copied record at or after the requested one.

    `exact` when it is the requested record itself.
    """

    offset: int
    exact: bool


@dataclass(frozen=True, slots=True)
class EndOfOffsetMap:
    """Says that no record from the requested offset on was copied yet, and everything before it is decided.

    `offset` is the position behind the last copied record: a reader that continues there misses nothing.
    """

    offset: int


@dataclass(frozen=True, slots=True)
class NotYetCopied:
    """Says that the flow has not reached the requested offset."""


@dataclass(frozen=True, slots=True)
class UnmappedOffset:
    """Says that the offset lies below the map.

    It was copied before the map existed, was trimmed, or will never be copied.
    """


Answer = MappedOffset | EndOfOffsetMap | NotYetCopied | UnmappedOffset


@dataclass(frozen=True, slots=True)
class Span:
    """Covers a range of source offsets.

    `destination_low` and `destination_end` bound its records at the destination. It keeps its runs encoded as
    the ledger does, with some bytes for each: a long map fits in memory.
    """

    low: int
    end: int
    destination_low: int
    destination_end: int
    encoded: bytes

    @property
    def runs(self) -> tuple[Run, ...]:
        return _decoded(self.encoded, self.low, self.destination_low) if self.encoded else ()


class OffsetMap:
    """Holds spans in order. Where two spans are not contiguous, everything before the gap is unmapped."""

    __slots__ = ("_destination_lows", "_lows", "spans")

    def __init__(self, spans: Iterable[Span]) -> None:
        self.spans = _adjacent(tuple(spans))
        self._lows = [span.low for span in self.spans]
        self._destination_lows = [span.destination_low for span in self.spans]

    @property
    def low(self) -> int:
        """Returns the low-water mark: smaller source offsets are unmapped."""
        return self.spans[0].low if self.spans else 0

    @property
    def end(self) -> int:
        """Returns the source offset up to which the flow is replicated: from it on nothing is decided."""
        return self.spans[-1].end if self.spans else 0

    @property
    def destination_low(self) -> int:
        return self.spans[0].destination_low if self.spans else 0

    @property
    def destination_end(self) -> int:
        return self.spans[-1].destination_end if self.spans else 0

    def translate(self, source: int) -> Answer:
        """Returns the destination offset of the first copied record at or after a source offset (R6)."""
        if not self.spans or source < self.low:
            return UnmappedOffset()
        if source > self.end:
            return NotYetCopied()
        run = self._run(bisect_right(self._lows, source) - 1, source, _source_end)
        if run is None:
            return EndOfOffsetMap(self.destination_end)
        exact = run.source <= source
        return MappedOffset(run.destination + (source - run.source if exact else 0), exact)

    def origin(self, destination: int) -> Answer:
        """Returns the source offset of the first copied record at or after a destination offset (R6)."""
        if not self.spans or destination < self.destination_low:
            return UnmappedOffset()
        at = bisect_right(self._destination_lows, destination) - 1
        run = self._run(at, destination, _destination_end)
        if run is None:
            return EndOfOffsetMap(self.end) if destination <= self.destination_end else NotYetCopied()
        exact = run.destination <= destination
        return MappedOffset(run.source + (destination - run.destination if exact else 0), exact)

    def destination_behind(self, source: int) -> int:
        """Returns the destination offset behind the last copied record that lies before a source offset."""
        for span in reversed(self.spans[: bisect_right(self._lows, source)]):
            runs = span.runs
            if (index := bisect_left(runs, source, key=_source)) > 0:
                run = runs[index - 1]
                return run.destination + min(run.records, source - run.source)
        return self.destination_low

    def _run(self, at: int, offset: int, end: Callable[[Run], int]) -> Run | None:
        """Returns the first run that ends behind the offset, from the span at index `at` on."""
        for span in self.spans[at:]:
            runs = span.runs
            index = bisect_right(runs, offset, key=end)
            if index < len(runs):
                return runs[index]
        return None


def _source(run: Run) -> int:
    return run.source


_MAX_SHIFT = 62  # 9 bytes of 7 bits hold every offset


def _source_end(run: Run) -> int:
    return run.source_end


def _destination_end(run: Run) -> int:
    return run.destination_end


def trimmable(spans: Sequence[Span], destination_log_start: int) -> int:
    """Returns how many of the first spans hold nothing that the destination still has.

    The last span always stays.
    """
    for number, span in enumerate(spans[:-1]):
        if span.destination_end > destination_log_start:
            return number
    return max(len(spans) - 1, 0)


def _adjacent(spans: tuple[Span, ...]) -> tuple[Span, ...]:
    for at in range(len(spans) - 1, 0, -1):
        if spans[at - 1].end != spans[at].low:
            return spans[at:]
    return spans


def encode_runs(runs: Iterable[Run], source: int, destination: int) -> bytes:
    """Encodes each run as three varints: its distance from the previous run at both sides, and its length."""
    out = bytearray()
    for run in runs:
        for number in (run.source - source, run.destination - destination, run.records):
            if number < 0:
                raise ValueError(f"{run} lies before {source} → {destination}")
            while number > 0x7F:
                out.append(number & 0x7F | 0x80)
                number >>= 7
            out.append(number)
        source, destination = run.source_end, run.destination_end
    return bytes(out)


def decode_runs(encoded: bytes, source: int, destination: int) -> tuple[Run, ...]:
    """Decodes the runs of `encode_runs`; contiguous runs are returned as one."""
    runs: list[Run] = []
    numbers = _varints(encoded)
    for source_gap, destination_gap, records in zip(numbers, numbers, numbers, strict=True):
        run = Run(source + source_gap, destination + destination_gap, records)
        append(runs, run)
        source, destination = run.source_end, run.destination_end
    return tuple(runs)


_decoded = lru_cache(maxsize=512)(decode_runs)


def _varints(encoded: bytes) -> Iterator[int]:
    value = shift = 0
    for byte in encoded:
        value |= (byte & 0x7F) << shift
        if byte & 0x80:
            shift += 7
            if shift > _MAX_SHIFT:
                raise ValueError("a number of more than 63 bits")
        else:
            yield value
            value = shift = 0
    if shift:
        raise ValueError("the last number is cut off")
