"""This module starts, edits, pauses and removes the flows of a job, each without disturbing another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable

from msgspec.structs import replace

from runtime.contract.records.job_status import FlowView
from runtime.contract.records.ledger import Generation, GenerationKey, LedgerKey, LedgerValue, PartitionKey
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.contract.spec.route import router_of
from runtime.driver.flows.files import FileFlow
from runtime.driver.flows.flow import DriverFlow
from runtime.driver.flows.promotion import ENDED, EndingFlow, PromotingFlow
from runtime.driver.flows.start import FlowContext
from runtime.driver.slots.membership import Membership
from runtime.kafka.timing import BackgroundTasks
from runtime.ledger.records import READ_FAILURES
from runtime.ledger.transaction_writer import fence
from runtime.slot import log
from runtime.slot.log import log_driver_message

_RELEASE_TIMEOUT_S = 60.0
_POLL_S = 0.05


class FlowManager:
    """A FlowManager object owns the flows of a job and applies each new spec to them."""

    def __init__(
        self,
        shared: FlowContext,
        membership: Membership,
        tasks: BackgroundTasks,
        began: Callable[[DriverFlow], None],
    ) -> None:
        self.by_name: dict[str, DriverFlow] = {}
        self._shared = shared
        self._membership = membership
        self._tasks = tasks
        self._began = began
        self._running: dict[str, asyncio.Task[None]] = {}

    def views(self) -> list[FlowView]:
        """Returns the status of each flow."""
        return [flow.view() for flow in self.by_name.values()]

    def all(self) -> list[DriverFlow]:
        """Returns all flows of the job."""
        return list(self.by_name.values())

    def start(self, spec: JobSpec) -> None:
        """Starts the flows of the job's first spec."""
        for flow in spec.flows:
            self._start(self._create(flow, spec))

    async def apply_spec(self, spec: JobSpec) -> None:
        """Applies another spec; flows that did not change are not restarted.

        Raises WireError; the caller then retries.
        """
        after = {flow.name: flow for flow in spec.flows}
        for flow in spec.flows:  # a topic from before the edit must not count as one that appeared later
            self._shared.clusters.invalidate(flow.source)
        for name in [name for name in self.by_name if name not in after]:
            await self._release(name)
            await self._stop_generations([name])
            del self.by_name[name]
        for name, flow in after.items():
            before = self.by_name.get(name)
            if before is None:
                self._start(self._create(flow, spec))
            elif before.spec.state != flow.state or _starts_over(before.spec, flow):
                await self._release(name)
                self._start(self._create(flow, spec))
            else:
                await self._edit(before, flow, spec)
        self._shared.changed()

    def accept_loss(
        self, name: str, stopped: Iterable[PartitionKey], partitions: Collection[tuple[str, int]]
    ) -> None:
        """Accepts data loss for those of the named partitions that a loss has stopped."""
        flow = self.by_name.get(name)
        if flow is not None:
            asked = {PartitionKey(name, topic, partition) for topic, partition in partitions}
            accepted = asked.intersection(stopped)
            log.info("loss_accepted", key=name, flow=name, partitions=len(accepted), decision="continue")
            flow.accept_loss(accepted)

    async def stop_all(self) -> None:
        """Records in the ledger that every flow stopped, and fences its transactional ids.

        Raises WireError.
        """
        for name in list(self.by_name):
            await self._stop_task(name)
        await self._stop_generations([flow.name for flow in self.all() if flow.copies])

    def _create(self, flow: FlowSpec, spec: JobSpec) -> DriverFlow:
        return _kind(flow)(flow, spec, router_of(spec), self._shared)

    def _start(self, flow: DriverFlow) -> None:
        log.info("flow_started", key=flow.name, flow=flow.name, state=flow.spec.state)
        self.by_name[flow.name] = flow
        self._running[flow.name] = self._tasks.spawn(flow.run(), f"flow {flow.name}")
        if not isinstance(flow, FileFlow):
            self._began(flow)

    async def _edit(self, before: DriverFlow, flow: FlowSpec, spec: JobSpec) -> None:
        """Replaces a flow by its new version; even an unchanged flow may get other topic names after
        another flow's route changed.
        """
        after = self._create(flow, spec)
        await self._stop_task(flow.name)
        after.inherit(before)
        self._start(after)

    async def _release(self, name: str) -> None:
        """Waits until slots have released the flow and ended its transactions; a slot that does not is
        fenced afterwards.
        """
        flow = self.by_name[name]
        log.info("flow_stopping", key=name, flow=name, partitions=len(flow.partitions))
        await self._stop_task(name)
        flow.partitions = {}
        self._shared.changed()
        deadline = asyncio.get_running_loop().time() + _RELEASE_TIMEOUT_S
        while self._membership.holds(name) and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)

    async def _stop_generations(self, names: list[str]) -> None:
        """Commits generations that stop the flows, then fences every transactional id (R3).

        A flow that another job has taken over stays unchanged.
        """
        shared = self._shared
        records: dict[LedgerKey, LedgerValue | None] = {}
        ids: list[str] = []
        for name in names:
            try:
                await shared.ledger.decided(name)
                last = shared.ledger.generation(name)
            except READ_FAILURES as error:  # the flow stays unchanged and delays no other flow (R7)
                log_driver_message(f"the generation of {name} can't be read, and is not ended: {error}")
                continue
            if last is None or last.driver != shared.driver or last.ended:
                continue
            now_ms = int(time.time() * 1000)
            records[GenerationKey(name)] = replace(
                last, number=last.number + 1, state="stopped", written_at=now_ms
            )
            ids += last.transactional_ids
        if records:
            await shared.writer.commit(records)
            await fence(shared.destination, ids)
        for key, record in records.items():
            if isinstance(key, GenerationKey) and isinstance(record, Generation):
                log.info("flow_stopped", key=key.flow, flow=key.flow, generation=record.number)

    async def _stop_task(self, name: str) -> None:
        task = self._running.pop(name, None)
        if task is not None:
            await self._tasks.end(task)


def _kind(flow: FlowSpec) -> type[DriverFlow]:
    if flow.files is not None:
        return FileFlow
    if flow.state in ENDED:
        return EndingFlow
    return PromotingFlow if flow.promoted and flow.state == "active" else DriverFlow


def _starts_over(before: FlowSpec, after: FlowSpec) -> bool:
    """Returns whether the flow starts over; no slot may copy it meanwhile, so it is taken over again."""
    return after.restart_from is not None and after.restart_from != before.restart_from
