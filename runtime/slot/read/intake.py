"""Reads the source for one flow: a fetch session per leader, fair shares, never more than the budget allows
(R8).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from runtime.batch import Batch, RewriteSpec, Walked, Where, walk
from runtime.contract.records.status import PartitionState as State
from runtime.contract.spec.jobspec import CopySettings
from runtime.kafka.cluster import Cluster
from runtime.kafka.fetch.session import FetchLimits, FetchSession
from runtime.kafka.protocol.fetch import FetchedPartition, FetchFrom
from runtime.ledger.producer_directory import ProducerDirectory
from runtime.slot.partition import PartitionCopy, Queued, Source, now_ms
from runtime.slot.read.batch_filter import Kept, keep, restoring
from runtime.slot.read.budget import ByteBudget, Held, TokenBucket
from runtime.slot.write.errors import Decision, Do, Phase, by_code

_HELD_BACK_WAIT_MS = 10
_COPY_OUT = 64 << 10  # a small share of a large response is copied, so that it does not keep all of it
_QUIET_BYTES = 32 << 10
_LEAST_SHARE = 512 << 10
_LEAST_RATED = 32 << 10


class Reader(Protocol):
    """The flow, as its intake sees it."""

    def fetched(self, copy: PartitionCopy) -> None:
        """Something was queued, or the tail moved."""

    def unreadable(self, copy: PartitionCopy, decision: Decision, why: str) -> None:
        """A fetch went wrong for this partition."""

    def corrupt(self, copy: PartitionCopy, kept: Kept) -> None:
        """The partition cannot go on at its cursor: a record is too large, or its bytes are bad."""

    def home_of(self, copy: PartitionCopy, producer_ids: set[int]) -> set[int]:
        """Those of the producer ids whose batches must not be copied."""

    def rewrite(self, copy: PartitionCopy) -> RewriteSpec:
        """How the partition's batches are rewritten."""


