"""Combines compared pieces into the result of each partition. It is pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from runtime.audit.verify.differences import differences_of
from runtime.audit.verify.plan import PlannedPartition
from runtime.audit.verify.request import VerifiedPiece
from runtime.contract.views.verify_view import Difference, UncomparableRange, VerifiedPartition


def results(planned: Sequence[PlannedPartition], pieces: Iterable[VerifiedPiece]) -> list[VerifiedPartition]:
    by_partition: dict[int, list[VerifiedPiece]] = {}
    for piece in pieces:
        by_partition.setdefault(piece.number, []).append(piece)
    return [
        _partition(one, sorted(by_partition.get(number, ()), key=lambda piece: piece.low))
        for number, one in enumerate(planned)
    ]


def _partition(planned: PlannedPartition, pieces: Sequence[VerifiedPiece]) -> VerifiedPartition:
    edits = [edit for piece in pieces for edit in piece.edits]
    stopped = [piece for piece in pieces if piece.unread]
    not_comparable = list(planned.not_comparable)
    behind = {piece.low: high for piece, high in _highs(planned, pieces)}
    for piece in stopped:
        if piece.passed:
            gone = UncomparableRange(low=piece.end, end=behind[piece.low], why=piece.unread)
            not_comparable.append(gone)
    unread = [piece for piece in stopped if not piece.passed]
    cut = bool(stopped) or any(piece.more for piece in pieces)
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
        differences=[*differences_of(edits), *(() if cut else _not_replayed(planned, pieces))],
        more=any(piece.more for piece in pieces),
        not_comparable=sorted(not_comparable, key=lambda one: one.low),
        unread=planned.unread or (f"from offset {unread[0].end} on: {unread[0].unread}" if unread else ""),
    )


def _not_replayed(planned: PlannedPartition, pieces: Sequence[VerifiedPiece]) -> Iterator[Difference]:
    """Yields a difference for each range whose replayed records are missing; the ledger counts them only."""
    for low, end, records in planned.replayed:
        found = sum(piece.replayed.get(low, 0) for piece in pieces)
        if found < records:
            yield Difference(
                kind="missing",
                source_offset=low,
                expected=None,
                destination_offset=None,
                key="",
                why=f"of {records:,} records that salvage replayed from source offsets {low} to {end - 1}, "
                f"{found:,} are there",
            )


def _highs(planned: PlannedPartition, pieces: Sequence[VerifiedPiece]) -> Iterable[tuple[VerifiedPiece, int]]:
    highs = {piece.low: piece.high for piece in planned.pieces}
    return ((piece, highs[piece.low]) for piece in pieces)
