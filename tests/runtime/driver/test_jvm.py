"""The event loop never waits for the JVM, and two calls never run at once."""

import asyncio
import threading
from contextlib import suppress

import pytest

from runtime.driver.process import JvmCalls, JvmSilent


def test_a_silent_jvm_is_said_and_asked_again_after_the_call_that_hangs() -> None:
    answers, under_way, at_once = threading.Event(), 0, 0

    def hangs() -> int:
        nonlocal under_way, at_once
        under_way += 1
        at_once = max(at_once, under_way)
        answers.wait(60)
        under_way -= 1
        return 7

    async def work() -> None:
        loop, jvm = asyncio.get_running_loop(), JvmCalls(within_s=0.05)
        turns = 0

        def turn() -> None:
            nonlocal turns
            turns += 1
            loop.call_soon(turn)

        turn()
        for _ in range(3):
            with pytest.raises(JvmSilent, match=r"0\.05 s \(cores\)"):
                await jvm.call("cores", hangs)
        assert turns > 3
        answers.set()
        async with asyncio.timeout(30):  # on a busy machine even a call that answers may need more than 50 ms
            while True:
                with suppress(JvmSilent):
                    assert await jvm.call("cores", hangs) == 7
                    return

    asyncio.run(work())
    assert at_once == 1


def test_what_the_call_raises_reaches_the_caller() -> None:
    def refuses() -> None:
        raise TimeoutError("of its own")

    with pytest.raises(TimeoutError, match="of its own"):
        asyncio.run(JvmCalls().call("cores", refuses))


def test_the_failure_of_an_abandoned_call_is_no_one_elses() -> None:
    go = threading.Event()

    def fails() -> None:
        go.wait(60)
        raise OSError("the JVM is gone")

    async def work() -> int:
        jvm = JvmCalls(within_s=0.05)
        with pytest.raises(JvmSilent):
            await jvm.call("to cancel", fails)
        go.set()
        return await jvm.call("cores", lambda: 3)

    assert asyncio.run(work()) == 3
