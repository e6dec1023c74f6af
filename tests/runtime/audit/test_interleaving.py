"""Which transactions of a partition hold the lines of which file."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.audit.verify.interleaving import (
    Interleaving,
    TransactionRange,
    match,
    owners_of_unknown,
    places_of,
)


def found(files: dict[str, list[int]], *transactions: Sequence[int]) -> Interleaving:
    ends = [0, *accumulate(len(one) for one in transactions)]
    ranges = [TransactionRange(begin, end) for begin, end in pairwise(ends)]
    return match(files, [one for some in transactions for one in some], ranges)


def interleaved(files: dict[str, list[int]], order: random.Random) -> list[list[int]]:
    """The lines of all files in transactions of one to three, in any order of the files."""
    rest, transactions = {name: list(lines) for name, lines in files.items()}, []
    while names := [name for name, lines in rest.items() if lines]:
        name = order.choice(names)
        size = order.randint(1, 3)
        transactions.append(rest[name][:size])
        rest[name] = rest[name][size:]
    return transactions


H, END = 100, 200


@pytest.mark.parametrize(
    ("files", "transactions", "left", "unknown"),
    [
        ({"a": [1, 2, 3]}, [[1, 2], [3]], {}, 0),
        ({"a": [1, 2], "b": [3, 4]}, [[3], [1], [4], [2]], {}, 0),
        ({"a": [1, 2], "b": [1, 2]}, [[1, 2], [1], [2]], {}, 0),  # a copy
        ({"a": [H, 1], "b": [H, 2]}, [[H], [H], [1], [2]], {}, 0),  # the same first line
        ({"a": [1, END], "b": [2, END]}, [[1], [END], [2], [END]], {}, 0),  # the same last line
        ({"a": [1, END], "b": [2, END]}, [[2], [END], [1], [END]], {}, 0),
        ({"a": [1, 2, 3]}, [[9], [1, 2, 3], [9, 9]], {}, 2),  # another producer's
        ({"a": [1, 2, 3]}, [[2, 3]], {"a": 1}, 0),  # retention took the first
        ({"a": [1, 2, 3]}, [[7, 2], [1, 2, 3]], {}, 1),  # read anew
        ({"a": [1, 2, 3]}, [[1], [2, 9], [3]], {"a": 2}, 2),  # a line was changed
        ({"a": [1, 2], "b": [2]}, [[1, 2], [2]], {}, 0),  # the chosen file takes the next one, too
        ({"a": [2], "b": [1, 2]}, [[1, 2], [2]], {}, 0),
        ({"a": [1, 2], "b": [3]}, [[1, 3], [2]], {"a": 1, "b": 1}, 1),
        ({"a": []}, [[]], {}, 0),
    ],
)
def test_each_transaction_is_of_one_file(
    files: dict[str, list[int]], transactions: list[list[int]], left: dict[str, int], unknown: int
) -> None:
    seen = found(files, *transactions)
    assert {name: count for name, count in seen.left.items() if count} == left
    assert len(seen.unknown) == unknown


def test_files_that_are_alike_are_named_where_one_of_them_is_incomplete() -> None:
    assert found({"a": [1], "b": [1]}, [1], [1]).alike == set()
    assert found({"a": [1], "b": [1]}, [1]).alike == {"a", "b"}


def test_an_unknown_transaction_is_of_the_incomplete_file_with_most_of_its_lines() -> None:
    files = {"a": [1, 2, 3], "b": [4, 5], "c": [6]}
    transactions = [[1, 9, 3], [4], [8], [6]]
    seen = found(files, *transactions)
    records = [one for some in transactions for one in some]
    owned = owners_of_unknown(seen, files, records)
    assert owned == {"a": [TransactionRange(0, 3)], "b": [TransactionRange(3, 4)]}


@pytest.mark.parametrize(
    ("transactions", "owned"),
    [
        ([[1, 9], [3]], 1),  # a line was changed
        ([[1, 8, 9], [3]], 0),  # of another file, with the same first line
        ([[3], [1, 2, 9]], 0),  # behind those of the file
    ],
)
def test_a_transaction_that_is_hardly_alike_is_of_no_file(transactions: list[list[int]], owned: int) -> None:
    files = {"a": [1, 2, 3]}
    seen = found(files, *transactions)
    assert seen.left == {"a": 2}
    records = [one for some in transactions for one in some]
    assert len(owners_of_unknown(seen, files, records).get("a", [])) == owned


@pytest.mark.parametrize(
    ("lines", "begin", "end", "at"),
    [
        ([1, 2], 0, 9, [0, 2]),
        ([1, 2], 1, 9, [2]),
        ([1, 2], 1, 1, []),
        ([1, 2], 0, 2, [0, 2]),
        ([2, 2], 0, 9, []),
        ([3], 0, 9, [4]),
        ([3, 4], 0, 9, []),
        ([9], 0, 9, []),
    ],
)
def test_where_a_file_has_these_lines(lines: list[int], begin: int, end: int, at: list[int]) -> None:
    assert list(places_of([1, 2, 1, 2, 3], lines, begin, end)) == at


@given(st.lists(st.lists(st.integers(0, 9), max_size=12), min_size=1, max_size=4), st.randoms())
def test_files_with_lines_of_their_own_are_always_told_apart(
    given_files: list[list[int]], order: random.Random
) -> None:
    files = {str(at): [100 * at + one for one in lines] for at, lines in enumerate(given_files)}
    seen = found(files, *interleaved(files, order))
    assert set(seen.left.values()) <= {0}
    assert seen.unknown == []


@given(st.lists(st.lists(st.integers(0, 3), max_size=6), min_size=1, max_size=3), st.randoms())
def test_files_with_equal_lines_are_always_found_whole(
    given_files: list[list[int]], order: random.Random
) -> None:
    files = {str(at): lines for at, lines in enumerate(given_files)}
    seen = found(files, *interleaved(files, order))
    assert set(seen.left.values()) <= {0}
    assert seen.unknown == []
    for name, some in seen.taken.items():
        assert sum(one.end - one.begin for one in some) == len(files[name])
        assert some == sorted(some, reverse=True)


def test_an_earlier_choice_keeps_the_order_of_the_lines() -> None:
    """The last transaction is chosen for "a" first. It is of "b", whose earlier lines were found already."""
    seen = found({"a": [0, 2], "b": [2, 2, 2]}, [0, 2], [2, 2], [2])
    assert set(seen.left.values()) == {0}
    assert all(some == sorted(some, reverse=True) for some in seen.taken.values())


def test_many_files_with_equal_lines_take_little_time() -> None:
    files = {str(at): [1] for at in range(5_000)}
    seen = found(files, *([1] for _ in files))
    assert set(seen.left.values()) == {0}
    seen = found(files, *([1] for _ in range(4_999)), [9])  # of others
    assert sum(seen.left.values()) == len(seen.unknown) == 1
    files = {str(at): [at, -1] for at in range(20_000)}
    seen = found(files, *files.values())
    assert set(seen.left.values()) == {0}


def test_an_unknown_transaction_is_needed_to_look_for_an_owner() -> None:
    seen = found({"a": [1, 2]}, [2])
    assert owners_of_unknown(seen, {}, [2]) == {}


@pytest.mark.parametrize("seed", [101, 333])
def test_files_that_wrong_choices_leave_incomplete_are_alike(seed: int) -> None:
    """There are too many ways to give these transactions to files; no line of them is missing."""
    order = random.Random(seed)
    files = {str(at): [order.randint(0, order.choice([1, 6])) for _ in range(30)] for at in range(10)}
    seen = found(files, *interleaved(files, order))
    left = {name for name, count in seen.left.items() if count}
    assert left
    assert left <= seen.alike
