"""Records and offset map move together (R1, R6): progress, segments, orphans, the way back of a failback."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from runtime.contract.records.advance import (
    LARGEST,
    SEAL_AT,
    Advance,
    advance,
    give_up,
    progress_records,
    start_again,
    start_over,
    without_lost,
)
from runtime.contract.records.failback import (
    FailbackStart,
    after_failback,
    can_complete_failback,
    can_start_failback,
    failback_start,
    foreign_offset_ranges,
    handed_over,
    opposite_of,
    single_before,
    with_life_of,
)
from runtime.contract.records.ledger import (
    BEYOND,
    Gap,
    Generation,
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
    SegmentKey,
    decode_progress,
    decode_segment,
    encode_value,
    orphan,
)
from runtime.contract.records.offset_map import (
    EndOfOffsetMap,
    NotYetCopied,
    Run,
    Span,
    UnmappedOffset,
)
from runtime.contract.spec.jobspec import FlowSpec, JobSpec, Route
from runtime.contract.spec.selection import SelectionSpec
from tests.fakes.progress import DESTINATION_ID, SOURCE_ID, exact, map_of, near, progress

OF = PartitionKey("dc1-to-dc2", "orders", 3)
TEN = Run(0, 0, 10)


GIVEN_UP, _ = advance(
    give_up(progress(0, 0, Run(0, 0, 5), end=5), 50, "lost", generation=2, now_ms=9),
    Advance(60, 0, (Run(50, 6, 10),)),
    2,
    10,
)


def recreated(copied: Progress, position: int = 0, destination_end: int = 50) -> Progress:
    moved = replace(copied, source_topic_id=b"n" * 16, generation=2)
    return start_over(moved, position, destination_end)


AGAIN, _ = advance(recreated(progress(0, 0, Run(0, 0, 50), end=50)), Advance(2, 0, (Run(0, 51, 2),)), 2, 4)
TAIL, _ = advance(progress(0, 0, Run(0, 0, 4), end=5), Advance(9, 0), 1, 2)


@pytest.mark.parametrize(
    ("copied", "place", "translated"),
    [
        (
            progress(10, 100, Run(10, 100, 2), Run(13, 104, 2), end=15),
            (15, 106),
            {
                9: UnmappedOffset(),
                10: exact(100),
                12: near(104),
                14: exact(105),
                15: EndOfOffsetMap(106),
                16: NotYetCopied(),
            },
        ),
        (TAIL, (9, 4), {7: EndOfOffsetMap(4)}),
        (GIVEN_UP, (60, 16), {20: near(6)}),
        (AGAIN, (2, 53), {1: exact(52)}),
    ],
    ids=["runs", "a tail without records", "a gap that was given up", "a recreated topic"],
)
def test_position_and_offset_map_after(
    copied: Progress, place: tuple[int, int], translated: Mapping[int, object]
) -> None:
    assert (copied.position, copied.destination_end) == place
    offsets = map_of(copied)
    assert {source: offsets.translate(source) for source in translated} == translated


def test_counts_add_up_over_transactions() -> None:
    counts: dict[str, Any] = {
        "records": 1,
        "bytes": 20,
        "dropped": 300,
        "quarantined": 4_000,
        "tombstones": 50_000,
    }
    once, _ = advance(progress(0, 0), Advance(5, 0, **counts), 1, 2)
    twice, _ = advance(once, Advance(9, 0, **counts), 1, 3)
    assert {name: getattr(twice, name) for name in counts} == {name: 2 * one for name, one in counts.items()}


def test_gaps_and_incarnations_are_remembered() -> None:
    assert [(gap.low, gap.end, gap.why) for gap in GIVEN_UP.gaps] == [(5, 50, "lost")]
    assert AGAIN.incarnation == 1
    assert map_of(AGAIN).origin(10) == UnmappedOffset()
    with pytest.raises(ValueError, match="lies before"):
        give_up(GIVEN_UP, 59, "lost", generation=2, now_ms=9)


@pytest.mark.parametrize(
    "step", [Advance(4, 0), Advance(6, 0, (Run(5, 0, 2),)), Advance(9, 0, (Run(2, 9, 1),))]
)
def test_progress_never_goes_back_and_never_overstates(step: Advance) -> None:
    with pytest.raises(ValueError, match=r"lies before|reaches beyond"):
        advance(progress(0, 0, Run(0, 0, 5), end=5), step, 1, 2)


def test_a_transaction_of_very_many_runs_seals_segments_of_bounded_size() -> None:
    runs = tuple(Run(2 * number, number, 1) for number in range(3 * LARGEST))
    copied, segments = advance(progress(), Advance(6 * LARGEST + 5, 0, runs), 1, 1)
    assert [len(segment.runs) for segment in segments] == [LARGEST] * 3
    assert (copied.segments, copied.open_runs, copied.position) == (3, 0, 6 * LARGEST + 5)
    assert max(len(encode_value(segment)) for segment in segments) < 500_000
    offsets = map_of(*segments, copied)
    assert all(offsets.translate(run.source) == exact(run.destination) for run in runs[::997])


Batches = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), Batches), max_size=200))
def test_segments_and_the_open_span_are_one_map_without_gaps(
    transactions: list[tuple[int, int, list[tuple[int, int]]]],
) -> None:
    """Each transaction: a gap at the destination, a tail at the source, and batches (gap, records)."""
    moved, segments = progress(7, 70), list[Span]()
    copied: dict[int, int] = {}
    for foreign, tail, batches in transactions:
        source, destination = moved.position, moved.destination_end + foreign + 1
        runs = []
        for gap, records in batches:
            source += gap
            runs.append(Run(source, destination, records))
            copied.update((source + number, destination + number) for number in range(records))
            source, destination = source + records, destination + records
        moved, sealed = advance(moved, Advance(source + tail, 0, tuple(runs)), 1, 1)
        moved = decode_progress(encode_value(moved))
        segments += [decode_segment(encode_value(segment)) for segment in sealed]
    assert moved.open_runs < SEAL_AT
    assert moved.segments == len(segments)
    offsets = map_of(*segments, moved)
    assert (offsets.low, offsets.end) == (7, moved.position)
    for here, there in copied.items():
        assert offsets.translate(here) == exact(there)
        assert offsets.origin(there) == exact(here)


@pytest.mark.parametrize(
    ("end", "runs", "incarnation"),
    [
        (26, [Run(0, 5, 10), Run(20, 16, 10)], 0),
        (20, [Run(0, 5, 10), Run(20, 16, 4)], 0),
        (16, [Run(0, 5, 10)], 0),
        (5, [], 0),
        (4, [], 1),
    ],
)
def test_runs_of_records_that_the_destination_lost_leave_the_map(
    end: int, runs: list[Run], incarnation: int
) -> None:
    before = progress(0, 5, Run(0, 5, 10), Run(20, 16, 10), end=40)
    left = without_lost(before, end)
    after, _ = advance(left, Advance(50, 0, (Run(40, end, 3),)), 1, 1)
    assert after.incarnation == incarnation
    assert list(after.open_span().runs) == [*runs, Run(40, end, 3)]
    assert (after.open_low, after.destination_end) == (40 * incarnation, end + 3)


def test_the_segments_of_a_file_have_a_name_that_a_renaming_keeps() -> None:
    of_file = replace(progress(0, 0, map_name="file:1"), segments=2)
    for name in ("app.log", "app.log.1"):
        key = OF._replace(topic=name)
        segment, of = of_file.open_span(), OF._replace(topic="file:1")
        records = progress_records(key, of_file, [segment])
        assert records == {ProgressKey(key): of_file, SegmentKey(of, 0, 1): segment}
    assert progress_records(OF, GIVEN_UP, []) == {ProgressKey(OF): GIVEN_UP}


# Orphans: each offset that never reached the destination once, and never a wrong number


def orphaned(end: int, topic: bytes = SOURCE_ID) -> Orphaned:
    return Orphaned(end, topic, 9, "failback")


def replayed(end: int, topic: bytes = SOURCE_ID) -> Replayed:
    return Replayed(end, topic, "orders", 1, 9)


def left_behind(copied: Progress, end: int) -> tuple[Progress, dict[LedgerKey, LedgerValue]]:
    marks = orphan(OF, copied, end, "failback", generation=7, now_ms=9)
    moved = marks.pop(ProgressKey(OF))
    assert isinstance(moved, Progress)
    return moved, marks


def test_the_range_and_the_position_behind_it_are_one_transaction() -> None:
    moved, marks = left_behind(progress(0, 0, TEN, end=10), 25)
    assert marks == {OrphanedKey(OF, 10): orphaned(25)}
    assert (moved.position, moved.destination_end, moved.generation) == (25, 10, 7)
    for end in (10, 9):
        assert orphan(OF, progress(0, 0, end=10), end, "failback", generation=7, now_ms=9) == {}


def test_an_orphaned_offset_is_that_of_the_next_copied_record_or_the_end_of_what_was_copied() -> None:
    moved, _ = left_behind(progress(0, 0, Run(0, 100, 10), end=10), 25)
    end = EndOfOffsetMap(110)
    before = {9: exact(109), 10: end, 24: end, 25: end, 26: NotYetCopied()}
    assert {offset: map_of(moved).translate(offset) for offset in before} == before
    later, _ = advance(moved, Advance(30, 1, (Run(26, 150, 4),)), 8, 10)
    after = {10: near(150), 25: near(150), 26: exact(150)}
    assert {offset: map_of(later).translate(offset) for offset in after} == after


FOUR = ((4, orphaned(8)),)
REST = (10, 30, BEYOND)


@pytest.mark.parametrize(
    ("orphans", "expected"),
    [
        (Orphans(), [REST]),
        (Orphans(FOUR, ((5, replayed(6)),)), [(4, 5, "orphaned"), (6, 8, "orphaned"), REST]),
        (Orphans(((4, orphaned(8, b"o" * 16)),)), [REST]),
        (Orphans(FOUR, ((4, replayed(8, b"o" * 16)),)), [(4, 8, "orphaned"), REST]),
    ],
    ids=[
        "beyond the position",
        "a range of which the middle was replayed",
        "of a topic that was recreated since",
        "replayed of a topic that was recreated since",
    ],
)
def test_offsets_that_were_not_copied(orphans: Orphans, expected: list[tuple[int, int, str]]) -> None:
    found = orphans.uncopied(progress(0, 0, end=10), None, SOURCE_ID, 30)
    assert found == [OrphanedRange(*words) for words in expected]


def test_offsets_that_were_given_up_or_never_read_were_not_copied_and_those_copied_since_were() -> None:
    gave_up = progress(0, 0, end=10, gaps=(Gap(2, 5, "lost", 1),))
    assert Orphans().uncopied(gave_up, None, SOURCE_ID, 10) == [OrphanedRange(2, 5, "lost")]
    assert Orphans().uncopied(None, None, SOURCE_ID, 4) == [OrphanedRange(0, 4, BEYOND)]
    again = replace(recreated(progress(0, 0, end=10)), source_topic_id=SOURCE_ID)
    copied, _ = advance(again, Advance(6, 1, (Run(4, 50, 2),)), 2, 9)
    assert Orphans(((3, orphaned(12)),)).uncopied(copied, map_of(copied), SOURCE_ID, 20) == [
        OrphanedRange(3, 4, "orphaned"),
        OrphanedRange(6, 12, "orphaned"),
        OrphanedRange(12, 20, BEYOND),
    ]


ranges = st.tuples(st.integers(0, 40), st.integers(1, 12)).map(lambda one: (one[0], sum(one)))
some_ranges = st.lists(ranges, max_size=6)


@given(some_ranges, some_ranges, st.integers(0, 40), st.integers(0, 50))
def test_each_offset_is_not_copied_once_or_not_at_all(
    marked: list[tuple[int, int]], done: list[tuple[int, int]], position: int, end: int
) -> None:
    orphans = Orphans(
        tuple((low, orphaned(behind)) for low, behind in marked),
        tuple((low, replayed(behind)) for low, behind in done),
    )
    found = orphans.uncopied(progress(0, 0, end=position), None, SOURCE_ID, end)
    expected = {at for low, behind in marked for at in range(low, behind)} | set(range(position, end))
    expected -= {at for low, behind in done for at in range(low, behind)}
    assert [at for one in found for at in range(*one[:2])] == sorted(at for at in expected if at < end)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=5))
def test_ranges_marked_again_and_again_are_all_that_lies_behind_the_first(steps: list[int]) -> None:
    moved, marks = progress(0, 0, end=10), dict[LedgerKey, LedgerValue]()
    for step in steps:
        moved, more = left_behind(moved, moved.position + step)
        marks |= more
    found: Any = tuple((key.low, mark) for key, mark in marks.items() if isinstance(key, OrphanedKey))
    assert Orphans(found).ranges(SOURCE_ID) == [OrphanedRange(10, 10 + sum(steps), "orphaned")]


def test_a_partition_that_starts_again_keeps_its_totals_and_names_its_present_topics() -> None:
    """The flow's rename was changed: status and groups look for the records there."""
    before = progress(0, 0, TEN, end=10, records=10)
    begun = progress(3, 7, destination_topic="dc1.orders", destination_topic_id=b"m" * 16, generation=2)
    again = start_again(before, begun)
    assert again == replace(begun, incarnation=1, records=10)
    assert start_again(None, begun) == begun


