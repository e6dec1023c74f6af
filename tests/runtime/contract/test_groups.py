"""R6 for groups: where one continues at the other side. Never an offset that skips a record."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from runtime.contract.groups import (
    BELOW_THE_MAP,
    NOT_COPIED,
    Decision,
    PendingTranslation,
    Position,
    SourceTopicWriter,
    TranslatedOffset,
    UntranslatableOffset,
    by_time,
    clamped,
    decide,
    earliest_reachable_offset,
    earliest_unread_offset,
    final_position,
    is_ours,
    merged,
    origins_of,
    own_groups,
    position,
)
from runtime.contract.records.group_records import Checkpoint, CheckpointState
from runtime.contract.records.offset_map import OffsetMap, Run, Span, append, encode_runs
from runtime.contract.spec.flow import GroupsSpec, OriginCommitsSpec
from runtime.contract.spec.jobspec import FlowSpec, JobSpec, Route
from runtime.contract.spec.rename import SAME_NAME, Template
from runtime.contract.spec.route import Router
from runtime.contract.spec.selection import SelectionSpec

NOW = 10 * 24 * 60 * 60 * 1000
BELOW, PENDING = UntranslatableOffset(BELOW_THE_MAP), PendingTranslation(NOT_COPIED)


def mapped(low: int, end: int, there: int, there_end: int, *runs: Run) -> OffsetMap:
    return OffsetMap([Span(low, end, there, there_end, encode_runs(runs, low, there))])


# Source 10…19 is covered: 10, 11 → 100, 101; 14…16 → 103…105 behind a marker; the rest was not copied.
COVERED = mapped(10, 20, 100, 106, Run(10, 100, 2), Run(14, 103, 3))
TRIMMED = OffsetMap(COVERED.spans, is_trimmed=True)
EMPTY = mapped(0, 0, 0, 0)
# Another flow brought 0…9 of the destination into our source, at 200…209.
BROUGHT = mapped(0, 12, 200, 210, Run(0, 200, 10))


@pytest.mark.parametrize(
    ("translate", "expected"),
    [
        (partial(position, COVERED, 9), BELOW),
        (partial(position, COVERED, 10), TranslatedOffset(100)),
        (partial(position, COVERED, 12), TranslatedOffset(103)),
        (partial(position, COVERED, 16), TranslatedOffset(105)),
        (partial(position, COVERED, 17), TranslatedOffset(106)),
        (partial(position, COVERED, 20), TranslatedOffset(106)),
        (partial(position, COVERED, 21), PENDING),
        (partial(position, EMPTY, 0), TranslatedOffset(0)),
        (partial(position, EMPTY, 1), PENDING),
        # What was trimmed is where the map begins.
        (partial(position, TRIMMED, 3), TranslatedOffset(100, clamped=True)),
        # Never below what the destination holds.
        (partial(clamped, TranslatedOffset(5), 5), TranslatedOffset(5)),
        (partial(clamped, TranslatedOffset(5), 6), TranslatedOffset(6, clamped=True)),
        (partial(clamped, PENDING, 6), PENDING),
        (partial(clamped, BELOW, 6), BELOW),
        # A merge takes the smallest and is never settled.
        (partial(merged, TranslatedOffset(7), [9, 3]), TranslatedOffset(3, settled=False)),
        (
            partial(merged, TranslatedOffset(2, clamped=True), [9]),
            TranslatedOffset(2, clamped=True, settled=False),
        ),
        (partial(merged, PENDING, [1]), PENDING),
        # By time: never behind what the flow copied itself.
        (partial(by_time, None, 30), TranslatedOffset(30, by_time=True)),
        (partial(by_time, 20, 30), TranslatedOffset(20, by_time=True)),
        (partial(by_time, 40, 30), TranslatedOffset(30, by_time=True)),
        # When nothing more arrives.
        (partial(final_position, TranslatedOffset(5), 40, shared=False, floor=None), TranslatedOffset(5)),
        (partial(final_position, PENDING, 40, shared=False, floor=None), TranslatedOffset(40)),
        (partial(final_position, PENDING, 40, shared=True, floor=None), PENDING),
        (partial(final_position, PENDING, 40, shared=True, floor=30), TranslatedOffset(30, settled=False)),
        (partial(final_position, PENDING, 40, shared=True, floor=50), TranslatedOffset(40, settled=False)),
        (
            partial(final_position, PendingTranslation("x"), 40, shared=False, floor=None),
            PendingTranslation("x"),
        ),
        (partial(final_position, BELOW, 40, shared=False, floor=None), BELOW),
    ],
)
def test_the_first_copied_record_at_or_after(translate: Callable[[], Position], expected: Position) -> None:
    assert translate() == expected


@pytest.mark.parametrize(
    ("brought", "committed", "expected"),
    [
        (BROUGHT, 150, 0),  # the group has read none of them
        (BROUGHT, 200, 0),
        (BROUGHT, 204, 4),
        (BROUGHT, 210, 12),  # all of them: whatever comes from 12 on is not read
        (BROUGHT, 500, 12),  # all that is known; what came since counts as not read
        (None, 10**9, 0),
    ],
)
def test_the_first_record_of_another_origin_that_was_not_read(
    brought: OffsetMap | None, committed: int, expected: int
) -> None:
    assert earliest_unread_offset(brought, committed) == expected


def test_where_a_record_is_or_can_still_arrive() -> None:
    expected = {9: 100, 12: 103, 18: 106, 20: 106, 99: 106}
    assert {source: earliest_reachable_offset(COVERED, source) for source in expected} == expected
    assert earliest_reachable_offset(None, 10**9) == 0


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
    placed = {run.source + n: run.destination + n for run in runs for n in range(run.records)}
    return mapped(low, source + draw(st.integers(0, 4)), start, there, *runs), placed


@given(maps(), st.integers(0, 120), st.integers(0, 10))
def test_no_record_is_read_again_or_skipped_and_a_later_commit_never_moves_back(
    made: tuple[OffsetMap, dict[int, int]], committed: int, more: int
) -> None:
    offsets, placed = made
    found, later = position(offsets, committed), position(offsets, committed + more)
    match found:
        case TranslatedOffset(offset=offset):
            left = {here for here, there in placed.items() if there >= offset}
            assert left == {here for here in placed if here >= committed}
            assert not isinstance(later, TranslatedOffset) or offset <= later.offset
        case UntranslatableOffset():
            assert committed < offsets.low
        case PendingTranslation():
            assert committed > offsets.end


Log = list[tuple[str, int]]  # records as they lie: where each was born, and its number there


@st.composite
def merges(draw: st.DrawFn) -> tuple[Log, Log]:
    """One topic at two clusters, each with all records of its own and the first some of the other's."""

    def mixed(own: tuple[str, int], other: tuple[str, int]) -> Log:
        order = draw(st.permutations([own[0]] * own[1] + [other[0]] * other[1]))
        return [(origin, order[:at].count(origin)) for at, origin in enumerate(order)]

    ours, theirs = draw(st.integers(0, 8)), draw(st.integers(0, 8))
    carried, brought = draw(st.integers(0, ours)), draw(st.integers(0, theirs))
    return mixed(("a", ours), ("b", brought)), mixed(("b", theirs), ("a", carried))


