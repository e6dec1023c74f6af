"""How a slot and its end of the channel end together."""

import asyncio

import pytest

from runtime.driver.task import SlotResult, run_with_channel
from runtime.slot import log
from runtime.slot.slot import SlotEnd, Stopped


class Copying:
    """A slot that copies until it is stopped."""

    def __init__(self) -> None:
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> SlotEnd:
        await self._stopping.wait()
        return Stopped()


class Broken:
    async def run(self) -> None:
        raise ZeroDivisionError("a programming error")


class Stopping:
    """A driver that says stop."""

    def __init__(self, slot: Copying) -> None:
        self._slot = slot

    async def run(self) -> None:
        self._slot.stop()
        await asyncio.Event().wait()


def test_a_channel_that_fails_fails_the_slot_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> SlotResult:
        return await asyncio.wait_for(run_with_channel(Copying(), Broken()), 60)  # type: ignore[arg-type]

    assert asyncio.run(work()) == SlotResult("failed", "ZeroDivisionError: a programming error")
    (line,) = caplog.records
    assert line.getMessage() == "slot_failed"
    assert "in run\n" in str(log.fields_of(line)["traceback"])


def test_a_slot_that_was_told_to_stop_has_stopped() -> None:
    async def work() -> SlotResult:
        slot = Copying()
        return await asyncio.wait_for(run_with_channel(slot, Stopping(slot)), 60)  # type: ignore[arg-type]

    assert asyncio.run(work()) == SlotResult("stopped")
