"""The driver's heartbeat, which is also what allows it to act (R10)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from runtime.contract import job_status, naming
from runtime.contract.job_status import JobKey, JobStatus
from runtime.copy.records import Record
from runtime.copy.wire.errors import WireError
from runtime.driver.channel import at
from runtime.driver.writer import DriverWriter

EVERY_S = 1.0
FRESH_S = 3.0


def awake() -> float:
    """Seconds that go on while the process is stopped and while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Pulse:
    """`still` before each duty: it returns only when this was the job's driver seconds ago."""

    def __init__(self, writer: DriverWriter, status: Callable[[], JobStatus]) -> None:
        self._writer = writer
        self._status = status
        self._beat_at = float("-inf")
        self._beating = asyncio.Lock()
        self.trouble = ""

    async def still(self) -> None:
        """Raises DriverFenced for good, WireError when it can't be known now: then nothing is done."""
        if awake() - self._beat_at > FRESH_S:
            await self.beat()

    async def beat(self) -> None:
        status = self._status()
        record = Record(job_status.encode_key(JobKey(status.job)), job_status.encode(status))
        async with self._beating:
            began = awake()
            await self._writer.beat(at(naming.STATUS), [record])
            self._beat_at = began

    async def run(self) -> None:
        """Until cancelled; raises DriverFenced."""
        while True:
            try:
                await self.beat()
                self.trouble = ""
            except WireError as error:
                self.trouble = str(error)
            await asyncio.sleep(EVERY_S)
