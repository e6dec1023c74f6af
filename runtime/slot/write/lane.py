"""A lane commits one transaction after the other, under one transactional id, for its partitions."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from enum import Enum
from functools import partial
from typing import TypeVar

from runtime.contract.records.ledger import Progress
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import BrokerError, ErrorCode, TimedOut, WireError
from runtime.kafka.timing import now_ms
from runtime.kafka.trace import TRACE
from runtime.kafka.transactions import abort_late, add_partitions, end_transaction
from runtime.slot import log
from runtime.slot.context import LaneSettings
from runtime.slot.errors import DESCRIPTIONS, ErrorAction, ErrorDecision, ErrorPhase, SlotMustEnd, decide
from runtime.slot.failpoints import failpoint
from runtime.slot.partition import PartitionCopy
from runtime.slot.write.events import Aborted, Committed, EmitLaneEvent, LaneFreed, LaneStuck, Rewound, Sent
from runtime.slot.write.flow_ledger import FlowLedger, Superseded
from runtime.slot.write.sender import ProduceSender
from runtime.slot.write.timer import WakeTimer
from runtime.slot.write.transaction import Transaction, TransactionFailure, TransactionPartition, blamed
from runtime.slot.write.waiting import ActivePartitions, IdlePositions, JoinQueue

R = TypeVar("R")
_STUCK_AFTER_S = 3.0
_END_S = 10.0
_MAX_PAUSE_S = 3.0
_COORDINATOR_AWAY = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
_MARKERS_S = 0.001  # A transaction's markers usually follow its end within this time.
_WINDOW_TO_CLOSE_RATIO = 20  # Closing a transaction may take at most this fraction (1/20) of its window.


class LaneState(Enum):
    """A state is the step of the cycle that a lane is in; `TRANSITIONS` says which step may follow.

    NEW: the transactional id is not initialised. IDLE: there is no transaction. SENDING: partitions join the
    open transaction, and their batches are sent. CLOSING: nothing joins it any more, and it is written and
    ended. RECOVERING: it failed, and the id gets a new epoch. MARKING: missing markers are written. STUCK:
    the id waits for a transaction marker, or its coordinator or the ledger has not answered for 3 s. DRAINED:
    the lane has ended.
    """

    NEW = "new"
    IDLE = "idle"
    SENDING = "sending"
    CLOSING = "closing"
    RECOVERING = "recovering"
    MARKING = "marking"
    STUCK = "stuck"
    DRAINED = "drained"


TRANSITIONS: dict[LaneState, set[LaneState]] = {
    LaneState.NEW: {LaneState.IDLE, LaneState.STUCK},
    LaneState.IDLE: {LaneState.SENDING, LaneState.MARKING, LaneState.STUCK, LaneState.DRAINED},
    LaneState.SENDING: {LaneState.CLOSING, LaneState.RECOVERING},
    LaneState.CLOSING: {LaneState.IDLE, LaneState.RECOVERING},
    LaneState.RECOVERING: {LaneState.IDLE, LaneState.STUCK},
    LaneState.MARKING: {LaneState.IDLE, LaneState.STUCK},
    LaneState.STUCK: {LaneState.IDLE, LaneState.RECOVERING, LaneState.MARKING},
    LaneState.DRAINED: set(),
}


class Lane:
    """A lane owns one transactional id, its open transaction, and the partitions that are copied through it.

    `run` repeats one cycle: partitions join, their batches are sent, the transaction is closed. A failure
    aborts it, and the lane recovers: it takes a new producer epoch, and its partitions resume from their
    committed positions (fencing 1). `state` is the step of the cycle.

    Partitions that carried data lately join ahead of their next batch. Where the base offsets of the batches
    are expected, the ledger records are sent with them, and the transaction ends only as expected (R6).

    `solo` lanes commit one partition per transaction. While the lane is stuck, its partitions move to other
    lanes.
    """

    def __init__(
        self,
        cluster: KafkaCluster,
        transactional_id: str,
        ledger: FlowLedger,
        settings: LaneSettings,
        emit: EmitLaneEvent,
        solo: bool = False,
    ) -> None:
        self.transactional_id = transactional_id
        self.solo = solo
        self.state = LaneState.NEW
        self.copies: dict[PartitionCopy, None] = {}
        self.aborts = 0
        self._cluster = cluster
        self._ledger = ledger
        self._settings = settings
        self._emit = emit
        self._wake = asyncio.Event()
        self._ended = asyncio.Event()
        self._timer = WakeTimer(self._wake.set)
        self._sender = ProduceSender(cluster, transactional_id, settings.request_bytes, self._wake.set)
        self._active = ActivePartitions(settings.ahead_s)
        self._joining = JoinQueue(cluster, self._sender, self._active, emit, self._wake.set)
        self._loop = asyncio.get_running_loop()
        self._entered_at = time.monotonic()
        self._unmarked: dict[PartitionCopy, tuple[Progress, bool]] = {}
        self._idle = IdlePositions(settings.idle_commit_s, self._wake.set)
        self._transaction = Transaction(0.0)
        self._drain_requested = False
        self._close_s = 0.005
        self._committed_at = 0.0
        self._failures = 0

    # The partitions of the lane

    def add(self, copy: PartitionCopy) -> None:
        """Adds a partition: from now on it is copied through this lane."""
        copy.accounts.change_lane()
        self.copies[copy] = None
        self.offer(copy)

    def remove(self, copy: PartitionCopy) -> None:
        """Removes a partition from the lane; it must not be in an open transaction."""
        assert not copy.in_transaction, "a partition changes its lane between transactions"
        self.copies.pop(copy, None)
        self._joining.discard(copy)
        self._idle.discard(copy)

    async def release(self, copy: PartitionCopy) -> None:
        """Removes a partition once it is in no open transaction; an open one is ended early for it."""
        while copy.in_transaction:
            self._end_early()
            self._ended.clear()
            await self._ended.wait()
        self.remove(copy)

    def offer(self, copy: PartitionCopy) -> None:
        """Registers that a partition has a batch queued, or that its idle position moved."""
        if self.state is LaneState.SENDING and copy.in_transaction:
            if copy.queue:
                self._offer_to_send(self._transaction.parts[copy])
            else:  # The transaction may have waited for this partition only.
                self._wake.set()
        elif copy.in_transaction:
            return  # It is offered again when the transaction is decided.
        elif copy.queue:
            self._joining.offer(copy)
        elif copy.idle_position_moved:
            self._idle.add(copy)

    @property
    def is_stuck(self) -> bool:
        """Whether the lane can't copy: it waits for a marker, its coordinator or the ledger."""
        return self.state is LaneState.STUCK

    @property
    def producer_id(self) -> int:
        """The producer id of its transactions."""
        return self._sender.identity.producer_id

    def write_marker(self, copy: PartitionCopy, *, commit: bool) -> None:
        """Lets the lane write a missing marker, before its next transaction, into a partition of any lane."""
        self._unmarked[copy] = (copy.progress, commit)
        self._wake.set()

    def drop_marker(self, copy: PartitionCopy) -> None:
        """Forgets a missing marker that is not written yet: the partition has it, or leaves the slot."""
        self._unmarked.pop(copy, None)

    def commit_idle_positions(self) -> None:
        """Writes the idle positions to the ledger now, without waiting for the interval."""
        self._idle.make_due()

    # The life of the lane

    async def begin(self) -> bool:
        """Initialises the transactional id; returns False where the id is stuck.

        This fences the previous producer and aborts its transaction. A second call fails if another process
        has initialised the id since. All lanes of a slot share a few connections for it, because most spare
        lanes never begin a transaction. Raises SlotMustEnd, WireError.
        """
        try:
            await self._initialise(in_turn=True)
        except WireError as error:
            self._check_initialisation(error)
            if not self.is_stuck:
                raise
            return False
        self._enter(LaneState.IDLE)
        return True

    async def run(self) -> None:
        """Runs one transaction after the other until `drain` is called.

        Raises SlotMustEnd, and READ_FAILURES of the ledger.
        """
        try:
            while await self._wait_for_work():
                if self._unmarked:
                    await self._write_markers()
                else:
                    await self._run_transaction()
        finally:
            self._joining.close()

    def drain(self) -> None:
        """Begins no new transaction; `run` returns once the open one has ended."""
        self._drain_requested = True
        self._end_early()

    def _enter(self, state: LaneState) -> None:
        """Changes the state, by the table of transitions."""
        assert state is self.state or state in TRANSITIONS[self.state], f"{self.state} → {state}"
        if TRACE is not None:
            now = time.monotonic()
            TRACE.span(self.transactional_id, self.state.value, self._entered_at, now)
            self._entered_at = now
        self.state = state

    def _end_early(self) -> None:
        """Ends an open transaction as soon as possible, although it is not due."""
        if self.state is LaneState.SENDING:
            self._enter(LaneState.CLOSING)
        self._wake.set()

    async def _wait_for_work(self) -> bool:
        """Waits for work; returns False once the lane is drained."""
        while not self._drain_requested:
            self._wake.clear()
            if self._unmarked or self._joining or self._active or self._idle.is_due():
                return True
            await self._wake.wait()
        self._enter(LaneState.DRAINED)
        return False

    async def _run_transaction(self) -> None:
        """Sends, then commits; a failure of either is recovered from."""
        self._sender.begin()
        tx = self._transaction = Transaction(self._loop.time())
        self._enter(LaneState.SENDING)
        try:
            closing_at = await self._write_in_time(tx)
            if tx.joined:
                await self._end(tx)
                self._committed_at = self._loop.time()
                self._close_s += (self._committed_at - closing_at - self._close_s) / 4
        except TransactionFailure as failure:
            self._enter(LaneState.RECOVERING)
            await self._recover(tx, failure)
        else:
            self._finish(tx)
        self._ended.set()

    async def _write_in_time(self, tx: Transaction) -> float:
        """Sends and writes everything but the end; returns when closing began.

        A transaction that is not written in time is aborted, before the broker times it out and fences its
        producer. The partitions that have batches in flight are blamed. Raises TransactionFailure.
        """
        try:
            async with asyncio.timeout_at(tx.started + self._settings.late_s):
                await self._send_until_due(tx)
                closing_at = self._loop.time()
                await self._flush_and_write_ledger(tx)
        except TimeoutError:
            why = f"not written in {self._settings.late_s:g} s: by a quota, or over a slow link?"
            late = TimedOut(self.transactional_id, why, sent=True)
            blamed_copies = self._sender.unacknowledged()
            raise TransactionFailure(ErrorPhase.PRODUCE, late, blamed_copies) from None
        return closing_at

    async def _send_until_due(self, tx: Transaction) -> None:
        """Adds partitions and sends batches until the transaction is due to end.

        It begins with the partitions that were active lately, and those that have a batch. Their first
        batches then need not wait for the coordinator, nor for the markers of the transaction before. The
        longest duration is such that closing costs little of the time, and never longer than the rpo allows.
        """
        window = min(max(_WINDOW_TO_CLOSE_RATIO * self._close_s, 0.05), self._settings.longest_s)
        try:
            if self._active:
                await self._await_markers()
            if self._active and self.state is LaneState.SENDING:
                await self._add(tx, [*self._joining.take(), *self._joining.take_active(self.copies)])
            while True:
                self._wake.clear()
                tx.check()
                if self._due(tx, window):
                    self._enter(LaneState.CLOSING)
                    return
                await self._sender.connect_ready()
                if sent := self._sender.make_requests(tx):
                    self._emit(Sent(sent))
                    if self._due(tx, window):  # The ledger records travel with the last batches.
                        continue
                    self._sender.flush(tx)
                if self._joining and self.state is LaneState.SENDING and await self._join(tx):
                    continue
                if not self._due(tx, window):
                    self._timer.set(self._due_at(tx, window))
                    await self._wake.wait()
        finally:
            self._timer.cancel()

    async def _await_markers(self) -> None:
        """Waits for the markers of the transaction before, unless a batch is queued or the lane is to end.

        Until they are written, the coordinator refuses partitions that join ahead.
        """
        until = self._committed_at + _MARKERS_S
        while self._loop.time() < until and not self._joining and self.state is LaneState.SENDING:
            self._wake.clear()
            self._timer.set(until)
            await self._wake.wait()

    def _due(self, tx: Transaction, window: float) -> bool:
        """Returns whether the transaction should end, by its age, its size, or for lack of more batches.

        Batches in flight do not delay the end where the ledger records are known without their responses.
        """
        if self.state is LaneState.CLOSING or tx.is_full(self._settings.transaction_bytes):
            return True
        if self._loop.time() >= self._due_at(tx, window):
            return True
        if self._sender.has_ready() or (self._joining and not (self.solo and tx.parts)):
            return False
        if tx.sent_at is None and tx.parts:  # They joined ahead.
            return self._idle.is_due() or any(copy.quarantine for copy in tx.parts)
        if tx.in_flight and not tx.all_expected:
            return False
        return not any(copy.behind for copy in tx.parts)

    def _due_at(self, tx: Transaction, window: float) -> float:
        """Returns when the transaction should end, counted from its first batch, or else from its start."""
        if tx.sent_at is not None:
            return tx.sent_at + window
        return tx.started + max(window, self._settings.ahead_s)

    # Joining

    async def _join(self, tx: Transaction) -> bool:
        """Adds the partitions that have their first batch; returns whether there were any."""
        if self.solo:
            return not tx.parts and await self._add(tx, self._joining.take(1))
        return await self._add(tx, self._joining.take())

    async def _add(self, tx: Transaction, joining: list[TransactionPartition]) -> bool:
        """Adds partitions to the transaction, and the ledger's with the first of them."""
        if not joining:
            return False
        wanted = [part.copy.at for part in joining]
        if not tx.parts:
            wanted.append(self._ledger.partition)
        for part in joining:  # Before the request: while it runs, nothing may move them to another lane.
            tx.add(part)
        try:
            name, identity = self.transactional_id, self._sender.identity
            await add_partitions(self._cluster, name, identity, wanted, within=_STUCK_AFTER_S)
        except WireError as error:
            raise TransactionFailure(ErrorPhase.ADD, error, blamed(error, joining)) from error
        tx.mark_joined()
        for part in joining:
            self._idle.discard(part.copy)
            if part.copy.queue:
                self._offer_to_send(part)
        return True

    def _offer_to_send(self, part: TransactionPartition) -> None:
        """Lets a partition send. One that joined ahead may have a new leader since: it joins again then."""
        if part.records or self._joining.may_send(part):
            self._sender.offer(part)
        else:
            self._end_early()
        self._wake.set()

    # Closing

    async def _end(self, tx: Transaction) -> None:
        """Commits what was written (R1). Raises TransactionFailure."""
        failpoint("before_end")
        try:
            identity = self._sender.identity
            await end_transaction(self._cluster, self.transactional_id, identity, commit=True, within=_END_S)
        except WireError as error:
            raise TransactionFailure(ErrorPhase.END, error) from error
        failpoint("after_end")

    async def _flush_and_write_ledger(self, tx: Transaction) -> None:
        """Writes the ledger records, and waits until they and all batches are acknowledged.

        Where every base offset is expected, both are in flight together. An acknowledgement that is not the
        expected one fails the transaction before it can be committed (R6).
        """
        failpoint("before_flush")
        if not tx.all_expected:
            await self._flush(tx)
        idle = self._idle.moved() if tx.parts or self._idle.is_due() else []
        tx.prepare_entries(idle, self._ledger.generation, now_ms())
        if tx.entries or tx.joined:
            failpoint("before_ledger")
            await self._ledger.write(tx, self._sender, self.transactional_id)
        await self._flush(tx)
        failpoint("after_ledger")

    async def _flush(self, tx: Transaction) -> None:
        """Waits until everything that was sent is acknowledged."""
        self._sender.flush(tx)
        while tx.in_flight and tx.unexpected is None:
            self._wake.clear()
            await self._wake.wait()
        tx.check()
        failpoint("after_flush")

    def _finish(self, tx: Transaction) -> None:
        """Applies a committed transaction to its partitions and notifies the flow."""
        self._failures = 0
        for copy in tx.parts:
            copy.accounts.committed()
        self._active.carried((part.copy for part in tx if part.records), self._loop.time())
        for entry in tx.entries:
            entry.apply()
        tx.release_partitions()
        self._enter(LaneState.IDLE)
        self._emit(Committed(tx.entries, list(tx.parts), tx.latencies))
        for copy in [*tx.parts, *self._idle.clear()]:
            if copy in self.copies:
                self.offer(copy)

    # Recovery

    async def _recover(self, tx: Transaction, failure: TransactionFailure) -> None:
        """Recovers from a failed transaction; all partitions resume from what is committed (fencing 1, 5).

        A transaction that can only end aborted is rewound before the new epoch is initialised: that may take
        as long as a transaction marker waits. Where the response to the end was lost, the ledger decides
        whether it was committed. Raises SlotMustEnd where another writer may have fenced this one.
        """
        self._sender.close(tx)
        self.aborts += 1
        self._failures += 1
        decision = failure.decision
        for copy in tx.parts:
            copy.accounts.aborted()
        log.warning(
            "transaction_failed",
            key=self.transactional_id,
            flow=self._ledger.flow,
            transactional_id=self.transactional_id,
            epoch=self._sender.identity.epoch,
            phase=failure.phase,
            error=str(failure),
            partitions=len(tx.parts),
            blamed=", ".join(copy.label for copy in failure.copies[:5]),
            failures=self._failures,
            decision=DESCRIPTIONS[decision.action],
        )
        if decision.action is ErrorAction.END_SLOT:
            raise self._fenced(str(failure))
        topics = {copy.at.topic for copy in tx.parts} | self._ledger.topics
        undecided = decision.action is ErrorAction.ASK_LEDGER
        if not undecided:
            self._abort(tx, failure, decision)
        if decision.refresh:
            with contextlib.suppress(WireError):  # The next attempt reports it again.
                await self._cluster.topics(topics, fresh=True)
        await self._initialise_again()
        if undecided:
            await self._decide_by_ledger(tx, failure, decision)
        await self._confirm()
        if self._failures > 1:
            await asyncio.sleep(min(0.05 * 2 ** min(self._failures, 6), 2.0))
        self._enter(LaneState.IDLE)
        for copy in self.copies:
            self.offer(copy)

    def _abort(self, tx: Transaction, failure: TransactionFailure, decision: ErrorDecision) -> None:
        """Rewinds the partitions of a transaction that can only end aborted, and those that it blames."""
        copies = list(dict.fromkeys((*tx.parts, *failure.copies)))
        for copy in copies:
            copy.rewind()
        tx.release_partitions()
        self._emit(Rewound(copies))
        self._emit(Aborted(copies, failure, decision))
        self._ended.set()

    async def _decide_by_ledger(
        self, tx: Transaction, failure: TransactionFailure, decision: ErrorDecision
    ) -> None:
        """Reads from the ledger whether a transaction was committed, where the response to EndTxn was lost.

        The new epoch has ended it either way, so its records are decided (fencing 5).
        """
        await self._retry(self._ledger.refresh)
        decided = [(entry, await self._ledger.wait_for_progress(entry.copy.key)) for entry in tx.entries]
        committed = [entry for entry, progress in decided if progress == entry.progress]
        for entry in committed:
            entry.apply()
        copies = [*tx.parts, *tx.idle]
        for copy in copies:
            copy.rewind()
        tx.release_partitions()
        if committed:
            self._emit(Committed(committed, list(tx.parts), tx.latencies))
        self._emit(Rewound(copies))
        settled = {entry.copy for entry in committed}
        aborted = [copy for copy in tx.parts if copy not in settled]
        log.info(
            "transaction_decided",
            key=self.transactional_id,
            flow=self._ledger.flow,
            transactional_id=self.transactional_id,
            committed=len(committed),
            aborted=len(aborted),
        )
        self._emit(Aborted(aborted, failure, decision))

    # Missing markers

    async def _write_markers(self) -> None:
        """Lets the coordinator write the markers that it left out, by transactions without records.

        A marker ends all that its producer id has open in a partition. Raises SlotMustEnd.
        """
        self._enter(LaneState.MARKING)
        unmarked, self._unmarked = self._unmarked, {}
        for commit in (True, False):
            copies = [
                copy
                for copy, (progress, committed) in unmarked.items()
                if committed is commit and copy.progress is progress and not copy.in_transaction
            ]
            if not copies:
                continue
            log.warning(
                "markers_missing",
                key=self.transactional_id,
                flow=self._ledger.flow,
                transactional_id=self.transactional_id,
                epoch=self._sender.identity.epoch,
                partitions=", ".join(copy.label for copy in copies[:5]),
                decision="commit them again" if commit else "abort them again",
            )
            for copy in copies:
                copy.accounts.aborted()  # One more marker lies between its batches.
            await self._end_again(copies, commit=commit)
            await self._initialise_again()  # A late copy of these requests finds a newer epoch.
        self._enter(LaneState.IDLE)

    async def _end_again(self, copies: list[PartitionCopy], *, commit: bool) -> None:
        """Commits or aborts a transaction without records in these partitions, with retries.

        Once they may be added to it, any other end would take back what the ledger holds, so the outcome of
        each request is waited for. Raises SlotMustEnd where another writer may have fenced this one.
        """
        by = self._cluster, self.transactional_id, self._sender.identity
        add = partial(add_partitions, *by, [copy.at for copy in copies], within=_STUCK_AFTER_S, resend=False)
        if await self._retry_until_decided(ErrorPhase.ADD, add):
            end = partial(end_transaction, *by, commit=commit, within=_END_S)
            await self._retry_until_decided(ErrorPhase.END, end)

    async def _retry_until_decided(self, phase: ErrorPhase, request: Callable[[], Awaitable[None]]) -> bool:
        """Sends a request until its outcome is certain; returns whether it was carried out.

        A lost answer leaves the outcome open, and so does CONCURRENT_TRANSACTIONS after one: the coordinator
        may still write the request to its log. Raises SlotMustEnd.
        """
        open_outcome = phase is ErrorPhase.END
        while True:
            try:
                await request()
            except WireError as error:
                if decide(phase, error).action is ErrorAction.END_SLOT:
                    raise self._fenced(str(error)) from error
                if isinstance(error, BrokerError) and error.code is ErrorCode.INVALID_TXN_STATE:
                    return False  # The transaction has ended.
                if not isinstance(error, BrokerError):
                    open_outcome = True
                elif not open_outcome and error.code not in _COORDINATOR_AWAY:
                    return False  # The partitions were not added.
                log.warning(
                    "markers_retry",
                    key=self.transactional_id,
                    flow=self._ledger.flow,
                    transactional_id=self.transactional_id,
                    phase=phase,
                    error=str(error),
                    decision="retry",
                )
            else:
                return True
            await asyncio.sleep(_MAX_PAUSE_S / 4)

    async def _initialise(self, *, in_turn: bool = False) -> None:
        """Starts a new producer epoch, and registers a new producer id as this flow's. Raises WireError."""
        timeout_ms = self._settings.transaction_timeout_ms
        identity = await self._sender.next_identity(timeout_ms, _STUCK_AFTER_S, in_turn=in_turn)
        if identity.producer_id != self.producer_id:
            await self._ledger.register(identity)
        self._sender.begin_epoch(identity)

    async def _initialise_again(self) -> None:
        """Initialises the transactional id, with retries. Raises SlotMustEnd where it is fenced."""

        async def initialise() -> None:
            try:
                await self._initialise()
                if late := self._sender.late:
                    by = self._cluster, self.transactional_id, self._sender.identity
                    await abort_late(*by, late, within=_END_S, add_within=_STUCK_AFTER_S)
                    await self._initialise()
            except WireError as error:
                self._check_initialisation(error)
                raise

        await self._retry(initialise)

    async def _retry(self, step: Callable[[], Awaitable[R]]) -> R:
        """Repeats a step until it succeeds, and returns its result.

        A lane whose step fails for 3 s is stuck. Its partitions move to other lanes (fencing 4). Those of a
        transaction whose end is not known stay: it may still commit them. Raises SlotMustEnd.
        """
        attempt, before, began = 0, self.state, self._loop.time()
        while True:
            try:
                result = await step()
                break
            except WireError as error:
                why = str(error)
            except Superseded as superseded:
                raise self._fenced(str(superseded)) from superseded
            if self._loop.time() - began >= _STUCK_AFTER_S:
                self._enter(LaneState.STUCK)
            if self.is_stuck:
                self._emit(LaneStuck(self.transactional_id, why))
            attempt += 1
            await asyncio.sleep(min(0.1 * 2 ** min(attempt, 5), _MAX_PAUSE_S))
        if self.is_stuck:
            self._enter(before)
            self._emit(LaneFreed(self.transactional_id))
        return result

    def _check_initialisation(self, error: WireError) -> None:
        """Records that the id is stuck where the error says so. Raises SlotMustEnd where it is fenced."""
        match decide(ErrorPhase.INIT, error).action:
            case ErrorAction.END_SLOT:
                raise self._fenced(str(error)) from error
            case ErrorAction.STUCK:
                self._enter(LaneState.STUCK)

    async def _confirm(self) -> None:
        """Verifies that the ledger still holds what this lane committed last, with retries (fencing 3, R3).

        The new epoch may have fenced another writer. Raises SlotMustEnd where it has written.
        """
        expected = {copy: copy.progress for copy in self.copies if not copy.in_transaction}
        moved = await self._retry(partial(self._ledger.differences, expected))
        for copy in moved:
            if copy in self.copies and copy.progress is expected[copy]:
                raise self._fenced(f"another writer moved the progress of {copy.label}", copy)

    def _fenced(self, why: str, copy: PartitionCopy | None = None) -> SlotMustEnd:
        """Logs that another writer may be active, and returns the exception that ends the slot."""
        log.error(
            "lane_fenced",
            key=self.transactional_id,
            **(copy.log_fields() if copy is not None else {"flow": self._ledger.flow}),
            transactional_id=self.transactional_id,
            epoch=self._sender.identity.epoch,
            error=why,
            decision="end the slot",
        )
        return SlotMustEnd(f"{self.transactional_id}: {why}")
