"""The source side of a flow assigns partitions to their leaders' fetch sessions and fetches their batches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from runtime.batch import BatchFailure, RewriteSpec, WalkedBatches, walk
from runtime.batch.selection import QuarantinedRecord
from runtime.contract.spec import naming
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.naming import is_from_kafka
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import ErrorCode, TimedOut, WireError
from runtime.kafka.fetch import FetchLimits, FetchSession
from runtime.kafka.protocol.fetch import FetchedPartition, FetchFrom
from runtime.kafka.timing import now_ms
from runtime.kafka.trace import TRACE
from runtime.ledger.ledger import ProducerDirectory
from runtime.ledger.records import READ_FAILURES
from runtime.slot.budget import ResponseMemory, TokenBucket
from runtime.slot.context import SlotContext
from runtime.slot.errors import ErrorAction, ErrorDecision, ErrorPhase, by_code, decide
from runtime.slot.idle_session import IDLE_AFTER_S, IdleMember, Start
from runtime.slot.partition import (
    PartitionCopy,
    QueuedBatch,
    QueuedQuarantine,
    SessionAnswers,
    SourceLog,
)
from runtime.slot.read.batch_filter import FilteredBatches, FlowFilter, transformed
from runtime.slot.read.schema_gate import SchemaGate

_HELD_BACK_WAIT_MS = 10
# Records that are a small part of a large response are copied, so that they do not hold its whole buffer.
_COPY_OUT = 64 << 10
# A response is transformed as a whole before its records are sent: a large one would hold much memory.
_MAX_TRANSFORMED_SHARE = 2 << 20
_MIN_RATED_SHARE = 32 << 10
_OVERDUE_S = 2.0  # a broker that answers so late, after what it may wait for records, hangs
# Intakes of one leader: while Spark evaluates the response of one, the other fetches.
_TRANSFORMING_INTAKES = 2


class Fetched(Struct, frozen=True):
    """A response for the partition was handled: batches may be queued, or its idle position moved."""

    copy: PartitionCopy


class FetchFailed(Struct, frozen=True):
    """A partition can't be fetched; the decision says what to do."""

    copy: PartitionCopy
    decision: ErrorDecision
    why: str


class RecordRejected(Struct, frozen=True):
    """The record at the partition's cursor can't be copied: it is too large, or corrupt."""

    copy: PartitionCopy
    failure: BatchFailure


FetchEvent = Fetched | FetchFailed | RecordRejected
EmitFetchEvent = Callable[[FetchEvent], None]