class BrokerIntake:
    """One leader's partitions: `touch` says that something about one changed, the loop looks before each
    fetch.
    """

    def __init__(
        self,
        node: int,
        cluster: Cluster,
        settings: CopySettings,
        budget: ByteBudget,
        bucket: TokenBucket,
        directory: ProducerDirectory | None,
        reader: Reader,
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
        self._asked: dict[PartitionCopy, tuple[int, int]] = {}
        self._answered: dict[PartitionCopy, int] = {}  # the turn that was answered
        self._heard_ms = 0
        self._wake = asyncio.Event()
        self._share = _LEAST_SHARE

    def add(self, copy: PartitionCopy) -> None:
        self.copies[copy.progress.source_topic_id, copy.key.partition] = copy
        self.touch(copy)

    def remove(self, copy: PartitionCopy) -> None:
        key = (copy.progress.source_topic_id, copy.key.partition)
        if self.copies.get(key) is copy:
            del self.copies[key]
            self._session.forget(*key)
            self._left_out(copy)
            for kept in (self._touched, self._held_back, self._asked):
                kept.pop(copy, None)

    def touch(self, copy: PartitionCopy) -> None:
        self._touched[copy] = None
        self._wake.set()

    def drained(self, copy: PartitionCopy) -> None:
        """Batches left the queue."""
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
        """Fetches until cancelled. Raises WireError when the broker can't be asked."""
        try:
            while True:
                await self._ready()
                answers = await self._fetch()
                answered_ms = self._session.answered_ms
                if answers:
                    await self._take(answers)
                self._heard_ms = answered_ms
                await self._pace(answers)
        finally:
            await self._session.close()

    async def _ready(self) -> None:
        """Waits until something is wanted and the flow's rate allows it."""
        while True:
            self._wake.clear()
            wait = self._bucket.wait_s()
            if wait > 0:
                await asyncio.sleep(min(wait, 0.5))
                continue
            self._look_again()
            if len(self._session):
                return
            await self._wake.wait()

    def _look_again(self) -> None:
        touched, self._touched = self._touched, {}
        limit = 2 * self._settings.partition_fetch_bytes
        for copy in touched:
            key = (copy.progress.source_topic_id, copy.key.partition)
            if self.copies.get(key) is not copy:
                continue
            if not copy.fetchable:
                self._session.forget(*key)
                self._left_out(copy)
                for kept in (self._held_back, self._asked):
                    kept.pop(copy, None)
            elif copy.queued_bytes >= limit:
                self._session.forget(*key)
                self._left_out(copy)
                self._held_back[copy] = None
            else:
                self._held_back.pop(copy, None)
                turn, _ = self._asked.get(copy, (None, 0))
                self._session.want(*key, self._from(copy), anew=turn != copy.turn)
                self._asked[copy] = (copy.turn, copy.cursor.offset)

    def _from(self, copy: PartitionCopy) -> FetchFrom:
        leader = self._cluster.leader(copy.key.topic, copy.key.partition)
        epoch = leader.leader_epoch if leader is not None else -1
        cursor = copy.cursor
        return FetchFrom(cursor.offset, epoch, cursor.epoch, self._settings.partition_fetch_bytes)

    async def _fetch(self) -> Sequence[FetchedPartition]:
        """Its share of the budget is taken before the fetch goes out; a quiet source holds a small one."""
        least = min(_LEAST_SHARE, self._budget.limit // 4)
        await self._budget.room(least)
        share = max(least, min(self._share, self._budget.left))
        if self._bucket.rate is not None:  # a slow flow does not take seconds' worth at once
            share = min(share, max(self._bucket.rate // 4, _LEAST_RATED))
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
        """Little came: the next fetch waits a moment, so that a trickle is not a fetch per record."""
        size = sum(len(answer.records) for answer in answers)
        if size * 2 >= self._share:
            self._share = min(self._share * 2, self._settings.fetch_bytes)
        elif size * 8 < self._share:
            self._share = max(self._share // 2, _LEAST_SHARE)
        if answers and size < _QUIET_BYTES:
            await asyncio.sleep(self._settings.linger_ms / 1000)

    async def _take(self, answers: Sequence[FetchedPartition]) -> None:
        total = sum(len(answer.records) for answer in answers)
        held = Held(self._budget, total)
        self._budget.take(total)
        held.view()
        try:
            wanted = [(self._of(answer), answer) for answer in answers]
            walks = [
                (copy, answer, _walked(copy, answer, total)) for copy, answer in wanted if copy is not None
            ]
            await self._know([one for _, _, one in walks])
            for copy, answer, one in walks:
                self._one(copy, answer, one, held)
        finally:
            held.let_go()

    def _of(self, answer: FetchedPartition) -> PartitionCopy | None:
        """The partition, if the answer is to what it still wants."""
        copy = self.copies.get((answer.topic_id, answer.partition))
        if copy is None or self._asked.get(copy) != (copy.turn, copy.cursor.offset):
            return None
        return copy

    async def _know(self, walks: Sequence[Walked]) -> None:
        """Producer ids that are new are looked up; on failure nothing of the response is taken (fail
        closed).
        """
        if self._directory is None:
            return
        seen = {one.producer_id for walked in walks for one in walked.sets if isinstance(one, Batch)}
        if self._directory.unknown(seen):
            await self._directory.resolve(seen)

    def _one(self, copy: PartitionCopy, answer: FetchedPartition, walked: Walked, held: Held) -> None:
        if self._of(answer) is not copy:
            return
        if answer.error:
            self._left_out(copy)
            if answer.leader is not None:
                self._cluster.learn(answer.topic_id, answer.partition, answer.leader)
            decision = by_code(Phase.FETCH, answer.error)
            self._reader.unreadable(copy, decision, f"{answer.error.name} ({int(answer.error)})")
            return
        if answer.diverging is not None:
            self._left_out(copy)
            self._reader.unreadable(copy, Decision(Do.LOOK, refresh=True), "the source's log was truncated")
            return
        if not copy.suspect:
            copy.failures = 0
        copy.last_fetch_ms = moment = now_ms()
        self._answered[copy] = copy.turn
        copy.source = Source(answer.log_start_offset, answer.last_stable_offset, answer.high_watermark)
        if walked.sets or walked.failure:
            self._keep(copy, answer, walked, held, moment)
        copy.settle()

    def _keep(
        self, copy: PartitionCopy, answer: FetchedPartition, walked: Walked, held: Held, moment: int
    ) -> None:
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
            held = Held(self._budget, size)
            if kept.outgoing:
                self._budget.take(size)
        for out, epoch in kept.outgoing:
            copy.add(Queued(out, epoch, held.view()))
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
    return size < _COPY_OUT and size * 4 < total


def _walked(copy: PartitionCopy, answer: FetchedPartition, total: int) -> Walked:
    records = answer.records
    if _copied_out(len(records), total):
        records = memoryview(bytes(records))
    return walk(records, Where(copy.key.topic, copy.key.partition))
