"""What never reached the other side, by the ledger: each offset once, and never a wrong number (R1, R6)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from runtime.contract.records.advance import Advance, advance, first_progress, start_over
from runtime.contract.records.ledger import (
    BEYOND,
    NO_ORPHANS,
    Gap,
    LedgerKey,
    LedgerValue,
    Orphaned,
    OrphanedKey,
    OrphanedRange,
    Orphans,
    PartitionKey,
    Progress,
    ProgressKey,
    Replayed,
    orphan,
    orphaned_ranges,
    uncopied_ranges,
)
from runtime.contract.records.offset_map import EndOfOffsetMap, MappedOffset, NotYetCopied, OffsetMap, Run

OF = PartitionKey("dc1-to-dc2", "orders", 3)
TOPIC, OTHER = b"s" * 16, b"o" * 16


def progress_at(position: int, *runs: Run, gaps: tuple[Gap, ...] = ()) -> Progress:
    first = first_progress(
        generation=1,
        source_topic_id=TOPIC,
        destination_topic="orders",
        destination_topic_id=b"d" * 16,
        position=0,
        destination_end=0,
        now_ms=5,
    )
    moved, _ = advance(first, Advance(position, 1, runs), 1, 5)
    return replace(moved, gaps=gaps)


def orphaned(end: int, topic: bytes = TOPIC) -> Orphaned:
    return Orphaned(end, topic, 9, "failback")


def replayed(end: int, topic: bytes = TOPIC) -> Replayed:
    return Replayed(end, topic, "orders", 1, 9)


def moved_over(progress: Progress, end: int) -> Progress:
    marks = orphan(OF, progress, end, "failback", generation=7, now_ms=9)
    moved = marks[ProgressKey(OF)]
    assert isinstance(moved, Progress)
    return moved


def test_the_range_and_the_position_behind_it_are_one_thing() -> None:
    marks = orphan(OF, progress_at(10, Run(0, 0, 10)), 25, "failback", generation=7, now_ms=9)
    moved = marks.pop(ProgressKey(OF))
    assert marks == {OrphanedKey(OF, 10): Orphaned(25, TOPIC, 9, "failback")}
    assert isinstance(moved, Progress)
    assert (moved.position, moved.destination_end, moved.generation) == (25, 10, 7)


@pytest.mark.parametrize("end", [10, 9])
def test_where_nothing_is_left_nothing_is_marked(end: int) -> None:
    assert orphan(OF, progress_at(10), end, "failback", generation=7, now_ms=9) == {}


def test_an_orphaned_offset_is_that_of_the_next_copied_record_or_the_end_of_what_was_copied() -> None:
    moved = moved_over(progress_at(10, Run(0, 100, 10)), 25)
    before = OffsetMap([moved.open_span()])
    assert [before.translate(one) for one in (9, 10, 24, 25, 26)] == [
        MappedOffset(109, exact=True),
        EndOfOffsetMap(110),
        EndOfOffsetMap(110),
        EndOfOffsetMap(110),
        NotYetCopied(),
    ]
    later, _ = advance(moved, Advance(30, 1, (Run(26, 150, 4),)), 8, 10)
    after = OffsetMap([later.open_span()])
    assert [after.translate(one) for one in (10, 25, 26)] == [
        MappedOffset(150, exact=False),
        MappedOffset(150, exact=False),
        MappedOffset(150, exact=True),
    ]


@pytest.mark.parametrize(
    ("orphans", "expected"),
    [
        (NO_ORPHANS, [(10, 30, BEYOND)]),
        (Orphans(((4, orphaned(8)),)), [(4, 8, "orphaned"), (10, 30, BEYOND)]),
        (Orphans(((4, orphaned(8)),), ((4, replayed(8)),)), [(10, 30, BEYOND)]),
        (Orphans(((4, orphaned(8)),), ((4, replayed(6)),)), [(6, 8, "orphaned"), (10, 30, BEYOND)]),
        (
            Orphans(((4, orphaned(8)),), ((5, replayed(6)),)),
            [(4, 5, "orphaned"), (6, 8, "orphaned"), (10, 30, BEYOND)],
        ),
        (Orphans((), ((10, replayed(30)),)), []),
        (Orphans(((4, orphaned(8, OTHER)),)), [(10, 30, BEYOND)]),
        (Orphans(((4, orphaned(8)),), ((4, replayed(8, OTHER)),)), [(4, 8, "orphaned"), (10, 30, BEYOND)]),
        (Orphans(((4, orphaned(8)), (6, orphaned(10)))), [(4, 10, "orphaned"), (10, 30, BEYOND)]),
    ],
    ids=[
        "beyond the position",
        "a range on record",
        "a range that was replayed",
        "its beginning was replayed",
        "its middle was replayed",
        "all was replayed",
        "of a topic that was recreated since",
        "replayed of a topic that was recreated since",
        "two that overlap",
    ],
)
def test_what_is_left(orphans: Orphans, expected: list[tuple[int, int, str]]) -> None:
    assert uncopied_ranges(progress_at(10), orphans, None, TOPIC, 30) == [
        OrphanedRange(*one) for one in expected
    ]


def test_what_the_flow_gave_up_on_its_way_is_left_too() -> None:
    progress = progress_at(10, gaps=(Gap(2, 5, "lost", 1),))
    assert uncopied_ranges(progress, NO_ORPHANS, None, TOPIC, 10) == [OrphanedRange(2, 5, "lost")]


def test_where_the_flow_never_came_all_is_left() -> None:
    assert uncopied_ranges(None, NO_ORPHANS, None, TOPIC, 4) == [OrphanedRange(0, 4, BEYOND)]


def test_what_was_copied_since_it_was_orphaned_is_not_left() -> None:
    again = start_over(
        progress_at(10),
        position=0,
        destination_end=50,
        source_topic_id=TOPIC,
        destination_topic_id=b"d" * 16,
        generation=2,
        now_ms=8,
    )
    progress, _ = advance(again, Advance(6, 1, (Run(4, 50, 2),)), 2, 9)
    orphans = Orphans(((3, orphaned(12)),))
    found = uncopied_ranges(progress, orphans, OffsetMap([progress.open_span()]), TOPIC, 20)
    assert found == [
        OrphanedRange(3, 4, "orphaned"),
        OrphanedRange(6, 12, "orphaned"),
        OrphanedRange(12, 20, BEYOND),
    ]


some_ranges = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 12)).map(lambda one: (one[0], one[0] + one[1])), max_size=6
)


@given(some_ranges, some_ranges, st.integers(0, 40), st.integers(0, 50))
def test_each_offset_is_left_once_or_not_at_all(
    marked: list[tuple[int, int]], done: list[tuple[int, int]], position: int, end: int
) -> None:
    orphans = Orphans(
        tuple((low, orphaned(behind)) for low, behind in marked),
        tuple((low, replayed(behind)) for low, behind in done),
    )
    found = [
        at
        for one in uncopied_ranges(progress_at(position), orphans, None, TOPIC, end)
        for at in range(*one[:2])
    ]
    expected = {at for low, behind in marked for at in range(low, behind)} | set(range(position, end))
    expected -= {at for low, behind in done for at in range(low, behind)}
    assert found == sorted(at for at in expected if at < end)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=5))
def test_marked_again_and_again_the_ranges_are_all_that_lies_behind_the_first(steps: list[int]) -> None:
    progress = progress_at(10)
    marks: dict[LedgerKey, LedgerValue] = {}
    for step in steps:
        marks |= orphan(OF, progress, progress.position + step, "failback", generation=2, now_ms=9)
        moved = marks[ProgressKey(OF)]
        assert isinstance(moved, Progress)
        progress = moved
    found = tuple(
        (key.low, one)
        for key, one in marks.items()
        if isinstance(key, OrphanedKey) and isinstance(one, Orphaned)
    )
    assert orphaned_ranges(Orphans(found), TOPIC) == [OrphanedRange(10, 10 + sum(steps), "orphaned")]
