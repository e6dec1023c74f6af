"""A lane commits one transaction after the other, under one transactional id, for its partitions."""

from __future__ import annotations

import asyncio
import time

from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import TimedOut, WireError
from runtime.kafka.protocol.transactions import ProducerIdentity
from runtime.kafka.transactions import add_partitions, end_transaction
from runtime.slot.errors import ErrorPhase
from runtime.slot.failpoints import Passing
from runtime.slot.partition import PartitionCopy
from runtime.slot.settings import LaneSettings
from runtime.slot.write.closing import CommitEntry, LedgerPartitions, commit_entries, write_ledger
from runtime.slot.write.joining import JoiningPartitions
from runtime.slot.write.owner import LaneFlow
from runtime.slot.write.recovery import STUCK_AFTER_S, LaneRecovery
from runtime.slot.write.sender import ProduceSender
from runtime.slot.write.transaction import Transaction, TransactionFailure, blamed

_END_S = 10.0
# A heavily compacted topic has many runs, which stay in memory until the transaction ends (R8).
_MAX_RUNS = 50_000
_WINDOW_TO_CLOSE_RATIO = 20  # Closing a transaction may take at most this fraction (1/20) of its window.


class Lane:
    """A lane owns one transactional id, its open transaction, and the partitions that are copied through it.

    `run` is its main loop. `take` adds a partition, `free` removes it between transactions. `offer` is called
    when a partition has a batch queued, or when its position moved over records that are not copied.
    """

    def __init__(
        self,
        cluster: KafkaCluster,
        transactional_id: str,
        place: LedgerPartitions,
        settings: LaneSettings,
        owner: LaneFlow,
        passing: Passing,
        solo: bool = False,
    ) -> None:
        self.transactional_id = transactional_id
        self.solo = solo
        self.is_stuck = False
        self.copies: dict[PartitionCopy, None] = {}
        self.aborts = 0
        self._cluster = cluster
        self._place = place
        self._settings = settings
        self._owner = owner
        self._passing = passing
        self._wake = asyncio.Event()
        self.ended = asyncio.Event()
        self._sender = ProduceSender(
            cluster, transactional_id, settings.request_bytes, self._wake.set, owner.sent
        )
        self._joining = JoiningPartitions(cluster, self._sender, owner, self._wake.set)
        self._idle: dict[PartitionCopy, None] = {}
        self._idle_due = 0.0
        self._tx: Transaction | None = None
        self._draining = False
        self._end_early = False
        self._close_s = 0.005
        self.recovery = LaneRecovery(cluster, transactional_id, settings.transaction_timeout_ms, owner)

    # What the flow calls

    async def begin(self) -> None:
        """Initialises the transactional id; this fences the previous producer and aborts its transaction.

        Raises WireError.
        """
        self.begin_epoch(await self.recovery.begin())

    async def begin_again(self) -> None:
        """Retries the initialisation until the transactional id is no longer stuck."""
        await self.recovery.begin_again(self)

    def begin_epoch(self, identity: ProducerIdentity) -> None:
        """Starts a new producer epoch: sequences restart at 0 (fencing 1)."""
        self._sender.begin_epoch(identity)

    def take(self, copy: PartitionCopy) -> None:
        """Adds a partition: from now on it is copied through this lane."""
        copy.lane = self
        copy.accounts.change_lane()
        self.copies[copy] = None
        self.offer(copy)

    def leave(self, copy: PartitionCopy) -> None:
        """Removes a partition from the lane; it must not be in an open transaction."""
        assert not copy.busy, "a partition changes its lane between transactions"
        self.copies.pop(copy, None)
        self._joining.leave(copy)
        self._idle.pop(copy, None)
        copy.lane = None

    async def free(self, copy: PartitionCopy) -> None:
        """Removes a partition once it is in no open transaction; an open one is ended early for it."""
        while copy.busy:
            self._end_early = True
            self.ended.clear()
            self._wake.set()
            await self.ended.wait()
        self.leave(copy)

    def offer(self, copy: PartitionCopy) -> None:
        """Registers that a partition has a batch queued, or that its idle position moved."""
        if copy.queue:
            if copy.part is None:
                self._joining.offer(copy)
            elif self._tx is not None and not self._tx.closed:
                self._sender.offer(copy.part)
                self._wake.set()
        elif copy.part is not None:  # The transaction may have waited for this partition only.
            self._wake.set()
        elif copy.idle_position_moved and copy not in self._idle:
            if not self._idle:
                self._idle_due = self._now() + self._settings.idle_commit_s
                asyncio.get_running_loop().call_at(self._idle_due, self._wake.set)
            self._idle[copy] = None

    def commit_idle_positions(self) -> None:
        """Writes the idle positions to the ledger now, without waiting for the interval."""
        self._idle_due = 0.0
        self._wake.set()

    def topics(self) -> set[str]:
        """Returns the internal topics that every transaction of the lane writes to."""
        return {self._place.ledger.topic, self._place.offset_map.topic}

    def drain(self) -> None:
        """Begins no new transaction; `run` returns once the open one has ended."""
        self._draining = True
        self._wake.set()

    # The cycle

    async def run(self) -> None:
        """Runs one transaction after the other until `drain` is called."""
        try:
            while await self._wait_for_work():
                await self._one_transaction()
        finally:
            self._joining.close()

    async def _one_transaction(self) -> None:
        """Sends, then commits; a failure of either is recovered from."""
        self._sender.begin()
        tx = self._tx = Transaction(self._now())
        try:
            await self._send_until_due(tx)
            entries = await self._close(tx)
        except TransactionFailure as failure:
            await self._recover(tx, failure)
        else:
            self._finish(tx, entries)
        self._tx = None
        self._end_early = False
        self.ended.set()

    async def _wait_for_work(self) -> bool:
        """Waits for work; returns False once the lane drains."""
        while not self._draining:
            self._wake.clear()
            if self._joining or self._idle_is_due():
                return True
            await self._wake.wait()
        return False

    async def _send_until_due(self, tx: Transaction) -> None:
        """Adds partitions and sends batches until the transaction is due to end."""
        window = self._window()
        timer = asyncio.get_running_loop().call_at(tx.started + window, self._wake.set)
        try:
            while True:
                self._wake.clear()
                tx.check()
                if self._due(tx, window):
                    return
                if self._joining and await self._join(tx):
                    continue
                await self._sender.connect_ready()
                self._sender.send(tx)
                if not self._due(tx, window):
                    await self._wake.wait()
        finally:
            timer.cancel()

    def _due(self, tx: Transaction, window: float) -> bool:
        """Returns whether the transaction should end, by its age, its size, or for lack of more batches."""
        age = self._now() - tx.started
        full = tx.bytes >= self._settings.transaction_bytes or tx.runs >= _MAX_RUNS
        if self._draining or self._end_early or age >= window or full:
            return True
        if tx.in_flight or self._sender.has_ready() or (self._joining and not (self.solo and tx.parts)):
            return False
        return not any(copy.behind for copy in tx.parts)

    def _window(self) -> float:
        """Returns the transaction's longest duration in seconds.

        It is long enough that closing costs little of the time, and never longer than the rpo allows.
        """
        return min(max(_WINDOW_TO_CLOSE_RATIO * self._close_s, 0.05), self._settings.longest_s)

    async def _join(self, tx: Transaction) -> bool:
        """Adds the partitions that have their first batch; returns whether there were any."""
        if self.solo and tx.parts:
            return False
        joining = self._joining.take(alone=self.solo)
        if not joining:
            return False
        wanted = [part.copy.at for part in joining]
        if not tx.parts:
            wanted.append(self._place.ledger)
        for (
            part
        ) in joining:  # Before the request: while it runs, no other code may move them to another lane.
            tx.take(part)
        try:
            await add_partitions(
                self._cluster, self.transactional_id, self._sender.identity, wanted, within=STUCK_AFTER_S
            )
        except WireError as error:
            raise TransactionFailure(ErrorPhase.ADD, error, blamed(error, joining)) from error
        tx.joined = True
        for part in joining:
            self._idle.pop(part.copy, None)
            if part.copy.queue:
                self._sender.offer(part)
        return True

    async def _close(self, tx: Transaction) -> list[CommitEntry]:
        """Flushes, writes the ledger records, and commits the transaction (R1). Raises Failure."""
        began = self._now()
        try:
            async with asyncio.timeout_at(tx.started + self._settings.late_s):
                entries = await self._flush_and_write_ledger(tx)
        except TimeoutError:
            why = f"not written in {self._settings.late_s:g} s: by a quota, or over a slow link?"
            raise TransactionFailure(
                ErrorPhase.PRODUCE, TimedOut(self.transactional_id, why, sent=True)
            ) from None
        if not tx.joined:
            return entries
        tx.entries = entries
        self._passing("before_end")
        try:
            identity = self._sender.identity
            await end_transaction(self._cluster, self.transactional_id, identity, commit=True, within=_END_S)
        except WireError as error:
            raise TransactionFailure(ErrorPhase.END, error) from error
        self._passing("after_end")
        self._close_s += (self._now() - began - self._close_s) / 4
        return entries

    async def _flush_and_write_ledger(self, tx: Transaction) -> list[CommitEntry]:
        """Waits until all batches are acknowledged, then writes the ledger records."""
        self._passing("before_flush")
        while tx.in_flight and tx.unexpected is None:
            self._wake.clear()
            await self._wake.wait()
        tx.check()
        self._passing("after_flush")
        idle = (
            [copy for copy in self._idle if copy.idle_position_moved]
            if self._idle_is_due() or tx.parts
            else []
        )
        tx.add_idle(idle)
        entries = commit_entries(tx, idle, self._place.generation, int(time.time() * 1000))
        if not entries and not tx.joined:
            return entries
        self._passing("before_ledger")
        await write_ledger(self._cluster, self._place, self._sender, self.transactional_id, tx, entries)
        self._passing("after_ledger")
        return entries

    def _idle_is_due(self) -> bool:
        return bool(self._idle) and self._now() >= self._idle_due

    def _finish(self, tx: Transaction, entries: list[CommitEntry]) -> None:
        """Applies a committed transaction to its partitions and notifies the flow."""
        self.recovery.failures = 0
        tx.closed = True
        for copy in tx.parts:
            copy.accounts.committed()
        for entry in entries:
            self.settle(entry)
        tx.release_partitions()
        self._owner.committed(self, tx, entries)
        again = [*tx.parts, *self._idle]
        self._idle.clear()
        for copy in again:
            if copy.lane is self:
                self.offer(copy)

    async def _recover(self, tx: Transaction, failure: TransactionFailure) -> None:
        """Recovers from a failed transaction; all partitions resume from what is committed (fencing 1, 5)."""
        self._sender.close(tx)
        self.aborts += 1
        await self.recovery.after(self, tx, failure)
        for copy in self.copies:
            self.offer(copy)

    def settle(self, entry: CommitEntry) -> None:
        """Applies a committed ledger entry to its partition."""
        copy, progress, _, part, step = entry
        if part is not None:
            copy.part = None
        copy.committed(progress)
        if step is not None:
            copy.dropped -= step.dropped
        else:
            copy.replacement = None
            copy.rewind()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
