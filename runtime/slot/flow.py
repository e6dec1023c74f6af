"""A flow in a slot owns its lanes and its reading, and handles the events of both."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping

from runtime.contract.records.ledger import PartitionKey, Progress, UnreadableRecord, partition_of
from runtime.contract.records.producers import FlowProducer
from runtime.contract.records.status import FlowStats
from runtime.contract.spec import naming
from runtime.contract.spec.assignment import AssignedFlow, AssignedPartition, transactional_ids
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import WireError
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.protocol.transactions import ProducerIdentity
from runtime.ledger.ledger import UndecidedProgress
from runtime.ledger.producer_directory import ProducerDirectory, register
from runtime.ledger.scan import READ_FAILURES
from runtime.slot.budget import TokenBucket
from runtime.slot.context import SlotContext
from runtime.slot.errors import ErrorAction, ErrorDecision
from runtime.slot.health.foreign_writes import ForeignWrites
from runtime.slot.health.supervisor import PartitionSupervisor
from runtime.slot.log import log_event
from runtime.slot.partition import PartitionCopy, now_ms
from runtime.slot.read.reading import SourceReader
from runtime.slot.settings import lane_settings
from runtime.slot.stats import FlowCounters
from runtime.slot.write.closing import CommitEntry, LedgerPartitions
from runtime.slot.write.lane import Lane
from runtime.slot.write.lanes import LaneSet
from runtime.slot.write.owner import SlotMustEnd
from runtime.slot.write.transaction import Transaction, TransactionFailure

_DECIDED_PAUSE_S = 0.02
_DRAIN_S = 15.0
_NO_PROGRESS = "the ledger has no progress of it; it does not start over"


class Superseded(Exception):
    """The ledger holds another generation of the flow, so this slot must not write for it (R3)."""


class FlowCopy:
    """A flow owns the partitions that the slot copies for it, and its lanes, reading and supervisor.

    `begin` comes first, then `admit` and `release` for partitions, and `drain` at the end. `unreadable` is
    called when the flow can't continue because the ledger can't be read: the flow must then be drained.
    """

    def __init__(
        self,
        assigned: AssignedFlow,
        source: KafkaCluster,
        directory: ProducerDirectory | None,
        context: SlotContext,
        unreadable: Callable[[Exception], None],
    ) -> None:
        self.assigned = assigned
        self.spec = assigned.spec
        self.name = assigned.spec.name
        self.copies: dict[PartitionKey, PartitionCopy] = {}
        self.superseded = ""
        self.counters = FlowCounters()
        self._source = source
        self._context = context
        self._place = LedgerPartitions(
            TopicPartition(naming.LEDGER, context.ledger.partition(self.name)),
            TopicPartition(naming.OFFSET_MAP, partition_of(self.name, context.map_partitions)),
            assigned.generation,
        )
        loop = asyncio.get_running_loop()
        self._bucket = TokenBucket(assigned.rate_limit, loop.time)
        self._lanes = LaneSet(self._create_lanes(), context.settings.lanes, self._run_lane)
        self._supervisor = PartitionSupervisor(
            source, context.destination, context.settings, assigned.generation, self
        )
        self._reading = SourceReader(
            self.spec, source, directory, context, self._bucket, self._supervisor, self.spawn
        )
        self._foreign = ForeignWrites(self.name, context.destination, context.producers, self.copies)
        self._tasks: set[asyncio.Task[None]] = set()
        self._lane_tasks: set[asyncio.Task[None]] = set()
        self._unreadable = unreadable
        self._missing: dict[PartitionKey, tuple[AssignedPartition, str]] = {}
        self._undecided: dict[PartitionKey, AssignedPartition] = {}

    # What the slot calls

    async def begin(self) -> None:
        """Initialises the transactional ids, then reads the generation, then the progress (fencing 3).

        Raises Superseded, WireError, and READ_FAILURES for a generation that can't be read.
        """
        await self._lanes.begin()
        await self._context.ledger.decided(self.name)
        self._check_generation()
        log_event("flow_begun", key=self.name, flow=self.name, generation=self.assigned.generation)
        self.spawn(self._supervisor.run())
        self.spawn(self._supervisor.run_retries())
        if not self.spec.shared:
            self.spawn(self._foreign.run())

    def _check_generation(self) -> None:
        """Raises Superseded where the ledger's generation is not this slot's, or is not active."""
        generation = self._context.ledger.generation(self.name)
        mine = self.assigned.generation
        if generation is None or generation.number != mine or generation.state != "active":
            found = f"{generation.number}, {generation.state}" if generation else "none"
            self.superseded = f"the ledger's generation of {self.name} is {found}; this slot's is {mine}"
            raise Superseded(self.superseded)

    async def admit(self, partitions: Iterable[AssignedPartition]) -> None:
        """Reads the progress of partitions, inspects both sides, and starts copying.

        A partition without progress is not copied: it is reported as missing (R1). Raises Superseded,
        WireError.
        """
        wanted = list(partitions)
        await self._context.ledger.refresh(self.name)
        self._check_generation()
        for assigned in wanted:
            try:
                progress = self._context.ledger.progress(assigned.key)
            except UnreadableRecord as error:
                self._missing[assigned.key] = assigned, f"its progress can't be read: {error}"
                continue
            if isinstance(progress, UndecidedProgress):
                self._undecided[assigned.key] = assigned
                self.spawn(self._admit_later(assigned))
            else:
                self._admit(assigned, progress)

    def _admit(self, assigned: AssignedPartition, progress: Progress | None) -> None:
        """Adds a partition with its progress, or reports it as missing."""
        if progress is None:
            self._missing[assigned.key] = assigned, _NO_PROGRESS
            return
        copy = PartitionCopy(assigned, progress, shared=self.spec.shared)
        self.copies[assigned.key] = copy
        self._supervisor.admit([copy])

    async def _admit_later(self, assigned: AssignedPartition) -> None:
        """Admits a partition once its progress is decided.

        An open transaction of its former slot has written progress, and its markers are not written yet.
        """
        try:
            progress = await self.decided(assigned.key)
        except READ_FAILURES as error:
            if self._undecided.pop(assigned.key, None) is assigned:
                self._missing[assigned.key] = assigned, f"its progress can't be read: {error}"
            return
        if self._undecided.pop(assigned.key, None) is assigned:
            self._admit(assigned, progress)

    async def release(self, keys: Iterable[PartitionKey]) -> None:
        """Stops copying partitions and returns once no open transaction holds any of them."""
        copies = [copy for key in keys if (copy := self.copies.pop(key, None)) is not None]
        for key in keys:
            self._missing.pop(key, None)
            self._undecided.pop(key, None)
        for copy in copies:
            copy.releasing = True
            self._supervisor.forget(copy)
            self.halt(copy)
        for copy in copies:
            if copy.lane is not None:
                await copy.lane.free(copy)
            copy.rewind()

    async def drain(self) -> None:
        """Ends the open transactions, then stops every task of the flow."""
        for task in self._tasks:
            task.cancel()
        self._supervisor.close()
        for lane in self._lanes.all:
            lane.drain()
        lanes = set(self._lane_tasks)
        if lanes:
            _, waiting = await asyncio.wait(lanes, timeout=_DRAIN_S)
            for task in waiting:
                task.cancel()
        await asyncio.gather(*self._tasks, *lanes, return_exceptions=True)
        for copy in self.copies.values():
            copy.rewind()

    def set_rate(self, rate_limit: int | None) -> None:
        """Changes the flow's rate limit in bytes per second; None means no limit."""
        self._bucket.set_rate(rate_limit)

    def missing(self) -> Mapping[PartitionKey, tuple[AssignedPartition, str]]:
        """Returns the partitions whose progress is missing or can't be read, each with the reason."""
        return self._missing

    def undecided(self) -> Mapping[PartitionKey, AssignedPartition]:
        """Returns the partitions whose progress an open transaction has written."""
        return self._undecided

    def inspect_topics(self, topics: Iterable[str]) -> None:
        """Inspects the partitions of topics whose ids differ from the ledger's at one side."""
        changed = set(topics)
        for copy in self.copies.values():
            if copy.fetchable and (copy.key.topic in changed or copy.at.topic in changed):
                self._supervisor.inspect_later(copy, "a topic's id changed")

    def stats(self) -> FlowStats:
        """Returns the flow's counters for the slot's status."""
        throttled_ms = int(self._bucket.throttled_s * 1000)
        return self.counters.stats(self.name, self._lanes.aborts(), throttled_ms, self._lanes.stuck())

    # What the lanes call

    def committed(self, lane: Lane, tx: Transaction, entries: list[CommitEntry]) -> None:
        """Handles a committed transaction: counters, foreign writes, and the states of its partitions."""
        self.counters.committed(tx, entries, now_ms())
        self._foreign.committed(tx.parts)
        for copy, _, _, part, step in entries:
            copy.failures = 0
            if copy.suspect and part is not None:
                copy.suspect = False
                self._lanes.place(copy)
            if step is None:
                self._supervisor.admit([copy])
            copy.settle()

    def failed(
        self, lane: Lane, failure: TransactionFailure, decision: ErrorDecision, parts: list[PartitionCopy]
    ) -> None:
        """Handles an aborted transaction: the blamed partitions are stopped, retried or inspected."""
        why = str(failure)
        for copy in parts:
            copy.aborts += 1
            copy.abort_reason = why
        for copy in failure.copies:
            match decision.do:
                case ErrorAction.STOP if decision.state is not None:
                    copy.suspect = True
                    self._supervisor.stop(copy, decision.state, why)
                case ErrorAction.SUSPECT:
                    copy.suspect = True
                    self._supervisor.retry(copy, why)
                case ErrorAction.INSPECT:
                    self._supervisor.inspect_later(copy, why)

    def rewound(self, copies: Iterable[PartitionCopy]) -> None:
        """Fetches partitions from their committed positions again."""
        for copy in copies:
            self._reading.mark_changed(copy)

    def on_not_ready(self, copy: PartitionCopy, why: str) -> None:
        """Retries a partition that must not join a transaction now."""
        copy.rewind()
        self._supervisor.retry(copy, why)

    def on_leader_change(self, copy: PartitionCopy) -> None:
        """Rewinds and inspects a partition whose leader at the destination has changed (R4)."""
        leader = self._context.destination.leader(*copy.at)
        log_event(
            "leader_changed",
            key=copy.label,
            **copy.logged(),
            side="destination",
            leader=leader.leader if leader is not None else None,
            leader_epoch=leader.leader_epoch if leader is not None else None,
            decision="look",
        )
        copy.rewind()
        self._supervisor.inspect_now(copy)

    def stuck(self, lane: Lane) -> None:
        """Moves a stuck lane's partitions to other lanes; those in its transaction hold no memory (R8)."""
        log_event(
            "lane_stuck",
            key=lane.transactional_id,
            level=logging.WARNING,
            flow=self.name,
            transactional_id=lane.transactional_id,
            decision="partitions go to other lanes",
        )
        self._reading.hold(copy for copy in lane.copies if copy.busy)
        self._lanes.move_from_stuck_lane(lane)

    def freed(self, lane: Lane) -> None:
        """Moves partitions that are left in other stuck lanes, now that a lane works again."""
        log_event(
            "lane_freed", key=lane.transactional_id, flow=self.name, transactional_id=lane.transactional_id
        )
        for copy in list(self.copies.values()):
            if not copy.busy and copy.lane is not None and not copy.suspect and copy.lane.is_stuck:
                self._lanes.place(copy)

    def sent(self, copy: PartitionCopy) -> None:
        """Lets the reading fetch more, because a batch left the partition's queue."""
        self._reading.batches_sent(copy)

    async def register(self, identity: ProducerIdentity) -> None:
        """Writes the producer id to the destination's producer directory, as this flow's."""
        spec = self.spec
        undoes = spec.destination if spec.reverse_of is not None else None
        producer = FlowProducer(self.name, spec.source, self._source.cluster_id, spec.rename, undoes=undoes)
        await register(self._context.destination, identity.producer_id, producer, now_ms())

    async def confirm(self, lane: Lane) -> None:
        """Compares the ledger with the lane's committed progress (R3).

        Raises SlotMustEnd where they differ.
        """
        expected = {copy: copy.progress for copy in lane.copies if not copy.busy}
        await self._context.ledger.refresh(self.name)
        try:
            self._check_generation()
        except Superseded as outdated:
            raise SlotMustEnd(str(outdated)) from outdated
        for copy, progress in expected.items():
            found = self._context.ledger.progress(copy.key)
            if isinstance(
                found, UndecidedProgress
            ):  # The writer may be its own last transaction, in another lane.
                found = await self.decided(copy.key)
            if copy.lane is lane and copy.progress is progress and found != progress:
                raise SlotMustEnd(f"someone else copies {copy.key.topic}-{copy.key.partition} of {self.name}")

    async def decided(self, key: PartitionKey) -> Progress | None:
        """Returns the committed progress, once no open transaction has written to it."""
        while True:
            with contextlib.suppress(WireError):
                await self._context.ledger.refresh(self.name)
                found = self._context.ledger.progress(key)
                if not isinstance(found, UndecidedProgress):
                    return found
            await asyncio.sleep(_DECIDED_PAUSE_S)

    # What the supervisor calls

    def halt(self, copy: PartitionCopy) -> None:
        """Stops fetching for a partition."""
        self._reading.remove(copy)

    def resume(self, copy: PartitionCopy) -> None:
        """Assigns a partition to a lane and fetches it from its cursor on."""
        self._lanes.place(copy)
        self._reading.add(copy)

    def replace(self, copy: PartitionCopy) -> None:
        """Commits a partition's replacement progress at once."""
        self._lanes.place(copy)
        assert copy.lane is not None
        copy.lane.commit_idle_positions()

    def accepts_loss(self, copy: PartitionCopy) -> bool:
        """Returns whether the topology or an operator accepts that lost records are skipped."""
        return copy.assigned.accept_loss or self.spec.on_data_loss == "skip"

    # Inside

    def _create_lanes(self) -> list[Lane]:
        """Returns a new lane for each transactional id of the flow in this slot."""
        context = self._context
        ids = transactional_ids(context.job, context.slot, self.name, context.settings)
        settings = lane_settings(context.settings, self.spec)
        solo = context.settings.lanes
        return [
            Lane(context.destination, one, self._place, settings, self, context.passing, solo=number == solo)
            for number, one in enumerate(ids)
        ]

    def _run_lane(self, lane: Lane) -> None:
        """Starts a lane's task, which first initialises its id where that is stuck."""

        async def life() -> None:
            try:
                if lane.is_stuck:
                    await lane.begin_again()
                await lane.run()
            except READ_FAILURES as error:
                self._unreadable(error)

        task = self._context.spawn(life())
        self._lane_tasks.add(task)
        task.add_done_callback(self._lane_tasks.discard)

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Starts a task that ends with the flow."""
        task = self._context.spawn(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
