"""A workflow is called, or awaited by another one. Ctrl-C ends it anywhere, and closes what it holds."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager

import pytest

from planner.workflows.edge import Workflow


@Workflow
async def double(number: int) -> int:
    """Doubles a number."""
    await asyncio.sleep(0)
    return 2 * number


@Workflow
async def quadruple(number: int) -> int:
    return await double.coroutine(await double.coroutine(number))


def test_a_call_runs_everything_that_it_awaits_in_one_loop() -> None:
    assert quadruple(3) == 12
    assert double.__doc__ == "Doubles a number."


async def prompt() -> None:
    signal.raise_signal(signal.SIGINT)
    time.sleep(10)


async def wait() -> None:
    asyncio.get_running_loop().call_later(0.05, signal.raise_signal, signal.SIGINT)
    await asyncio.sleep(10)


@pytest.mark.parametrize("work", [prompt, wait])
def test_ctrl_c_ends_it_at_once_and_closes_what_it_holds(
    work: Callable[[], Coroutine[None, None, None]],
) -> None:
    events: list[str] = []

    @asynccontextmanager
    async def lease() -> AsyncIterator[None]:
        events.append("held")
        try:
            yield
        finally:
            await asyncio.sleep(0)  # the release is a request
            events.append("released")

    @Workflow
    async def interrupted() -> None:
        async with lease():
            await work()

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert events == ["held", "released"]
    assert time.monotonic() - began < 5
