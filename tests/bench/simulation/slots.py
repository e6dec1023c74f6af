"""The process that stands for the slots of a job: it takes assignments and sends reports, and copies nothing.

python -m tests.bench.simulation.slots

Each line of input is a slot's start request, encoded by the driver and then as base64. After each change it
prints how many partitions its slots have. It ends with its input, as slots end with their driver.
"""

from __future__ import annotations

import asyncio
import base64
import os
import sys
import time
from contextlib import suppress

import uvloop

from runtime.contract.records import control, job_status
from runtime.contract.records.control import Assignment
from runtime.contract.records.job_status import (
    FlowStats,
    PartitionState,
    PartitionStatus,
    SlotHeartbeat,
    SlotReport,
    StatusKey,
)
from runtime.contract.spec import naming
from runtime.driver.slots.channel import TopicTail, post
from runtime.driver.slots.ticket import SlotStartRequest, decode
from runtime.driver.slots.worker import report_interval_s
from runtime.kafka.cluster import KafkaCluster, opened
from runtime.kafka.errors import WireError
from runtime.kafka.records import InternalRecord
from tests.bench.simulation.contents import RECORDS

_RETRY_S, _HEARTBEAT_S = 0.5, 1.0
_LONGEST_LINE = 64 << 20


class StandInSlot:
    """Reports the partitions of its newest assignment as copied to their ends."""

    def __init__(self, request: SlotStartRequest) -> None:
        self.number = request.spec.slot
        self._request = request
        self._assigned = asyncio.Event()
        self._taken: Assignment = request.first
        self._since_ms = int(time.time() * 1000)

    @property
    def partitions(self) -> int:
        """How many partitions the slot has."""
        return len(self._taken.partitions)

    def take(self, assignment: Assignment) -> None:
        """Takes an assignment, and reports at once if it takes partitions away, as a slot does."""
        kept = {partition.key for partition in assignment.partitions}
        if any(partition.key not in kept for partition in self._taken.partitions):
            self._assigned.set()
        self._taken = assignment

    async def send_heartbeats(self, cluster: KafkaCluster) -> None:
        """Sends a heartbeat each second until cancelled."""
        key = job_status.encode_key(StatusKey("slot_heartbeat", self._request.spec.job, self.number))
        value = job_status.encode(SlotHeartbeat(self._request.driver, self._request.attempt))
        while True:
            with suppress(WireError):
                await post(cluster, naming.STATUS, [InternalRecord(key, value)], "heartbeat")
            await asyncio.sleep(_HEARTBEAT_S)

    async def report(self, cluster: KafkaCluster) -> None:
        """Reports until cancelled."""
        key = job_status.encode_key(StatusKey("slot", self._request.spec.job, self.number))
        while True:
            self._assigned.clear()
            try:
                await post(cluster, naming.STATUS, [InternalRecord(key, job_status.encode(self._report()))])
            except WireError:
                await asyncio.sleep(_RETRY_S)
                continue
            with suppress(TimeoutError):
                # A slot that copies heartbeats always has something new to report.
                async with asyncio.timeout(report_interval_s(self.partitions)):
                    await self._assigned.wait()

    def _report(self) -> SlotReport:
        now_ms = int(time.time() * 1000)
        partitions = [
            PartitionStatus(
                flow=one.flow,
                topic=one.topic,
                partition=one.partition,
                state=PartitionState.CAUGHT_UP,
                since_ms=self._since_ms,
                position=RECORDS,
                destination_end=RECORDS,
                source_start=0,
                source_end=RECORDS,
                source_high_watermark=RECORDS,
                last_fetch_ms=now_ms - hash(one.key) % 1000,
                caught_up_since_ms=self._since_ms,
            )
            for one in self._taken.partitions
        ]
        return SlotReport(
            slot=self.number,
            at_ms=now_ms,
            assignment=self._taken.version,
            driver=self._request.driver,
            attempt=self._request.attempt,
            process=os.getpid(),
            flows=[FlowStats(flow=name) for name in self._taken.flows],
            partitions=partitions,
        )


class _Slots:
    """All slots of the job."""

    def __init__(self) -> None:
        self._by_key: dict[bytes, StandInSlot] = {}
        self._running: list[asyncio.Task[None]] = []
        self._cluster: KafkaCluster | None = None
        self._early: dict[bytes, Assignment] = {}

    async def start(self, request: SlotStartRequest) -> None:
        """Starts a slot."""
        spec = request.spec
        if self._cluster is None:
            self._cluster = await opened(spec.destination, spec.cluster, os.environ)
            tail = TopicTail(self._cluster, naming.CONTROL, request.control_offset)
            self._running.append(asyncio.create_task(self._listen(tail)))
        slot = StandInSlot(request)
        key = control.slot_key(spec.job, spec.slot)
        self._by_key[key] = slot
        if (early := self._early.pop(key, None)) is not None and early.version > request.first.version:
            slot.take(early)
        self._running.append(asyncio.create_task(slot.report(self._cluster)))
        self._running.append(asyncio.create_task(slot.send_heartbeats(self._cluster)))
        self._tell()

    async def _listen(self, tail: TopicTail) -> None:
        async for record in tail.records():
            if record.key is None or record.value is None:
                continue
            message = control.decode_slot_message(record.value)
            if isinstance(message, control.Assign):
                slot = self._by_key.get(record.key)
                if slot is None:
                    self._early[record.key] = message.assignment
                else:
                    slot.take(message.assignment)
                self._tell()

    def _tell(self) -> None:
        print(sum(slot.partitions for slot in self._by_key.values()), flush=True)


async def _run() -> None:
    lines = asyncio.StreamReader(limit=_LONGEST_LINE)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    slots = _Slots()
    while line := await lines.readline():
        await slots.start(decode(base64.b64decode(line)))


def main() -> int:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