# A failback begins where its opposite ended: positions, and one map read in both directions

LOST_RUNS = progress(0, 0, Run(0, 0, 90), Run(91, 92, 9), end=101)
NINETY = progress(0, 0, Run(0, 0, 90), end=90)
NEW = b"new".ljust(16)


def way_back(forward: Progress, end: int, topic_id: bytes = SOURCE_ID) -> FailbackStart:
    """The copies were at dc2; dc1's log of the topic ends at `end`."""
    return failback_start(None, forward, map_of(forward), first(end, DESTINATION_ID, topic_id))


def first(end: int, source_topic_id: bytes, destination_topic_id: bytes) -> Progress:
    """The progress of a partition that was never copied."""
    return progress(0, end, source_topic_id=source_topic_id, destination_topic_id=destination_topic_id)


@pytest.mark.parametrize(
    ("forward", "end", "topic_id", "place", "translated"),
    [
        (LOST_RUNS, 107, SOURCE_ID, (101, 107, 101), {40: exact(40), 90: near(91), 95: exact(94)}),
        (NINETY, 107, SOURCE_ID, (90, 107, 90), {90: EndOfOffsetMap(107)}),
        (progress(50, 0, Run(50, 0, 10), end=60), 60, SOURCE_ID, (10, 60, 10), {0: exact(50)}),
        (LOST_RUNS, 94, SOURCE_ID, (95, 94, 101), {94: exact(93)}),
        (NINETY, 0, NEW, (0, 0, 90), {}),
    ],
    ids=[
        "each record goes home",
        "behind the orphans",
        "what was never copied",
        "an old primary that lost its end gets it back",
        "a topic made anew gets everything",
    ],
)
def test_a_failback_starts(
    forward: Progress, end: int, topic_id: bytes, place: tuple[int, int, int], translated: dict[int, object]
) -> None:
    begun = way_back(forward, end, topic_id)
    moved = begun.progress
    assert (moved.position, moved.destination_end) == place[:2]
    assert max(moved.restored, moved.position) == place[2]
    home = map_of(*begun.segments, moved)
    assert {offset: home.translate(offset) for offset in translated} == translated


