"""This module keeps one slot running: it submits the slot to Spark, and again after each end.

Each submission has a fresh ticket.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct

from runtime.contract.records import control
from runtime.contract.records.control import Assignment, SlotSpec, encode_assignment, transactional_ids
from runtime.contract.records.job_status import SlotReport, SlotState, SlotView
from runtime.contract.spec import naming
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.jobspec import CopySettings
from runtime.driver.application import SparkSlotRunner
from runtime.driver.leadership import Leadership
from runtime.driver.process import JvmSilent
from runtime.driver.slots.channel import end_of, pause, post
from runtime.driver.slots.membership import Membership, SlotLayout
from runtime.driver.task import SlotResult, SlotStartRequest
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import WireError
from runtime.kafka.records import InternalRecord
from runtime.ledger.transaction_writer import fence
from runtime.slot.log import Field, log_fields

_BACKOFF_S, _MAX_BACKOFF_S = 0.2, 30.0
_HEALTHY_S = 60.0  # a slot that ran so long starts again with the shortest backoff
_STOP_TIMEOUT_S = 25.0  # a slot ends its transactions sooner
_PAUSE_S = 0.5
_SILENT_S = 7.0  # a slot that runs reports every five seconds


class DriverContext(Struct, frozen=True):
    """This context holds the objects that every slot uses in the driver.

    `reached` maps each cluster to its spec at the start of the job, with which slots connect to it.
    """

    job: str
    driver: str
    destination: str
    settings: CopySettings
    reached: Mapping[str, ClusterSpec]
    layout: SlotLayout
    cluster: KafkaCluster
    application: SparkSlotRunner
    membership: Membership
    leadership: Leadership
    changed: Callable[[], None]


class SlotSupervisor:
    """A SlotSupervisor submits one slot until `stop` and owns its state. Its methods raise DriverFenced."""

    def __init__(
        self, slot: int, context: DriverContext, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.slot = slot
        self.attempt = 0
        self.state: SlotState = "idle"
        self.since = time.time()
        self.why = ""
        self._last_end = ""
        self._context = context
        self._clock = clock
        self._reported_at = 0.0
        self._stopping = asyncio.Event()
        self._wake = asyncio.Event()
        self._ended: asyncio.Future[SlotResult] | None = None
        self._unsent = False

    def view(self) -> SlotView:
        """Returns the slot's part of the job status."""
        partitions = self._context.membership.partitions_of(self.slot)
        since = int(self.since * 1000)
        return SlotView(self.slot, self.state, since, self.attempt, partitions, self.why)

    def wake(self) -> None:
        """Signals that there may be a partition to copy or an assignment to send."""
        self._wake.set()

    def acknowledge(self, report: SlotReport) -> None:
        """Processes a report: the slot is running, and the assignment version in it is in force."""
        if report.attempt != self.attempt or self._ended is None:
            return
        self._reported_at = self._clock()
        if self.state in ("submitted", "unscheduled"):
            self._set_state("running", self._last_end)
        if self._context.membership.acknowledge(self.slot, report.status.assignment):
            self._context.changed()

    async def send_assignment(self) -> None:
        """Sends the newest assignment to the slot if it changed.

        Raises WireError; the caller then retries.
        """
        membership = self._context.membership
        if membership.publish(self.slot) is not None:
            self._unsent = True
            self._wake.set()
        if self._unsent and self._ended is not None:
            await self._context.leadership.ensure()
            published = membership.published(self.slot)
            await self._send(control.Assign(self._context.driver, _encode_raw(published)))
            self._log("slot_assigned", version=published.version, partitions=len(published.partitions))
        self._unsent = False

    def update_scheduling(self, scheduled: bool) -> None:
        """Updates the state of a submitted slot that has sent no report yet; it is called periodically."""
        if self.state == "submitted" and not scheduled:
            self._set_state("unscheduled", "no free core")
        elif self.state == "unscheduled" and scheduled:
            self._set_state("submitted", "")

    @property
    def silent(self) -> bool:
        """Whether the slot counts as running and no report of it came for some seconds."""
        return self.state == "running" and self._clock() - self._reported_at > _SILENT_S

    async def restart(self, why: str) -> None:
        """Cancels the slot's Spark job, which ends its process, whatever its state. Raises JvmSilent."""
        self._log("slot_cancelled", error=why)
        self.why = why
        await self._context.application.cancel(self.group)

    async def stop(self) -> None:
        """Ends the slot's transactions and then the slot; one that does not end in time is cancelled."""
        self._stopping.set()
        self._wake.set()
        ended = self._ended
        if ended is None:
            return
        self._log("slot_stopping")
        try:
            await self._send(control.StopSlot(self._context.driver))
        except WireError as error:
            self.why = str(error)
        await asyncio.wait([ended], timeout=_STOP_TIMEOUT_S)
        if not ended.done():
            try:
                await self.restart("did not stop in time")
            except JvmSilent as error:
                self.why = str(error)
                return
            await asyncio.wait([ended], timeout=_STOP_TIMEOUT_S)

    async def run(self) -> None:
        """Submits the slot again after each end, with backoff, until `stop`. Raises DriverFenced."""
        failures = 0
        while not self._stopping.is_set():
            await self._fence_unreleased()
            # The first attempt starts before any partition is known, because starting a worker takes seconds.
            if self.attempt and not self._context.membership.partitions_of(self.slot):
                self._set_state("idle")
                self._wake.clear()
                await pause(_HEALTHY_S, self._wake)
                continue
            began = time.monotonic()
            ended = await self._run_once()
            if ended is None:
                continue
            if self._stopping.is_set():
                self._log("slot_stopped", how=ended.how, error=ended.why)
                return
            failures = 0 if time.monotonic() - began > _HEALTHY_S else failures + 1
            self._last_end = f"{ended.how}: {ended.why}" if ended.why else ended.how
            self._set_state("waiting", self._last_end)
            pause_s = min(_BACKOFF_S * 2 ** min(failures - 1, 10), _MAX_BACKOFF_S)
            self._log("slot_resubmitted", error=self._last_end, failures=failures, pause_s=pause_s)
            await pause(pause_s, self._stopping)

    async def _run_once(self) -> SlotResult | None:
        """Submits the slot and returns its end.

        Returns None when the slot must release a partition first: only while it is not running can its ids be
        fenced safely.
        """
        context = self._context
        while True:
            try:
                await context.leadership.ensure()
                offset = await end_of(context.cluster, naming.CONTROL)
                break
            except WireError as error:
                self.why = str(error)
                await asyncio.sleep(_PAUSE_S)
        if self._stopping.is_set() or context.membership.releasing(self.slot):
            return None
        # Do not await from here to the submission: the slot reads every command from `offset` on.
        self.attempt += 1
        first = context.membership.published(self.slot)
        ticket = SlotStartRequest(context.driver, self.attempt, self._spec(), first, offset)
        self._ended = context.application.submit(self.group, ticket)
        self._log("slot_submitted", version=first.version, partitions=len(first.partitions))
        self._set_state("submitted", self.why)
        try:
            return await self._ended
        finally:
            self._ended = None

    async def _fence_unreleased(self) -> None:
        """Fences the ids of the ended slot for the flows that it never released (R3).

        It then frees their partitions.
        """
        context = self._context
        flows = context.membership.releasing(self.slot)
        ids = [
            one
            for flow in sorted(flows)
            for one in transactional_ids(context.job, self.slot, flow, context.settings)
        ]
        while ids:
            try:
                await context.leadership.ensure()
                ids = await fence(context.cluster, ids)
            except WireError as error:
                self.why = str(error)
                await asyncio.sleep(_PAUSE_S)
        if flows:
            self._log("slot_fenced", flows=", ".join(sorted(flows)))
            context.membership.release_fenced(self.slot, flows)
            context.changed()

    async def _send(self, message: control.SlotMessage) -> None:
        record = InternalRecord(control.slot_key(self._context.job, self.slot), control.encode(message))
        await post(self._context.cluster, naming.CONTROL, [record])

    def _spec(self) -> SlotSpec:
        """Returns the spec of the slot, with the clusters that the job was started with."""
        context = self._context
        return SlotSpec(
            job=context.job,
            slot=self.slot,
            destination=context.destination,
            cluster=context.reached[context.destination],
            copy=context.settings,
            sources={name: one for name, one in context.reached.items() if name != context.destination},
            transform=context.layout.transform(self.slot),
        )

    def _log(self, event: str, **fields: Field) -> None:
        own: dict[str, Field] = {"job": self._context.job, "slot": self.slot, "attempt": self.attempt}
        log_fields(event, own | fields, key=self.group)

    @property
    def group(self) -> str:
        """The Spark job group of this attempt: a late request to cancel an attempt can't end a newer one."""
        return f"slot {self.slot} attempt {self.attempt}"

    def _set_state(self, state: SlotState, why: str = "") -> None:
        if state != self.state:
            self.since = time.time()
            if state in ("running", "unscheduled"):
                self._log(f"slot_{state}", error=why)
        self.state = state
        self.why = why


def _encode_raw(assignment: Assignment) -> msgspec.Raw:
    return msgspec.Raw(encode_assignment(assignment))
