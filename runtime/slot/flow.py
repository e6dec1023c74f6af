"""A flow in a slot owns its lanes, reader, supervisor and counters, and handles their events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping

from msgspec.structs import replace

from runtime.batch import BadRecord, BatchFailure, QuarantineTooLarge, TooLarge, UnpacksTooLarge
from runtime.batch.schema_ids import SchemaMissing
from runtime.contract.records.control import AssignedFlow, AssignedPartition, transactional_ids
from runtime.contract.records.job_status import FlowStats
from runtime.contract.records.job_status import PartitionState as State
from runtime.contract.records.latency import LATENCY_BOUNDS_MS, LatencyWindow, bucket_of
from runtime.contract.records.ledger import PartitionKey, Progress, UnreadableRecord
from runtime.contract.records.provenance import FlowProducer
from runtime.contract.spec.launch import UNPACKED_LIMIT
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.timing import now_ms
from runtime.ledger.ledger import ProducerDirectory, UndecidedProgress
from runtime.ledger.records import READ_FAILURES
from runtime.slot import log
from runtime.slot.budget import TokenBucket
from runtime.slot.context import SlotContext, lane_settings
from runtime.slot.errors import ErrorAction, ErrorPhase
from runtime.slot.health.foreign_writes import ForeignWrites
from runtime.slot.health.supervisor import (
    Halted,
    MarkerMissing,
    PartitionSupervisor,
    Replaced,
    Resumed,
    SupervisorEvent,
    largest_of,
)
from runtime.slot.health.watch import TopicWatch
from runtime.slot.partition import CopyPhase, PartitionCopy
from runtime.slot.read.reader import Fetched, FetchEvent, FetchFailed, RecordRejected, SourceReader
from runtime.slot.read.schema_gate import SchemaGate
from runtime.slot.write.events import (
    Aborted,
    Committed,
    LaneEvent,
    LaneFreed,
    LaneStuck,
    LeaderChanged,
    NotReady,
    Rewound,
    Sent,
)
from runtime.slot.write.flow_ledger import FlowLedger
from runtime.slot.write.lane import Lane
from runtime.slot.write.lanes import LaneSet


class FlowCounters:
    """The counters of a flow in this slot; a latency is the time from a record's timestamp to its commit."""

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0
        self.dropped = 0
        self.quarantined = 0
        self.tombstones = 0
        self.commits = 0
        self._latency_counts = [0] * (len(LATENCY_BOUNDS_MS) + 1)
        self._latency_sum_ms = 0.0
        self._by_topic = LatencyWindow()

    def committed(self, event: Committed, now_ms: int) -> None:
        """Counts a committed transaction."""
        self.commits += 1
        for entry in event.entries:
            if entry.step is not None:
                self.dropped += entry.step.dropped
                self.quarantined += entry.step.quarantined
                self.tombstones += entry.step.tombstones
            if entry.part is not None:
                self.records += entry.part.records
                self.bytes += entry.part.bytes
        for topic, newest, records in event.latencies:
            if newest < 0:  # the producer set no timestamp
                continue
            latency = max(now_ms - newest, 0)
            self._latency_counts[bucket_of(latency)] += records
            self._latency_sum_ms += latency * records
            self._by_topic.add(topic, latency, records, now_ms)

    def stats(
        self, flow: str, aborts: int, throttled_ms: int, stuck_lanes: list[str], now_ms: int
    ) -> FlowStats:
        """Returns the counters as a record for the slot's status."""
        return FlowStats(
            flow=flow,
            records=self.records,
            bytes=self.bytes,
            dropped=self.dropped,
            commits=self.commits,
            aborts=aborts,
            throttled_ms=throttled_ms,
            latency_counts=list(self._latency_counts),
            latency_sum_ms=self._latency_sum_ms,
            stuck_lanes=stuck_lanes,
            quarantined=self.quarantined,
            tombstones=self.tombstones,
            latencies=self._by_topic.topics(now_ms),
        )


