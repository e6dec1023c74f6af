"""This module starts, edits, pauses, ends and removes the flows of a job, each without disturbing another.

A flow ends, or a topic of it on its own, by a promotion or a failover. The topics of a promotion are copied
until the source holds no uncopied record and no slot holds them. Then their groups are committed a last time.
A failover stops with what has arrived.

Each step of an end stands in the generation record before the next one begins. A driver that succeeds one
that died in between completes the remaining steps. A later driver does not repeat them, so groups that
continued at the destination meanwhile are not moved.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import Any

from msgspec.structs import replace

from runtime.contract.records.job_status import FlowView
from runtime.contract.records.ledger import Generation, GenerationKey, LedgerKey, LedgerValue, PartitionKey
from runtime.contract.spec.flow import ENDED
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.contract.spec.route import Router, router_of
from runtime.contract.spec.selection import NamePatterns
from runtime.driver.duties.group_sync import FinalGroupSync
from runtime.driver.flows.copiers import copier_of
from runtime.driver.flows.flow import DriverFlow, topics_to_drain
from runtime.driver.flows.start import DriverContext
from runtime.kafka.errors import WireError
from runtime.kafka.timing import BackgroundTasks
from runtime.ledger.records import READ_FAILURES
from runtime.ledger.transaction_writer import fence
from runtime.slot import log
from runtime.slot.log import log_driver_message

ENDING = "its groups are translated a last time"


class PromotingFlow(DriverFlow):
    """A PromotingFlow copies a flow and promotes the topics that its spec names."""

    _promoted: Sequence[str] = ()

    @property
    def promoted(self) -> Collection[PartitionKey]:
        names = NamePatterns(self._promoted)
        progress = self.shared.ledger.all_progress(self.name) if self._promoted else {}
        return [key for key in progress if names.match(key.topic)]

    async def run(self) -> None:
        """Completes an unfinished promotion, promotes the topics, then follows the flow until cancelled."""
        if self.generation is None:
            await self._retry_until_done(self._take_over)
        await self._retry_until_done(self._commit_promoted)
        await self._retry_until_done(self._choose_topics)
        while self.draining.topics and not self._superseded:
            await self._drain_topics()
        await self._retry_until_done(self._commit_promoting)
        await self._retry_until_done(self._commit_promoted)
        await super().run()

    async def _own_generation(self) -> Generation | None:
        """Returns the generation as this driver last wrote it.

        It is None once another driver has taken the flow over.
        """
        await self.shared.ledger.decided(self.name)
        last = self.shared.ledger.generation(self.name)
        return last if last is not None and last.number == self.generation else None

    async def _choose_topics(self) -> None:
        last = await self._own_generation()
        closed = last.promoted if last is not None else self.spec.promoted
        self.draining.topics = topics_to_drain(self.spec, self.shared, self.spec.promoted, closed)

    async def _drain_topics(self) -> None:
        """Copies the topics until the source holds no uncopied record and no slot holds them."""
        topics = self.draining.topics
        keys = await self._drain(topics)
        self.partitions = {key: one for key, one in self.partitions.items() if key not in keys}
        await self._await_release(topics)
        await self._retry_until_done(lambda: self._count_behind(keys))
        if not self._behind:
            self.draining.topics = frozenset()

    async def _commit_promoting(self) -> None:
        """Commits the topics as `promoting`, so that later generations do not copy them either."""
        last = await self._own_generation()
        new = [one for one in self.spec.promoted if last is not None and one not in last.promoted]
        if last is not None and new:
            await self._commit_generation(replace(last, promoting=new))

    async def _commit_promoted(self) -> None:
        """Commits the topics' groups a last time, after any pass of group sync that is under way."""
        last = await self._own_generation()
        if last is None:
            return
        if last.promoting:
            topics = topics_to_drain(self.spec, self.shared, last.promoting, last.promoted)
            async with self.draining.group_sync_lock:
                last_sync = FinalGroupSync(self.job, self.spec, self.shared, lambda _: topics, self._wait_for)
                self._group_notes = await last_sync.run()
            last = replace(last, promoted=(*last.promoted, *last.promoting), promoting=[])
            await self._commit_generation(last)
            log.info("topics_promoted", key=self.name, flow=self.name, topics=len(topics))
        self._promoted = last.promoted
        self.shared.leadership.request_heartbeat()

    async def _commit_generation(self, record: Generation) -> None:
        await self.shared.leadership.ensure()
        await self.shared.writer.commit({GenerationKey(self.name): record})

    def view(self) -> FlowView:
        view = super().view()
        why = view.why
        if self.draining.topics and self._behind and not why:
            why = f"{self._behind:,} records of the topics to promote are left to copy"
        return replace(view, why=why, promoted=list(self._promoted))