def test_records_before_the_map_or_of_a_new_topic_at_the_other_side_have_no_origin() -> None:
    begun = way_back(progress(50, 0, Run(50, 0, 10), end=60), 60)
    assert map_of(*begun.segments, begun.progress).origin(49) == UnmappedOffset()
    assert way_back(NINETY, 0, NEW).segments == []
    nine = progress(0, 0, Run(0, 0, 9), end=9)
    begun = failback_start(None, nine, map_of(nine), first(9, NEW, SOURCE_ID))
    assert begun.progress.restored == 0


def returned(
    back: FailbackStart,
    *runs: Run,
    end: int = 31,
    before: Progress | None = None,
    topic_id: bytes = SOURCE_ID,
) -> FailbackStart:
    """The way back copied `runs`; then the original flow starts at dc2, whose log ends at `end`."""
    came, _ = advance(back.progress, Advance(max(30, runs[-1].source_end), 0, runs), 1, 0)
    return failback_start(before, came, map_of(*back.segments, came), first(end, topic_id, DESTINATION_ID))


def test_failed_over_failed_back_and_copying_again() -> None:
    left, _ = left_behind(progress(0, 0, TEN, end=10), 13)
    again = returned(way_back(left, 13), Run(11, 13, 5), Run(20, 19, 7), before=left)
    assert again.progress.position == 26
    expected = {4: exact(4), 11: near(11), 20: exact(21), 26: EndOfOffsetMap(31)}  # 11 is an orphan
    offsets = map_of(*again.segments, again.progress)
    assert {offset: offsets.translate(offset) for offset in expected} == expected
    assert foreign_offset_ranges(left, again, 0) == []