_DRAIN_S = 15.0
_NO_PROGRESS = "the ledger has no progress of it; it does not start over"


FlowEvent = FetchEvent | LaneEvent | SupervisorEvent


class FlowCopy:
    """A flow owns the partitions that the slot copies for it, and its lanes, reader and supervisor.

    These emit events, which `handle` passes on: no part of a flow calls another one.

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
        self._counters = FlowCounters()
        self._context = context
        self._ledger = self._flow_ledger(source)
        loop = asyncio.get_running_loop()
        self._bucket = TokenBucket(assigned.spec.rate_limit, loop.time)
        self._lanes = LaneSet(self._create_lanes(), context.spec.copy.lanes)
        self._supervisor = PartitionSupervisor(
            source,
            context.destination,
            context.spec.copy,
            assigned.generation,
            accepts_loss=self.spec.on_data_loss == "skip",
            emit=self.handle,
            producer_ids=self._lanes.producer_ids,
        )
        self._gate: SchemaGate | None = None
        if self.spec.schemas.sync:
            registries = context.registries
            source_registry, destination = registries[self.spec.source], registries[self.spec.destination]
            self._gate = SchemaGate(self.spec, source_registry, destination, self._spawn)
        self._reader = SourceReader(
            self.spec, source, directory, context, self._bucket, self.handle, self._spawn, self._gate
        )
        self._watch = TopicWatch(
            source, context.destination, self.copies, self._supervisor, self._on_leader_change
        )
        self._foreign = ForeignWrites(self.name, context.destination, context.producers, self.copies)
        self._tasks: set[asyncio.Task[None]] = set()
        self._lane_tasks: set[asyncio.Task[None]] = set()
        self._unreadable = unreadable
        self._missing: dict[PartitionKey, tuple[AssignedPartition, str]] = {}
        self._undecided: dict[PartitionKey, AssignedPartition] = {}

    # What the slot calls

    async def begin(self) -> None:
        """Initialises the transactional ids, then reads what the driver says of this process, then the
        generation, then the progress (fencing 3).

        Raises Superseded, SlotMustEnd, WireError, and READ_FAILURES for a generation that can't be read.
        """
        await self._lanes.begin()
        await self._context.confirm()
        for lane in self._lanes.all:
            self._run_lane(lane)
        await self._ledger.await_decided()
        log.info("flow_begun", key=self.name, flow=self.name, generation=self.assigned.generation)
        self._spawn(self._supervisor.run())
        self._spawn(self._supervisor.run_retries())
        self._spawn(self._watch.run())
        if not self.spec.shared:
            self._spawn(self._foreign.run())

    async def admit(self, partitions: Iterable[AssignedPartition]) -> None:
        """Reads the progress of partitions, inspects both sides, and starts copying.

        A partition without progress is not copied: it is reported as missing (R1). Raises Superseded,
        WireError.
        """
        wanted = list(partitions)
        await self._ledger.refresh()
        for assigned in wanted:
            try:
                progress = self._ledger.progress(assigned.key)
            except UnreadableRecord as error:
                self._missing[assigned.key] = assigned, f"its progress can't be read: {error}"
                continue
            if isinstance(progress, UndecidedProgress):
                self._undecided[assigned.key] = assigned
                self._spawn(self._admit_later(assigned))
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
            progress = await self._ledger.wait_for_progress(assigned.key)
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
            copy.start_release()
            self._supervisor.forget(copy)
            self._reader.remove(copy)
        for copy in copies:
            await self._lanes.release(copy)
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

    def set_assigned(self, assigned: AssignedFlow) -> None:
        """Applies a changed assignment of the flow, which may differ in its rate limit only."""
        self.assigned = assigned
        self._bucket.set_rate(assigned.spec.rate_limit)

    def missing(self) -> Mapping[PartitionKey, tuple[AssignedPartition, str]]:
        """Returns the partitions whose progress is missing or can't be read, each with the reason."""
        return self._missing

    def undecided(self) -> Mapping[PartitionKey, AssignedPartition]:
        """Returns the partitions whose progress an open transaction has written."""
        return self._undecided

    def stats(self) -> FlowStats:
        """Returns the flow's counters for the slot's status."""
        throttled_ms = int(self._bucket.throttled_s * 1000)
        aborts, stuck = self._lanes.aborts(), self._lanes.stuck()
        stats = self._counters.stats(self.name, aborts, throttled_ms, stuck, now_ms())
        if self._gate is None:
            return stats
        return replace(stats, schemas_waiting=self._gate.waiting, note=self._gate.note)

    # Events

    def handle(self, event: FlowEvent) -> None:  # noqa: C901, PLR0912 - one branch for each event
        """Handles an event of the flow's intakes, lanes or supervisor."""
        match event:
            case Fetched(copy):
                self._lanes.offer(copy)
            case Sent(copies):
                self._reader.batches_sent(copies)
            case Committed():
                self._on_committed(event)
            case Aborted():
                self._on_aborted(event)
            case Rewound(copies):
                for copy in copies:
                    if not self._reader.mark_changed(copy) and copy.phase is CopyPhase.HELD:
                        self._supervisor.admit([copy])
            case NotReady(copy, why):
                copy.rewind()
                self._supervisor.retry(copy, why)
            case LeaderChanged(copy):
                self._on_leader_change(copy)
            case LaneStuck(transactional_id, why):
                self._on_stuck(transactional_id, why)
            case LaneFreed(transactional_id):
                self._on_freed(transactional_id)
            case FetchFailed(copy, decision, why):
                self._supervisor.fail(copy, decision, f"{copy.key.at} at the source: {why}")
            case RecordRejected(copy, SchemaMissing() as failure):
                copy.await_schema()
                self._supervisor.retry(copy, str(failure))
            case RecordRejected(copy, failure):
                limit = _limit_of(copy, failure)
                self._supervisor.stop(copy, _state_of(failure), str(failure), limit=limit)
            case Halted(copy):
                self._reader.remove(copy)
            case Resumed(copy):
                self._lanes.drop_marker(copy)
                self._lanes.place(copy)
                self._reader.add(copy)
            case Replaced(copy):
                self._lanes.commit_replacement(copy)
            case MarkerMissing(copy, marker):
                self._lanes.write_marker(copy, marker.producer_id, commit=marker.commit is True)

    def _on_committed(self, event: Committed) -> None:
        """Counts a committed transaction, and settles the states of its partitions."""
        self._counters.committed(event, now_ms())
        self._foreign.committed(event.copies)
        # Bad records hold a partition back as queued batches do, and are not sent as batches.
        passed = [entry.copy for entry in event.entries if entry.step is not None and entry.step.quarantined]
        self._reader.batches_sent(passed)
        for copy, _, _, part, step in event.entries:
            if copy.suspect and (part is not None or (step is not None and step.quarantined)):
                copy.clear_suspect()
                self._lanes.place(copy)
            if step is None:
                self._supervisor.admit([copy])
            copy.settle()
        self._lanes.rebalance_after(dict.fromkeys((*event.copies, *(entry.copy for entry in event.entries))))

    def _on_aborted(self, event: Aborted) -> None:
        """Stops, retries or inspects the partitions that a failure blames."""
        decision, why = event.decision, str(event.failure)
        quarantining = event.failure.phase is ErrorPhase.QUARANTINE
        for copy in event.copies:
            copy.aborted(why)
        for copy in event.failure.copies:
            match decision.action:
                case ErrorAction.STOP if decision.state is not None:
                    copy.mark_suspect()
                    limit = _quarantine_limit(copy) if quarantining else ""
                    self._supervisor.stop(copy, decision.state, why, limit=limit)
                case ErrorAction.SUSPECT:
                    copy.mark_suspect()
                    self._supervisor.retry(copy, why)
                case ErrorAction.INSPECT:
                    self._supervisor.retry(copy, why)

    def _on_leader_change(self, copy: PartitionCopy) -> None:
        """Rewinds and inspects a partition whose leader at the destination has changed (R4)."""
        leader = self._context.destination.leader(*copy.at)
        log.info(
            "leader_changed",
            key=copy.label,
            **copy.log_fields(),
            side="destination",
            leader=leader.leader if leader is not None else None,
            leader_epoch=leader.leader_epoch if leader is not None else None,
            decision="inspect",
        )
        copy.rewind()
        self._supervisor.inspect_now(copy)

    def _on_stuck(self, transactional_id: str, why: str) -> None:
        """Moves a stuck lane's partitions to other lanes; those that stay hold no memory (R8)."""
        log.warning(
            "lane_stuck",
            key=transactional_id,
            flow=self.name,
            transactional_id=transactional_id,
            error=why,
            decision="partitions move to other lanes",
        )
        self._reader.hold(self._lanes.move_from_stuck_lane(transactional_id))

    def _on_freed(self, transactional_id: str) -> None:
        """Moves partitions out of stuck lanes, and inspects those that were held for lack of a lane."""
        log.info("lane_freed", key=transactional_id, flow=self.name, transactional_id=transactional_id)
        self._lanes.move_from_stuck_lanes()
        self._supervisor.admit(
            copy
            for copy in self.copies.values()
            if copy.phase is CopyPhase.HELD
            and not copy.in_transaction
            and not self._lanes.in_stuck_lane(copy)
        )

    # Inside

    def _flow_ledger(self, source: KafkaCluster) -> FlowLedger:
        """Returns the ledger of the flow, with what its producer ids are registered as."""
        spec, context = self.spec, self._context
        undoes = spec.destination if spec.reverse_of is not None else None
        return FlowLedger(
            self.name,
            self.assigned.generation,
            FlowProducer(self.name, spec.source, source.cluster_id, spec.rename, undoes=undoes),
            context.ledger,
            context.destination,
            context.map_partitions,
        )

    def _create_lanes(self) -> list[Lane]:
        """Returns a new lane for each transactional id of the flow in this slot."""
        context = self._context
        ids = transactional_ids(context.spec.job, context.spec.slot, self.name, context.spec.copy)
        settings = lane_settings(context.spec.copy, self.spec)
        solo = context.spec.copy.lanes
        return [
            Lane(
                context.destination,
                transactional_id,
                self._ledger,
                settings,
                self.handle,
                solo=number == solo,
            )
            for number, transactional_id in enumerate(ids)
        ]

    def _run_lane(self, lane: Lane) -> None:
        """Starts a lane's task."""

        async def run() -> None:
            try:
                await lane.run()
            except READ_FAILURES as error:
                self._unreadable(error)

        task = self._context.spawn(run())
        self._lane_tasks.add(task)
        task.add_done_callback(self._lane_tasks.discard)

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Starts a task that ends with the flow."""
        task = self._context.spawn(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _limit_of(copy: PartitionCopy, failure: BatchFailure) -> str:
    """Returns the setting by which the record of a failure is too large; empty where it is the mirror's."""
    match failure:
        case UnpacksTooLarge():
            return UNPACKED_LIMIT
        case QuarantineTooLarge():
            return _quarantine_limit(copy)
        case _:
            return ""


def _quarantine_limit(copy: PartitionCopy) -> str:
    topic = copy.assigned.quarantine
    return largest_of(topic.topic) if topic is not None else ""


def _state_of(failure: BatchFailure) -> State:
    """Returns the state of a partition that stops at a record."""
    match failure:
        case TooLarge():
            return State.RECORD_TOO_LARGE
        case BadRecord():
            return State.RECORD_INVALID
        case _:
            return State.RECORD_CORRUPT
