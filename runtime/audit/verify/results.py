"""Combines compared pieces into the result of each partition, and names their differences. It is pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from runtime.audit.verify.pieces import (
    PlannedPartition,
    RecordContent,
    RecordDifference,
    VerifiedPiece,
    VerifyRequest,
)
from runtime.contract.results.records import (
    Difference,
    UncomparableRange,
    VerificationReport,
    VerifiedPartition,
)

_KEY_CHARACTERS = 40
_CONTENT_BYTES = 32


def differences_of(edits: Sequence[RecordDifference]) -> list[Difference]:
    """Returns the differences by kind.

    A missing record that is found elsewhere was swapped; an extra record that has a twin was doubled.
    """
    elsewhere: dict[RecordContent, list[RecordDifference]] = {}
    for edit in edits:
        if edit.what == "extra" and edit.destination is not None:
            elsewhere.setdefault(edit.destination.content, []).append(edit)
    swapped: dict[int, RecordDifference] = {}
    taken: set[int] = set()
    for at, edit in enumerate(edits):
        if edit.what == "missing" and edit.source is not None and elsewhere.get(edit.source.content):
            swapped[at] = elsewhere[edit.source.content].pop(0)
            taken.add(id(swapped[at]))
    return [_named(edit, swapped.get(at)) for at, edit in enumerate(edits) if id(edit) not in taken]


def _named(edit: RecordDifference, elsewhere: RecordDifference | None) -> Difference:
    match edit.what:
        case "missing" if elsewhere is not None:
            why = "not in the file's order" if edit.file else "not in the source's order"
            place = elsewhere.destination.offset if elsewhere.destination is not None else None
            return _difference("swapped", edit, destination_offset=place, file=elsewhere.file, why=why)
        case "missing":
            never = edit.source is not None and edit.source.at is None and not edit.file
            return _difference("missing", edit, why="the offset map leaves it out" if never else "")
        case "extra" if edit.twin is not None:
            return _difference("doubled", edit, source_offset=edit.twin)
        case "extra":
            return _difference("foreign", edit, why=edit.why or "not from the source")
        case "moved":
            nowhere = edit.source is not None and edit.source.at is None
            where = "has no place for it" if nowhere else "has another place for it"
            return _difference("moved", edit, why=f"the offset map {where}")
        case "changed":
            assert edit.source is not None
            assert edit.destination is not None
            fields, reasons = _changes(edit.source.content, edit.destination.content)
            return _difference("changed", edit, fields=fields, why="; ".join(reasons))
        case "damaged":
            return _difference("damaged", edit, key="", why=edit.why)


def _difference(kind: str, edit: RecordDifference, **changes: object) -> Difference:
    source, destination = edit.source, edit.destination
    shown = source or destination
    key = shown.content.key if shown is not None else None
    facts: dict[str, object] = {
        "kind": kind,
        "source_offset": source.offset if source is not None else None,
        "expected": source.at if source is not None else None,
        "destination_offset": destination.offset if destination is not None else None,
        "key": "null" if key is None else _kind(key)[:_KEY_CHARACTERS],
        "file": edit.file,
    }
    return Difference(**{**facts, **changes})  # type: ignore[arg-type]


def _changes(source: RecordContent, destination: RecordContent) -> tuple[list[str], list[str]]:
    fields, why = [], []
    for part in ("key", "value"):
        contents = getattr(source, part), getattr(destination, part)
        schemas = getattr(source, f"{part}_schema"), getattr(destination, f"{part}_schema")
        if contents[0] != contents[1]:
            why.append(f"{part} {_kind(contents[0])} → {_kind(contents[1])}")
        if schemas[0] != schemas[1]:
            why.append(f"schema id of the {part} {_schema(schemas[0])} → {_schema(schemas[1])}")
        if contents[0] != contents[1] or schemas[0] != schemas[1]:
            fields.append(part)
    if source.headers != destination.headers:
        fields.append("headers")
        names = ", ".join(name for name, _ in destination.headers) or "none"
        why.append(f"headers {', '.join(name for name, _ in source.headers) or 'none'} → {names}")
    if source.timestamp != destination.timestamp:
        fields.append("timestamp")
        why.append(f"timestamp {source.timestamp} → {destination.timestamp}")
    if source.timestamp_type != destination.timestamp_type:
        fields.append("timestamp_type")
        why.append(f"timestamp type {source.timestamp_type} → {destination.timestamp_type}")
    return fields, why


def _kind(content: bytes | None) -> str:
    match content:
        case None:
            return "null"
        case b"":
            return "empty"
        case _ if len(content) > _CONTENT_BYTES:
            return f"({content[:4].hex()}…, a digest)"
        case _:
            return repr(content)[1:]


def _schema(number: int | str | None) -> str:
    """Returns the id that a record has at the destination, or why it can have none there."""
    return f"({number})" if isinstance(number, str) else "none" if number is None else str(number)


def report(
    request: VerifyRequest,
    at_ms: int,
    took_s: float,
    planned: Sequence[PlannedPartition],
    pieces: Iterable[VerifiedPiece],
    unit: Literal["offsets", "bytes", "rows"] = "offsets",
) -> VerificationReport:
    """Returns what the command prints of a comparison that began at a time and took so many seconds."""
    return VerificationReport(
        flow=request.flow.name,
        source=request.flow.source_name,
        destination=request.flow.destination_name,
        at_ms=at_ms,
        took_ms=round(took_s * 1000),
        sample=request.sample,
        unit=unit,
        in_files=request.flow.with_files == "into",
        partitions=results(planned, pieces),
    )


def results(planned: Sequence[PlannedPartition], pieces: Iterable[VerifiedPiece]) -> list[VerifiedPartition]:
    by_partition: dict[int, list[VerifiedPiece]] = {}
    for piece in pieces:
        by_partition.setdefault(piece.number, []).append(piece)
    return [
        _partition(plan, sorted(by_partition.get(number, ()), key=lambda piece: piece.low))
        for number, plan in enumerate(planned)
    ]


def _partition(planned: PlannedPartition, pieces: Sequence[VerifiedPiece]) -> VerifiedPartition:
    edits = [edit for piece in pieces for edit in piece.edits]
    stopped = [piece for piece in pieces if piece.unread]
    not_comparable = [*planned.not_comparable, *(gone for piece in pieces for gone in piece.not_comparable)]
    behind = {piece.low: piece.high for piece in planned.pieces}
    for piece in stopped:
        if piece.passed:
            gone = UncomparableRange(low=piece.end, end=behind[piece.low], why=piece.unread)
            not_comparable.append(gone)
    unread = [piece for piece in stopped if not piece.passed]
    cut = bool(stopped) or any(piece.more for piece in pieces)
    why = unread[0].unread if unread else ""
    if unread and unread[0].end > planned.low:
        why = f"from offset {unread[0].end} on: {why}"
    limits = [planned.end, *(edit.near for edit in edits), *(piece.end for piece in stopped)]
    return VerifiedPartition(
        topic=planned.key.topic,
        partition=planned.key.partition,
        destination_topic=planned.destination_topic,
        low=planned.low,
        end=planned.end,
        equal_up_to=max(min(limits), planned.low),
        compared=sum(piece.compared for piece in pieces),
        kept_back=sum(piece.kept_back for piece in pieces),
        given_up=sum(piece.given_up for piece in pieces),
        others=sum(piece.others for piece in pieces),
        compacted=sum(piece.compacted for piece in pieces),
        replayed=sum(sum(piece.replayed.values()) for piece in pieces),
        filtered=sum(piece.filtered for piece in pieces),
        differences=[*differences_of(edits), *(() if cut else _not_replayed(planned, pieces))],
        more=any(piece.more for piece in pieces),
        not_comparable=sorted(not_comparable, key=lambda gone: gone.low),
        unread=planned.unread or why,
    )


def _not_replayed(planned: PlannedPartition, pieces: Sequence[VerifiedPiece]) -> Iterator[Difference]:
    """Yields a difference for each range whose replayed records are missing; the ledger counts them only."""
    for low, end, records in planned.replayed:
        present = sum(piece.replayed.get(low, 0) for piece in pieces)
        if present < records:
            yield Difference(
                kind="missing",
                source_offset=low,
                expected=None,
                destination_offset=None,
                key="",
                why=f"of {records:,} records that salvage replayed from source offsets {low} to {end - 1}, "
                f"{present:,} are there",
            )
