"""The offset map of one partition says which destination offset holds which source record. It is exact (R6).

A run is a range of records that are contiguous at both ends. Between runs there may be anything that was not
copied: compaction gaps, transaction markers, aborted data, dropped records, and at the destination records of
other writers. A span covers the source offsets `low … end-1`: each of them is in one of its runs, or was
decided not to be copied. A map is a sequence of spans. Offsets below the first span are `UnmappedOffset`;
from the end of the last span on nothing is decided (`NotYetCopied`). The map never gives a wrong number.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from operator import add, attrgetter, or_
from typing import NamedTuple, Protocol, overload

from msgspec import Struct


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


class Runs(Sequence[Run]):
    """Holds decoded runs in order, in 24 bytes for each."""

    __slots__ = ("_destinations", "_records", "_sources")

    def __init__(self, sources: Iterable[int], destinations: Iterable[int], records: Iterable[int]) -> None:
        self._sources, self._destinations = array("q", sources), array("q", destinations)
        self._records = array("q", iter(records))  # bytes would be read as the array's own format

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, at: int) -> Run: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Run]: ...
    def __getitem__(self, at: int | slice) -> Run | Sequence[Run]:
        if isinstance(at, slice):
            return tuple(self[index] for index in range(*at.indices(len(self))))
        return Run(self._sources[at], self._destinations[at], self._records[at])

    def __iter__(self) -> Iterator[Run]:
        return map(Run, self._sources, self._destinations, self._records)

    def first_behind(self, offset: int, *, at_destination: bool) -> int:
        """Returns the index of the first run that ends behind an offset of one side; runs do not overlap."""
        starts = self._destinations if at_destination else self._sources
        before = bisect_right(starts, offset) - 1
        return before if before >= 0 and starts[before] + self._records[before] > offset else before + 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(tuple(self))


_NO_RUNS = Runs((), (), ())


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


class MappedOffset(Struct, frozen=True):
    """Gives the destination offset of the first copied record at or after the requested one.

    `exact` when it is the requested record itself.
    """

    offset: int
    exact: bool


class EndOfOffsetMap(Struct, frozen=True):
    """Says that no record from the requested offset on was copied yet, and everything before it is decided.

    `offset` is the position behind the last copied record: a reader that continues there misses nothing.
    """

    offset: int


class NotYetCopied(Struct, frozen=True):
    """Says that the flow has not reached the requested offset."""


class UnmappedOffset(Struct, frozen=True):
    """Says that the offset lies below the map.

    It was copied before the map existed, was trimmed, or will never be copied.
    """


Answer = MappedOffset | EndOfOffsetMap | NotYetCopied | UnmappedOffset


class StoredRuns(Protocol):
    """Encoded runs that are stored outside the process."""

    @property
    def count(self) -> int:
        """The number of the encoded runs."""
        ...

    def __hash__(self) -> int: ...

    def read(self) -> bytes:
        """Returns the encoded runs."""
        ...


class Span(Struct, frozen=True, array_like=True):
    """Covers a range of source offsets.

    `destination_low` and `destination_end` bound its records at the destination. Its runs are encoded as in
    the ledger, with some bytes for each, and stay in memory or are stored elsewhere. A sealed span is a
    record of the ledger, a segment, which never changes; a tombstone trims it.
    """

    low: int
    end: int
    destination_low: int
    destination_end: int
    encoded: bytes | StoredRuns

    @property
    def runs(self) -> Runs:
        return _decoded(self.encoded, self.low, self.destination_low) if self.encoded else _NO_RUNS

    @property
    def run_count(self) -> int:
        return count_runs(self.encoded) if isinstance(self.encoded, bytes) else self.encoded.count

    def encoded_runs(self) -> bytes:
        """Returns the encoded runs, wherever they are stored."""
        return _bytes_of(self.encoded)


class OffsetMap:
    """Holds spans in order. Where two spans are not contiguous, everything before the gap is unmapped.

    `trimmed`: the map was longer once, and the destination no longer holds the records of the trimmed part.
    """

    __slots__ = ("_destination_lows", "_lows", "spans", "trimmed")

    def __init__(self, spans: Iterable[Span], *, is_trimmed: bool = False) -> None:
        every = tuple(spans)
        self.spans = _adjacent(every)
        self.trimmed = is_trimmed and len(self.spans) == len(every)
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
        run = self._run(bisect_right(self._lows, source) - 1, source)
        if run is None:
            return EndOfOffsetMap(self.destination_end)
        exact = run.source <= source
        return MappedOffset(run.destination + (source - run.source if exact else 0), exact)

    def origin(self, destination: int) -> Answer:
        """Returns the source offset of the first copied record at or after a destination offset (R6)."""
        if not self.spans or destination < self.destination_low:
            return UnmappedOffset()
        at = bisect_right(self._destination_lows, destination) - 1
        run = self._run(at, destination, at_destination=True)
        if run is None:
            return EndOfOffsetMap(self.end) if destination <= self.destination_end else NotYetCopied()
        exact = run.destination <= destination
        return MappedOffset(run.source + (destination - run.destination if exact else 0), exact)

    def destination_behind(self, source: int) -> int:
        """Returns the destination offset behind the last copied record that lies before a source offset."""
        for span in reversed(self.spans[: bisect_right(self._lows, source)]):
            runs = span.runs
            if (index := bisect_left(runs, source, key=attrgetter("source"))) > 0:
                run = runs[index - 1]
                return run.destination + min(run.records, source - run.source)
        return self.destination_low

    def _run(self, at: int, offset: int, *, at_destination: bool = False) -> Run | None:
        """Returns the first run that ends behind the offset, from the span at index `at` on."""
        for later in range(at, len(self.spans)):
            runs = self.spans[later].runs
            index = runs.first_behind(offset, at_destination=at_destination)
            if index < len(runs):
                return runs[index]
        return None


_MAX_SHIFT = 62  # 9 bytes of 7 bits hold every offset
_CONTINUED = bytes(range(0x80, 0x100))  # the bytes of a varint before its last one


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
    numbers: list[int] = []
    for run in runs:
        numbers += (run.source - source, run.destination - destination, run.records)
        if run.source < source or run.destination < destination:
            raise ValueError(f"{run} lies before {source} → {destination}")
        source, destination = run.source_end, run.destination_end
    return _encoded(numbers)


def decode_runs(encoded: bytes, source: int, destination: int) -> Runs:
    """Decodes the runs of `encode_runs`; contiguous runs are returned as one.

    Raises ValueError for bytes that are not such an encoding.
    """
    numbers = _numbers(encoded)
    source_gaps, destination_gaps, records = numbers[0::3], numbers[1::3], numbers[2::3]
    if 0 in records:
        raise ValueError("a run of 0 records")
    if not all(map(or_, source_gaps[1:], destination_gaps[1:])):
        source_gaps, destination_gaps, records = _joined(source_gaps, destination_gaps, records)
    try:
        return Runs(
            _starts(source_gaps, records, source), _starts(destination_gaps, records, destination), records
        )
    except OverflowError as error:
        raise ValueError("an offset of more than 63 bits") from error


def _joined(*columns: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """Returns the distances and the records of each run, with contiguous runs as one."""
    source_gaps, destination_gaps, records = list[int](), list[int](), list[int]()
    for source_gap, destination_gap, count in zip(*columns, strict=True):
        if records and not source_gap | destination_gap:
            records[-1] += count
        else:
            source_gaps.append(source_gap)
            destination_gaps.append(destination_gap)
            records.append(count)
    return source_gaps, destination_gaps, records


def _starts(gaps: Sequence[int], records: Sequence[int], first: int) -> Iterator[int]:
    """Returns the first offset of each run at one side."""
    return map(add, accumulate(map(add, gaps, records), initial=first), gaps)


@lru_cache(maxsize=128)
def _decoded(encoded: bytes | StoredRuns, source: int, destination: int) -> Runs:
    return decode_runs(_bytes_of(encoded), source, destination)


def _bytes_of(encoded: bytes | StoredRuns) -> bytes:
    return encoded if isinstance(encoded, bytes) else encoded.read()


def count_runs(encoded: bytes) -> int:
    """Returns the number of encoded runs, without decoding them."""
    return len(encoded.translate(None, _CONTINUED)) // 3


def invert_runs(encoded: bytes) -> bytes:
    """Returns the encoded runs with source and destination exchanged."""
    numbers = list(_numbers(encoded))
    numbers[0::3], numbers[1::3] = numbers[1::3], numbers[0::3]
    return _encoded(numbers)


def destination_end_of(encoded: bytes, destination: int) -> int:
    """Returns the destination offset behind the last of the encoded runs; `destination` if there is none."""
    return _ends(_numbers(encoded), 0, destination)[1]


def join_runs(spans: Sequence[Span]) -> bytes:
    """Returns the runs of adjacent spans, encoded from the beginning of the first span."""
    numbers: list[int] = []
    source, destination = spans[0].low, spans[0].destination_low
    for span in spans:
        span_numbers = list(_numbers(span.encoded_runs()))
        if span_numbers:
            ends = _ends(span_numbers, span.low, span.destination_low)
            span_numbers[0] += span.low - source
            span_numbers[1] += span.destination_low - destination
            numbers += span_numbers
            source, destination = ends
    return _encoded(numbers)


def _ends(numbers: Sequence[int], source: int, destination: int) -> tuple[int, int]:
    """Returns the offsets behind the last run at both sides; the runs begin at the given offsets."""
    records = sum(numbers[2::3])
    return source + sum(numbers[0::3]) + records, destination + sum(numbers[1::3]) + records


def _encoded(numbers: Sequence[int]) -> bytes:
    """Encodes each number as a varint."""
    if max(numbers, default=0) < 0x80:
        return bytes(numbers)
    out = bytearray()
    for number in numbers:
        while number > 0x7F:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        out.append(number)
    return bytes(out)


def _numbers(encoded: bytes) -> Sequence[int]:
    """Returns the three numbers of each encoded run."""
    numbers = encoded if encoded.isascii() else tuple(_varints(encoded))
    if len(numbers) % 3:
        raise ValueError("the last run is cut off")
    return numbers


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
