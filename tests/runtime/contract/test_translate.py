"""R6 for groups: where one goes on at the other side. Never a wrong number, never one that skips a record."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.contract.groups import (
    BELOW_THE_MAP,
    NOT_COPIED,
    PendingTranslation,
    Position,
    TranslatedOffset,
    UntranslatableOffset,
    by_time,
    clamped,
    earliest_reachable_offset,
    earliest_unread_offset,
    final_position,
    merged,
    position,
)
from runtime.contract.records.offset_map import OffsetMap, Run, Span, append, encode_runs


def span(low: int, end: int, there: int, there_end: int, *runs: Run) -> Span:
    return Span(low, end, there, there_end, encode_runs(runs, low, there))


# Source 10…19 is covered: 10, 11 → 100, 101; 14…16 → 103…105 behind a marker; the rest was not copied.
COVERED = OffsetMap([span(10, 20, 100, 106, Run(10, 100, 2), Run(14, 103, 3))])
EMPTY = OffsetMap([span(0, 0, 0, 0)])


@pytest.mark.parametrize(
    ("offsets", "committed", "expected"),
    [
        (COVERED, 9, UntranslatableOffset(BELOW_THE_MAP)),
        (COVERED, 10, TranslatedOffset(100)),
        (COVERED, 12, TranslatedOffset(103)),
        (COVERED, 16, TranslatedOffset(105)),
        (COVERED, 17, TranslatedOffset(106)),
        (COVERED, 20, TranslatedOffset(106)),
        (COVERED, 21, PendingTranslation(NOT_COPIED)),
        (EMPTY, 0, TranslatedOffset(0)),
        (EMPTY, 1, PendingTranslation(NOT_COPIED)),
    ],
)
def test_the_first_copied_record_at_or_after(offsets: OffsetMap, committed: int, expected: Position) -> None:
    assert position(offsets, committed) == expected


def test_what_was_trimmed_is_where_the_map_begins_and_says_so() -> None:
    assert position(COVERED, 3, trimmed=True) == TranslatedOffset(100, clamped=True)


@pytest.mark.parametrize(
    ("found", "log_start", "expected"),
    [
        (TranslatedOffset(5), 5, TranslatedOffset(5)),
        (TranslatedOffset(5), 6, TranslatedOffset(6, clamped=True)),
        (PendingTranslation("…"), 6, PendingTranslation("…")),
        (UntranslatableOffset("…"), 6, UntranslatableOffset("…")),
    ],
)
def test_never_below_what_the_destination_holds(found: Position, log_start: int, expected: Position) -> None:
    assert clamped(found, log_start) == expected


# Another flow brought 0…9 of the destination into our source, at 200…209.
BROUGHT = OffsetMap([span(0, 12, 200, 210, Run(0, 200, 10))])


@pytest.mark.parametrize(
    ("committed", "expected"),
    [
        (150, 0),  # the group has read none of them
        (200, 0),
        (204, 4),
        (210, 12),  # all of them: whatever comes from 12 on is not read
        (500, 12),  # all that is known; what came since counts as not read
    ],
)
def test_the_first_record_of_another_origin_that_was_not_read(committed: int, expected: int) -> None:
    assert earliest_unread_offset(BROUGHT, committed) == expected


def test_what_brought_nothing_yet_may_all_be_unread() -> None:
    assert earliest_unread_offset(None, 10**9) == 0
    assert earliest_reachable_offset(None, 10**9) == 0


@pytest.mark.parametrize(("source", "expected"), [(9, 100), (12, 103), (18, 106), (20, 106), (99, 106)])
def test_where_a_record_is_or_can_still_arrive(source: int, expected: int) -> None:
    assert earliest_reachable_offset(COVERED, source) == expected


def test_a_merge_takes_the_smallest_and_is_asked_again() -> None:
    assert merged(TranslatedOffset(7), [9, 3]) == TranslatedOffset(3, settled=False)
    assert merged(TranslatedOffset(2, clamped=True), [9]) == TranslatedOffset(2, clamped=True, settled=False)
    assert merged(PendingTranslation("…"), [1]) == PendingTranslation("…")


@st.composite
def maps(draw: st.DrawFn) -> tuple[OffsetMap, dict[int, int]]:
    """A map, and which source offset became which destination offset."""
    runs: list[Run] = []
    low = source = draw(st.integers(0, 50))
    there = start = draw(st.integers(0, 50))
    for _ in range(draw(st.integers(0, 6))):
        source += draw(st.integers(0, 3))
        there += draw(st.integers(0, 3))
        count = draw(st.integers(1, 4))
        append(runs, Run(source, there, count))
        source, there = source + count, there + count
    end = source + draw(st.integers(0, 4))
    placed = {run.source + n: run.destination + n for run in runs for n in range(run.records)}
    return OffsetMap([Span(low, end, start, there, encode_runs(runs, low, start))]), placed


@given(maps(), st.integers(0, 120))
def test_nothing_is_read_again_and_nothing_is_skipped(
    made: tuple[OffsetMap, dict[int, int]], committed: int
) -> None:
    offsets, placed = made
    match position(offsets, committed):
        case TranslatedOffset(offset=offset):
            assert {here for here, there in placed.items() if there >= offset} == {
                here for here in placed if here >= committed
            }
        case UntranslatableOffset():
            assert committed < offsets.low
        case PendingTranslation():
            assert committed > offsets.end


@given(maps(), st.integers(0, 120), st.integers(0, 10))
def test_a_commit_that_moves_on_never_moves_back(
    made: tuple[OffsetMap, dict[int, int]], committed: int, more: int
) -> None:
    first, later = (position(made[0], offset) for offset in (committed, committed + more))
    if isinstance(first, TranslatedOffset) and isinstance(later, TranslatedOffset):
        assert first.offset <= later.offset


Log = list[tuple[str, int]]  # records as they lie: where each was born, and its number there


@st.composite
def merges(draw: st.DrawFn) -> tuple[Log, Log]:
    """One topic at two clusters, each with all records of its own and the first some of the other's."""
    ours, theirs = draw(st.integers(0, 8)), draw(st.integers(0, 8))
    carried, brought = draw(st.integers(0, ours)), draw(st.integers(0, theirs))
    return _mixed(draw, ("a", ours), ("b", brought)), _mixed(draw, ("b", theirs), ("a", carried))