class EndPhase(Enum):
    """Says how far the end of a flow is: a promotion begins with DRAINING, a failover with ENDING.

    DRAINING → ENDING → ENDED, and from ENDING back to DRAINING where records arrived before the fence.
    """

    DRAINING = auto()  # slots copy what the source still holds
    ENDING = auto()  # no slot may copy: the generation has ended, or ends next; then the groups are moved
    ENDED = auto()


class EndingFlow(DriverFlow):
    """An EndingFlow drains a promoted flow, stops its slots, and translates its groups a last time."""

    def __init__(self, *made_of: Any) -> None:
        super().__init__(*made_of)
        self._phase = EndPhase.DRAINING if self.spec.state == "promoted" else EndPhase.ENDING

    def inherit(self, before: DriverFlow) -> None:
        super().inherit(before)
        if isinstance(before, EndingFlow):
            self._phase = before._phase

    @property
    def copies(self) -> bool:
        return self._phase is EndPhase.DRAINING

    @property
    def ended(self) -> bool:
        return self._phase is EndPhase.ENDED

    async def run(self) -> None:
        """Drains a promoted flow, commits the end of the generation, and translates the groups.

        A promoted flow is drained again when records arrived before the fence.
        """
        if not self.ended:
            await self._retry_until_done(self._restore_end)
        while not self.ended and not self._superseded:
            if self._phase is EndPhase.DRAINING:
                if self.generation is None:
                    await self._retry_until_done(self._take_over)
                await self._drain()
                self._phase = EndPhase.ENDING
                await self._await_release()
            # From the end of the generation on no slot copies the flow.
            await self._retry_until_done(lambda: self._take(self.spec.state, note=ENDING))
            if self.spec.state == "promoted":
                # Records that arrived before the fence are copied first: a promotion must lose nothing.
                await self._retry_until_done(lambda: self._count_behind(self.partitions))
                if self._behind:
                    self._phase, self.generation = EndPhase.DRAINING, None
                    continue
            await self._retry_until_done(self._complete_end)

    async def _restore_end(self) -> None:
        """Restores the flow's end from the ledger if an earlier driver completed it."""
        shared = self.shared
        await shared.ledger.decided(self.name)
        last = shared.ledger.generation(self.name)
        if last is not None and last.state == self.spec.state and last.note != ENDING:
            self.generation = last.number
            self._cluster_ids = (last.source_cluster_id, last.destination_cluster_id)
            self._phase = EndPhase.ENDED
        # Topics whose own promotion is not complete end together with the flow.
        closed = last.promoted if last is not None else ()
        self.draining.topics = topics_to_drain(self.spec, shared, self.spec.promoted, closed)

    async def _complete_end(self) -> None:
        """Translates the groups a last time and commits the generation without the note."""
        shared = self.shared
        if shared.ledger.all_progress(self.name):
            last_sync = FinalGroupSync(self.job, self.spec, self.shared, self.selected, self._wait_for)
            self._group_notes = await last_sync.run()
        await shared.ledger.decided(self.name)
        last = shared.ledger.generation(self.name)
        if last is not None and last.note == ENDING and last.number == self.generation:
            promoted = [*dict.fromkeys([*last.promoted, *self.spec.promoted])]
            done = replace(last, note="", written_at=int(time.time() * 1000), promoted=promoted, promoting=[])
            await shared.writer.commit({GenerationKey(self.name): done})
        self._phase = EndPhase.ENDED
        shared.leadership.request_heartbeat()
        log.info(
            "flow_ended", key=self.name, flow=self.name, state=self.spec.state, generation=self.generation
        )

    def view(self) -> FlowView:
        view = super().view()
        if self.copies and self._behind and not view.why:
            return replace(view, why=f"{self._behind:,} records are left to copy")
        return view


