"""Orphans are records of a source that never reached the destination, according to the ledger. Pure.

Three records describe them: progress (the offsets behind its position, and the gaps before it), `Orphaned`
(the offsets that were left when the flow had ended) and `Replayed` (those that were copied after all).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from runtime.contract.records.ledger import (
    LedgerKey,
    LedgerValue,
    Orphaned,
    OrphanedKey,
    PartitionKey,
    Progress,
    ProgressKey,
    Replayed,
)
from runtime.contract.records.offset_map import OffsetMap
from runtime.contract.spec.naming import is_other_topic

BEYOND = "not copied"
ORPHANED = "orphaned"


class OrphanedRange(NamedTuple):
    """Holds source offsets `low … end-1`, and why they were not copied."""

    low: int
    end: int
    why: str


@dataclass(frozen=True, slots=True)
class Orphans:
    """Holds a partition's ledger records beside its progress, by the first source offset of each range."""

    orphaned: tuple[tuple[int, Orphaned], ...] = ()
    replayed: tuple[tuple[int, Replayed], ...] = ()


NONE = Orphans()


def orphan(
    key: PartitionKey, progress: Progress, end: int, why: str, *, generation: int, now_ms: int
) -> dict[LedgerKey, LedgerValue]:
    """Returns the records that orphan the offsets from the position of an ended flow up to `end`.

    They say "orphaned from X to Y, position Y", and must be committed together. The result is empty where no
    offset is left.

    The offset map continues over the range as over everything that was decided not to be copied: an offset in
    it is that of the first record copied behind it, or the end of the copied records (R6).
    """
    if end <= progress.position:
        return {}
    moved = replace(progress, generation=generation, position=end, source_epoch=-1, written_at=now_ms)
    left = Orphaned(end, progress.source_topic_id, now_ms, why)
    return {ProgressKey(key): moved, OrphanedKey(key, progress.position): left}


def ranges(orphans: Orphans, source_topic_id: bytes) -> list[OrphanedRange]:
    """Returns the orphaned ranges of the topic with this id, replayed or not, in order and joined."""
    return _disjoint(
        OrphanedRange(low, one.end, ORPHANED)
        for low, one in orphans.orphaned
        if not is_other_topic(one.source_topic_id, source_topic_id)
    )


def uncopied_ranges(
    progress: Progress | None, orphans: Orphans, offsets: OffsetMap | None, source_topic_id: bytes, end: int
) -> list[OrphanedRange]:
    """Returns the ranges that a source with end offset `end` holds and the destination never got, in order.

    Each offset is in one range only. All of the source is returned where the flow never reached the
    partition.
    """
    found = [] if progress is None else [OrphanedRange(gap.low, gap.end, gap.why) for gap in progress.gaps]
    beyond = OrphanedRange(progress.position if progress is not None else 0, end, BEYOND)
    cut = _disjoint(
        OrphanedRange(one.low, min(one.end, end), one.why)
        for one in (*ranges(orphans, source_topic_id), *found, beyond)
    )
    if not cut:
        return []
    replayed = [
        (low, one.end)
        for low, one in orphans.replayed
        if not is_other_topic(one.source_topic_id, source_topic_id)
    ]
    return _without(cut, sorted([*replayed, *_copied(offsets, cut[0].low)]))


def _copied(offsets: OffsetMap | None, low: int) -> list[tuple[int, int]]:
    """Returns the ranges that the present map contains as copied.

    A range that was orphaned before the flow started over does not cover offsets that were copied since.
    """
    spans = offsets.spans if offsets is not None else ()
    return [(run.source, run.source_end) for span in spans if span.end > low for run in span.runs]


def _disjoint(stretches: Iterable[OrphanedRange]) -> list[OrphanedRange]:
    """Returns the ranges in order; where two overlap, the one that begins first keeps the common offsets."""
    found: list[OrphanedRange] = []
    for one in sorted(stretches):
        low = max(one.low, found[-1].end) if found else one.low
        if low >= one.end:
            continue
        if found and found[-1].end == low and found[-1].why == one.why:
            found[-1] = found[-1]._replace(end=one.end)
        else:
            found.append(one._replace(low=low))
    return found


def _without(stretches: Sequence[OrphanedRange], taken: Sequence[tuple[int, int]]) -> list[OrphanedRange]:
    """Returns the ranges without the taken ones. Both must be in order."""
    found: list[OrphanedRange] = []
    for one in stretches:
        low = one.low
        for begin, behind in taken:
            if behind <= low or begin >= one.end:
                continue
            if low < begin:
                found.append(one._replace(low=low, end=begin))
            low = behind
        if low < one.end:
            found.append(one._replace(low=low))
    return found