@pytest.mark.parametrize(
    ("home", "foreign", "single"),
    [
        ([Run(10, 12, 5), Run(16, 18, 7)], [(10, 12)], None),
        ([Run(10, 10, 5)], [], None),  # the first that came home lies where the flow stopped
        ([Run(10, 11, 5)], [], 10),  # a marker, or one record of another writer: the log tells
    ],
)
def test_offsets_that_others_wrote_to_the_old_primary(
    home: list[Run], foreign: list[tuple[int, int]], single: int | None
) -> None:
    forward = progress(0, 0, TEN, end=10)
    again = returned(way_back(forward, 10), *home, before=forward)
    assert foreign_offset_ranges(forward, again, 0) == foreign
    assert single_before(forward, again, 0) == single


@pytest.mark.parametrize("before", [None, progress(0, 0, TEN, end=10)])
def test_offsets_that_others_wrote_to_a_topic_made_anew_are_told_from_its_beginning(
    before: Progress | None,
) -> None:
    """Four records of theirs, then all that the other side had, and two more of theirs."""
    back = way_back(progress(0, 0, TEN, end=10), 4, NEW)
    came, _ = advance(back.progress, Advance(12, 0, (Run(0, 4, 10), Run(10, 16, 2))), 1, 0)
    again = failback_start(before, came, map_of(*back.segments, came), first(12, NEW, DESTINATION_ID))
    assert again.progress.position == 18
    assert foreign_offset_ranges(before, again, 0) == [(0, 4), (14, 16)]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 5)), max_size=300))