def _mixed(draw: st.DrawFn, own: tuple[str, int], other: tuple[str, int]) -> Log:
    order = draw(st.permutations([own[0]] * own[1] + [other[0]] * other[1]))
    numbers = {"a": 0, "b": 0}
    log: Log = []
    for origin in order:
        log.append((origin, numbers[origin]))
        numbers[origin] += 1
    return log


def _copied(origin: str, source: Log, there: Log) -> OffsetMap:
    """The map of the flow that carries the records of one origin; it read to the last one that it carried."""
    runs: list[Run] = []
    end = 0
    for offset, record in enumerate(source):
        if record[0] == origin and record in there:
            append(runs, Run(offset, there.index(record), 1))
            end = offset + 1
    there_end = runs[-1].destination_end if runs else 0
    return OffsetMap([Span(0, end, 0, there_end, encode_runs(runs, 0, 0))])


@given(merges(), st.data())
def test_in_a_merge_records_may_be_read_again_and_none_is_skipped(
    made: tuple[Log, Log], data: st.DataObject
) -> None:
    ours, theirs = made
    committed = data.draw(st.integers(0, len(ours)))
    out, back = _copied("a", ours, theirs), _copied("b", theirs, ours)
    found = merged(position(out, committed), [earliest_unread_offset(back, committed)])
    if isinstance(found, TranslatedOffset):
        assert set(theirs[: found.offset]) <= set(ours[:committed])


@pytest.mark.parametrize(
    ("found", "shared", "floor", "last"),
    [
        (TranslatedOffset(5), False, None, TranslatedOffset(5)),
        (PendingTranslation(NOT_COPIED), False, None, TranslatedOffset(40)),
        (PendingTranslation(NOT_COPIED), True, None, PendingTranslation(NOT_COPIED)),
        (PendingTranslation(NOT_COPIED), True, 30, TranslatedOffset(30, settled=False)),
        (PendingTranslation(NOT_COPIED), True, 50, TranslatedOffset(40, settled=False)),
        (PendingTranslation("something else"), False, None, PendingTranslation("something else")),
        (UntranslatableOffset(BELOW_THE_MAP), False, None, UntranslatableOffset(BELOW_THE_MAP)),
    ],
)
def test_when_nothing_more_arrives(found: Position, shared: bool, floor: int | None, last: Position) -> None:
    assert final_position(found, 40, shared=shared, floor=floor) == last


@pytest.mark.parametrize(("found", "offset"), [(None, 30), (20, 20), (40, 30)])
def test_by_time_never_behind_what_the_flow_copied_itself(found: int | None, offset: int) -> None:
    assert by_time(found, 30) == TranslatedOffset(offset, by_time=True)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.integers(0, 9)), max_size=30),
    st.integers(0, 30),
    st.integers(1, 5),
)
def test_by_time_none_is_skipped_whatever_the_order(
    made: list[tuple[int, bool, int]], at: int, window: int
) -> None:
    """Each record of the source with its time, and whether a foreign one of another time was written before
    its copy. The group goes on by the earliest time in a window of what it has not read.
    """
    there: list[tuple[int, int]] = []
    for number, (timestamp, foreign, other) in enumerate(made):
        there += [(-1, other)] if foreign else []
        there.append((number, timestamp))
    committed = min(at, len(made))
    unread_times = [timestamp for timestamp, _, _ in made[committed : committed + window]]
    time = min(unread_times, default=10)
    first = next((offset for offset, (_, timestamp) in enumerate(there) if timestamp >= time), None)
    skipped = there[: by_time(first, len(there)).offset]
    assert not [number for number, _ in skipped if number >= committed]
