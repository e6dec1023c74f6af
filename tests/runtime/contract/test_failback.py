"""A flow begins where its opposite ended: positions, and one map read both ways."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from runtime.contract.records.advance import Advance, advance, first_progress
from runtime.contract.records.failback import (
    FailbackStart,
    PartitionBounds,
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
from runtime.contract.records.ledger import Generation, PartitionKey, Progress, Segment, orphan
from runtime.contract.records.offset_map import EndOfOffsetMap, MappedOffset, OffsetMap, Run, UnmappedOffset
from runtime.contract.spec.jobspec import FlowSpec, JobSpec, RouteSpec, SelectionSpec

THERE, HERE = b"there".ljust(16), b"here".ljust(16)  # topics at dc1 and at dc2
KEY = PartitionKey("f", "orders", 0)


def forward(*runs: Run, position: int, low: int = 0) -> Progress:
    """Copied from dc1 to dc2."""
    first = first_progress(
        generation=1,
        source_topic_id=THERE,
        destination_topic="dc1.orders",
        destination_topic_id=HERE,
        position=low,
        destination_end=0,
        now_ms=0,
    )
    return advance(first, Advance(position, 0, runs), 1, 0)[0]


def drawn(progress: Progress, segments: list[Segment] = []) -> OffsetMap:  # noqa: B006
    return OffsetMap([*(one.span() for one in segments), progress.open_span()])


def way_back(progress: Progress, end: int, **more: bytes) -> FailbackStart:
    """`end` is where dc1's log ends."""
    here = PartitionBounds(HERE, 0, "orders", more.get("dc1", THERE), end)
    return failback_start(None, progress, drawn(progress), here, generation=1, now_ms=0)


def test_it_starts_behind_what_the_opposite_wrote_last() -> None:
    begun = way_back(forward(Run(0, 0, 90), Run(91, 92, 9), position=101), end=107)

    assert begun.progress.position == 101
    assert begun.progress.destination_end == 107


def test_a_place_in_what_was_copied_goes_home_to_the_same_record() -> None:
    begun = way_back(forward(Run(0, 0, 90), Run(91, 92, 9), position=101), end=107)
    home = drawn(begun.progress, begun.segments)

    assert home.translate(40) == MappedOffset(40, exact=True)
    assert home.translate(90) == MappedOffset(91, exact=False)
    assert home.translate(95) == MappedOffset(94, exact=True)


def test_a_place_behind_all_that_was_copied_goes_home_behind_the_orphans() -> None:
    begun = way_back(forward(Run(0, 0, 90), position=90), end=107)

    assert drawn(begun.progress, begun.segments).translate(90) == EndOfOffsetMap(107)


def test_what_was_never_copied_is_unmapped_both_ways() -> None:
    begun = way_back(forward(Run(50, 0, 10), position=60, low=50), end=60)

    home = drawn(begun.progress, begun.segments)
    assert home.translate(0) == MappedOffset(50, exact=True)
    assert home.origin(49) == UnmappedOffset()


def test_an_old_primary_that_lost_its_end_gets_it_back() -> None:
    begun = way_back(forward(Run(0, 0, 90), Run(91, 92, 9), position=101), end=94)

    assert (begun.progress.position, begun.progress.restored) == (95, 101)
    assert drawn(begun.progress, begun.segments).translate(94) == MappedOffset(93, exact=True)


def test_an_old_primary_whose_topic_was_made_anew_gets_everything() -> None:
    begun = way_back(forward(Run(0, 0, 90), position=90), end=0, dc1=b"new".ljust(16))

    assert (begun.progress.position, begun.segments) == (0, [])
    assert begun.progress.restored == 90


def test_nothing_goes_back_to_an_old_primary_that_has_it_still() -> None:
    begun = way_back(forward(Run(0, 0, 90), position=90), end=107)
    gone, here = forward(Run(0, 0, 9), position=9), PartitionBounds(b"new".ljust(16), 0, "orders", THERE, 9)
    anew = failback_start(None, gone, drawn(gone), here, generation=1, now_ms=0)

    assert begun.progress.restored <= begun.progress.position
    assert anew.progress.restored == 0  # what the other side wrote to its new topic is its own


