"""A slot as its driver keeps it: submitted to Spark by itself, and again after it ended, with fresh words."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from runtime.contract.records import control
from runtime.contract.records.job_status import SlotReport, SlotState, SlotView
from runtime.contract.spec import naming
from runtime.contract.spec.assignment import Assignment, SlotSpec, encode, transactional_ids
from runtime.contract.spec.jobspec import ClusterSpec, CopySettings
from runtime.driver.application import Application
from runtime.driver.jvm import JvmSilent
from runtime.driver.leadership import Pulse
from runtime.driver.slots.channel import end_of, pause, post
from runtime.driver.slots.membership import Membership
from runtime.driver.task import Ended, Ticket
from runtime.kafka.cluster import Cluster
from runtime.kafka.errors import WireError
from runtime.ledger.ledger_writer import fence
from runtime.ledger.records import Record
from runtime.slot.log import Field, log_fields

_BACKOFF_S, _LONGEST_S = 0.2, 30.0
_HEALTHY_S = 60.0  # a slot that lived so long begins with short pauses again
_STOP_S = 25.0  # transactions end sooner
_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every slot needs. `reached` is how slots reach each cluster, by the spec of the job's start."""

    job: str
    driver: str
    destination: str
    settings: CopySettings
    reached: Mapping[str, ClusterSpec]
    cluster: Cluster
    application: Application
    membership: Membership
    pulse: Pulse
    changed: Callable[[], None]


