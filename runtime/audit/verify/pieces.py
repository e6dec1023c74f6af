"""Defines the request of `repl verify`, what its tasks compare, and what they report.

Requests and outcomes are files of JSON, and bytes for tasks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, Self

import msgspec
from msgspec import Struct, field

from runtime.audit.ledger import AuditFailure, SparkOutcome
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.records.manifest import DataFile
from runtime.contract.results.records import UncomparableRange, VerificationReport
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.schemas import RegistrySpec
from runtime.contract.spec.selection import regex
from runtime.files.source.known_files import KnownFile

PIECE = 100_000  # offsets in a task
SAMPLED = 1_000  # offsets in a range of a sample
_RAW = 32
_DIGEST = 40  # longer than any content that is kept as it is

DifferenceKind = Literal["missing", "extra", "changed", "moved", "damaged"]


class RecordContent(msgspec.Struct, frozen=True, array_like=True):
    """Holds every part of a record that must be equal. A long part is replaced by its digest.

    `timestamp_type` counts in files, which have it: 0 for a time of the producer, 1 for the broker's. Where a
    flow translates the ids of schemas, they are not in key and value: `key_schema` and `value_schema` are
    those of the destination. A text says why the destination does not have a schema.
    """

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_type: int = 0
    key_schema: int | str | None = None
    value_schema: int | str | None = None

    @classmethod
    def of(
        cls,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[tuple[str, bytes | None]],
        timestamp_type: int = 0,
        *,
        key_schema: int | str | None = None,
        value_schema: int | str | None = None,
    ) -> Self:
        short = tuple((name, condensed(content)) for name, content in headers)
        schemas = key_schema, value_schema
        return cls(timestamp, condensed(key), condensed(value), short, timestamp_type, *schemas)


def condensed(content: bytes | None) -> bytes | None:
    """Returns short content as it is, and the digest of long content."""
    if content is None or len(content) <= _RAW:
        return content
    return hashlib.blake2b(content, digest_size=_DIGEST).digest()


class ComparedRecord(NamedTuple):
    """Holds a normalised record of one side.

    `at`: the offset at the other side by the map; None where the map has none. A record of the source that
    does not travel must not be at the destination. `file` is the path of the file that holds it.
    """

    offset: int
    at: int | None = None
    content: RecordContent = RecordContent(-1, None, None, ())
    travels: bool = True
    file: str = ""


class RecordDifference(msgspec.Struct, frozen=True, array_like=True):
    """Describes one difference.

    `near`: the source offset up to which all was equal. `twin`: an equal record's offset at the source.
    `file`: the path of the file that holds the record, or that is damaged; `why` says more.
    """

    what: DifferenceKind
    near: int
    source: ComparedRecord | None = None
    destination: ComparedRecord | None = None
    twin: int | None = None
    file: str = ""
    why: str = ""


class VerifyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a comparison. It holds no secret: clusters hold references, as in a job's spec.

    `topics`: a regex for whole names at the source. `low` and `high` bound the source offsets of every
    partition; `last` selects so many before the end instead. `sample`: a share in percent. `rate`: bytes a
    second, both sides and all tasks together. `opposite`: the flow in the opposite direction, of which this
    one is the reverse. `registries` are the schema registries of the flow, by cluster.
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
    registries: dict[str, RegistrySpec] = field(default_factory=dict)

    @property
    def translates_schemas(self) -> bool:
        """Returns whether the copies have other ids of schemas than their originals."""
        schemas = self.flow.schemas
        return schemas.sync and schemas.ids == "translate"

    @property
    def needs_spark(self) -> bool:
        """Returns whether Spark must compare, however few records there are.

        It evaluates transforms, and a rate makes a comparison long.
        """
        return self.flow.transform is not None or self.rate is not None

    def chosen(self, names: Iterable[str], place: str, did: str, what: str) -> set[str]:
        """Returns the topics or files that are to be compared. Raises AuditFailure where there is none.

        `did` is what the flow did with them, for the text.
        """
        every = set(names)
        if self.topics is None:
            return every
        wanted = regex(self.topics)
        chosen = {name for name in every if wanted.matches(name)}
        if not chosen:
            hint = f"it {did} {', '.join(sorted(every)[:10])}"
            raise AuditFailure(place, f"{self.flow.name} {did} no {what} {self.topics}", hint)
        return chosen


class VerificationPiece(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Holds the positions `low … high-1` of one partition or file at the source, and what to compare."""

    number: int  # of the partition in the plan
    topic: str
    partition: int
    low: int
    high: int