def test_there_and_back_and_there_again() -> None:
    there = forward(Run(0, 0, 10), position=10)
    marked = orphan(KEY, there, 13, "failback", generation=1, now_ms=0)
    left = next(one for one in marked.values() if isinstance(one, Progress))
    back = failback_start(
        None, left, drawn(left), PartitionBounds(HERE, 0, "orders", THERE, 13), generation=1, now_ms=0
    )
    came, _ = advance(back.progress, Advance(30, 0, (Run(11, 13, 5), Run(20, 19, 7))), 1, 0)
    here = PartitionBounds(THERE, 0, "dc1.orders", HERE, 31)
    again = failback_start(left, came, drawn(came, back.segments), here, generation=2, now_ms=0)

    assert again.progress.position == 26
    offsets = drawn(again.progress, again.segments)
    assert offsets.translate(4) == MappedOffset(4, exact=True)
    assert offsets.translate(11) == MappedOffset(
        11, exact=False
    )  # an orphan: what dc2 wrote first comes next
    assert offsets.translate(20) == MappedOffset(21, exact=True)
    assert offsets.translate(26) == EndOfOffsetMap(31)
    assert foreign_offset_ranges(left, again, here) == []


def test_what_others_wrote_to_the_old_primary_meanwhile_is_told() -> None:
    there = forward(Run(0, 0, 10), position=10)
    back = way_back(there, end=10)
    came, _ = advance(back.progress, Advance(30, 0, (Run(10, 12, 5), Run(16, 18, 7))), 1, 0)
    here = PartitionBounds(THERE, 0, "dc1.orders", HERE, 31)
    again = failback_start(there, came, drawn(came, back.segments), here, generation=2, now_ms=0)

    assert foreign_offset_ranges(there, again, here) == [(10, 12)]


@pytest.mark.parametrize(
    ("home", "single"),
    [
        (Run(10, 10, 5), None),  # the first that came home lies where the flow stood
        (Run(10, 11, 5), 10),  # a marker, or one record of another writer: the log tells
        (Run(10, 12, 5), None),  # more than a marker: told anyway
    ],
)
def test_one_offset_before_the_first_that_came_home_is_to_be_looked_at(home: Run, single: int | None) -> None:
    there = forward(Run(0, 0, 10), position=10)
    back = way_back(there, end=10)
    came, _ = advance(back.progress, Advance(30, 0, (home,)), 1, 0)
    here = PartitionBounds(THERE, 0, "dc1.orders", HERE, 31)
    again = failback_start(there, came, drawn(came, back.segments), here, generation=2, now_ms=0)

    assert single_before(there, again, here) == single
    assert foreign_offset_ranges(there, again, here) == ([(10, 12)] if home.destination == 12 else [])