def copied(origin: str, source: Log, there: Log) -> OffsetMap:
    """The map of the flow that carries the records of one origin; it read to the last one that it carried."""
    runs: list[Run] = []
    for offset, record in enumerate(source):
        if record[0] == origin and record in there:
            append(runs, Run(offset, there.index(record), 1))
    end, there_end = (runs[-1].source_end, runs[-1].destination_end) if runs else (0, 0)
    return mapped(0, end, 0, there_end, *runs)


@given(merges(), st.data())
def test_in_a_merge_records_may_be_read_again_and_none_is_skipped(
    made: tuple[Log, Log], data: st.DataObject
) -> None:
    ours, theirs = made
    committed = data.draw(st.integers(0, len(ours)))
    out, back = copied("a", ours, theirs), copied("b", theirs, ours)
    found = merged(position(out, committed), [earliest_unread_offset(back, committed)])
    if isinstance(found, TranslatedOffset):
        assert set(theirs[: found.offset]) <= set(ours[:committed])


@given(
    st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.integers(0, 9)), max_size=30),
    st.integers(0, 30),
    st.integers(1, 5),
)
def test_by_time_no_record_is_skipped_whatever_the_order(
    made: list[tuple[int, bool, int]], at: int, window: int
) -> None:
    """Each record of the source with its time, and whether a foreign one of another time was written before
    its copy. The group continues at the earliest time in a window of what it has not read.
    """
    there: list[tuple[int, int]] = []
    for number, (timestamp, foreign, other) in enumerate(made):
        there += [(-1, other)] if foreign else []
        there.append((number, timestamp))
    committed = min(at, len(made))
    time = min((timestamp for timestamp, _, _ in made[committed : committed + window]), default=10)
    first = next((offset for offset, (_, timestamp) in enumerate(there) if timestamp >= time), None)
    skipped = there[: by_time(first, len(there)).offset]
    assert not [number for number, _ in skipped if number >= committed]