class MirrorRange(VerificationPiece, frozen=True):
    """Holds source offsets of a partition and the corresponding range at the destination.

    `runs` is the map between them, `gaps` the offsets that were given up. From `owned_end` on, the flow's own
    records at the destination are newer than the map, and where it is not `alone`, other producers may write.
    `replayed` are source offsets that salvage replayed into the destination's topic: low, end, records. `own`
    are offsets at the destination that the opposite flow left there.
    """

    source_id: bytes
    destination_topic: str
    destination_id: bytes
    destination_low: int
    destination_high: int
    owned_end: int
    runs: bytes = b""
    gaps: tuple[tuple[int, int, str], ...] = ()  # low, end, why
    compacted: bool = False
    alone: bool = True
    replayed: tuple[tuple[int, int, int], ...] = ()
    own: tuple[tuple[int, int], ...] = ()


class StoredRange(VerificationPiece, frozen=True):
    """Holds source offsets of a partition and the files that have their records.

    The source still holds the offsets from `kept_from` on. `gaps` are the offsets that were given up.
    """

    source_id: bytes
    files: tuple[DataFile, ...]
    gaps: tuple[tuple[int, int, str], ...] = ()  # low, end, why
    compacted: bool = False
    kept_from: int = 0


class LoadedFile(VerificationPiece, frozen=True):
    """Holds a file that was read up to `high`, and where its records lie at the destination.

    `runs` is the map between them. The ledger counts `records` of the file. Where it is not `alone`, another
    file of its partition can't be compared.
    """

    destination_topic: str
    destination_id: bytes
    destination_low: int
    destination_high: int
    runs: bytes
    read: KnownFile
    records: int
    alone: bool = True


AnyPiece = MirrorRange | StoredRange | LoadedFile


class PlannedPartition(Struct):
    """Plans one partition: source offsets `low … end-1` are to be compared, in these pieces."""

    key: PartitionKey
    destination_topic: str
    low: int
    end: int
    pieces: Sequence[AnyPiece] = field(default_factory=list)
    not_comparable: list[UncomparableRange] = field(default_factory=list)
    unread: str = ""
    replayed: list[tuple[int, int, int]] = field(default_factory=list)  # ranges whose records must all exist

    def exclude(self, low: int, end: int, why: str) -> None:
        if low < end:
            self.not_comparable.append(UncomparableRange(low=low, end=end, why=why))


class VerifiedPiece(msgspec.Struct, array_like=True):
    """Reports the comparison of a piece up to the source offset `end`. The comparison itself fills it in.

    `unread`: why it stopped there; `passed`: retention deleted the records there.
    `replayed`: the records found of each range of the ledger, by the range's first source offset. `filtered`:
    records that the flow's transform does not let through. `not_comparable` was found while reading.
    """

    number: int
    low: int
    end: int
    compared: int = 0
    kept_back: int = 0
    given_up: int = 0
    others: int = 0
    compacted: int = 0
    edits: list[RecordDifference] = []
    more: bool = False
    unread: str = ""
    passed: bool = False
    replayed: dict[int, int] = {}
    filtered: int = 0
    not_comparable: list[UncomparableRange] = []

    @classmethod
    def begin(cls, piece: VerificationPiece, unread: str = "") -> VerifiedPiece:
        """Returns the result of a piece of which nothing has been compared yet."""
        return cls(piece.number, piece.low, piece.low, unread=unread)


encode_request = msgspec.json.encode
decode_request = msgspec.json.Decoder(VerifyRequest).decode
decode_outcome = msgspec.json.Decoder(SparkOutcome[VerificationReport]).decode
