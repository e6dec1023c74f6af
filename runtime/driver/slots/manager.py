"""This module manages all slots of a job: it sends them their assignments and reads their reports."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from runtime.contract.records import job_status
from runtime.contract.records.control import AssignedFlow
from runtime.contract.records.job_status import (
    PartitionState,
    SlotKey,
    SlotReport,
    SlotView,
)
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.records.record_values import UnreadableValue
from runtime.contract.spec import naming
from runtime.contract.spec.flow import ConfigsSpec, Earliest, GroupsSpec
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.selection import SelectionSpec
from runtime.driver.flows.flow import DriverFlow
from runtime.driver.process import JvmSilent
from runtime.driver.slots.channel import TopicTail, UnreadableRecordCounter
from runtime.driver.slots.membership import PartitionRates
from runtime.driver.slots.supervisor import DriverContext, SlotSupervisor
from runtime.kafka.errors import WireError
from runtime.kafka.records import StoredRecord
from runtime.kafka.timing import BackgroundTasks
from runtime.slot.log import log_driver_message

_LEVEL_S = 30.0
_INSPECT_S = 1.0
_CORE_TIMEOUT_S = 10.0  # how long a slot may wait for a core
_RELEASE_TIMEOUT_S = 45.0  # a slot that does not release a partition by then is restarted
_PAUSE_S = 0.5
_REPORTS_SHARE = 0.2  # of the event loop's time, for the reports of slots with very many partitions


class SlotManager:
    """A SlotManager owns the slots of a job and the newest report of each slot."""

    def __init__(
        self,
        slots: int,
        context: DriverContext,
        flows: Callable[[], Iterable[DriverFlow]],
        tasks: BackgroundTasks,
        on_report: Callable[[SlotReport], None],
    ) -> None:
        self.supervisors = [SlotSupervisor(slot, context) for slot in range(slots)]
        self.reports: dict[int, SlotReport] = {}
        self._context = context
        self._flows = flows
        self._tasks = tasks
        self._on_report = on_report
        self.jvm_trouble = ""
        self._changed = asyncio.Event()
        self._rates = PartitionRates()
        self._unread: dict[int, StoredRecord] = {}
        self._arrived = asyncio.Event()
        self._releasing_since: dict[int, float] = {}
        self._without_core_since: dict[int, float] = {}
        self.skipped = UnreadableRecordCounter(naming.STATUS)

    def start(self, status_offset: int) -> None:
        """Starts the slots and the tasks of this manager.

        The tasks assign partitions, read reports, inspect slots and level loads.
        """
        for supervisor in self.supervisors:
            self._tasks.spawn(supervisor.run(), f"slot {supervisor.slot}")
        self._tasks.spawn(self._fetch_reports(status_offset), "listen")
        self._tasks.spawn(self._read_reports(), "reports")
        self._tasks.spawn(self._assign(), "spread")
        self._tasks.spawn(self._inspect(), "look")
        self._tasks.spawn(self._level_loads(), "level")

    def changed(self) -> None:
        """Signals that the partitions to copy, or those that slots hold, have changed."""
        self._changed.set()

    def views(self) -> list[SlotView]:
        """Returns the status of each slot."""
        return [supervisor.view() for supervisor in self.supervisors]

    def stopped_by_loss(self) -> list[PartitionKey]:
        """Returns the partitions that stopped because of data loss."""
        return partitions_in_loss(self.reports.values())

    async def stop(self) -> None:
        """Stops all slots."""
        await asyncio.gather(*(supervisor.stop() for supervisor in self.supervisors))

    async def _assign(self) -> None:
        """Sends every slot its new assignment after each change; a WireError is retried.

        Changes that come while assignments are sent, and for as long again, are sent together: the flows of a
        large job start one after the other.
        """
        membership = self._context.membership
        loop = asyncio.get_running_loop()
        while True:
            await self._changed.wait()
            self._changed.clear()
            began = loop.time()
            active = [flow for flow in self._flows() if flow.active]
            flows = {flow.name: AssignedFlow(for_slots(flow.spec), flow.generation or 0) for flow in active}
            rates = {flow.name: flow.spec.rate_limit for flow in active}
            partitions = {key: one for flow in active for key, one in flow.partitions.items()}
            membership.set_wanted(flows, rates, partitions)
            try:
                for supervisor in self.supervisors:
                    await supervisor.send_assignment()
            except WireError as error:
                log_driver_message(f"the slots' assignments wait: {error}")
                await asyncio.sleep(_PAUSE_S)
                self._changed.set()
            else:
                await asyncio.sleep(min(loop.time() - began, _PAUSE_S))

    async def _fetch_reports(self, offset: int) -> None:
        """Keeps the newest report of each slot until it is read."""
        tail = TopicTail(self._context.cluster, naming.STATUS, offset, self.skipped)
        async for record in tail.records():
            key = job_status.decode_key(record.key)
            if isinstance(key, SlotKey) and key.job == self._context.job and record.value is not None:
                self._unread[key.slot] = record
                self._arrived.set()

    async def _read_reports(self) -> None:
        """Reads reports as they come.

        Those of many partitions take long to read. Others come meanwhile, and only the newest ones are read
        then, so that the rest of the driver goes on.
        """
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            unread, self._unread = self._unread, {}
            for slot, record in unread.items():
                began = time.thread_time()  # a time in which the machine stood still does not count
                self._read_report(slot, record.value or b"", record.offset)
                await asyncio.sleep((time.thread_time() - began) * (1 / _REPORTS_SHARE - 1))

    def _read_report(self, slot: int, value: bytes, offset: int) -> None:
        """Processes the report of a slot; a report that can't be read is skipped."""
        try:
            report = job_status.decode_slot(value)
        except UnreadableValue as error:
            self.skipped.add(offset, str(error))
            return
        if report.driver != self._context.driver or not 0 <= slot < len(self.supervisors):
            return
        self.reports[slot] = report
        self.supervisors[slot].acknowledge(report)
        self._on_report(report)
        self._rates.update(int(time.monotonic() * 1000), report.status.partitions)
        if accepting := [flow for flow in self._flows() if flow.accepted]:
            healthy = [
                PartitionKey(one.flow, one.topic, one.partition)
                for one in report.status.partitions
                if one.state in (PartitionState.COPYING, PartitionState.CAUGHT_UP)
            ]
            for flow in accepting:
                flow.clear_accepted_loss(healthy)

    async def _inspect(self) -> None:
        """Inspects the slots every second, until cancelled."""
        while True:
            await asyncio.sleep(_INSPECT_S)
            try:
                await self.inspect_once()
            except JvmSilent as error:
                if not self.jvm_trouble:
                    log_driver_message(str(error))
                self.jvm_trouble = str(error)
            else:
                self.jvm_trouble = ""

    async def inspect_once(self) -> None:
        """Inspects every slot. Raises JvmSilent."""
        for supervisor in self.supervisors:
            if supervisor.state in ("submitted", "unscheduled"):
                supervisor.update_scheduling(await self._context.application.scheduled(supervisor.group))
            elif supervisor.silent and not await self._context.application.scheduled(supervisor.group):
                # Spark waits for a core to repeat the task by itself, and the slot would end there (R3).
                await supervisor.restart("Spark lost its executor")
        await self._use_running_slots()
        await self._restart_slow_releases()

    async def _use_running_slots(self) -> None:
        """Moves partitions to running slots from slots that wait too long for a core.

        They move back once cores are free.
        """
        now = time.monotonic()
        running = sum(supervisor.state == "running" for supervisor in self.supervisors)
        for supervisor in self.supervisors:
            if supervisor.state == "unscheduled":
                since = self._without_core_since.setdefault(supervisor.slot, now)
                if now - since > _CORE_TIMEOUT_S and running:
                    await self._context.application.cancel(supervisor.group)
            elif supervisor.state == "running" or await self._context.application.cores() > running:
                self._without_core_since.pop(supervisor.slot, None)
        without: set[int] = set()
        if running:  # else no slot could copy their partitions
            waits = self._without_core_since.items()
            without = {slot for slot, since in waits if now - since > _CORE_TIMEOUT_S}
        usable = [supervisor.slot for supervisor in self.supervisors if supervisor.slot not in without]
        if self._context.membership.set_usable(usable):
            self.changed()

    async def _restart_slow_releases(self) -> None:
        """Restarts slots that do not release a partition in time."""
        now = time.monotonic()
        for supervisor in self.supervisors:
            if supervisor.state == "running" and self._context.membership.releasing(supervisor.slot):
                if now - self._releasing_since.setdefault(supervisor.slot, now) > _RELEASE_TIMEOUT_S:
                    await supervisor.restart("did not release partitions in time")
                    self._releasing_since.pop(supervisor.slot)
            else:
                self._releasing_since.pop(supervisor.slot, None)

    async def _level_loads(self) -> None:
        """Levels the loads of slots by the measured rates every 30 s."""
        while True:
            await asyncio.sleep(_LEVEL_S)
            self._context.membership.update_weights(self._rates.take())
            self._context.membership.rebalance()
            self.changed()


def partitions_in_loss(reports: Iterable[SlotReport]) -> list[PartitionKey]:
    """Returns the partitions that continue once an operator accepts the data loss.

    In other states, accepting has no effect.
    """
    return [
        PartitionKey(one.flow, one.topic, one.partition)
        for report in reports
        for one in report.status.partitions
        if one.state.over_loss
    ]


def for_slots(spec: FlowSpec) -> FlowSpec:
    """Returns the spec without the settings that only the driver uses.

    So a change of those restarts nothing in a slot.
    """
    return replace(
        spec,
        topics=SelectionSpec(include=()),
        start=Earliest(),
        restart_from=None,
        promoted=(),
        configs=ConfigsSpec(),
        replication=None,
        groups=GroupsSpec(),
        acls_sync=False,
        protect="off",
        rate_limit=None,
        follow_every_ms=None,
        heartbeats_every_ms=None,
        checkpoints_every_ms=None,
        origin_commits=None,
        on_source_delete="keep",
    )