class BrokerIntake:
    """An intake owns the fetch session of one leader and the partitions that are fetched from it.

    `mark_changed` marks a partition. The loop updates the session for all marked partitions before each
    fetch. While no records come, the idle session of the broker fetches for it.
    """

    def __init__(
        self,
        context: SlotContext,
        node: int,
        cluster: KafkaCluster,
        bucket: TokenBucket,
        batch_filter: FlowFilter,
        emit: EmitFetchEvent,
        purpose: str,
        gate: SchemaGate | None = None,
    ) -> None:
        self.node = node
        self.copies: dict[tuple[bytes, int], PartitionCopy] = {}
        self._cluster = cluster
        self._settings = settings = context.spec.copy
        self._budget = context.budget
        self._shares = context.shares
        self._idle_sessions = context.idle_sessions
        self._idle: IdleMember | None = None
        self._bucket = bucket
        self._filter = batch_filter
        self._emit = emit
        self._transformer = context.transformer
        self._gate = gate
        self._track = f"transform of {purpose}"
        self._unchanged = context.transformer is None and gate is None
        limits = FetchLimits(settings.fetch_wait_ms, 1, settings.fetch_bytes)
        self._purpose = purpose
        self._session = FetchSession(cluster, node, limits, purpose=purpose)
        self._overdue: asyncio.Timeout | None = None
        self._answers = SessionAnswers()
        self._rewrites: dict[PartitionCopy, RewriteSpec] = {}
        self._changed: dict[PartitionCopy, None] = {}
        self._held_back: dict[PartitionCopy, None] = {}
        self._requested: dict[PartitionCopy, tuple[int, int]] = {}
        self._queued: list[PartitionCopy] = []
        self._wake = asyncio.Event()
        self._share = 0
        self._idle_since = time.monotonic()

    def add(self, copy: PartitionCopy) -> None:
        """Adds a partition, which is fetched from its cursor on."""
        self.copies[copy.progress.source_topic_id, copy.key.partition] = copy
        self._rewrites[copy] = self._filter.rewrite_spec(copy.assigned)
        self._idle_since = time.monotonic()
        self.mark_changed(copy)

    def remove(self, copy: PartitionCopy) -> None:
        """Removes a partition, if it is in this intake; a response to an earlier fetch is ignored for it."""
        key = (copy.progress.source_topic_id, copy.key.partition)
        if self.copies.get(key) is copy:
            del self.copies[key]
            self._session.forget(*key)
            copy.leave_session()
            del self._rewrites[copy]
            for partitions in (self._changed, self._held_back, self._requested):
                partitions.pop(copy, None)
            self._leave_idle_session()
            if not self.copies and self._overdue is not None and not self._overdue.expired():
                answered_s = self._session.limits.max_wait_ms / 1000 + _OVERDUE_S
                self._overdue.reschedule(asyncio.get_running_loop().time() + answered_s)

    def mark_changed(self, copy: PartitionCopy) -> None:
        """Marks a partition as changed, so that the next fetch takes its state into account."""
        self._changed[copy] = None
        self._wake.set()

    def batches_sent(self, copy: PartitionCopy) -> None:
        """Handles that batches left a partition's queue: one that was held back is fetched again."""
        if copy in self._held_back and copy.queued_bytes < self._settings.partition_fetch_bytes:
            self.mark_changed(copy)

    async def run(self) -> None:
        """Fetches until it is cancelled. Raises WireError when the broker does not answer."""
        self._shares.join()
        try:
            while True:
                await self._wait_until_ready()
                answers = await self._fetch()
                answered_ms = self._session.answered_ms
                if answers:
                    if any(map(self._is_news, answers)):
                        self._idle_since = time.monotonic()
                        self._leave_idle_session()
                    await self._queue_response(answers)
                self._answers.answered(answered_ms)
                await self._pace(answers)
        finally:
            self._leave_idle_session()
            self._shares.leave()
            await self._session.close()

    def _is_news(self, answer: FetchedPartition) -> bool:
        """Returns whether an answer has more than heartbeats, which arrive even when the flow has no records.

        A broker answers once for each partition that is new in a session, also without records.
        """
        copy = self.copies.get((answer.topic_id, answer.partition))
        if copy is not None and copy.key.topic == naming.HEARTBEATS:
            return False
        return bool(answer.records or answer.error or answer.diverging is not None)

    async def _wait_until_ready(self) -> None:
        """Waits until a partition is to be fetched and the flow's rate allows it."""
        while True:
            self._wake.clear()
            wait = self._bucket.wait_s()
            if wait > 0:
                await asyncio.sleep(min(wait, 0.5))
                continue
            self._update_session()
            if len(self._session):
                return
            await self._wake.wait()

    def _update_session(self) -> None:
        """Updates the fetch session for the changed partitions; one with a full queue is held back."""
        changed, self._changed = self._changed, {}
        limit = 2 * self._settings.partition_fetch_bytes
        for copy in changed:
            key = (copy.progress.source_topic_id, copy.key.partition)
            if self.copies.get(key) is not copy:
                continue
            rewinds, _ = self._requested.get(copy, (None, 0))
            if self._idle is not None and not (
                copy.fetchable and rewinds == copy.rewinds and self._idle.position(key) == copy.cursor.offset
            ):
                self._leave_idle_session()
            if not copy.fetchable:
                self._session.forget(*key)
                copy.leave_session()
                for partitions in (self._held_back, self._requested):
                    partitions.pop(copy, None)
            elif copy.queued_bytes >= limit:
                self._session.forget(*key)
                copy.leave_session()
                self._held_back[copy] = None
            else:
                self._held_back.pop(copy, None)
                self._session.want(*key, self._fetch_position(copy), anew=rewinds != copy.rewinds)
                self._requested[copy] = (copy.rewinds, copy.cursor.offset)

    def _fetch_position(self, copy: PartitionCopy) -> FetchFrom:
        """Returns the position with the leader epoch under which the partition was assigned to this broker.

        The cache may name a newer epoch. A follower accepts that one, so a broker that leads no more would
        not refuse the fetch.
        """
        epoch, cursor = copy.fetched_epoch, copy.cursor
        if not is_from_kafka(copy.progress.source_topic_id):
            # Only the epoch tells of a recreated topic, whose leaders begin with the first one again.
            epoch = max(epoch, cursor.epoch)
        return FetchFrom(cursor.offset, epoch, cursor.epoch, self._settings.partition_fetch_bytes)

    async def _fetch(self) -> Sequence[FetchedPartition]:
        """Sends a fetch and returns its partitions; its share of the budget is reserved meanwhile.

        The share is small while the source has few new records. A broker that hangs does not keep it once
        other brokers lead its partitions: raises TimedOut.
        """
        if self._in_idle_session():
            return await self._fetched_while_idle()
        least = self._shares.least_bytes()
        await self._budget.wait_for_room(least)
        share = max(least, min(self._share, self._budget.left))
        if self._bucket.rate is not None:  # One fetch must not take the rate of several seconds.
            share = min(share, max(self._bucket.rate // 4, _MIN_RATED_SHARE))
        if self._transformer is not None:
            share = min(share, _MAX_TRANSFORMED_SHARE)
        limits = self._session.limits
        wait = self._wait_ms()
        if (wait, share) != (limits.max_wait_ms, limits.max_bytes):
            self._session.limits = FetchLimits(wait, 1, share)
        self._budget.take(share)
        try:
            async with asyncio.timeout(None) as self._overdue:
                return await self._session.fetch()
        except TimeoutError:
            if link := self._cluster.kept(self.node, self._purpose):
                link.drop()  # a late response would take memory that is not counted
            why = "it does not answer, and no partition waits for it any more"
            raise TimedOut(f"broker {self.node}", why, sent=True) from None
        finally:
            self._overdue = None
            self._budget.give(share)

    def _wait_ms(self) -> int:
        """Returns how long the broker may wait for records. A partition that is held back is due soon.

        An intake that waits for the next request of the idle session fetches by itself until then.
        """
        if self._held_back:
            return _HELD_BACK_WAIT_MS
        until_watched_s = self._idle.wait_s if self._idle is not None else 0.0
        return max(self._settings.fetch_wait_ms, round(until_watched_s * 1_000))

    def _in_idle_session(self) -> bool:
        """Returns whether the idle session fetches for this intake. One that is idle joins it."""
        if self._idle is not None and self._idle.left and not self._idle.watched:
            self._idle = None  # whatever it was given, this intake fetches itself
        idle_s = time.monotonic() - self._idle_since
        if self._idle is None and not self._held_back and idle_s >= IDLE_AFTER_S:
            wanted = {key: copy for key, copy in self.copies.items() if copy in self._requested}
            self._idle = self._idle_sessions.join(
                self._cluster,
                self.node,
                {key: self._fetch_position(copy) for key, copy in wanted.items()},
                [key for key, copy in wanted.items() if copy.key.topic == naming.HEARTBEATS],
                self._answers.answered,
                self._wake,
            )
        return self._idle is not None and self._idle.watched

    async def _fetched_while_idle(self) -> Sequence[FetchedPartition]:
        """Returns the news that the idle session has for this intake. Raises its WireError.

        An answer that this intake has fetched itself meanwhile is left out.
        """
        idle = self._idle
        assert idle is not None
        answers = await idle.answers()
        if idle.left:
            self._idle = None
        return [
            answer.partition
            for answer in answers
            if (copy := self.copies.get((answer.partition.topic_id, answer.partition.partition))) is not None
            and copy.cursor.offset == answer.offset
        ]

    def _leave_idle_session(self) -> None:
        """Fetches by itself from now on."""
        if self._idle is not None:
            self._idle.leave()
            self._idle = None
            self._wake.set()

    async def _pace(self, answers: Sequence[FetchedPartition]) -> None:
        """Adapts the share to the response's size, and waits after a response that brought all there was.

        Records that arrive meanwhile travel together. Without the wait, the next transaction would follow as
        soon as the brokers answer, and many small ones cost them more than the records in them.
        """
        size = sum(len(answer.records) for answer in answers)
        share = max(self._share, self._shares.least_bytes())
        if size * 2 >= share:
            self._share = min(share * 2, self._settings.fetch_bytes)
        elif size * 8 < share:
            self._share = share // 2
        queued, self._queued = self._queued, []
        if queued and not any(copy.behind for copy in queued):
            await asyncio.sleep(self._settings.linger_ms / 1000)

    async def _queue_response(self, answers: Sequence[FetchedPartition]) -> None:
        """Queues the batches of a response; their memory counts against the budget until release."""
        total = sum(len(answer.records) for answer in answers)
        held = ResponseMemory(self._budget, total)
        self._budget.take(total)
        held.view()
        try:
            wanted = [(self._current_partition(answer), answer) for answer in answers]
            walks = [
                (copy, answer, _walk_response(copy, answer, total))
                for copy, answer in wanted
                if copy is not None
            ]
            await self._filter.resolve_producers(walked for _, _, walked in walks)
            if not self._unchanged:
                await self._queue_changed(walks, held)
                return
            for copy, answer, walked in walks:
                if self._accept(copy, answer):
                    self._record_answer(copy, answer)
                    if walked.sets or walked.failure:
                        self._queue_batches(copy, answer, self._filtered(copy, answer, walked), held)
                    copy.settle()
        finally:
            held.release_memory()

    def _current_partition(self, answer: FetchedPartition) -> PartitionCopy | None:
        """Returns the partition of a response, or None where its cursor has changed since the fetch."""
        copy = self.copies.get((answer.topic_id, answer.partition))
        if copy is None or self._requested.get(copy) != (copy.rewinds, copy.cursor.offset):
            return None
        return copy

    async def _queue_changed(
        self,
        walks: Sequence[tuple[PartitionCopy, FetchedPartition, WalkedBatches]],
        held: ResponseMemory,
    ) -> None:
        """Handles the response of a flow with a transform or schemas. Raises EvaluationEnded.

        Partitions that were rewound meanwhile ignore the response. The source's end is recorded with the new
        cursor: until then the response does not make its partitions `behind`, or transactions would wait for
        the transform.
        """
        accepted = [
            (copy, answer, self._filtered(copy, answer, walked))
            for copy, answer, walked in walks
            if self._accept(copy, answer)
        ]
        done = await self._changed_batches({copy: filtered for copy, _, filtered in accepted})
        for copy, answer, _ in accepted:
            filtered = done[copy]
            if self._current_partition(answer) is copy:
                self._record_answer(copy, answer)
                if filtered.cursor != copy.cursor or filtered.failure is not None:
                    self._queue_batches(copy, answer, filtered, held)
                copy.settle()

    async def _changed_batches(
        self, filtered: Mapping[PartitionCopy, FilteredBatches]
    ) -> Mapping[PartitionCopy, FilteredBatches]:
        """Returns the batches of partitions after the transform, with the destination's schema ids.

        Heartbeats are not the flow's records, so they stay as they are.
        """
        done = dict(filtered)
        specs = {copy: self._rewrites[copy] for copy in done if copy.key.topic != naming.HEARTBEATS}
        if self._transformer is not None:
            batches, began = [(done[copy], spec) for copy, spec in specs.items()], time.monotonic()
            done |= zip(specs, await transformed(self._transformer, batches), strict=True)
            if TRACE is not None:
                TRACE.span(self._track, "transform", began, time.monotonic(), partitions=len(batches))
        if self._gate is not None:
            admitted = [copy for copy in specs if done[copy].outgoing]
            waiting = [self._gate.admit(copy, done[copy], specs[copy]) for copy in admitted]
            done |= zip(admitted, await asyncio.gather(*waiting), strict=True)
        return done

    def _accept(self, copy: PartitionCopy, answer: FetchedPartition) -> bool:
        """Returns whether the response has batches of a partition; if not, its error is reported."""
        if self._current_partition(answer) is not copy:
            return False
        if answer.error:
            copy.leave_session()
            if answer.leader is not None:
                self._cluster.learn(answer.topic_id, answer.partition, answer.leader)
            decision = by_code(ErrorPhase.FETCH, answer.error)
            if answer.error is ErrorCode.UNKNOWN_LEADER_EPOCH and not is_from_kafka(answer.topic_id):
                decision = ErrorDecision(ErrorAction.INSPECT, refresh=True)
            self._emit(FetchFailed(copy, decision, f"{answer.error.name} ({int(answer.error)})"))
            return False
        if answer.diverging is not None:
            copy.leave_session()
            inspect = ErrorDecision(ErrorAction.INSPECT, refresh=True)
            self._emit(FetchFailed(copy, inspect, "the source's log was truncated"))
            return False
        return True

    def _record_answer(self, copy: PartitionCopy, answer: FetchedPartition) -> None:
        """Takes the source's offsets from the response for one partition."""
        source = SourceLog(answer.log_start_offset, answer.last_stable_offset, answer.high_watermark)
        copy.answered(source, self._answers, now_ms())

    def _filtered(
        self, copy: PartitionCopy, answer: FetchedPartition, walked: WalkedBatches
    ) -> FilteredBatches:
        """Returns which batches of the response are copied."""
        return self._filter.filter(copy, walked, self._rewrites[copy], answer.aborted, now_ms())

    def _queue_batches(
        self, copy: PartitionCopy, answer: FetchedPartition, filtered: FilteredBatches, held: ResponseMemory
    ) -> None:
        """Queues the batches of one partition, and moves its cursor behind them."""
        size = len(answer.records)
        if _copied_out(size, held.size):
            held = ResponseMemory(self._budget, size)
            if filtered.outgoing:
                self._budget.take(size)
        batches = [QueuedBatch(out, held.view()) for out in filtered.outgoing]
        if batches:
            self._queued.append(copy)
        copy.fetched(batches, filtered.cursor, filtered.dropped, self._held(filtered.quarantined))
        self._bucket.take(size)
        self.mark_changed(copy)
        if filtered.failure is not None:
            self._emit(RecordRejected(copy, filtered.failure))
        self._emit(Fetched(copy))

    def _held(self, records: Sequence[QuarantinedRecord]) -> list[QueuedQuarantine]:
        """Counts bad records against the budget: they are copied out of the response."""
        size = sum(record.size for record in records)
        if records:
            self._budget.take(size)
        held = ResponseMemory(self._budget, size)
        return [QueuedQuarantine(record, held.view()) for record in records]


def _copied_out(size: int, total: int) -> bool:
    """Returns whether records of `size` bytes are copied out of a response of `total` bytes."""
    return size < _COPY_OUT and size * 4 < total


def _walk_response(copy: PartitionCopy, answer: FetchedPartition, total: int) -> WalkedBatches:
    """Returns the record sets of a partition's response."""
    records = answer.records
    if _copied_out(len(records), total):
        records = memoryview(bytes(records))
    return walk(records, copy.key.at)


class SourceReader:
    """A reader owns the intakes of a flow: one for each leader at the source, or two with a transform.

    A partition is fetched from `add` until `remove`. The intakes emit their events to the flow.
    """

    def __init__(
        self,
        spec: FlowSpec,
        source: KafkaCluster,
        directory: ProducerDirectory | None,
        context: SlotContext,
        bucket: TokenBucket,
        emit: EmitFetchEvent,
        start: Start,
        gate: SchemaGate | None = None,
    ) -> None:
        self._spec = spec
        self._source = source
        self._context = context
        self._bucket = bucket
        self._emit = emit
        self._start = start
        self._gate = gate
        ids = source.cluster_id, context.destination.cluster_id
        self._filter = FlowFilter(spec, *ids, directory, context.spec.unpacked_bytes)
        self._intakes_of: dict[tuple[int, int], BrokerIntake] = {}
        self._intakes: dict[PartitionCopy, BrokerIntake] = {}

    def add(self, copy: PartitionCopy) -> None:
        """Fetches a partition from its cursor on, at the leader that the metadata names."""
        self.remove(copy)
        leader = self._source.leader(copy.key.topic, copy.key.partition)
        assert leader is not None, "the supervisor inspected the partition before"
        share = copy.key.partition % (1 if self._context.transformer is None else _TRANSFORMING_INTAKES)
        copy.fetch_under(leader.leader_epoch)
        intake = self._intakes[copy] = self._intake(leader.leader, share)
        intake.add(copy)

    def remove(self, copy: PartitionCopy) -> None:
        """Stops fetching a partition."""
        intake = self._intakes.pop(copy, None)
        if intake is not None:
            intake.remove(copy)

    def mark_changed(self, copy: PartitionCopy) -> bool:
        """Tells a partition's intake that its cursor moved; returns False where it is not fetched."""
        intake = self._intakes.get(copy)
        if intake is not None:
            intake.mark_changed(copy)
        return intake is not None

    def hold(self, copies: Iterable[PartitionCopy]) -> None:
        """Stops fetching partitions until they are rewound; they hold no memory meanwhile (R8)."""
        for copy in copies:
            self.remove(copy)
            copy.hold()

    def batches_sent(self, copies: Iterable[PartitionCopy]) -> None:
        """Handles that batches left the queues of partitions, so that there may be room for more."""
        for copy in copies:
            intake = self._intakes.get(copy)
            if intake is not None:
                intake.batches_sent(copy)

    def _intake(self, node: int, share: int) -> BrokerIntake:
        """Returns the intake of a leader for a share of its partitions, and starts it where there is none."""
        if (node, share) not in self._intakes_of:
            purpose = f"fetch {self._spec.name}{f' {share}' if share else ''}"
            intake = BrokerIntake(
                self._context,
                node,
                self._source,
                self._bucket,
                self._filter,
                self._emit,
                purpose,
                self._gate,
            )
            self._intakes_of[node, share] = intake
            self._start(self._run_intake(intake))
        return self._intakes_of[node, share]

    async def _run_intake(self, intake: BrokerIntake) -> None:
        """Runs an intake until its broker does not answer.

        Its partitions are then retried: after an inspection, they are fetched from their current leaders.
        Without the producer directory, the filter can't decide what to copy, so they are retried as well
        (R5).
        """
        try:
            await intake.run()
        except WireError as error:
            self._fail(intake, decide(ErrorPhase.FETCH, error), str(error))
        except READ_FAILURES as error:
            why = f"{naming.PRODUCERS} of {self._spec.source} can't be read: {error}"
            self._fail(intake, ErrorDecision(ErrorAction.RETRY), why)

    def _fail(self, intake: BrokerIntake, decision: ErrorDecision, why: str) -> None:
        """Removes an intake that has ended, and reports its partitions."""
        self._intakes_of = {key: other for key, other in self._intakes_of.items() if other is not intake}
        for copy in list(intake.copies.values()):
            self._emit(FetchFailed(copy, decision, why))
