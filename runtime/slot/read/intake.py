"""Fetches the source's batches of one flow, with one fetch session per leader and bounded memory (R8)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from runtime.batch import Batch, PartitionLocation, RewriteSpec, WalkedBatches, walk
from runtime.contract.records.status import PartitionState as State
from runtime.contract.spec.jobspec import CopySettings
from runtime.contract.topic_ids import is_from_kafka
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.codes import ErrorCode
from runtime.kafka.fetch.session import FetchLimits, FetchSession
from runtime.kafka.protocol.fetch import FetchedPartition, FetchFrom
from runtime.ledger.producer_directory import ProducerDirectory
from runtime.slot.partition import PartitionCopy, QueuedBatch, SourceLog, now_ms
from runtime.slot.read.batch_filter import FilteredBatches, keep, restoring
from runtime.slot.read.budget import ByteBudget, ResponseMemory, TokenBucket
from runtime.slot.write.errors import ErrorAction, ErrorDecision, ErrorPhase, by_code

_HELD_BACK_WAIT_MS = 10
# Records that are a small part of a large response are copied, so that they do not hold its whole buffer.
_COPY_OUT = 64 << 10
_QUIET_BYTES = 32 << 10
_MIN_SHARE = 512 << 10
_MIN_RATED_SHARE = 32 << 10


class IntakeFlow(Protocol):
    """The flow that receives the events of its intakes."""

    def fetched(self, copy: PartitionCopy) -> None:
        """Handles that batches were queued, or that the idle position moved."""

    def unreadable(self, copy: PartitionCopy, decision: ErrorDecision, why: str) -> None:
        """Handles a fetch error of the partition."""

    def corrupt(self, copy: PartitionCopy, kept: FilteredBatches) -> None:
        """Handles a record at the partition's cursor that can't be copied: too large, or corrupt."""

    def home_of(self, copy: PartitionCopy, producer_ids: set[int]) -> set[int]:
        """Returns the producer ids whose batches must not be copied."""

    def rewrite(self, copy: PartitionCopy) -> RewriteSpec:
        """Returns how the partition's batches are rewritten."""


