"""Reports flows that copy in rounds, without slots. Each is shown as one slot.

Its partitions are reported as those of a slot are, so that status and metrics read one kind of report.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from runtime.contract.records import job_status
from runtime.contract.records.job_status import SlotReport, SlotStatus, SlotView, StatusKey
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec import naming
from runtime.driver.flows.flow import DriverFlow
from runtime.driver.flows.rounds import RoundCopier
from runtime.driver.slots.channel import UnreadableRecordCounter, post
from runtime.driver.slots.manager import partitions_in_loss
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import WireError
from runtime.kafka.records import InternalRecord
from runtime.kafka.timing import BackgroundTasks

_EVERY_S = 1.0
_REPEAT_MS = 5_000  # an unchanged report is repeated: its age shows whether the flow is alive


class RoundReports:
    """A RoundReports object reports the flows of a job without slots, in the order of their names."""

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
        return [copier.view(number) for number, copier in enumerate(self._copiers())]

    def stopped_by_loss(self) -> list[PartitionKey]:
        """Returns the partitions that stopped because of data loss."""
        return partitions_in_loss(self.reports.values())

    async def stop(self) -> None:
        """Does nothing: a round ends with its flow, and what it has not committed is not visible."""

    def _copiers(self) -> list[RoundCopier[Any]]:
        copiers = [flow.copier for flow in sorted(self._flows(), key=lambda flow: flow.name)]
        return [copier for copier in copiers if isinstance(copier, RoundCopier)]

    async def _report(self) -> None:
        """Sends the status of each flow when it changed, and at least every five seconds."""
        while True:
            for number, copier in enumerate(self._copiers()):
                report = copier.report(self._driver, number)
                self.reports[number] = report
                self._on_report(report)
                if self._is_due(number, report.status):
                    key = job_status.encode_key(StatusKey("slot", self._job, number))
                    record = InternalRecord(key, job_status.encode(report))
                    try:
                        await post(self._cluster, naming.STATUS, [record])
                    except WireError:
                        continue
                    self._sent[number] = report.status
            await asyncio.sleep(_EVERY_S)

    def _is_due(self, number: int, status: SlotStatus) -> bool:
        sent = self._sent.get(number)
        if sent is None or status.at_ms - sent.at_ms >= _REPEAT_MS:
            return True
        return (status.flows, status.partitions) != (sent.flows, sent.partitions)