class SlotKeeper:
    """`run` until `stop`. Raises DriverFenced."""

    def __init__(self, slot: int, around: Surroundings) -> None:
        self.slot = slot
        self.attempt = 0
        self.state: SlotState = "idle"
        self.since = time.time()
        self.why = ""
        self._before = ""
        self._around = around
        self._stopping = asyncio.Event()
        self._wake = asyncio.Event()
        self._ended: asyncio.Future[Ended] | None = None
        self._unsent = False

    def view(self) -> SlotView:
        partitions = self._around.membership.partitions_of(self.slot)
        since = int(self.since * 1000)
        return SlotView(self.slot, self.state, since, self.attempt, partitions, self.why)

    def wake(self) -> None:
        """There may be something to copy, or to tell."""
        self._wake.set()

    def heard(self, report: SlotReport) -> None:
        """The slot lives, and works by this assignment."""
        if report.attempt != self.attempt or self._ended is None:
            return
        if self.state in ("submitted", "unscheduled"):
            self._become("running", self._before)
        if self._around.membership.confirmed(self.slot, report.status.assignment):
            self._around.changed()

    async def tell(self) -> None:
        """The newest assignment goes to the slot, if it is another one. Raises WireError: then again."""
        membership = self._around.membership
        if membership.next(self.slot) is not None:
            self._unsent = True
            self._wake.set()
        if self._unsent and self._ended is not None:
            await self._around.pulse.still()
            published = membership.published(self.slot)
            await self._say(control.Assign(self._around.driver, _raw(published)))
            self._log("slot_assigned", version=published.version, partitions=len(published.partitions))
        self._unsent = False

    def doubt(self, scheduled: bool) -> None:
        """Called now and then while nothing was heard of a submitted slot."""
        if self.state == "submitted" and not scheduled:
            self._become("unscheduled", "no free core")
        elif self.state == "unscheduled" and scheduled:
            self._become("submitted", "")

    async def restart(self, why: str) -> None:
        """Its process is ended, whatever it does. Raises JvmSilent."""
        self._log("slot_cancelled", error=why)
        self.why = why
        await self._around.application.cancel(self.group)

    async def stop(self) -> None:
        """Transactions end, then the slot; one that does not is killed."""
        self._stopping.set()
        self._wake.set()
        ended = self._ended
        if ended is None:
            return
        try:
            await self._say(control.StopSlot(self._around.driver))
        except WireError as error:
            self.why = str(error)
        await asyncio.wait([ended], timeout=_STOP_S)
        if not ended.done():
            try:
                await self.restart("did not stop in time")
            except JvmSilent as error:
                self.why = str(error)
                return
            await asyncio.wait([ended], timeout=_STOP_S)

    async def run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            await self._settled()
            # Before the first partition is known a worker may start already: that takes seconds.
            if self.attempt and not self._around.membership.partitions_of(self.slot):
                self._become("idle")
                self._wake.clear()
                await pause(_HEALTHY_S, self._wake)
                continue
            began = time.monotonic()
            ended = await self._attempt()
            if ended is None:
                continue
            if self._stopping.is_set():
                return
            failures = 0 if time.monotonic() - began > _HEALTHY_S else failures + 1
            self._before = f"{ended.how}: {ended.why}" if ended.why else ended.how
            self._become("waiting", self._before)
            pause_s = min(_BACKOFF_S * 2 ** min(failures - 1, 10), _LONGEST_S)
            self._log("slot_resubmitted", error=self._before, failures=failures, pause_s=pause_s)
            await pause(pause_s, self._stopping)

    async def _attempt(self) -> Ended | None:
        """None when it must let go of something first: only then its ids are fenced for sure."""
        around = self._around
        while True:
            try:
                await around.pulse.still()
                offset = await end_of(around.cluster, naming.CONTROL)
                break
            except WireError as error:
                self.why = str(error)
                await asyncio.sleep(_PAUSE_S)
        if self._stopping.is_set() or around.membership.releasing(self.slot):
            return None
        # Nothing may come between: a word posted from here on is read by the slot.
        self.attempt += 1
        first = around.membership.published(self.slot)
        ticket = Ticket(around.driver, self.attempt, self._spec(), first, offset)
        self._ended = around.application.submit(self.group, ticket)
        self._log("slot_submitted", version=first.version, partitions=len(first.partitions))
        self._become("submitted", self.why)
        try:
            return await self._ended
        finally:
            self._ended = None

    async def _settled(self) -> None:
        """Nobody runs the slot: what it never let go of is free once its ids are fenced (R3)."""
        around = self._around
        flows = around.membership.releasing(self.slot)
        ids = [
            one
            for flow in sorted(flows)
            for one in transactional_ids(around.job, self.slot, flow, around.settings)
        ]
        while ids:
            try:
                await around.pulse.still()
                ids = await fence(around.cluster, ids)
            except WireError as error:
                self.why = str(error)
                await asyncio.sleep(_PAUSE_S)
        if flows:
            self._log("slot_fenced", flows=", ".join(sorted(flows)))
            around.membership.fenced(self.slot, flows)
            around.changed()

    async def _say(self, word: control.Word) -> None:
        record = Record(control.slot_key(self._around.job, self.slot), control.encode(word))
        await post(self._around.cluster, naming.CONTROL, [record])

    def _spec(self) -> SlotSpec:
        around = self._around
        return SlotSpec(
            job=around.job,
            slot=self.slot,
            destination=around.destination,
            cluster=around.reached[around.destination],
            copy=around.settings,
            sources={name: one for name, one in around.reached.items() if name != around.destination},
        )

    def _log(self, event: str, **fields: Field) -> None:
        own: dict[str, Field] = {"job": self._around.job, "slot": self.slot, "attempt": self.attempt}
        log_fields(event, own | fields, key=self.group)

    @property
    def group(self) -> str:
        """The name of the attempt at Spark: a late request to cancel an attempt ends no newer one."""
        return f"slot {self.slot} attempt {self.attempt}"

    def _become(self, state: SlotState, why: str = "") -> None:
        if state != self.state:
            self.since = time.time()
            if state in ("running", "unscheduled"):
                self._log(f"slot_{state}", error=why)
        self.state = state
        self.why = why


def _raw(assignment: Assignment) -> msgspec.Raw:
    return msgspec.Raw(encode(assignment))
