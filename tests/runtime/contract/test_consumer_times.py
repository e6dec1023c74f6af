"""Consumer timestamps: written is read; a group goes by a commit at or before its own, never later."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.contract.records.group_records import (
    ConsumerTimes,
    OffsetTimestamp,
    TimesKey,
    UnreadableTimes,
    decode_times,
    decode_times_key,
    encode_times,
    encode_times_key,
    partition_of,
)

KEY = TimesKey("dc1-to-dc2", "billing", "orders", 3)
TIMES = ConsumerTimes((OffsetTimestamp(30, 300), OffsetTimestamp(10, 100), OffsetTimestamp(20, 250)), 5)


def test_round_trip() -> None:
    assert decode_times_key(encode_times_key(KEY)) == KEY
    assert decode_times(encode_times(TIMES)) == TIMES


def test_keys_never_change() -> None:
    assert encode_times_key(KEY) == b'["timestamp","dc1-to-dc2","billing","orders",3]'
    assert partition_of(KEY, 8) == partition_of(KEY, 8) < 8


@pytest.mark.parametrize("stored", [None, b"", b"[]", b'["later","f"]', b"\xff"])
def test_an_unknown_key_is_ignored(stored: bytes | None) -> None:
    assert decode_times_key(stored) is None


@pytest.mark.parametrize("value", [b"", b"\x02", b"\x01nothing"])
def test_an_unknown_value_is_no_guess(value: bytes) -> None:
    with pytest.raises(UnreadableTimes):
        decode_times(value)


@pytest.mark.parametrize(("offset", "timestamp"), [(9, None), (10, 100), (19, 100), (25, 250), (99, 300)])
def test_the_nearest_commit_that_is_not_later(offset: int, timestamp: int | None) -> None:
    assert TIMES.time_of(offset) == timestamp


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50))), st.integers(1, 5))
def test_no_more_than_so_many_and_each_commit_once(commits: list[tuple[int, int]], most: int) -> None:
    times = ConsumerTimes((), 0)
    for offset, timestamp in commits:
        times = times.later(OffsetTimestamp(offset, timestamp), most, 7)
        assert times.has(offset)
        assert times.time_of(offset) == timestamp
    offsets = [moment.offset for moment in times.moments]
    assert len(offsets) == len(set(offsets)) <= most
