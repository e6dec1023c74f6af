"""This module manages all slots of a job: it sends them their assignments and reads their reports."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from runtime.batch import Record
from runtime.contract.records import job_status
from runtime.contract.records.control import AssignedFlow
from runtime.contract.records.job_status import (
    PartitionState,
    SlotHeartbeat,
    SlotReport,
    SlotView,
    StatusKey,
)
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.records.record_values import UnreadableValue
from runtime.contract.spec import naming
from runtime.contract.spec.flow import ConfigsSpec, Earliest, GroupsSpec
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.selection import SelectionSpec
from runtime.driver.flows.flow import DriverFlow
from runtime.driver.flows.start import DriverContext
from runtime.driver.process import JvmSilent
from runtime.driver.slots.channel import TopicTail, UnreadableRecordCounter
from runtime.driver.slots.supervisor import SlotSupervisor
from runtime.kafka.errors import WireError
from runtime.kafka.timing import BackgroundTasks
from runtime.slot.log import log_driver_message

_LEVEL_S = 30.0
_INSPECT_S = 1.0
_TASK_TIMEOUT_S = 10.0  # how long a slot with partitions may wait until Spark starts its task
_START_TIMEOUT_S = 60.0  # how long a slot with a core may take to report
_SILENT_S = 5.0  # a slot sends a heartbeat each second; another slot copies its partitions after so long
_ALIVE_S = 3.0
_SILENT_ALONE_S = 30.0  # no other slot could copy its partitions: only a slot that hangs is replaced
_QUIET_S = 600.0  # a slot that was not replaced for so long has the shortest limit again
_WRITTEN_S = 2.5  # after so long without any heartbeat, the status topic takes none
_RELEASE_TIMEOUT_S = 45.0  # a slot that does not release a partition by then is restarted
_PAUSE_S = 0.5
_SHARE = 0.2  # of the event loop's time, for the reports, and for the assignments, of very many partitions
_MOST_REST_S = 5.0  # an assignment waits no longer for this


class SlotManager:
    """Owns the slots of a job and the newest report of each slot."""

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
        self._weighed: dict[int, SlotReport] = {}  # reports whose rates the membership has
        self._context = context
        self._flows = flows
        self._tasks = tasks
        self._on_report = on_report
        self._jvm_trouble = ""
        self._changed = asyncio.Event()
        self._unread: dict[int, Record] = {}
        self._arrived = asyncio.Event()
        self._releasing_since: dict[int, float] = {}
        self._out: set[int] = set()  # slots that get no partitions before they run again
        self._limits: dict[int, tuple[float, float]] = {}  # of silence in s, with when it was raised
        self._heartbeat_at = float("-inf")  # by the clock that the reads are counted by
        self._got_heartbeat = False
        self._skipped = UnreadableRecordCounter(naming.STATUS)

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

    @property
    def trouble(self) -> str:
        """The most important failure that this manager sees now, if any."""
        return self._skipped.note or self._jvm_trouble

    async def stop(self) -> None:
        """Stops all slots."""
        await asyncio.gather(*(supervisor.stop() for supervisor in self.supervisors))

    async def _assign(self) -> None:
        """Sends every slot its new assignment after each change; a WireError is retried.

        Changes that come while assignments are sent, and for as long again, are sent together, and those that
        come within `rest_s`: the flows of a large job start one after the other, and each change costs as
        much as all partitions.
        """
        membership = self._context.membership
        loop = asyncio.get_running_loop()
        while True:
            await self._changed.wait()
            self._changed.clear()
            began, cpu_began_s = loop.time(), time.thread_time()
            active = [flow for flow in self._flows() if flow.active]
            flows = {flow.name: AssignedFlow(for_slots(flow.spec), flow.generation) for flow in active}
            partitions = {key: partition for flow in active for key, partition in flow.partitions.items()}
            membership.set_wanted(flows, partitions)
            self._weighed.clear()  # it forgets the rates of partitions that leave
            try:
                for supervisor in self.supervisors:
                    await supervisor.send_assignment()
            except WireError as error:
                log_driver_message(f"the slots' assignments wait: {error}")
                await asyncio.sleep(_PAUSE_S)
                self._changed.set()
            else:
                # It includes what other tasks did meanwhile; the rest is limited for that.
                spent_s = time.thread_time() - cpu_began_s
                await asyncio.sleep(
                    max(min(loop.time() - began, _PAUSE_S), min(rest_s(spent_s), _MOST_REST_S))
                )

    async def _fetch_reports(self, offset: int) -> None:
        """Takes the heartbeats of slots, and keeps the newest report of each slot until it is read."""
        tail = TopicTail(self._context.destination, naming.STATUS, offset, self._skipped)
        while True:
            try:
                records = await tail.read()
            except WireError:
                for supervisor in self.supervisors:
                    supervisor.silence.restart()
                await asyncio.sleep(_PAUSE_S)
                continue
            for record in records:
                self._take_record(record)
            self.end_read(time.monotonic())

    def _take_record(self, record: Record) -> None:
        """Takes a heartbeat, or keeps a report; a heartbeat that can't be read is skipped."""
        match job_status.decode_key(record.key):
            case StatusKey("slot", self._context.job, int(slot)) if record.value is not None:
                self._unread[slot] = record
                self._arrived.set()
            case StatusKey("slot_heartbeat", self._context.job, int(slot)) if record.value is not None:
                try:
                    heartbeat = job_status.decode_slot_heartbeat(record.value)
                except UnreadableValue as error:
                    self._skipped.add(record.offset, str(error))
                    return
                self.take_heartbeat(slot, heartbeat)

    def take_heartbeat(self, slot: int, heartbeat: SlotHeartbeat) -> None:
        """Takes a heartbeat that was read."""
        if 0 <= slot < len(self.supervisors) and self.supervisors[slot].take_heartbeat(heartbeat):
            self._got_heartbeat = True

    def end_read(self, now: float) -> None:
        """Counts the silence of each slot after a read, and replaces slots whose heartbeats have stopped.

        While neither a slot nor this driver gets a heartbeat into the topic, it takes none (too few replicas
        in sync, say), and silence says nothing of a slot. A slot that was only slow notices that it was
        fenced, and ends. So no record is copied twice (R3).
        """
        if self._got_heartbeat:
            self._got_heartbeat, self._heartbeat_at = False, now
        if min(now - self._heartbeat_at, self._context.leadership.age_s) > _WRITTEN_S:
            for supervisor in self.supervisors:
                supervisor.silence.restart()
        for supervisor in self.supervisors:
            supervisor.silence.end_read(now)
        running = [supervisor for supervisor in self.supervisors if supervisor.state == "running"]
        layout = self._context.layout.by_slot
        alive = {layout[supervisor.slot] for supervisor in running if supervisor.silence.seconds < _ALIVE_S}
        for supervisor in running:
            silent_s, limit = supervisor.silence.seconds, _SILENT_ALONE_S
            if layout[supervisor.slot] in alive:
                limit = min(self._limit(supervisor.slot, now) + supervisor.throttled_s, _SILENT_ALONE_S)
            if silent_s >= limit:
                raised = 2 * self._limit(supervisor.slot, now)
                self._limits[supervisor.slot] = min(raised, _SILENT_ALONE_S), now
                self._replace(supervisor, f"no heartbeat for {silent_s:.0f} s")

    def _limit(self, slot: int, now: float) -> float:
        """Returns how long the slot may be silent; a slot that is replaced again and again has more time."""
        limit, raised_at = self._limits.get(slot, (_SILENT_S, now))
        return limit if now - raised_at < _QUIET_S else _SILENT_S

    def _replace(self, supervisor: SlotSupervisor, why: str) -> None:
        """Replaces an attempt of a slot, and gives its partitions to slots that run."""
        self._out.add(supervisor.slot)
        self.reports.pop(supervisor.slot, None)
        supervisor.replace(why)
        self._update_usable()

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
                await asyncio.sleep(rest_s(time.thread_time() - began))

    def _read_report(self, slot: int, value: bytes, offset: int) -> None:
        """Processes the report of a slot; a report that can't be read is skipped."""
        try:
            report = job_status.decode_slot(value)
        except UnreadableValue as error:
            self._skipped.add(offset, str(error))
            return
        if report.driver != self._context.driver or not 0 <= slot < len(self.supervisors):
            return
        if not self.supervisors[slot].acknowledge(report):
            return
        before = self.reports.get(slot)
        if before is not None and before.attempt == report.attempt:
            report = job_status.with_unchanged(report, before)
        self.reports[slot] = report
        self._on_report(report)
        changed = job_status.changed_partitions(report, self._weighed.get(slot))
        self._context.membership.update_weights(job_status.rates_of(changed))
        self._weighed[slot] = report
        if accepting := [flow for flow in self._flows() if flow.accepted]:
            healthy = [
                partition.key
                for partition in report.partitions
                if partition.state in (PartitionState.COPYING, PartitionState.CAUGHT_UP)
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
                if not self._jvm_trouble:
                    log_driver_message(str(error))
                self._jvm_trouble = str(error)
            else:
                self._jvm_trouble = ""

    async def inspect_once(self) -> None:
        """Inspects every slot. Raises JvmSilent."""
        self._update_usable()
        self._replace_slow_releases()
        for supervisor in self.supervisors:
            if supervisor.state in ("submitted", "unscheduled"):
                supervisor.update_scheduling(await self._context.application.waits_for(supervisor.group))
            waited_s = time.monotonic() - supervisor.changed_at
            layout = self._context.layout.by_slot
            running = {layout[other.slot] for other in self.supervisors if other.state == "running"}
            if layout[supervisor.slot] not in running:
                continue  # no slot could copy its partitions
            # A slot without partitions may wait for a core for as long as it takes. One that is out has some
            # where no slot ran when it was replaced.
            moves = supervisor.slot not in self._out or self._context.membership.busy(supervisor.slot)
            if supervisor.state == "unscheduled" and waited_s > _TASK_TIMEOUT_S and moves:
                why = supervisor.why or "Spark has not started its task: an executor starts"
                self._replace(supervisor, f"{why}, for {waited_s:.0f} s")
            elif supervisor.state == "submitted" and waited_s > _START_TIMEOUT_S:
                self._replace(supervisor, f"not started in {waited_s:.0f} s")

    def _update_usable(self) -> None:
        """Lets partitions move away from slots that were replaced, and to those that run again."""
        self._out -= {supervisor.slot for supervisor in self.supervisors if supervisor.state == "running"}
        usable = [supervisor.slot for supervisor in self.supervisors if supervisor.slot not in self._out]
        if self._context.membership.set_usable(usable):
            self.changed()

    def _replace_slow_releases(self) -> None:
        """Replaces slots that do not release a partition in time."""
        now = time.monotonic()
        for supervisor in self.supervisors:
            if supervisor.state == "running" and self._context.membership.releasing(supervisor.slot):
                if now - self._releasing_since.setdefault(supervisor.slot, now) > _RELEASE_TIMEOUT_S:
                    supervisor.replace("did not release partitions in time")
                    self._releasing_since.pop(supervisor.slot)
            else:
                self._releasing_since.pop(supervisor.slot, None)

    async def _level_loads(self) -> None:
        """Levels the loads of slots by the measured rates every 30 s."""
        while True:
            await asyncio.sleep(_LEVEL_S)
            if self._context.membership.rebalance():
                self.changed()


def rest_s(spent_s: float) -> float:
    """Returns for how long the event loop does other work after it spent CPU on very many partitions."""
    return spent_s * (1 / _SHARE - 1)


def partitions_in_loss(reports: Iterable[SlotReport]) -> list[PartitionKey]:
    """Returns the partitions that continue once an operator accepts the data loss.

    In other states, accepting has no effect.
    """
    return [
        partition.key for report in reports for partition in report.partitions if partition.state.over_loss
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
        follow_every_ms=None,
        heartbeats_every_ms=None,
        checkpoints_every_ms=None,
        origin_commits=None,
        on_source_delete="keep",
    )
