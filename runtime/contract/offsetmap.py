"""The offset map of one partition: which destination offset holds which source record. Exact (R6).

A run is a stretch of records that lie side by side at both ends. Between runs there may be anything that was
not copied: compaction gaps, transaction markers, aborted data, dropped records, and at the destination other
writers. A span covers the source offsets `low … end-1`: each of them is in one of its runs, or was decided
not to be copied. A map is spans one after the other; below the first it knows nothing (`Unmapped`), from the
end of the last on nothing is decided (`NotYet`). A wrong number is never an answer.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Run(NamedTuple):
    """Source offsets `source … source+records-1` are at destination offsets `destination …
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
    """Adds a run behind the others, joined to the last where nothing lies between them at either side."""
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
class Mapped:
    """`offset` holds the first copied record at or after the one asked for; `exact` when it is that very
    record.
    """

    offset: int
    exact: bool


@dataclass(frozen=True, slots=True)
class AtEnd:
    """Everything up to the one asked for is decided and nothing at or after it was copied yet.

    `offset` is the position behind the last copied record: a reader that goes on there misses nothing.
    """

    offset: int


@dataclass(frozen=True, slots=True)
class NotYet:
    """The flow has not come that far."""


@dataclass(frozen=True, slots=True)
class Unmapped:
    """Below the map's low-water mark: copied before there was a map, trimmed, or never meant to be copied."""


Answer = Mapped | AtEnd | NotYet | Unmapped


@dataclass(frozen=True, slots=True)
class Span:
    """A covered stretch. `destination_low` and `destination_end` bound what it wrote at the destination."""

    low: int
    end: int
    destination_low: int
    destination_end: int
    runs: tuple[Run, ...]


class OffsetMap:
    """Spans in order. Where two do not meet, what lies before the gap is unmapped."""

    __slots__ = ("_destinations", "_runs", "_sources", "spans")

    def __init__(self, spans: Iterable[Span]) -> None:
        self.spans = _adjacent(tuple(spans))
        runs: list[Run] = []
        for span in self.spans:
            for run in span.runs:
                append(runs, run)
        self._runs: Sequence[Run] = runs
        self._sources = [run.source for run in runs]
        self._destinations = [run.destination for run in runs]

    @property
    def low(self) -> int:
        """The low-water mark: smaller source offsets are unmapped."""
        return self.spans[0].low if self.spans else 0

    @property
    def end(self) -> int:
        """Replicated through: from this source offset on nothing is decided."""
        return self.spans[-1].end if self.spans else 0

    @property
    def destination_low(self) -> int:
        return self.spans[0].destination_low if self.spans else 0

    @property
    def destination_end(self) -> int:
        return self.spans[-1].destination_end if self.spans else 0

    def translate(self, source: int) -> Answer:
        """Where the first copied record at or after a source offset is at the destination (R6)."""
        if not self.spans or source > self.end:
            return NotYet() if self.spans and source > self.end else Unmapped()
        if source < self.low:
            return Unmapped()
        at = bisect_right(self._sources, source) - 1
        if at >= 0 and source < self._runs[at].source_end:
            run = self._runs[at]
            return Mapped(run.destination + source - run.source, exact=True)
        if at + 1 < len(self._runs):
            return Mapped(self._runs[at + 1].destination, exact=False)
        return AtEnd(self.destination_end)

    def origin(self, destination: int) -> Answer:
        """Which source offset the first copied record at or after a destination offset came from (R6)."""
        if not self.spans or destination < self.destination_low:
            return Unmapped()
        at = bisect_right(self._destinations, destination) - 1
        if at >= 0 and destination < self._runs[at].destination_end:
            run = self._runs[at]
            return Mapped(run.source + destination - run.destination, exact=True)
        if at + 1 < len(self._runs):
            return Mapped(self._runs[at + 1].source, exact=False)
        return AtEnd(self.end) if destination <= self.destination_end else NotYet()


def trimmable(spans: Sequence[Span], destination_log_start: int) -> int:
    """How many of the first spans hold nothing that the destination still has. The last one always stays."""
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
    """Each run as three varints: what lies between it and the end of the one before, and its records."""
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
    """The inverse; neighbours that meet come back as one."""
    runs: list[Run] = []
    numbers = _varints(encoded)
    for source_gap, destination_gap, records in zip(numbers, numbers, numbers, strict=True):
        run = Run(source + source_gap, destination + destination_gap, records)
        append(runs, run)
        source, destination = run.source_end, run.destination_end
    return tuple(runs)


def _varints(encoded: bytes) -> Iterator[int]:
    value = shift = 0
    for byte in encoded:
        value |= (byte & 0x7F) << shift
        if byte & 0x80:
            shift += 7
        else:
            yield value
            value = shift = 0
    if shift:
        raise ValueError("the last number is cut off")
