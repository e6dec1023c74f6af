"""Groups are read several at a time by a live drill."""

import threading

import pytest

from planner.drill.live import AT_ONCE, at_once


def test_several_are_read_at_the_same_time_and_stay_in_order() -> None:
    together = threading.Barrier(AT_ONCE, timeout=60)

    def read(number: int) -> int:
        together.wait()
        return number * 2

    assert at_once(read, range(2 * AT_ONCE)) == [number * 2 for number in range(2 * AT_ONCE)]


def test_a_failure_leaves_out_what_has_not_begun() -> None:
    begun: list[int] = []

    def read(number: int) -> int:
        begun.append(number)
        raise ValueError(number)

    with pytest.raises(ValueError, match="0"):
        at_once(read, range(1_000))
    assert len(begun) < 1_000


def test_nothing_is_read_of_nothing() -> None:
    assert at_once(str, []) == []
