"""This module stands for the slots of a job into files: each of its flows is shown as one slot.

The flows run their rounds themselves. Their partitions are reported as those of a slot are, so that status
and metrics read one kind of report.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from runtime.contract.records import job_status
from runtime.contract.records.job_status import SlotKey, SlotReport, SlotStatus, SlotView
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec import naming
from runtime.driver.flows.files import FileFlow
from runtime.driver.flows.flow import DriverFlow
from runtime.driver.slots.channel import UnreadableRecordCounter, post
from runtime.driver.slots.manager import partitions_in_loss
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import WireError
from runtime.kafka.timing import BackgroundTasks
from runtime.ledger.records import InternalRecord

_EVERY_S = 1.0
_REPEAT_MS = 5_000  # an unchanged report is repeated: its age shows whether the flow is alive


class FileSlots:
    """A FileSlots reports the flows of a job into files, in the order of their names."""

    def __init__(
        self,
        job: str,
        driver: str,
        cluster: KafkaCluster,
        flows: Callable[[], Iterable[DriverFlow]],
        tasks: BackgroundTasks,
        on_report: Callable[[SlotReport], None],
    ) -> None:
        self.reports: dict[int, SlotReport] = {}
        self.jvm_trouble = ""
        self.skipped = UnreadableRecordCounter(naming.STATUS)
        self._job = job
        self._driver = driver
        self._cluster = cluster
        self._flows = flows
        self._tasks = tasks
        self._on_report = on_report
        self._sent: dict[int, SlotStatus] = {}

    def start(self, _status_offset: int) -> None:
        """Starts the reports."""
        self._tasks.spawn(self._report(), "report")

    def changed(self) -> None:
        """Does nothing: the flows see for themselves what they copy."""

    def views(self) -> list[SlotView]:
        """Returns the status of each flow as that of a slot."""
        return [
            SlotView(
                slot=number,
                state="idle" if not flow.copies else "waiting" if flow.why else "running",
                since_ms=flow.since_ms,
                attempts=flow.rounds,
                partitions=len(flow.partitions),
                why=flow.why,
            )
            for number, flow in enumerate(self._file_flows())
        ]

    def stopped_by_loss(self) -> list[PartitionKey]:
        """Returns the partitions that stopped because of data loss."""
        return partitions_in_loss(self.reports.values())

    async def stop(self) -> None:
        """Does nothing: a round ends with its flow, and what it has not committed is not visible."""

    def _file_flows(self) -> list[FileFlow]:
        flows = [flow for flow in self._flows() if isinstance(flow, FileFlow)]
        return sorted(flows, key=lambda flow: flow.name)

    async def _report(self) -> None:
        """Sends the status of each flow when it changed, and at least every five seconds."""
        while True:
            for number, flow in enumerate(self._file_flows()):
                status = flow.slot_status(number)
                report = SlotReport(self._driver, flow.rounds, status)
                self.reports[number] = report
                self._on_report(report)
                if self._is_due(number, status):
                    key = job_status.encode_key(SlotKey(self._job, number))
                    try:
                        await post(
                            self._cluster, naming.STATUS, [InternalRecord(key, job_status.encode(report))]
                        )
                    except WireError:
                        continue
                    self._sent[number] = status
            await asyncio.sleep(_EVERY_S)

    def _is_due(self, number: int, status: SlotStatus) -> bool:
        sent = self._sent.get(number)
        if sent is None or status.at_ms - sent.at_ms >= _REPEAT_MS:
            return True
        return (status.flows, status.partitions) != (sent.flows, sent.partitions)
