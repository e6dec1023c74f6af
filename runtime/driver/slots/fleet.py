"""All slots of a job: who copies what is told to them, and what they report is taken in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from runtime.contract.records import job_status
from runtime.contract.records.job_status import SlotKey, SlotReport, SlotView, UnreadableStatus
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.records.status import PartitionState
from runtime.contract.spec import naming
from runtime.contract.spec.assignment import AssignedFlow
from runtime.contract.spec.jobspec import ConfigsSpec, Earliest, FlowSpec, GroupsSpec, SelectionSpec
from runtime.driver.flows.flow import FlowWork
from runtime.driver.jvm import JvmSilent
from runtime.driver.log import say
from runtime.driver.slots.channel import Skipped, Tail
from runtime.driver.slots.keeper import SlotKeeper, Surroundings
from runtime.driver.slots.rates import Rates
from runtime.driver.tasks import Tasks
from runtime.kafka.errors import WireError

_LEVEL_S = 30.0
_LOOK_S = 1.0
_PATIENCE_S = 10.0  # for a core
_LET_GO_S = 45.0  # a slot that does not let go of a partition by then is started anew
_PAUSE_S = 0.5


class Fleet:
    def __init__(
        self,
        slots: int,
        around: Surroundings,
        flows: Callable[[], Iterable[FlowWork]],
        tasks: Tasks,
        heard: Callable[[SlotReport], None],
    ) -> None:
        self.keepers = [SlotKeeper(slot, around) for slot in range(slots)]
        self.reports: dict[int, SlotReport] = {}
        self._around = around
        self._flows = flows
        self._tasks = tasks
        self._heard = heard
        self.jvm_trouble = ""
        self._dirty = asyncio.Event()
        self._rates = Rates()
        self._releasing_since: dict[int, float] = {}
        self._without_core: dict[int, float] = {}
        self.skipped = Skipped(naming.STATUS)

    def start(self, status_offset: int) -> None:
        for keeper in self.keepers:
            self._tasks.spawn(keeper.run(), f"slot {keeper.slot}")
        self._tasks.spawn(self._listen(status_offset), "listen")
        self._tasks.spawn(self._spread(), "spread")
        self._tasks.spawn(self._look(), "look")
        self._tasks.spawn(self._level(), "level")

    def changed(self) -> None:
        """What is to be copied, or what slots hold, is another than before."""
        self._dirty.set()

    def views(self) -> list[SlotView]:
        return [keeper.view() for keeper in self.keepers]

    def stopped(self) -> list[PartitionKey]:
        return over_loss(self.reports.values())

    async def stop(self) -> None:
        await asyncio.gather(*(keeper.stop() for keeper in self.keepers))

    async def _spread(self) -> None:
        membership = self._around.membership
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            active = [flow for flow in self._flows() if flow.active]
            flows = {flow.name: AssignedFlow(for_slots(flow.spec), flow.generation or 0) for flow in active}
            rates = {flow.name: flow.spec.rate_limit for flow in active}
            partitions = {key: one for flow in active for key, one in flow.partitions.items()}
            membership.want(flows, rates, partitions)
            try:
                for keeper in self.keepers:
                    await keeper.tell()
            except WireError:
                await asyncio.sleep(_PAUSE_S)
                self._dirty.set()

    async def _listen(self, offset: int) -> None:
        tail = Tail(self._around.cluster, naming.STATUS, offset, self.skipped)
        while True:
            try:
                found = await tail.read()
            except WireError:
                await asyncio.sleep(_PAUSE_S)
                continue
            for record in found:
                key = job_status.decode_key(record.key)
                if isinstance(key, SlotKey) and key.job == self._around.job and record.value is not None:
                    self._hear(key.slot, record.value, record.offset)

    def _hear(self, slot: int, value: bytes, offset: int) -> None:
        try:
            report = job_status.decode_slot(value)
        except UnreadableStatus as error:
            self.skipped.add(offset, str(error))
            return
        if report.driver != self._around.driver or not 0 <= slot < len(self.keepers):
            return
        self.reports[slot] = report
        self.keepers[slot].heard(report)
        self._heard(report)
        self._rates.take(report.status.at_ms, report.status.partitions)
        healthy = [
            PartitionKey(one.flow, one.topic, one.partition)
            for one in report.status.partitions
            if one.state in (PartitionState.COPYING, PartitionState.CAUGHT_UP)
        ]
        for flow in self._flows():
            if flow.accepted:
                flow.goes_on(healthy)

    async def _look(self) -> None:
        """Slots without a core, slots that do not let go."""
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                await self._look_once()
            except JvmSilent as error:
                if not self.jvm_trouble:
                    say(str(error))
                self.jvm_trouble = str(error)
            else:
                self.jvm_trouble = ""

    async def _look_once(self) -> None:
        for keeper in self.keepers:
            if keeper.state in ("submitted", "unscheduled"):
                keeper.doubt(await self._around.application.scheduled(keeper.group))
        await self._use_what_runs()
        await self._free_what_is_held()

    async def _use_what_runs(self) -> None:
        """What waits for a core too long goes to slots that have one, until there are more cores."""
        now = time.monotonic()
        running = sum(keeper.state == "running" for keeper in self.keepers)
        for keeper in self.keepers:
            if keeper.state == "unscheduled":
                since = self._without_core.setdefault(keeper.slot, now)
                if now - since > _PATIENCE_S and running:
                    await self._around.application.cancel(keeper.group)
            elif keeper.state == "running" or await self._around.application.cores() > running:
                self._without_core.pop(keeper.slot, None)
        without = {slot for slot, since in self._without_core.items() if now - since > _PATIENCE_S}
        usable = [keeper.slot for keeper in self.keepers if keeper.slot not in without]
        if self._around.membership.use(usable):
            self.changed()

    async def _free_what_is_held(self) -> None:
        now = time.monotonic()
        for keeper in self.keepers:
            if keeper.state == "running" and self._around.membership.releasing(keeper.slot):
                if now - self._releasing_since.setdefault(keeper.slot, now) > _LET_GO_S:
                    await keeper.restart("did not let go of partitions in time")
                    self._releasing_since.pop(keeper.slot)
            else:
                self._releasing_since.pop(keeper.slot, None)

    async def _level(self) -> None:
        while True:
            await asyncio.sleep(_LEVEL_S)
            self._around.membership.measured(self._rates.by_partition)
            self._around.membership.level()
            self.changed()


def over_loss(reports: Iterable[SlotReport]) -> list[PartitionKey]:
    """Partitions that go on once somebody accepts what is lost: to no other state is that an answer."""
    return [
        PartitionKey(one.flow, one.topic, one.partition)
        for report in reports
        for one in report.status.partitions
        if one.state.over_loss
    ]


def for_slots(spec: FlowSpec) -> FlowSpec:
    """Without what only the driver goes by: a change of it is nothing that a slot must begin anew for."""
    return replace(
        spec,
        topics=SelectionSpec(include=[]),
        start=Earliest(),
        restart_from=None,
        promoted=[],
        configs=ConfigsSpec(),
        groups=GroupsSpec(),
        acls_sync=False,
        rate_limit=None,
        follow_every_ms=None,
        heartbeats_every_ms=None,
        checkpoints_every_ms=None,
        origin_commits=None,
        on_source_delete="keep",
    )
