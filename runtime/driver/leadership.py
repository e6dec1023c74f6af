"""This module sends the driver's heartbeat, which is also the condition for each of its actions (R10)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from runtime.contract.records import job_status
from runtime.contract.records.job_status import JobKey, JobStatus
from runtime.contract.spec import naming
from runtime.driver.slots.channel import at
from runtime.kafka.errors import WireError
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.ledger.records import InternalRecord
from runtime.slot.log import log_event

EVERY_S = 1.0
FRESH_S = 3.0


def clock_with_sleep() -> float:
    """Returns a clock in seconds that continues while the process is stopped and while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class HeartbeatWriter(Protocol):
    """A heartbeat needs this method of the driver's transactional writer."""

    async def commit_status(self, at: TopicPartition, records: Sequence[InternalRecord]) -> None: ...


class Leadership:
    """A heartbeat commits the job's status under the driver's transactional id.

    Each duty first confirms that a heartbeat was committed seconds ago, so this process was the job's driver
    then (R10).
    """

    def __init__(
        self,
        writer: HeartbeatWriter,
        status: Callable[[], JobStatus],
        clock: Callable[[], float] = clock_with_sleep,
    ) -> None:
        self._writer = writer
        self._status = status
        self._clock = clock
        self._beat_at = float("-inf")
        self._beating = asyncio.Lock()
        self.trouble = ""

    @property
    def age_s(self) -> float:
        """The seconds since the start of the last committed heartbeat; infinite before the first one."""
        return self._clock() - self._beat_at

    async def ensure(self) -> None:
        """Returns once the last heartbeat is fresh, and sends one if needed.

        Raises DriverFenced when another driver runs the job, and WireError when leadership can't be confirmed
        now; the caller then does nothing.
        """
        if self._clock() - self._beat_at > FRESH_S:
            await self.send_heartbeat()

    async def send_heartbeat(self) -> None:
        """Commits one heartbeat. Raises DriverFenced, WireError."""
        status = self._status()
        record = InternalRecord(job_status.encode_key(JobKey(status.job)), job_status.encode(status))
        async with self._beating:
            began = self._clock()
            await self._writer.commit_status(at(naming.STATUS), [record])
            self._beat_at = began

    async def run(self) -> None:
        """Sends heartbeats until cancelled. Raises DriverFenced."""
        while True:
            try:
                await self.send_heartbeat()
                self.trouble = ""
            except WireError as error:
                self.trouble = str(error)
                log_event(
                    "heartbeat_failed", error=self.trouble, age_s=round(self.age_s, 1), decision="retry"
                )
            await asyncio.sleep(EVERY_S)
