"""An exception in a callback fails the slot: the loop alone would log it and go on."""

import asyncio

import pytest

from runtime.contract.records.control import Assignment
from runtime.kafka.timing import callback_failures
from runtime.slot.slot import Slot
from tests.runtime.slot.world import SLOT


def broken() -> None:
    raise ZeroDivisionError("a programming error")


async def test_a_callback_that_fails_is_logged_with_its_traceback_and_passed_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found: list[BaseException] = []

    loop = asyncio.get_running_loop()
    with callback_failures(found.append):
        loop.call_soon(broken)
        loop.call_exception_handler({"message": "a transport broke", "exception": OSError("reset")})
        await asyncio.sleep(0)
    loop.call_soon(broken)  # is not this block's any more
    await asyncio.sleep(0)
    assert [type(one) for one in found] == [ZeroDivisionError]
    assert "in broken" in caplog.text


def test_a_callback_that_fails_ends_the_slot() -> None:
    async def work() -> None:
        asyncio.get_running_loop().call_later(0.05, broken)
        await asyncio.wait_for(Slot(SLOT, Assignment(1), {}).run(), 60)

    with pytest.raises(ZeroDivisionError):
        asyncio.run(work())
