"""Defines the request of `repl verify`, and compares two sides of one range of a partition. It is pure.

Requests and outcomes are files of JSON, and bytes for tasks. A comparison goes record by record: lines in,
edits out. Where neither side is compacted the two are compared as sequences, and the offset map is checked
against the result: so a missing record makes one difference, not one for every record behind it. Where a side
is compacted, only the map shows which two records belong together, and a record on one side alone is no
difference.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct, field

from runtime.contract.records.ledger import PartitionKey
from runtime.contract.records.manifest import DataFile
from runtime.contract.results.records import UncomparableRange, VerificationReport
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.jobspec import FlowSpec

WINDOW = 512  # the distance over which a moved record is recognized
RECENT = 8_192
PIECE = 100_000  # offsets in a task
SAMPLED = 1_000  # offsets in a range of a sample
LIMIT = 100  # edits in a range; more of them give no further information
_RAW = 32
_DIGEST = 40  # longer than any content that is kept as it is


class RecordContent(msgspec.Struct, frozen=True, array_like=True):
    """Holds every part of a record that must be equal. A long part is replaced by its digest."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class ComparedRecord(NamedTuple):
    """Holds a record's line. `at`: the offset at the other side by the map; None where the map has none."""

    offset: int
    at: int | None
    print: RecordContent


class RecordDifference(msgspec.Struct, frozen=True, array_like=True):
    """Describes one difference.

    `near`: the source offset up to which all was equal. `twin`: an equal record's offset at the source.
    `file`: the path of the file that holds the record, or that is damaged; `why` says more.
    """

    what: Literal["missing", "extra", "changed", "moved", "damaged"]
    near: int
    source_offset: int | None
    expected: int | None
    destination_offset: int | None
    source: RecordContent | None
    destination: RecordContent | None
    twin: int | None = None
    file: str = ""
    why: str = ""


def condensed(content: bytes | None) -> bytes | None:
    """Returns short content as it is, and the digest of long content."""
    if content is None or len(content) <= _RAW:
        return content
    return hashlib.blake2b(content, digest_size=_DIGEST).digest()


