"""Brings one flow of a slot to what is assigned, again and again: begins it, admits, releases, ends it."""

from __future__ import annotations

import asyncio
import contextlib

from msgspec.structs import replace

from runtime.contract.client.values import ClientSettingsError
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.records.status import PartitionState as State
from runtime.contract.records.status import PartitionStatus
from runtime.contract.spec.assignment import AssignedFlow, AssignedPartition
from runtime.kafka.errors import WireError
from runtime.ledger.scan import READ_FAILURES
from runtime.slot.context import Surroundings
from runtime.slot.flow import FlowCopy, Superseded
from runtime.slot.health.watch import watch
from runtime.slot.log import log_event
from runtime.slot.partition import now_ms
from runtime.slot.sources import Source, Sources

_LONGEST_PAUSE_S = 5.0


class FlowRun:
    """A flow that can't begin (its source does not answer, say) keeps trying and disturbs no other (R7).

    `version` is the assignment that is in force: everything that it takes away is let go. While nothing is
    held that is so at once, however long a source takes; otherwise it follows `_reconcile`.
    """

    def __init__(self, name: str, around: Surroundings, sources: Sources) -> None:
        self.name = name
        self.flow: FlowCopy | None = None
        self.version = 0
        self.superseded = ""
        self._around = around
        self._sources = sources
        self._source: Source | None = None
        self._wanted: AssignedFlow | None = None
        self._partitions: dict[PartitionKey, AssignedPartition] = {}
        self._newest = 0
        self._changed = asyncio.Event()
        self._why = ""
        self._unreadable = False
        self._failure: Exception | None = None
        self._reconciling: asyncio.Task[None] | None = None
        self._since_ms = now_ms()

    def want(
        self, version: int, flow: AssignedFlow | None, partitions: dict[PartitionKey, AssignedPartition]
    ) -> None:
        self._newest = version
        if self.flow is None:
            self.version = version
        self._wanted = flow
        self._partitions = partitions if flow is not None else {}
        self._changed.set()

    async def run(self) -> None:
        failures = 0
        while True:
            self._changed.clear()
            version = self._newest
            try:
                await self._unless_it_fails(version)
            except Superseded as outdated:
                log_event(
                    "flow_superseded", key=self.name, flow=self.name, error=str(outdated), decision="end"
                )
                await self._end_flow()
                if self._newest == version:
                    self.superseded = str(outdated)
                    await self._leave_source()
                    return
            except (WireError, ClientSettingsError, *READ_FAILURES) as error:
                self._why, self._unreadable = str(error), isinstance(error, READ_FAILURES)
                failures += 1
                pause = min(0.2 * 2 ** min(failures, 10), _LONGEST_PAUSE_S)
                log_event(
                    "flow_retry",
                    key=self.name,
                    flow=self.name,
                    error=self._why,
                    failures=failures,
                    decision="retry",
                    pause_s=pause,
                )
                await moment_or(self._changed, pause)
            else:
                failures = 0
                self._why, self._unreadable = "", False
                self.version = max(self.version, version)
                await self._changed.wait()

    @property
    def wanted(self) -> bool:
        return self._wanted is not None

    async def drain(self) -> None:
        await self._end_flow()

    def partitions(self) -> list[PartitionStatus]:
        """Every assigned partition, whether it is copied yet or not."""
        copies = self.flow.copies if self.flow is not None else {}
        return [
            copies[key].status() if key in copies else self._not_copied(key, one)
            for key, one in self._partitions.items()
        ]

    def _not_copied(self, key: PartitionKey, assigned: AssignedPartition) -> PartitionStatus:
        missing = self.flow.missing().get(key) if self.flow is not None else None
        if missing is not None and missing[0] == assigned:
            state, why = State.LEDGER_MISSING, missing[1]
        elif self.flow is not None and self.flow.undecided().get(key) == assigned:
            state, why = (
                State.STARTING,
                "an open transaction has written its progress; waiting for its marker",
            )
        elif self.superseded:
            state, why = State.PAUSED, self.superseded
        elif self._unreadable:
            state, why = State.LEDGER_MISSING, f"the ledger can't be read: {self._why}"
        else:
            state, why = (State.RETRYING if self._why else State.STARTING), self._why
        return PartitionStatus(*key, state, self._since_ms, why)

    async def _reconcile(self, version: int) -> None:
        if self._failure is not None:
            await self._end_flow()
            failure, self._failure = self._failure, None
            raise failure
        wanted = self._wanted
        if self.flow is not None and (wanted is None or _begins_anew(self.flow.assigned, wanted)):
            await self._end_flow()
        if self._source is not None and (wanted is None or wanted.spec.source != self._source.name):
            await self._leave_source()
        if wanted is None:
            return
        if self.flow is None:
            self.flow = await self._begun(wanted)
        self.flow.assigned = wanted
        self.flow.set_rate(wanted.rate_limit)
        have = {key: copy.assigned for key, copy in self.flow.copies.items()}
        have.update((key, one) for key, (one, _) in self.flow.missing().items())
        have.update(self.flow.undecided())
        stale = [key for key, assigned in have.items() if self._partitions.get(key) != assigned]
        await self.flow.release(stale)
        self.version = max(self.version, version)  # what can't be admitted holds up no other slot (R7)
        await self.flow.admit(
            assigned for key, assigned in self._partitions.items() if key in stale or key not in have
        )

    async def _begun(self, wanted: AssignedFlow) -> FlowCopy:
        if self._source is None:
            self._source = await self._sources.take(wanted.spec.source)
        source = self._source
        batch = wanted.spec.provenance == "batch" or (
            wanted.spec.native_only and wanted.spec.provenance != "headers"
        )
        directory = source.directory if batch else None
        flow = FlowCopy(wanted, source.cluster, directory, self._around, self.fail)
        try:
            await flow.begin()
        except BaseException:
            await flow.drain()
            raise
        flow.spawn(watch(flow, source.cluster, self._around.destination))
        return flow

    async def _unless_it_fails(self, version: int) -> None:
        """Reconciles. A flow that fails meanwhile releases nothing any more, so that is not awaited."""
        self._reconciling = asyncio.create_task(self._reconcile(version))
        try:
            await self._reconciling
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._failure is None or (task is not None and task.cancelling()):
                raise
            await self._reconcile(version)

    def fail(self, failure: Exception) -> None:
        """The flow ends because of what the ledger holds, and begins again until that can be read."""
        self._failure = failure
        self._changed.set()
        if self._reconciling is not None:
            self._reconciling.cancel()

    async def _end_flow(self) -> None:
        flow = self.flow
        if flow is not None:
            await flow.drain()
            self.flow = None
            self.version = self._newest

    async def _leave_source(self) -> None:
        """Nothing of the flow reads there any more."""
        source, self._source = self._source, None
        if source is not None:
            await self._sources.leave(source)


def _begins_anew(before: AssignedFlow, after: AssignedFlow) -> bool:
    """All but the rate changes what lanes read, how they write or what they may: they begin again."""
    return replace(before, rate_limit=None) != replace(after, rate_limit=None)


async def moment_or(event: asyncio.Event, seconds: float) -> None:
    """Waits so long, or until the event."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
