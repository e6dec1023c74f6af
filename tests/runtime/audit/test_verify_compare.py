"""What was done to a copy, and what the comparison calls it: one line of letters a side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.audit.verify.pieces import ComparedRecord, RecordComparer, RecordContent, condensed
from runtime.audit.verify.results import differences_of
from runtime.contract.views.records_view import Difference


def print_(letter: str) -> RecordContent:
    """`a'` has the key of `a` and another value."""
    return RecordContent(0, letter[0].encode(), letter.encode(), ())


def compare(
    source: Sequence[str],
    destination: Sequence[tuple[int, str]],
    *,
    compacted: bool = False,
    at: Iterable[int | None] | None = None,
    foreign: Iterable[int] = (),
    limit: int = 100,
) -> tuple[RecordComparer, list[Difference]]:
    places = list(at) if at is not None else list(range(len(source)))
    comparer = RecordComparer(0, compacted=compacted, limit=limit, window=8)
    here = [ComparedRecord(offset, places[offset], print_(one)) for offset, one in enumerate(source)]
    others = set(foreign)
    there = [ComparedRecord(at, None if at in others else at, print_(one)) for at, one in destination]
    while not comparer.done:
        if comparer.wants_source:
            comparer.add_source(here[:3])
            del here[:3]
        if not here:
            comparer.end_source()
        if comparer.wants_destination:
            comparer.add_destination(there[:2])
            del there[:2]
        if not there:
            comparer.end_destination()
        comparer.advance()
    return comparer, differences_of(comparer.edits)


def lined(text: str) -> list[tuple[int, str]]:
    return list(enumerate(text))


@pytest.mark.parametrize(
    ("destination", "found"),
    [
        (lined("abcdefgh"), []),
        (lined("abdefgh"), [("missing", 2, None)]),
        ([(0, "a"), (1, "b"), *((at, "abcdefgh"[at]) for at in range(3, 8))], [("missing", 2, None)]),
        (lined("abccdefgh"), [("doubled", 2, 3)]),
        (lined("abcdefgha"), [("doubled", 0, 8)]),
        (lined("abcXdefgh"), [("foreign", None, 3)]),
        (lined("abXdefgh"), [("changed", 2, 2)]),
        (lined("abdcefgh"), [("swapped", 2, 3)]),
        (lined("agcdefbh"), [("swapped", 1, 6), ("swapped", 6, 1)]),
        (lined("abbdefgh"), [("missing", 2, None), ("doubled", 1, 2)]),
        (lined("abcdef"), [("missing", 6, None), ("missing", 7, None)]),
        (lined(""), [("missing", at, None) for at in range(8)]),
    ],
)
def test_in_order(
    destination: list[tuple[int, str]], found: list[tuple[str, int | None, int | None]]
) -> None:
    _, differences = compare("abcdefgh", destination)
    assert [(one.kind, one.source_offset, one.destination_offset) for one in differences] == found


def test_equal_up_to_the_first_difference() -> None:
    comparer, _ = compare("abcdefgh", lined("abdefgh"))
    assert [edit.near for edit in comparer.edits] == [2]
    assert comparer.matched == 7


def test_a_record_that_the_map_leaves_out_is_missing_or_moved() -> None:
    assert [one.kind for one in compare("abc", [(0, "a"), (1, "c")], at=[0, None, 1])[1]] == ["missing"]
    assert [one.kind for one in compare("abc", lined("abc"), at=[0, None, 2])[1]] == ["moved"]


def test_a_copy_that_lies_elsewhere_than_the_map_says_is_told_once() -> None:
    differences = compare("abcd", [(0, "a"), (5, "b"), (6, "c"), (7, "d")])[1]
    assert [(one.kind, one.source_offset, one.destination_offset) for one in differences] == [("moved", 1, 5)]


def test_of_a_compacted_topic_only_what_both_hold_is_compared() -> None:
    comparer, differences = compare("abcd", [(0, "a"), (2, "X"), (3, "d")], compacted=True)
    assert [(one.kind, one.source_offset) for one in differences] == [("changed", 2)]
    assert (comparer.matched, comparer.one_sided) == (2, 1)
    comparer, differences = compare(
        "abc", [(0, "a"), (1, "b"), (2, "c"), (3, "Z")], compacted=True, foreign=[3]
    )
    assert [one.kind for one in differences] == ["foreign"]


def test_after_enough_it_stops() -> None:
    comparer, differences = compare("abcdefgh" * 20, [], limit=5)
    assert (comparer.full, len(differences)) == (True, 5)


def test_null_and_empty_differ() -> None:
    comparer = RecordComparer(0, compacted=False)
    comparer.add_source([ComparedRecord(0, 0, RecordContent(1, None, b"", ()))])
    comparer.add_destination([ComparedRecord(0, 0, RecordContent(2, b"", None, ()))])
    comparer.end_source()
    comparer.end_destination()
    comparer.advance()
    (found,) = differences_of(comparer.edits)
    assert found.fields == ["key", "value", "timestamp"]
    assert found.why == "key null → empty; value empty → null; timestamp 1 → 2"


@given(st.binary(max_size=80), st.binary(max_size=80))
def test_what_is_condensed_is_equal_only_where_the_content_is(one: bytes, other: bytes) -> None:
    assert (condensed(one) == condensed(other)) == (one == other)
    assert condensed(None) is None


@given(st.lists(st.integers(0, 99), unique=True, max_size=40), st.data())
def test_whatever_is_taken_away_is_missing_and_nothing_else(numbers: list[int], data: st.DataObject) -> None:
    letters = [chr(1_000 + one) for one in numbers]
    gone = data.draw(st.sets(st.sampled_from(range(len(letters))), max_size=6)) if letters else set()
    left = [(at, one) for at, one in enumerate(letters) if at not in gone]
    differences = compare(letters, left)[1]
    assert {one.source_offset for one in differences} == gone
    assert {one.kind for one in differences} <= {"missing"}