class RecordComparer:
    """Compares two sequences of lines.

    Add lines of a side while they are wanted, report its end, and call `advance` after each.
    """

    def __init__(self, low: int, *, compacted: bool, limit: int = LIMIT, window: int = WINDOW) -> None:
        self.edits: list[RecordDifference] = []
        self.matched = 0
        self.one_sided = 0
        self._compacted = compacted
        self._limit, self._window = limit, window
        self._source_lines: deque[ComparedRecord] = deque()
        self._destination_lines: deque[ComparedRecord] = deque()
        self._source_ended = self._destination_ended = False
        self._near = low
        self._shift = 0  # of the last pair: the distance from its destination offset by the map
        self._net = 0  # extra records less missing ones: the shift that they explain
        self._recent: OrderedDict[RecordContent, int] = OrderedDict()
        self._lost: set[RecordContent] = set()
        self._surplus: set[RecordContent] = set()

    @property
    def through(self) -> int:
        """Returns the source offset behind the last pair."""
        return self._near

    @property
    def full(self) -> bool:
        """Returns whether the limit of edits is reached."""
        return len(self.edits) >= self._limit

    @property
    def done(self) -> bool:
        """Returns whether the comparison is complete or full."""
        ended = (
            self._source_ended
            and self._destination_ended
            and not self._source_lines
            and not self._destination_lines
        )
        return self.full or ended

    @property
    def wants_source(self) -> bool:
        """Returns whether more lines of the source are needed."""
        return not self._source_ended and len(self._source_lines) < self._window

    @property
    def wants_destination(self) -> bool:
        """Returns whether more lines of the destination are needed."""
        return not self._destination_ended and len(self._destination_lines) < self._window

    def add_source(self, lines: Iterable[ComparedRecord]) -> None:
        """Adds lines of the source."""
        self._source_lines.extend(lines)

    def add_destination(self, lines: Iterable[ComparedRecord]) -> None:
        """Adds lines of the destination."""
        self._destination_lines.extend(lines)

    def end_source(self) -> None:
        """Marks the source as read to its end."""
        self._source_ended = True

    def end_destination(self) -> None:
        """Marks the destination as read to its end."""
        self._destination_ended = True

    def advance(self) -> None:
        """Compares as far as the lines that were passed allow."""
        step = self._by_the_map if self._compacted else self._in_order
        while not self.full and step():
            pass

    def _by_the_map(self) -> bool:
        source, destination = self._heads()
        if source is None and destination is None:
            return False
        if (source is None and not self._source_ended) or (
            destination is None and not self._destination_ended
        ):
            return False
        if source is not None and source.at is None:
            self._missing()
        elif source is None or (destination is not None and destination.offset < (source.at or 0)):
            assert destination is not None
            if destination.at is None:
                self._extra()
            else:
                self._destination_lines.popleft()
                self.one_sided += 1
        elif destination is None or (source.at or 0) < destination.offset:
            self._source_lines.popleft()
            self.one_sided += 1
        elif source.print == destination.print:
            self._match()
        else:
            self._changed()
        return True

    def _in_order(self) -> bool:
        source, destination = self._heads()
        if source is not None and destination is not None and source.print == destination.print:
            self._match()
            return True
        if (source is None and destination is None) or self.wants_source or self.wants_destination:
            return False  # too few lines to decide
        if destination is None:
            self._missing()
        elif source is None:
            self._extra()
        else:
            self._differ(source, destination)
        return True

    def _differ(self, source: ComparedRecord, destination: ComparedRecord) -> None:
        ahead = _find(self._source_lines, destination.print)
        behind = _find(self._destination_lines, source.print)
        match ahead, behind:
            case None, None:
                self._unknown(source, destination)
            case None, _:
                self._extra()
            case int(), None:
                self._missing()
            case int(one), int(other) if one <= other:
                self._missing()
            case _:
                self._extra()

    def _unknown(self, source: ComparedRecord, destination: ComparedRecord) -> None:
        """Handles two records that are unknown at the other side; one of them may have been passed before."""
        due = source.at + self._shift if source.at is not None else None
        if due is None or due < destination.offset:
            self._missing()
        elif destination.offset < due:
            self._extra()
        elif (
            destination.print in self._recent
            or destination.print in self._lost
            or source.print in self._surplus
        ):
            self._missing()
            self._extra()
        else:
            self._changed()

    def _heads(self) -> tuple[ComparedRecord | None, ComparedRecord | None]:
        return (self._source_lines[0] if self._source_lines else None), (
            self._destination_lines[0] if self._destination_lines else None
        )

    def _match(self) -> None:
        source, destination = self._source_lines.popleft(), self._destination_lines.popleft()
        self.matched += 1
        self._remember(source)
        if source.at is None:
            self._moved(source, destination)
        elif (shift := destination.offset - source.at) != self._shift:
            self._shift = shift
            if shift not in (0, self._net):
                self._moved(source, destination)
        self._near = source.offset + 1

    def _remember(self, source: ComparedRecord) -> None:
        self._recent[source.print] = source.offset
        if len(self._recent) > RECENT:
            self._recent.popitem(last=False)

    def _moved(self, source: ComparedRecord, destination: ComparedRecord) -> None:
        self.edits.append(
            RecordDifference(
                "moved",
                self._near,
                source.offset,
                source.at,
                destination.offset,
                source.print,
                destination.print,
            )
        )

    def _missing(self) -> None:
        source = self._source_lines.popleft()
        self._net -= 1
        self._lost.add(source.print)
        self.edits.append(
            RecordDifference("missing", self._near, source.offset, source.at, None, source.print, None)
        )

    def _extra(self) -> None:
        destination = self._destination_lines.popleft()
        self._net += 1
        self._surplus.add(destination.print)
        twin = self._recent.get(destination.print)
        self.edits.append(
            RecordDifference(
                "extra", self._near, None, None, destination.offset, None, destination.print, twin
            )
        )

    def _changed(self) -> None:
        source, destination = self._source_lines.popleft(), self._destination_lines.popleft()
        self.edits.append(
            RecordDifference(
                "changed",
                self._near,
                source.offset,
                source.at,
                destination.offset,
                source.print,
                destination.print,
            )
        )


def _find(lines: Sequence[ComparedRecord], print_: RecordContent) -> int | None:
    return next((at for at, line in enumerate(lines) if line.print == print_), None)


class VerifyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a comparison. It holds no secret: clusters hold references, as in a job's spec.

    `topics`: a regex for whole names at the source. `low` and `high` bound the source offsets of every
    partition; `last` selects so many before the end instead. `sample`: a share in percent. `rate`: bytes a
    second, both sides and all tasks together. `opposite`: the flow in the opposite direction, of which this
    one is the reverse.
    """

    flow: FlowSpec
    source: ClusterSpec
    destination: ClusterSpec
    topics: str | None = None
    low: int | None = None
    high: int | None = None
    last: int | None = None
    sample: float = 100.0
    rate: int | None = None
    within_s: float = 10.0
    opposite: str | None = None


class StoredFiles(msgspec.Struct, frozen=True, array_like=True):
    """Names the files of a range. The source still holds the offsets from `kept_from` on."""

    files: tuple[DataFile, ...]
    kept_from: int


class ReadFile(msgspec.Struct, frozen=True, array_like=True):
    """Names a file that was read up to `position`, in bytes or rows, of which the ledger counts the records.

    `fingerprint` is that of the file at this position.
    """

    name: str
    position: int
    fingerprint: bytes
    records: int


class VerificationPiece(msgspec.Struct, frozen=True, array_like=True):
    """Holds source offsets `low … high-1` of one partition and the corresponding range at the destination.

    `runs` is the map between them, `gaps` the offsets that were given up. From `owned_end` on, the flow's own
    records at the destination are newer than the map, and where it is not `alone`, other producers may write.
    `replayed` are source offsets that salvage replayed into the destination's topic: low, end, records. `own`
    are offsets at the destination that the opposite flow left there. `stored` are the files of a flow into
    files, which has no other destination; `read` is the file of a flow from files, whose position is `high`.
    """

    number: int  # of the partition in the plan
    topic: str
    partition: int
    source_id: bytes
    destination_topic: str
    destination_id: bytes
    low: int
    high: int
    destination_low: int
    destination_high: int
    owned_end: int
    runs: bytes
    gaps: tuple[tuple[int, int, str], ...]  # low, end, why
    compacted: bool
    alone: bool = True
    replayed: tuple[tuple[int, int, int], ...] = ()
    own: tuple[tuple[int, int], ...] = ()
    stored: StoredFiles | None = None
    read: ReadFile | None = None


class PlannedPartition(Struct):
    """Plans one partition: source offsets `low … end-1` are to be compared, in these pieces."""

    key: PartitionKey
    destination_topic: str
    low: int
    end: int
    pieces: list[VerificationPiece] = field(default_factory=list)
    not_comparable: list[UncomparableRange] = field(default_factory=list)
    unread: str = ""
    replayed: list[tuple[int, int, int]] = field(default_factory=list)  # ranges whose records must all exist

    def exclude(self, low: int, end: int, why: str) -> None:
        if low < end:
            self.not_comparable.append(UncomparableRange(low=low, end=end, why=why))


class VerifiedPiece(msgspec.Struct, frozen=True, array_like=True):
    """Reports the comparison of a piece.

    `unread`: why it stopped at the source offset `end`; `passed`: retention deleted the records there.
    `replayed`: the records found of each range of the ledger, by the range's first source offset. `filtered`:
    records that the flow's transform does not let through. `not_comparable` was found while reading.
    """

    number: int
    low: int
    end: int
    compared: int
    kept_back: int
    given_up: int
    others: int
    compacted: int
    edits: list[RecordDifference]
    more: bool
    unread: str = ""
    passed: bool = False
    replayed: dict[int, int] = {}
    filtered: int = 0
    not_comparable: list[UncomparableRange] = []


class VerificationOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Reports the comparison, or the cluster that could not be read, why, and what to do."""

    verified: VerificationReport | None = None
    cluster: str = ""
    why: str = ""
    hint: str = ""


encode_request = msgspec.json.encode
_request = msgspec.json.Decoder(VerifyRequest)
_outcome = msgspec.json.Decoder(VerificationOutcome)


def decode_request(text: bytes) -> VerifyRequest:
    return _request.decode(text)


def encode_outcome(outcome: VerificationOutcome) -> bytes:
    return msgspec.json.encode(outcome)


def decode_outcome(text: bytes) -> VerificationOutcome:
    return _outcome.decode(text)
