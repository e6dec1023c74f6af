"""Limits, and work that is shared by all who wait for it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from runtime.kafka.errors import Disconnected, TimedOut
from runtime.kafka.timing import RetryDeadline, Shared, in_own_thread, in_time, jittered


def test_what_is_not_done_in_time_was_not_sent() -> None:
    with pytest.raises(TimedOut, match=r"connecting: not done in 0.01 s") as failure:
        asyncio.run(in_time(asyncio.sleep(60), 0.01, "connecting"))
    assert not failure.value.sent


async def test_a_retry_deadline_counts_from_the_first_failure_and_anew_where_more_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, now = asyncio.get_running_loop(), 100.0
    monkeypatch.setattr(loop, "time", lambda: now)
    deadline = RetryDeadline(10)

    def over_at(seconds: float, done: int | None = None) -> bool:
        nonlocal now
        now = seconds
        if done is not None:
            deadline.advance(done)
        return deadline.over()

    assert [over_at(at) for at in (500, 510, 511)] == [False, False, True]
    deadline.extend(5)
    assert [over_at(at) for at in (515, 516)] == [False, True]
    deadline.renew()
    deadline.extend(5)
    assert [over_at(at) for at in (900, 910, 911)] == [False, False, True]
    deadline = RetryDeadline(10)
    found = [over_at(*one) for one in ((500, 0), (511, 0), (512, 7), (522, 7), (523, 7), (524, 6), (525, 8))]
    assert found == [False, True, False, False, True, True, False]
    monkeypatch.undo()


def test_pauses_differ_and_stay_near() -> None:
    pauses = {jittered(1.0) for _ in range(100)}

    assert len(pauses) > 50
    assert all(0.5 <= pause <= 1.0 for pause in pauses)


async def test_all_who_wait_get_the_one_outcome_and_the_next_asks_anew() -> None:
    begun: list[int] = []

    async def work() -> int:
        begun.append(len(begun))
        await asyncio.sleep(0.01)
        if len(begun) == 1:
            raise Disconnected("broker 1", "refused", sent=False)
        return len(begun)

    shared: Shared[int] = Shared()
    outcomes = await asyncio.gather(*(shared.run(work) for _ in range(5)), return_exceptions=True)
    assert all(isinstance(outcome, Disconnected) for outcome in outcomes)
    assert await shared.run(work) == 2
    assert begun == [0, 1]


async def test_a_caller_that_gives_up_leaves_the_work_to_the_others() -> None:
    async def work() -> str:
        await asyncio.sleep(0.05)
        return "done"

    shared: Shared[str] = Shared()
    patient = asyncio.ensure_future(shared.run(work))
    with pytest.raises(TimedOut):
        await in_time(shared.run(work), 0.01, "waiting")
    assert await patient == "done"


async def test_stopping_ends_the_work() -> None:
    shared: Shared[None] = Shared()
    await shared.stop()
    waiting = asyncio.ensure_future(shared.run(lambda: asyncio.sleep(60)))
    await asyncio.sleep(0)
    await shared.stop()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_thread_of_its_own_gives_its_outcome_and_outlives_a_caller_that_is_cancelled() -> None:
    ended = threading.Event()

    def work() -> str:
        ended.wait(10)
        return threading.current_thread().name

    def fail() -> None:
        raise TimedOut("b:1", "no answer", sent=False)

    assert await in_own_thread(lambda: 7) == 7
    with pytest.raises(TimedOut):
        await in_own_thread(fail)
    waiting = asyncio.ensure_future(in_own_thread(work))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    ended.set()