@pytest.mark.parametrize("before", [None, forward(Run(0, 0, 10), position=10)])
def test_what_others_wrote_to_a_topic_made_anew_is_told_from_its_beginning(before: Progress | None) -> None:
    """Four records of theirs, then all that the other side had, and two more of theirs."""
    new = b"new".ljust(16)
    back = way_back(forward(Run(0, 0, 10), position=10), end=4, dc1=new)
    came, _ = advance(back.progress, Advance(12, 0, (Run(0, 4, 10), Run(10, 16, 2))), 1, 0)
    here = PartitionBounds(new, 0, "dc1.orders", HERE, 12)
    again = failback_start(before, came, drawn(came, back.segments), here, generation=2, now_ms=0)

    assert (again.progress.position, foreign_offset_ranges(before, again, here)) == (18, [(0, 4), (14, 16)])


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 5)), max_size=400))
def test_both_ways_it_is_one_map(gaps: list[tuple[int, int, int]]) -> None:
    runs, source, destination = [], 0, 0
    for here, there, records in gaps:
        runs.append(Run(source + here, destination + there, records))
        source, destination = runs[-1].source_end, runs[-1].destination_end
    progress = forward(position=0)
    progress, segments = advance(progress, Advance(source, 0, tuple(runs)), 1, 0)
    offsets = drawn(progress, segments)
    end = progress.position
    here_now = PartitionBounds(HERE, 0, "orders", THERE, end)

    begun = failback_start(None, progress, offsets, here_now, generation=1, now_ms=0)

    home = drawn(begun.progress, begun.segments)
    for run in runs:
        for step in range(run.records):
            assert offsets.translate(run.source + step) == MappedOffset(run.destination + step, exact=True)
            assert home.translate(run.destination + step) == MappedOffset(run.source + step, exact=True)
            assert home.origin(run.source + step) == MappedOffset(run.destination + step, exact=True)


# Lives


def generation(state: str = "active", **more: object) -> Generation:
    made = Generation(
        number=1,
        job="j",
        state="active",
        driver="d",
        transactional_ids=[],
        source_cluster_id="",
        destination_cluster_id="",
        written_at=0,
    )
    return replace(made, state=state, **more)


def ended(one: Generation) -> Generation:
    return replace(with_life_of(one, replace(one, state="failed_over")), note="")


def test_each_comes_back_only_by_the_newest_end_of_the_other() -> None:
    active = generation()
    there = ended(after_failback(with_life_of(None, active), None))
    back = with_life_of(None, active)
    assert back.turning
    assert can_complete_failback(back, there)
    back = ended(after_failback(back, there))
    assert can_start_failback(there, back)
    there = with_life_of(there, active)
    assert can_complete_failback(there, back)
    there = after_failback(there, back)
    assert (there.life, there.after, there.turning) == (1, 0, False)

    there = ended(there)  # the second failover: the way back of the first one counts no more
    assert not can_start_failback(there, back)
    assert not can_complete_failback(with_life_of(there, active), back)
    assert can_start_failback(back, there)


def test_an_end_is_handed_over_once_its_opposite_began_there() -> None:
    there = ended(after_failback(with_life_of(None, generation()), None))
    back = with_life_of(None, generation())
    assert not handed_over(there, back)  # what there is left is not marked yet
    back = after_failback(back, there)
    assert handed_over(there, back)
    assert not handed_over(back, there)

    back = ended(back)
    there = after_failback(with_life_of(there, generation()), back)
    assert handed_over(back, there)
    assert not handed_over(ended(there), back)


def test_a_driver_that_comes_after_one_that_died_still_turns() -> None:
    mine = with_life_of(ended(after_failback(with_life_of(None, generation()), None)), generation())

    assert with_life_of(mine, generation()) == mine


def test_a_flow_that_ended_before_it_had_begun_begins_again() -> None:
    there = ended(after_failback(with_life_of(None, generation()), None))
    back = ended(with_life_of(None, generation()))

    assert can_start_failback(back, there)
    assert not can_start_failback(there, back)
    assert can_complete_failback(with_life_of(back, generation()), there)


def test_opposites_know_each_other() -> None:
    topics = SelectionSpec(include=["orders"])
    there = FlowSpec(name="f", source="dc1", destination="dc2", topics=topics)
    back = FlowSpec(name="f-back", source="dc2", destination="dc1", topics=topics, reverse_of="f")
    routes = [
        RouteSpec(name="f", source="dc1", destination="dc2", topics=topics),
        RouteSpec(name="f-back", source="dc2", destination="dc1", topics=topics, reverse_of="f"),
    ]
    job = JobSpec(job="j", topology="t", destination="dc2", clusters={}, flows=[there], routes=routes)

    assert opposite_of(job, there) == "f-back"
    assert opposite_of(job, back) == "f"
    assert opposite_of(replace(job, routes=[]), there) is None
