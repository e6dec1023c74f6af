"""The flows of a job: begun, edited, paused and let go, each without disturbing another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable

from msgspec.structs import replace

from runtime.contract.records.job_status import FlowView
from runtime.contract.records.ledger import GenerationKey, LedgerKey, LedgerValue, PartitionKey
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.contract.spec.spec_routes import router_of
from runtime.driver.flows.ending import ENDED, EndingFlow
from runtime.driver.flows.flow import FlowWork
from runtime.driver.flows.promoting import PromotingFlow
from runtime.driver.flows.takeover import Shared
from runtime.driver.log import say
from runtime.driver.slots.membership import Membership
from runtime.driver.tasks import Tasks
from runtime.ledger.ledger_writer import fence
from runtime.ledger.scan import READ_FAILURES

_LET_GO_S = 60.0
_POLL_S = 0.05


class Flows:
    """`run_by` a spec, and by another one later."""

    def __init__(
        self, shared: Shared, membership: Membership, tasks: Tasks, began: Callable[[FlowWork], None]
    ) -> None:
        self.by_name: dict[str, FlowWork] = {}
        self._shared = shared
        self._membership = membership
        self._tasks = tasks
        self._began = began
        self._running: dict[str, asyncio.Task[None]] = {}

    def views(self) -> list[FlowView]:
        return [flow.view() for flow in self.by_name.values()]

    def all(self) -> list[FlowWork]:
        return list(self.by_name.values())

    def begin(self, spec: JobSpec) -> None:
        for flow in spec.flows:
            self._start(self._made(flow, spec))

    async def run_by(self, spec: JobSpec) -> None:
        """From now on these flows; what did not change is not touched. Raises WireError: then again."""
        after = {flow.name: flow for flow in spec.flows}
        for flow in spec.flows:  # a topic that was there before the edit is no late arrival
            self._shared.clusters.stale(flow.source)
        for name in [name for name in self.by_name if name not in after]:
            await self._let_go(name)
            await self._nobody_copies([name])
            del self.by_name[name]
        for name, flow in after.items():
            before = self.by_name.get(name)
            if before is None:
                self._start(self._made(flow, spec))
            elif before.spec.state != flow.state or _starts_over(before.spec, flow):
                await self._let_go(name)
                self._start(self._made(flow, spec))
            else:
                await self._edit(before, flow, spec)
        self._shared.changed()

    def accept_loss(
        self, name: str, stopped: Iterable[PartitionKey], partitions: Collection[tuple[str, int]]
    ) -> None:
        flow = self.by_name.get(name)
        if flow is not None:
            asked = {PartitionKey(name, topic, partition) for topic, partition in partitions}
            flow.accept_loss(asked.intersection(stopped))

    async def goodbye(self) -> None:
        """Nothing runs any more: the ledger says so, and every id is fenced. Raises WireError."""
        for name in list(self.by_name):
            await self._stop_task(name)
        await self._nobody_copies([flow.name for flow in self.all() if flow.copies])

    def _made(self, flow: FlowSpec, spec: JobSpec) -> FlowWork:
        return _kind(flow)(flow, spec, router_of(spec), self._shared)

    def _start(self, flow: FlowWork) -> None:
        self.by_name[flow.name] = flow
        self._running[flow.name] = self._tasks.spawn(flow.run(), f"flow {flow.name}")
        self._began(flow)

    async def _edit(self, before: FlowWork, flow: FlowSpec, spec: JobSpec) -> None:
        """Even a flow that is the same may take other names: another one's route changed."""
        after = self._made(flow, spec)
        await self._stop_task(flow.name)
        after.inherit(before)
        self._start(after)

    async def _let_go(self, name: str) -> None:
        """Its slots release it: their transactions end. A slot that can't is fenced afterwards anyway."""
        flow = self.by_name[name]
        await self._stop_task(name)
        flow.partitions = {}
        self._shared.changed()
        deadline = asyncio.get_running_loop().time() + _LET_GO_S
        while self._membership.holds(name) and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)

    async def _nobody_copies(self, names: list[str]) -> None:
        """The ledger says so first, then every id is fenced (R3). What another job has is left alone."""
        shared = self._shared
        records: dict[LedgerKey, LedgerValue | None] = {}
        ids: list[str] = []
        for name in names:
            try:
                await shared.ledger.decided(name)
                last = shared.ledger.generation(name)
            except READ_FAILURES as error:  # it stays as it is, and holds up no other flow (R7)
                say(f"the generation of {name} can't be read, and is not ended: {error}")
                continue
            if last is None or last.driver != shared.driver or last.ended:
                continue
            moment = int(time.time() * 1000)
            records[GenerationKey(name)] = replace(
                last, number=last.number + 1, state="stopped", written_at=moment
            )
            ids += last.transactional_ids
        if records:
            await shared.writer.commit(records)
            await fence(shared.destination, ids)

    async def _stop_task(self, name: str) -> None:
        task = self._running.pop(name, None)
        if task is not None:
            await self._tasks.end(task)


def _kind(flow: FlowSpec) -> type[FlowWork]:
    if flow.state in ENDED:
        return EndingFlow
    return PromotingFlow if flow.promoted and flow.state == "active" else FlowWork


def _starts_over(before: FlowSpec, after: FlowSpec) -> bool:
    """Nobody may copy it meanwhile: it is taken over anew."""
    return after.restart_from is not None and after.restart_from != before.restart_from
