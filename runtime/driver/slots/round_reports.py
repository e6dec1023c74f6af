"""Reports flows that copy in rounds, without slots. Each is shown as one slot.

Its partitions are reported as those of a slot are, so that status and metrics read one kind of report.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Any

from runtime.contract.records import job_status
from runtime.contract.records.job_status import SlotReport, SlotView, StatusKey
from runtime.contract.spec import naming
from runtime.driver.flows.flow import DriverFlow
from runtime.driver.flows.rounds import RoundCopier
from runtime.driver.flows.start import DriverContext
from runtime.driver.slots.channel import post
from runtime.kafka.errors import WireError
from runtime.kafka.records import InternalRecord

_EVERY_S = 1.0
_REPEAT_MS = 5_000  # an unchanged report is repeated: its age shows whether the flow is alive


class RoundReports:
    """Reports the flows of a job without slots, each under a number of its own.

    A flow keeps its number while the job has it: what a slot has counted goes by its number.
    """

    def __init__(
        self,
        context: DriverContext,
        flows: Callable[[], Iterable[DriverFlow]],
        on_report: Callable[[SlotReport], None],
    ) -> None:
        self.reports: dict[int, SlotReport] = {}
        self._context = context
        self._flows = flows
        self._on_report = on_report
        self._names: dict[int, str] = {}
        self._sent: dict[int, SlotReport] = {}

    def views(self) -> list[SlotView]:
        """Returns the status of each flow as that of a slot."""
        return [copier.view(number) for number, copier in self._copiers().items()]

    def _copiers(self) -> dict[int, RoundCopier[Any]]:
        """Returns the copiers by their numbers. A flow that is new gets the first number that is free."""
        copiers = {flow.name: flow.copier for flow in self._flows() if isinstance(flow.copier, RoundCopier)}
        self._names = {number: name for number, name in self._names.items() if name in copiers}
        for name in sorted(copiers.keys() - self._names.values()):
            free = next(number for number in range(len(copiers)) if number not in self._names)
            self._names[free] = name
        return {number: copiers[name] for number, name in sorted(self._names.items())}

    async def run(self) -> None:
        """Sends reports until cancelled; what could not be sent is sent with the next ones."""
        while True:
            await self.report_once()
            await asyncio.sleep(_EVERY_S)

    async def report_once(self) -> None:
        """Sends the status of each flow when it changed, and at least every five seconds.

        The report of a flow that has left the job is deleted. One that can't be sent does not hold up those
        of other flows (R7).
        """
        copiers = self._copiers()
        self.reports = {
            number: copier.report(self._context.driver, number) for number, copier in copiers.items()
        }
        for report in self.reports.values():
            self._on_report(report)
        for number in self._sent.keys() - self.reports.keys():
            with contextlib.suppress(WireError):
                await self._send(number, None)
                del self._sent[number]
        for number, report in self.reports.items():
            sent = self._sent.get(number)
            if (
                sent is None
                or report.at_ms - sent.at_ms >= _REPEAT_MS
                or (report.flows, report.partitions) != (sent.flows, sent.partitions)
            ):
                with contextlib.suppress(WireError):
                    await self._send(number, job_status.encode(report))
                    self._sent[number] = report

    async def _send(self, number: int, value: bytes | None) -> None:
        await self._context.leadership.ensure()
        key = job_status.encode_key(StatusKey("slot", self._context.job, number))
        await post(self._context.destination, naming.STATUS, [InternalRecord(key, value)])