class BrokerIntake:
    """An intake owns the fetch session of one leader and the partitions that are fetched from it.

    `touch` marks a partition as changed. The loop updates the session for changed partitions before each
    fetch.
    """

    def __init__(
        self,
        node: int,
        cluster: KafkaCluster,
        settings: CopySettings,
        budget: ByteBudget,
        bucket: TokenBucket,
        directory: ProducerDirectory | None,
        reader: IntakeFlow,
        purpose: str,
    ) -> None:
        self.node = node
        self.copies: dict[tuple[bytes, int], PartitionCopy] = {}
        self._cluster = cluster
        self._settings = settings
        self._budget = budget
        self._bucket = bucket
        self._directory = directory
        self._reader = reader
        self._limits = FetchLimits(settings.fetch_wait_ms, 1, settings.fetch_bytes)
        self._session = FetchSession(cluster, node, self._limits, purpose=purpose)
        self._touched: dict[PartitionCopy, None] = {}
        self._held_back: dict[PartitionCopy, None] = {}
        self._requested: dict[PartitionCopy, tuple[int, int]] = {}
        self._answered: dict[PartitionCopy, int] = {}  # the turn that was answered
        self._heard_ms = 0
        self._wake = asyncio.Event()
        self._share = _MIN_SHARE

    def add(self, copy: PartitionCopy) -> None:
        """Adds a partition, which is fetched from its cursor on."""
        self.copies[copy.progress.source_topic_id, copy.key.partition] = copy
        self.touch(copy)

    def remove(self, copy: PartitionCopy) -> None:
        """Removes a partition, if it is in this intake; a response to an earlier fetch is ignored for it."""
        key = (copy.progress.source_topic_id, copy.key.partition)
        if self.copies.get(key) is copy:
            del self.copies[key]
            self._session.forget(*key)
            self._left_out(copy)
            for kept in (self._touched, self._held_back, self._requested):
                kept.pop(copy, None)

    def touch(self, copy: PartitionCopy) -> None:
        """Marks a partition as changed, so that the next fetch takes its state into account."""
        self._touched[copy] = None
        self._wake.set()

    def drained(self, copy: PartitionCopy) -> None:
        """Handles that batches left a partition's queue: one that was held back is fetched again."""
        if copy in self._held_back and copy.queued_bytes < self._settings.partition_fetch_bytes:
            self.touch(copy)

    def heard_ms(self, copy: PartitionCopy) -> int:
        """Returns when the leader last answered for the partition, 0 where this session never did.

        A fetch session leaves out partitions without news: an answer to any of them counts for all that the
        session answered for once.
        """
        return self._heard_ms if self._answered.get(copy) == copy.turn else 0

    def _left_out(self, copy: PartitionCopy) -> None:
        """Notes when the partition was last answered for: from here on the session's answers say nothing of
        it.
        """
        copy.last_fetch_ms = copy.heard_ms
        self._answered.pop(copy, None)

    async def run(self) -> None:
        """Fetches until it is cancelled. Raises WireError when the broker does not answer."""
        try:
            while True:
                await self._wait_until_ready()
                answers = await self._fetch()
                answered_ms = self._session.answered_ms
                if answers:
                    await self._take(answers)
                self._heard_ms = answered_ms
                await self._pace(answers)
        finally:
            await self._session.close()

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
        touched, self._touched = self._touched, {}
        limit = 2 * self._settings.partition_fetch_bytes
        for copy in touched:
            key = (copy.progress.source_topic_id, copy.key.partition)
            if self.copies.get(key) is not copy:
                continue
            if not copy.fetchable:
                self._session.forget(*key)
                self._left_out(copy)
                for kept in (self._held_back, self._requested):
                    kept.pop(copy, None)
            elif copy.queued_bytes >= limit:
                self._session.forget(*key)
                self._left_out(copy)
                self._held_back[copy] = None
            else:
                self._held_back.pop(copy, None)
                turn, _ = self._requested.get(copy, (None, 0))
                self._session.want(*key, self._fetch_position(copy), anew=turn != copy.turn)
                self._requested[copy] = (copy.turn, copy.cursor.offset)

    def _fetch_position(self, copy: PartitionCopy) -> FetchFrom:
        leader = self._cluster.leader(copy.key.topic, copy.key.partition)
        epoch = leader.leader_epoch if leader is not None else -1
        cursor = copy.cursor
        if not is_from_kafka(copy.progress.source_topic_id):
            # Only the epoch tells of a recreated topic, whose leaders begin with the first one again.
            epoch = max(epoch, cursor.epoch)
        return FetchFrom(cursor.offset, epoch, cursor.epoch, self._settings.partition_fetch_bytes)

    async def _fetch(self) -> Sequence[FetchedPartition]:
        """Sends a fetch and returns its partitions; its share of the budget is reserved meanwhile.

        The share is small while the source has few new records.
        """
        least = min(_MIN_SHARE, self._budget.limit // 4)
        await self._budget.room(least)
        share = max(least, min(self._share, self._budget.left))
        if self._bucket.rate is not None:  # One fetch must not take the rate of several seconds.
            share = min(share, max(self._bucket.rate // 4, _MIN_RATED_SHARE))
        wait = _HELD_BACK_WAIT_MS if self._held_back else self._settings.fetch_wait_ms
        limits = self._session.limits
        if (wait, share) != (limits.max_wait_ms, limits.max_bytes):
            self._session.limits = FetchLimits(wait, 1, share)
        self._budget.take(share)
        try:
            return await self._session.fetch()
        finally:
            self._budget.give(share)

    async def _pace(self, answers: Sequence[FetchedPartition]) -> None:
        """Adapts the share to the response's size, and waits a moment after a small response.

        Without the wait, a slow stream of records would cost one fetch for each record.
        """
        size = sum(len(answer.records) for answer in answers)
        if size * 2 >= self._share:
            self._share = min(self._share * 2, self._settings.fetch_bytes)
        elif size * 8 < self._share:
            self._share = max(self._share // 2, _MIN_SHARE)
        if answers and size < _QUIET_BYTES:
            await asyncio.sleep(self._settings.linger_ms / 1000)

    async def _take(self, answers: Sequence[FetchedPartition]) -> None:
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
            await self._resolve_producers([one for _, _, one in walks])
            for copy, answer, one in walks:
                self._take_partition(copy, answer, one, held)
        finally:
            held.let_go()

    def _current_partition(self, answer: FetchedPartition) -> PartitionCopy | None:
        """Returns the partition of a response, or None where its cursor has changed since the fetch."""
        copy = self.copies.get((answer.topic_id, answer.partition))
        if copy is None or self._requested.get(copy) != (copy.turn, copy.cursor.offset):
            return None
        return copy

    async def _resolve_producers(self, walks: Sequence[WalkedBatches]) -> None:
        """Resolves producer ids that are not known yet.

        On failure no batch of the response is taken (fail closed).
        """
        if self._directory is None:
            return
        seen = {one.producer_id for walked in walks for one in walked.sets if isinstance(one, Batch)}
        if self._directory.unknown(seen):
            await self._directory.resolve(seen)

    def _take_partition(
        self, copy: PartitionCopy, answer: FetchedPartition, walked: WalkedBatches, held: ResponseMemory
    ) -> None:
        """Handles the response for one partition: its error, its truncation or its batches."""
        if self._current_partition(answer) is not copy:
            return
        if answer.error:
            self._left_out(copy)
            if answer.leader is not None:
                self._cluster.learn(answer.topic_id, answer.partition, answer.leader)
            decision = by_code(ErrorPhase.FETCH, answer.error)
            if answer.error is ErrorCode.UNKNOWN_LEADER_EPOCH and not is_from_kafka(answer.topic_id):
                decision = ErrorDecision(ErrorAction.LOOK, refresh=True)
            self._reader.unreadable(copy, decision, f"{answer.error.name} ({int(answer.error)})")
            return
        if answer.diverging is not None:
            self._left_out(copy)
            self._reader.unreadable(
                copy, ErrorDecision(ErrorAction.LOOK, refresh=True), "the source's log was truncated"
            )
            return
        if not copy.suspect:
            copy.failures = 0
        copy.last_fetch_ms = moment = now_ms()
        self._answered[copy] = copy.turn
        copy.source = SourceLog(answer.log_start_offset, answer.last_stable_offset, answer.high_watermark)
        if walked.sets or walked.failure:
            self._queue_batches(copy, answer, walked, held, moment)
        copy.settle()

    def _queue_batches(
        self,
        copy: PartitionCopy,
        answer: FetchedPartition,
        walked: WalkedBatches,
        held: ResponseMemory,
        moment: int,
    ) -> None:
        """Filters and queues the batches of one partition, and moves its cursor behind them."""
        home: set[int] = set()
        spec = self._reader.rewrite(copy)
        if copy.cursor.offset < copy.progress.restored:
            spec = restoring(spec, copy.progress.restored)
        elif self._directory is not None:
            ids = {one.producer_id for one in walked.sets if isinstance(one, Batch)}
            home = self._reader.home_of(copy, ids)
        kept = keep(walked, spec, copy.cursor, answer.aborted, home, moment)
        size = len(answer.records)
        if _copied_out(size, held.size):
            held = ResponseMemory(self._budget, size)
            if kept.outgoing:
                self._budget.take(size)
        for out, epoch in kept.outgoing:
            copy.add(QueuedBatch(out, epoch, held.view()))
        copy.dropped += kept.dropped
        copy.cursor = kept.cursor
        if kept.outgoing and copy.state is State.BLOCKED_AT_SOURCE:
            copy.enter(State.COPYING)
        self._bucket.take(size)
        self.touch(copy)
        if kept.failure is not None:
            self._reader.corrupt(copy, kept)
        self._reader.fetched(copy)


def _copied_out(size: int, total: int) -> bool:
    """Returns whether records of `size` bytes are copied out of a response of `total` bytes."""
    return size < _COPY_OUT and size * 4 < total


def _walk_response(copy: PartitionCopy, answer: FetchedPartition, total: int) -> WalkedBatches:
    """Returns the record sets of a partition's response."""
    records = answer.records
    if _copied_out(len(records), total):
        records = memoryview(bytes(records))
    return walk(records, PartitionLocation(copy.key.topic, copy.key.partition))
