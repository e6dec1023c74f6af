"""R8: memory is bounded by what is held; a rate is kept on average and does not burst."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.slot.budget import ByteBudget, ResponseMemory, SessionShares, TokenBucket


def test_a_response_is_given_back_with_its_last_view() -> None:
    budget = ByteBudget(100)
    budget.take(60)
    held = ResponseMemory(budget, 60)
    first, second = held.view(), held.view()
    first.release_memory()
    assert budget.left == 40
    second.release_memory()
    assert budget.left == 100


def test_a_fetch_waits_for_room_in_the_budget() -> None:
    async def wait() -> list[str]:
        budget, seen = ByteBudget(100), list[str]()
        budget.take(90)

        async def reader() -> None:
            await budget.wait_for_room(50)
            seen.append("room")

        task = asyncio.create_task(reader())
        await asyncio.sleep(0)
        budget.give(20)
        await asyncio.sleep(0)
        seen.append("not yet")
        budget.give(30)
        await task
        return seen

    assert asyncio.run(wait()) == ["not yet", "room"]


def test_a_batch_larger_than_the_budget_still_comes() -> None:
    async def wait() -> int:
        budget = ByteBudget(100)
        await budget.wait_for_room(1_000)
        budget.take(1_000)
        return budget.left

    assert asyncio.run(wait()) == -900


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("piece", [1, 100, 5_000])
def test_the_rate_is_kept_for_pieces_of_any_size(piece: int) -> None:
    clock = Clock()
    bucket = TokenBucket(1_000, clock)
    taken = 0
    while clock.now < 60:
        wait = bucket.wait_s()
        if wait > 0:
            clock.now += max(wait, 0.000_001)
            continue
        bucket.take(piece)
        taken += piece
        clock.now += 0.000_001
    assert taken == pytest.approx(60_000, rel=0.01, abs=2 * piece)
    assert bucket.throttled_s == pytest.approx(60, rel=0.1)


def test_an_idle_flow_does_not_burst_later() -> None:
    clock = Clock()
    bucket = TokenBucket(1_000, clock)
    clock.now = 3_600
    bucket.take(300)
    assert bucket.wait_s() == pytest.approx(0.1)


def test_without_a_rate_nothing_waits() -> None:
    clock = Clock()
    bucket = TokenBucket(None, clock)
    bucket.take(1 << 40)
    assert bucket.wait_s() == 0
    bucket.set_rate(10)
    bucket.take(20)
    assert bucket.wait_s() == pytest.approx(2)


def shared_by(sessions: int, memory: int) -> SessionShares:
    shares = SessionShares(ByteBudget(memory))
    for _ in range(sessions + 1):
        shares.join()
    shares.leave()
    return shares


@given(st.integers(0, 5_000), st.integers(1, 1 << 30))
def test_waiting_fetches_of_all_sessions_leave_half_of_the_memory(sessions: int, memory: int) -> None:
    least = shared_by(sessions, memory).least_bytes()

    assert 1 <= least <= 512 << 10
    assert least == 1 or sessions * least <= memory // 2