def test_in_both_directions_it_is_one_map(gaps: list[tuple[int, int, int]]) -> None:
    runs, source, destination = [], 0, 0
    for here, there, records in gaps:
        runs.append(Run(source + here, destination + there, records))
        source, destination = runs[-1].source_end, runs[-1].destination_end
    moved, segments = advance(progress(), Advance(source, 0, tuple(runs)), 1, 0)
    offsets = map_of(*segments, moved)
    begun = failback_start(None, moved, offsets, first(source, DESTINATION_ID, SOURCE_ID))
    home = map_of(*begun.segments, begun.progress)
    for run in runs:
        for step in range(run.records):
            here, there = run.source + step, run.destination + step
            assert offsets.translate(here) == home.origin(here) == exact(there)
            assert home.translate(there) == exact(here)


# The lives of two opposite flows: each may start only by the newest end of the other

ACTIVE = Generation(1, "j", "active", "d", [], "", "", 0)


def ended(life: Generation) -> Generation:
    return replace(with_life_of(life, replace(life, state="failed_over")), note="")


def begun_life(before: Generation | None = None) -> Generation:
    return with_life_of(before, ACTIVE)


FORWARD = ended(after_failback(begun_life(), None))  # it ended once


def test_each_comes_back_only_by_the_newest_end_of_the_other() -> None:
    there, back = FORWARD, begun_life()
    assert back.turning
    assert can_complete_failback(back, there)
    back = ended(after_failback(back, there))
    assert can_start_failback(there, back)
    there = begun_life(there)
    assert can_complete_failback(there, back)
    there = after_failback(there, back)
    assert (there.life, there.after, there.turning) == (1, 0, False)

    there = ended(there)  # the second failover: the way back of the first one counts no more
    assert not can_start_failback(there, back)
    assert not can_complete_failback(begun_life(there), back)
    assert can_start_failback(back, there)


def test_an_end_is_handed_over_once_its_opposite_began_there() -> None:
    assert not handed_over(FORWARD, begun_life())  # the orphans are not marked yet
    back = after_failback(begun_life(), FORWARD)
    assert handed_over(FORWARD, back)
    assert not handed_over(back, FORWARD)

    back = ended(back)
    there = after_failback(begun_life(FORWARD), back)
    assert handed_over(back, there)
    assert not handed_over(ended(there), back)


def test_a_driver_after_one_that_died_and_a_flow_that_ended_before_it_began() -> None:
    turning = begun_life(FORWARD)
    assert begun_life(turning) == turning
    back = ended(begun_life())
    assert can_start_failback(back, FORWARD)
    assert not can_start_failback(FORWARD, back)
    assert can_complete_failback(begun_life(back), FORWARD)


def test_opposites_know_each_other() -> None:
    topics = SelectionSpec(include=("orders",))
    ways: list[dict[str, Any]] = [
        {"name": "f", "source": "dc1", "destination": "dc2", "topics": topics},
        {"name": "back", "source": "dc2", "destination": "dc1", "topics": topics, "reverse_of": "f"},
    ]
    there, back = (FlowSpec(**way) for way in ways)
    routes = [Route(**way) for way in ways]
    job = JobSpec(job="j", topology="t", destination="dc2", clusters={}, flows=[there], routes=routes)
    assert [opposite_of(job, there), opposite_of(job, back)] == ["back", "f"]
    assert opposite_of(replace(job, routes=[]), there) is None
