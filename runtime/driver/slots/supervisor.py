"""This module keeps one slot running: it submits the slot to Spark, and again after each end.

Each submission has a fresh ticket.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from runtime.contract.records import control, job_status
from runtime.contract.records.control import SlotSpec, transactional_ids
from runtime.contract.records.job_status import SlotHeartbeat, SlotReport, SlotState, SlotView, StatusKey
from runtime.contract.spec import naming
from runtime.driver.flows.start import DriverContext
from runtime.driver.process import JvmSilent
from runtime.driver.slots.channel import end_of, pause, post
from runtime.driver.slots.ticket import SlotStartRequest
from runtime.kafka.errors import BrokerError, ErrorCode, WireError
from runtime.kafka.records import InternalRecord
from runtime.kafka.timing import Silence
from runtime.ledger.transaction_writer import fence
from runtime.slot.errors import SlotEnd
from runtime.slot.log import Field, log_fields

_BACKOFF_S, _MAX_BACKOFF_S = 0.2, 30.0
_HEALTHY_S = 60.0  # a slot that ran so long starts again with the shortest backoff
_STOP_TIMEOUT_S = 25.0  # a slot ends its transactions sooner
_PAUSE_S = 0.5
_CANCEL_S = 1.0
_LONGEST_GAP_S = 1.0  # a read of the status topic takes half a second without news


class SlotSupervisor:
    """A SlotSupervisor submits one slot until `stop` and owns its state. Its methods raise DriverFenced.

    Each submission is an attempt. However it ends, its end is written to the control topic before the slot's
    transactional ids are fenced, and before the next attempt is submitted: a process of an earlier attempt
    that still runs, on a machine that was only cut off, can't begin to copy any more (R3).
    """

    def __init__(self, slot: int, context: DriverContext) -> None:
        self.slot = slot
        self.attempt = 0
        self.state: SlotState = "idle"
        self.since = time.time()
        self.changed_at = time.monotonic()
        self.why = ""
        self._last_end = ""
        self.silence = Silence(_LONGEST_GAP_S)
        self.throttled_s = 0.0  # how long a broker throttled the slot, as its last heartbeat says
        self._context = context
        self._end_written = 0  # the newest attempt whose end is in the control topic
        self._replaced: asyncio.Future[SlotEnd] | None = None
        self._task: asyncio.Future[SlotEnd] | None = None  # of the newest attempt, also after it was replaced
        self._cancelling: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._wake = asyncio.Event()
        self._ended: asyncio.Future[SlotEnd] | None = None
        self._unsent = False

    def view(self) -> SlotView:
        """Returns the slot's part of the job status."""
        partitions = self._context.membership.partitions_of(self.slot)
        since = int(self.since * 1000)
        return SlotView(self.slot, self.state, since, self.attempt, partitions, self.why)

    def wake(self) -> None:
        """Signals that there may be a partition to copy or an assignment to send."""
        self._wake.set()

    def acknowledge(self, report: SlotReport) -> bool:
        """Processes a report: the slot is running, and the assignment version in it is in force.

        Returns False for the report of an attempt that has ended, which counts for nothing.
        """
        if report.attempt != self.attempt or self._ended is None or self.state == "waiting":
            return False
        if self.state in ("submitted", "unscheduled"):
            self.silence.restart()
            self.throttled_s = 0.0
            self._set_state("running", self._last_end)
        if self._context.membership.acknowledge(self.slot, report.assignment):
            self._context.changed()
        return True

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
            await self._send(control.Assign(self._context.driver, self.attempt, published))
            self._log("slot_assigned", version=published.version, partitions=len(published.partitions))
        self._unsent = False

    def update_scheduling(self, why: str | None) -> None:
        """Updates the state of a submitted slot that has sent no report yet; it is called periodically.

        `why`: what the slot's task waits for, "" for an executor that starts; None if it has a core.
        """
        if why is not None:
            self._set_state("unscheduled", why)
        elif self.state == "unscheduled":
            self._set_state("submitted", "")

    def take_heartbeat(self, heartbeat: SlotHeartbeat) -> bool:
        """Takes a heartbeat that was read. Returns False for one of another driver or an earlier attempt."""
        if (heartbeat.driver, heartbeat.attempt) != (self._context.driver, self.attempt):
            return False
        self.silence.restart()
        self.throttled_s = max(0, heartbeat.throttled_ms) / 1000
        return True

    def replace(self, why: str) -> None:
        """Ends the attempt, whatever its process does, and lets `run` submit the next one.

        It does not wait for Spark, which notices the loss of a machine after half a minute.
        """
        if self._replaced is not None and not self._replaced.done():
            self._log("slot_replaced", error=why)
            self._replaced.set_result(SlotEnd("replaced", why))
            self._set_state("waiting", why)

    async def stop(self) -> None:
        """Ends the slot's transactions and then the slot; one that does not end in time is cancelled."""
        self._stopping.set()
        self._wake.set()
        for cancelling in self._cancelling:
            cancelling.cancel()
        ended = self._ended
        if ended is None:
            return
        self._log("slot_stopping")
        try:
            await self._send(control.StopSlot(self._context.driver, self.attempt))
        except WireError as error:
            self.why = str(error)
        # A slot that waits for a core has no process that could read the message.
        await asyncio.wait([ended], timeout=0 if self.state == "unscheduled" else _STOP_TIMEOUT_S)
        if not ended.done():
            self._log("slot_cancelled", error="did not stop in time")
            if await self._cancel(self.group):
                await asyncio.wait([ended], timeout=_STOP_TIMEOUT_S)

    async def run(self) -> None:
        """Submits the slot again after each end, with backoff, until `stop`. Raises DriverFenced."""
        failures = 0
        membership = self._context.membership
        while not self._stopping.is_set():
            await self._fence_unreleased()
            # The first attempt starts before any partition is known, because starting a worker takes seconds.
            # A slot that lost its partitions to others gets some again once it runs.
            needless = membership.usable(self.slot) and not membership.partitions_of(self.slot)
            if self.attempt and needless:
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
            membership.publish(self.slot)  # without what moves to other slots
            await self._fence_unreleased()
            if ended.how == "replaced" and self._task is not None and not await self._cancel(self.group):
                cancelling = asyncio.create_task(self._cancel_later(self.group, self._task))
                self._cancelling.add(cancelling)
                cancelling.add_done_callback(self._cancelling.discard)
            failures = 0 if time.monotonic() - began > _HEALTHY_S else failures + 1
            self._last_end = f"{ended.how}: {ended.why}" if ended.why else ended.how
            self._set_state("waiting", self._last_end)
            pause_s = min(_BACKOFF_S * 2 ** min(failures - 1, 10), _MAX_BACKOFF_S)
            self._log("slot_resubmitted", error=self._last_end, failures=failures, pause_s=pause_s)
            await pause(pause_s, self._stopping)

    async def _run_once(self) -> SlotEnd | None:
        """Submits the slot and returns its end, or that of the attempt if it was replaced.

        Returns None when the slot must release a partition first: only while it is not running can its ids be
        fenced safely.
        """
        context, offset = self._context, 0

        async def end_attempt_before() -> None:
            nonlocal offset
            await self._end_attempt()
            offset = await end_of(context.destination, naming.CONTROL)

        ready = await self._until_stopped(end_attempt_before)
        if not ready or self._stopping.is_set() or context.membership.releasing(self.slot):
            return None
        # Do not await from here to the submission: the slot reads every command from `offset` on.
        self.attempt += 1
        first = context.membership.published(self.slot)
        ticket = SlotStartRequest(context.driver, self.attempt, self._spec(), first, offset)
        self._ended = self._task = context.application.submit(self.group, ticket)
        self._log("slot_submitted", version=first.version, partitions=len(first.partitions))
        self._set_state("submitted", self.why)
        self._replaced = asyncio.get_running_loop().create_future()
        ends = self._ended, self._replaced
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            return next(end.result() for end in ends if end.done())
        finally:
            self._ended = self._replaced = None

    async def _end_attempt(self) -> None:
        """Writes once that the attempt has ended, for a process that may still run it. Raises WireError."""
        if self._end_written < self.attempt:
            await self._send(control.StopSlot(self._context.driver, self.attempt))
            self._end_written = self.attempt

    async def _cancel_later(self, group: str, task: asyncio.Future[SlotEnd]) -> None:
        """Cancels an attempt that was replaced while the JVM was silent: its task may occupy a core."""
        while True:
            await asyncio.wait([task], timeout=_CANCEL_S)
            if task.done() or await self._cancel(group):
                return

    async def _cancel(self, group: str) -> bool:
        """Cancels an attempt's Spark job, which ends its process. Returns False where the JVM is silent."""
        try:
            await self._context.application.cancel(group)
        except JvmSilent as error:
            self.why = str(error)
            return False
        return True

    async def _fence_unreleased(self) -> None:
        """Fences the ids of the ended slot for the flows that it never released, until `stop` (R3).

        The partitions of a flow are free once its own ids are fenced: an id that waits for a marker, or for
        its coordinator, delays no other flow (R7).
        """
        flows = sorted(self._context.membership.releasing(self.slot))
        if flows and await self._until_stopped(self._end_attempt):
            await asyncio.gather(*(self._fence_flow(flow) for flow in flows))

    async def _fence_flow(self, flow: str) -> None:
        """Fences the slot's ids for a flow until `stop`, then frees the partitions of the flow.

        It then removes the slot's report: other slots report them.
        """
        context = self._context
        ids = transactional_ids(context.job, self.slot, flow, context.spec.copy)

        async def fence_all() -> None:
            if unfenced := await fence(context.destination, ids):
                name, why = next(iter(unfenced.items()))
                raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS, f"{name} is not fenced: {why}")

        if await self._until_stopped(fence_all):
            self._log("slot_fenced", flow=flow)
            context.membership.release_fenced(self.slot, {flow})
            context.changed()
            key = job_status.encode_key(StatusKey("slot", context.job, self.slot))
            with suppress(WireError):
                await post(context.destination, naming.STATUS, [InternalRecord(key, None)])

    async def _until_stopped(self, step: Callable[[], Awaitable[None]]) -> bool:
        """Repeats a step until it succeeds, as the leading driver; returns False where `stop` came before."""
        while not self._stopping.is_set():
            try:
                await self._context.leadership.ensure()
                await step()
            except WireError as error:
                self.why = str(error)
                await pause(_PAUSE_S, self._stopping)
            else:
                return True
        return False

    async def _send(self, message: control.SlotMessage) -> None:
        record = InternalRecord(control.slot_key(self._context.job, self.slot), control.encode(message))
        await post(self._context.destination, naming.CONTROL, [record])

    def _spec(self) -> SlotSpec:
        """Returns the spec of the slot, with the clusters that the job was started with."""
        context, spec = self._context, self._context.spec
        return SlotSpec(
            job=spec.job,
            slot=self.slot,
            destination=spec.destination,
            cluster=spec.clusters[spec.destination],
            copy=spec.copy,
            sources={name: cluster for name, cluster in spec.clusters.items() if name != spec.destination},
            transform=context.layout.transform(self.slot),
            registries=spec.registries,
            unpacked_bytes=spec.launch.unpacked_bytes,
        )

    def _log(self, event: str, **fields: Field) -> None:
        common: dict[str, Field] = {"job": self._context.job, "slot": self.slot, "attempt": self.attempt}
        log_fields(event, common | fields, key=self.group)

    @property
    def group(self) -> str:
        """The Spark job group of this attempt: a late request to cancel an attempt can't end a newer one."""
        return f"slot {self.slot} attempt {self.attempt}"

    def _set_state(self, state: SlotState, why: str = "") -> None:
        if state != self.state:
            self.since = time.time()
            self.changed_at = time.monotonic()
            if state in ("running", "unscheduled"):
                self._log(f"slot_{state}", error=why)
        self.state = state
        self.why = why
