"""This module starts, edits, pauses, ends and removes the flows of a job, each without disturbing another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec.structs import replace

from runtime.contract.records.job_status import FlowView
from runtime.contract.records.ledger import Generation, GenerationKey, LedgerKey, LedgerValue, PartitionKey
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.driver.flows.copiers import copier_of
from runtime.driver.flows.flow import DriverFlow, FlowPhase
from runtime.driver.flows.start import DriverContext
from runtime.kafka.errors import WireError
from runtime.kafka.timing import BackgroundTasks, now_ms
from runtime.ledger.records import READ_FAILURES
from runtime.ledger.transaction_writer import fence
from runtime.slot import log
from runtime.slot.log import log_driver_message

_RELEASE_TIMEOUT_S = 60.0
_FENCE_AGAIN_S = 1.0
_POLL_S = 0.05


class FlowManager:
    """Owns the flows of a job and applies each new spec to them.

    `restart_duties` is called for each flow that starts, and for one that may not act any more.
    """

    def __init__(
        self,
        shared: DriverContext,
        tasks: BackgroundTasks,
        restart_duties: Callable[[DriverFlow], None],
    ) -> None:
        self.by_name: dict[str, DriverFlow] = {}
        self._shared = shared
        self._tasks = tasks
        self._restart_duties = restart_duties
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
            self._start(DriverFlow(flow, spec, self._shared, copier_of))

    async def apply_spec(self, spec: JobSpec) -> None:
        """Applies another spec; flows that did not change are not restarted.

        Raises WireError; the caller then retries.
        """
        after = {flow.name: flow for flow in spec.flows}
        for flow in spec.flows:  # a topic from before the edit must not count as one that appeared later
            self._shared.clusters.invalidate(flow.source)
        removed = [name for name in self.by_name if name not in after]
        await asyncio.gather(*(self._release(name) for name in removed))
        unfenced = await self._stop_generations(removed)
        for name in removed:
            del self.by_name[name]
            if ids := unfenced.get(name):
                self._running[name] = self._tasks.spawn(self._fence_later(name, ids), f"fence of {name}")
        anew: list[FlowSpec] = []
        for name, flow in after.items():
            before = self.by_name.get(name)
            if before is None:
                await self._stop_task(name)  # of a flow that was removed: this one fences its ids itself
                self._start(DriverFlow(flow, spec, self._shared, copier_of))
            elif before.spec.state != flow.state or flow.restart_from not in (None, before.spec.restart_from):
                anew.append(flow)  # no slot may copy it meanwhile, so it is taken over again
            else:
                # Even an unchanged flow may get other topic names after another flow's route changed.
                version = DriverFlow(flow, spec, self._shared, copier_of)
                await self._stop_task(name)
                version.inherit(before)
                self._start(version)
        # A slot that hangs with one flow must not delay the end of another one.
        await asyncio.gather(*(self._start_anew(flow, spec) for flow in anew))
        self._shared.changed()

    def accept_loss(
        self, name: str, stopped: Iterable[PartitionKey], partitions: Collection[tuple[str, int]]
    ) -> frozenset[PartitionKey]:
        """Accepts data loss for those of the named partitions that a loss has stopped, and returns them."""
        flow = self.by_name.get(name)
        named = frozenset(PartitionKey(name, topic, partition) for topic, partition in partitions)
        accepted = named.intersection(stopped) if flow is not None else frozenset()
        if flow is not None and accepted:
            log.info("loss_accepted", key=name, flow=name, partitions=len(accepted), decision="continue")
            flow.accept_loss(accepted)
        return accepted

    async def stop_all(self) -> None:
        """Records in the ledger that every flow stopped, and fences its transactional ids.

        Raises WireError.
        """
        await asyncio.gather(*map(self._stop_task, self.by_name))
        unfenced = await self._stop_generations(self.by_name, of=("active", "stopped"))
        await asyncio.gather(*(self._fence_later(name, ids) for name, ids in unfenced.items()))

    def _start(self, flow: DriverFlow) -> None:
        log.info("flow_started", key=flow.name, flow=flow.name, state=flow.spec.state)
        self.by_name[flow.name] = flow
        self._running[flow.name] = self._tasks.spawn(self._run(flow), f"flow {flow.name}")
        self._restart_duties(flow)

    async def _run(self, flow: DriverFlow) -> None:
        await flow.run()
        if flow.phase is FlowPhase.SUPERSEDED:
            self._restart_duties(flow)

    async def _start_anew(self, flow: FlowSpec, spec: JobSpec) -> None:
        """Replaces a flow by a version that takes it over again."""
        await self._release(flow.name)
        self._start(DriverFlow(flow, spec, self._shared, copier_of))

    async def _release(self, name: str) -> None:
        """Waits until slots have released the flow and ended its transactions.

        A slot that does not is fenced afterwards.
        """
        flow = self.by_name[name]
        log.info("flow_stopping", key=name, flow=name, partitions=len(flow.partitions))
        await self._stop_task(name)
        flow.release()
        self._restart_duties(flow)
        deadline = asyncio.get_running_loop().time() + _RELEASE_TIMEOUT_S
        while self._shared.membership.holds(name) and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)

    async def _stop_generations(
        self,
        names: Iterable[str],
        of: Collection[str] = ("active", "paused", "promoted", "failed_over", "stopped"),
    ) -> dict[str, dict[str, str]]:
        """Commits generations that stop the flows, then fences every transactional id (R3).

        Flows whose generation has another state than those of `of` stay unchanged. A flow that this driver
        has stopped already is stopped again: its ids may not all be fenced.

        Returns, by flow, the ids that could not be fenced, with the reason: a slot that still runs could copy
        on under them. A flow that another job has taken over stays unchanged.
        """
        shared = self._shared
        records: dict[LedgerKey, LedgerValue | None] = {}
        ids: dict[str, str] = {}  # with their flows
        for name in names:
            try:
                await shared.ledger.decided(name)
                last = shared.ledger.generation(name)
            except READ_FAILURES as error:  # the flow stays unchanged and delays no other flow (R7)
                log_driver_message(f"the generation of {name} can't be read, and is not ended: {error}")
                continue
            if last is None or last.driver != shared.driver or last.ended or last.state not in of:
                continue
            records[GenerationKey(name)] = replace(
                last, number=last.number + 1, state="stopped", written_at=now_ms()
            )
            ids |= dict.fromkeys(last.transactional_ids, name)
        unfenced: dict[str, dict[str, str]] = {}
        if records:
            await shared.leadership.commit(records)
            for transactional_id, why in (await fence(shared.destination, ids)).items():
                unfenced.setdefault(ids[transactional_id], {})[transactional_id] = why
        for key, record in records.items():
            if isinstance(key, GenerationKey) and isinstance(record, Generation):
                log.info("flow_stopped", key=key.flow, flow=key.flow, generation=record.number)
        return unfenced

    async def _fence_later(self, name: str, stuck: Mapping[str, str]) -> None:
        """Fences what is left of the transactional ids of a flow that has stopped, until none is left."""
        while stuck:
            first, why = next(iter(stuck.items()))
            log.warning(
                "flow_not_fenced",
                key=name,
                flow=name,
                ids=len(stuck),
                error=f"{first}: {why}",
                decision="retry",
            )
            await asyncio.sleep(_FENCE_AGAIN_S)
            try:
                await self._shared.leadership.ensure()
                stuck = await fence(self._shared.destination, stuck)
            except WireError as error:
                stuck = dict.fromkeys(stuck, str(error))
        log.info("flow_fenced", key=name, flow=name)

    async def _stop_task(self, name: str) -> None:
        task = self._running.pop(name, None)
        if task is not None:
            await self._tasks.end(task)
