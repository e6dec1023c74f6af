"""What a group that goes on at the destination would read again, and what it would never see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.bench.offsets.pattern import PARTITIONS, Shape, Written
from tests.records import Record, group_offsets, read

Offsets = dict[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class Count:
    """`untranslated` partitions: the group committed there at the source and stands nowhere at the
    destination; a consumer goes on at the beginning, which is what is counted.
    """

    side: str
    group: str
    read: int
    again: int
    skipped: int
    untranslated: int


def counted(
    side: str,
    shape: Shape,
    there: str,
    source: Mapping[str, Any],
    destination: Mapping[str, Any],
    written: Written,
) -> Count:
    stands_here, stands_there = (group_offsets(client, shape.group) for client in (source, destination))
    here, mirrored = read(source, shape.topic, timeout=120), read(destination, there, timeout=120)
    again = skipped = untranslated = done = 0
    for partition in range(PARTITIONS):
        offset = stands_here.get((shape.topic, partition))
        position = stands_there.get((there, partition))
        untranslated += offset is not None and position is None
        offset = offset or 0
        rest = [one for one in mirrored if one.partition == partition and one.offset >= (position or 0)]
        lies = written[shape.topic, partition]
        again += sum(lies[one.value or b""] < offset for one in rest)
        left = [one for one in here if one.partition == partition and one.offset >= offset]
        skipped += len(_newest(left) - {one.value for one in rest})
        done += sum(one < offset for one in lies.values())
    return Count(side, shape.group, done, again, skipped, untranslated)


def _newest(rows: list[Record]) -> set[bytes | None]:
    """Of each key: what compaction took away nobody misses."""
    return set({row.key or row.value: row.value for row in rows}.values())