# What is done with an offset: forward only, back only after a rewind, never over another's commit


def wrote(destination: int, source: int, *, ms: int = NOW, before: int = -1) -> Checkpoint:
    state = CheckpointState.TRANSLATED
    return Checkpoint(source, destination, ms, state, "t", False, "", destination, source, ms, before)


FIVE = TranslatedOffset(5)


def ahead(at: int) -> Decision:
    return Decision(CheckpointState.AHEAD, 5, why=f"it stands at {at} already")


DONE = Decision(CheckpointState.TRANSLATED, 5)
COMMIT = replace(DONE, commits=True)


@pytest.mark.parametrize(
    ("found", "seen", "decision"),
    [
        (FIVE, (5, None), COMMIT),
        (TranslatedOffset(0), (0, None), replace(COMMIT, destination=0)),
        (FIVE, (5, 3), COMMIT),
        (TranslatedOffset(5, clamped=True), (5, 3), replace(COMMIT, clamped=True)),
        (FIVE, (5, 5), DONE),
        (FIVE, (5, 9), ahead(9)),
        (FIVE, (105, 9, {9}, wrote(9, 109)), COMMIT),
        (FIVE, (105, 8, {9}, wrote(9, 109)), ahead(8)),
        (FIVE, (109, 9, {9}, wrote(9, 109)), ahead(9)),
        (FIVE, (5, 5, {5}, wrote(5, 5, ms=0)), COMMIT),
        (FIVE, (5, 5, (), wrote(4, 4, ms=0)), DONE),
        (PendingTranslation("w"), (5, None), Decision(CheckpointState.PENDING, why="w")),
        (UntranslatableOffset("w"), (5, None), Decision(CheckpointState.UNMAPPED, why="w")),
    ],
    ids=[
        "no commit yet",
        "no commit yet, and no record",
        "forward",
        "forward, clamped",
        "done",
        "further by itself",
        "rewound",
        "rewound, but read on at the destination since",
        "not rewound",
        "committed again before it expires",
        "a member's own",
        "pending",
        "unmapped",
    ],
)
def test_decisions(found: Position, seen: tuple[Any, ...], decision: Decision) -> None:
    """`seen`: the commits at both sides, what this product wrote, and the last checkpoint."""
    assert decide(found, NOW, *seen) == decision


def test_offsets_that_this_product_wrote_are_no_groups_own() -> None:
    written = [wrote(7, 70, before=5), wrote(11, 110)]
    assert [offset for offset in range(13) if is_ours(offset, written)] == [5, 7, 11]


def test_the_default_denials_of_groups() -> None:
    selector = GroupsSpec().selector
    names = ("billing", "console-consumer-1", "connect-sink", "__x")
    assert [name for name in names if selector.answer(name).taken] == ["billing"]
    named = GroupsSpec(include=("connect-sink",)).selector
    assert named.answer("connect-sink").taken


def test_groups_that_only_show_progress_are_known() -> None:
    topics, shown = SelectionSpec(include=("t",)), OriginCommitsSpec(group="shown")
    flow = FlowSpec(name="f", source="a", destination="b", topics=topics, origin_commits=shown)
    route = Route(name="other", source="b", destination="a", topics=topics)
    spec = JobSpec(job="b", topology="t", destination="b", clusters={}, flows=[flow], routes=[route])
    assert own_groups(spec) == {"shown", "repl.other"}


def way(name: str, rename: Template = SAME_NAME, *, include: str = ".*") -> Route:
    source, destination = name.split(">")
    return Route(name, source, destination, SelectionSpec((include,)), rename)


PREFIX = Template("{source}.{topic}")
BACK = SourceTopicWriter("b>a", "t", None)


@pytest.mark.parametrize(
    ("routes", "origins"),
    [
        ([way("a>b")], ()),
        ([way("a>b"), way("b>a")], (BACK,)),
        ([way("a>b", PREFIX), way("b>a", PREFIX)], ()),
        ([way("a>b"), way("b>a", include="other")], ()),
        ([way("a>b"), way("c>a")], ()),
        (
            [way("a>b"), way("b>a"), way("c>a"), way("c>b")],
            (BACK, SourceTopicWriter("c>a", "t", "c>b")),
        ),
    ],
    ids=[
        "one direction",
        "one topic at both",
        "names that tell",
        "another topic comes back",
        "passed on: it is in our own map",
        "a mesh",
    ],
)
def test_flows_that_write_the_same_topic_at_both_sides(
    routes: list[Route], origins: tuple[SourceTopicWriter, ...]
) -> None:
    assert origins_of(Router(routes), "a>b", "t") == origins
