"""Where the mirror's last record is at the source, around the stored position."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.audit.partition_logs import FetchedRecord
from runtime.audit.predecessor.alignment import TailSearch

NO_PRODUCER = -1


def record(offset: int, value: bytes, header: bytes | None = None, timestamp: int = 1_000) -> FetchedRecord:
    headers = () if header is None else (("origin", header),)
    return FetchedRecord(0, offset, timestamp, None, value, headers, NO_PRODUCER)


def log(values: Iterable[str], start: int = 0) -> list[FetchedRecord]:
    return [record(start + at, value.encode()) for at, value in enumerate(values)]


def searched(source: list[FetchedRecord], tail: list[FetchedRecord], stored: int) -> int | None:
    """In two parts, as fetches give them."""
    search = TailSearch(tail, stored)
    search.read(source[:3])
    search.read(source[3:])
    return search.result()


@pytest.mark.parametrize(
    ("source", "mirror", "stored", "found"),
    [
        ("abcdef", "abc", 3, 3),  # stopped cleanly
        ("abcdef", "abcde", 3, 5),  # killed after it had copied more than it stored
        ("abcdef", "ab", 3, 2),  # the mirror has lost its end
        ("abcdef", "abcdef", 0, 6),  # killed before it stored anything
        ("abcdef", "xyz", 3, None),  # another producer
        ("abcabc", "abc", 3, 3),  # the same records again: the stored position comes first
        ("abcdabcdabcd", "abcdabcd", 6, 8),  # the first place behind it
        ("abcabxabc", "aabx", 3, 6),  # the last record alone, where it is unique
        ("axbxcx", "ddx", 1, None),  # the last record alone, and it is not unique
        ("axbxcx", "ddx", 4, 4),  # unless it is the one at the stored position
        ("", "abc", 0, None),
    ],
)
def test_the_next_offset(source: str, mirror: str, stored: int, found: int | None) -> None:
    assert searched(log(source), log(mirror, start=100)[-5:], stored) == found


def test_a_gap_before_the_position_belongs_to_it() -> None:
    """The last records below the position were removed at the source, or are markers of transactions."""
    assert searched(log("abc"), log("abc"), 7) == 7
    assert searched([*log("abc"), *log("def", start=9)], log("abc"), 7) == 7


def test_a_copy_may_have_more_headers_and_no_other_timestamp() -> None:
    source = [record(0, b"a", header=b"x"), record(1, b"b")]
    assert searched(source, [record(9, b"a", header=b"x")], 0) == 1
    assert searched(source, [record(9, b"b", header=b"added")], 0) == 2
    assert searched(source, [record(9, b"a")], 0) is None
    assert searched(source, [record(9, b"b", timestamp=2_000)], 0) is None


@given(st.integers(1, 60), st.data())
def test_different_records_are_always_found(count: int, data: st.DataObject) -> None:
    source = log([f"{at}" for at in range(count)])
    copied = data.draw(st.integers(1, count))
    stored = data.draw(st.integers(0, count))
    assert searched(source, source[max(0, copied - 5) : copied], stored) == copied