_RELEASE_TIMEOUT_S = 60.0
_FENCE_AGAIN_S = 1.0
_POLL_S = 0.05


class FlowManager:
    """A FlowManager object owns the flows of a job and applies each new spec to them."""

    def __init__(
        self,
        shared: DriverContext,
        tasks: BackgroundTasks,
        began: Callable[[DriverFlow], None],
    ) -> None:
        self.by_name: dict[str, DriverFlow] = {}
        self._shared = shared
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
                self._start(self._create(flow, spec))
            elif before.spec.state != flow.state or flow.restart_from not in (None, before.spec.restart_from):
                anew.append(flow)  # no slot may copy it meanwhile, so it is taken over again
            else:
                await self._edit(before, flow, spec)
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
        for name in list(self.by_name):
            await self._stop_task(name)
        unfenced = await self._stop_generations([flow.name for flow in self.all() if flow.copies])
        await asyncio.gather(*(self._fence_later(name, ids) for name, ids in unfenced.items()))

    def _create(self, flow: FlowSpec, spec: JobSpec) -> DriverFlow:
        return flow_of(flow, spec, router_of(spec), self._shared)

    def _start(self, flow: DriverFlow) -> None:
        log.info("flow_started", key=flow.name, flow=flow.name, state=flow.spec.state)
        self.by_name[flow.name] = flow
        self._running[flow.name] = self._tasks.spawn(flow.run(), f"flow {flow.name}")
        if flow.copier.mirrors:
            self._began(flow)

    async def _edit(self, before: DriverFlow, flow: FlowSpec, spec: JobSpec) -> None:
        """Replaces a flow by its new version.

        Even an unchanged flow may get other topic names after another flow's route changed.
        """
        after = self._create(flow, spec)
        await self._stop_task(flow.name)
        after.inherit(before)
        self._start(after)

    async def _start_anew(self, flow: FlowSpec, spec: JobSpec) -> None:
        """Replaces a flow by a version that takes it over again."""
        await self._release(flow.name)
        self._start(self._create(flow, spec))

    async def _release(self, name: str) -> None:
        """Waits until slots have released the flow and ended its transactions.

        A slot that does not is fenced afterwards.
        """
        flow = self.by_name[name]
        log.info("flow_stopping", key=name, flow=name, partitions=len(flow.partitions))
        await self._stop_task(name)
        flow.partitions = {}
        self._shared.changed()
        deadline = asyncio.get_running_loop().time() + _RELEASE_TIMEOUT_S
        while self._shared.membership.holds(name) and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)

    async def _stop_generations(self, names: list[str]) -> dict[str, dict[str, str]]:
        """Commits generations that stop the flows, then fences every transactional id (R3).

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
            if last is None or last.driver != shared.driver or last.ended:
                continue
            now_ms = int(time.time() * 1000)
            records[GenerationKey(name)] = replace(
                last, number=last.number + 1, state="stopped", written_at=now_ms
            )
            ids |= dict.fromkeys(last.transactional_ids, name)
        unfenced: dict[str, dict[str, str]] = {}
        if records:
            await shared.writer.commit(records)
            for one, why in (await fence(shared.destination, ids)).items():
                unfenced.setdefault(ids[one], {})[one] = why
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


def flow_of(flow: FlowSpec, job: JobSpec, router: Router, shared: DriverContext) -> DriverFlow:
    """Returns a flow of the job: one that ends, one that promotes topics, or one that only copies."""
    kind: type[DriverFlow] = DriverFlow
    if flow.state in ENDED:
        kind = EndingFlow
    elif flow.promoted and flow.state == "active":
        kind = PromotingFlow
    return kind(flow, job, shared, lambda flow: copier_of(flow, router))
