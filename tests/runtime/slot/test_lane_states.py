"""Lanes walk their table of states: whatever fails in between, each record is committed once."""

from __future__ import annotations

import asyncio
from collections import Counter

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import initialize, invariant, precondition, rule
from msgspec.structs import replace

from runtime.contract.records.ledger import PartitionKey, Progress
from runtime.kafka.errors import Disconnected, ErrorCode, TimedOut, WireError
from runtime.kafka.protocol.transactions import EndTransactionRequest, InitProducerIdRequest
from runtime.slot.partition import Cursor, PartitionCopy
from runtime.slot.write.events import Aborted, Committed, LaneEvent, LaneFreed, LaneStuck, Rewound
from runtime.slot.write.lane import TRANSITIONS, LaneState
from runtime.slot.write.lanes import LaneSet
from runtime.slot.write.sender import ProduceSender
from runtime.slot.write.transaction import Transaction
from tests.fakes.lane import SETTINGS, Destination, Emitted, LedgerInMemory, Link, lanes_of
from tests.fakes.machine import VirtualTimeMachine, assert_reachable
from tests.fakes.partition import partition, queued

FIRST = 10  # the position that the ledger holds at the start
NUMBERS = st.integers(0, 2)
LOST = (TimedOut("broker 1", "no answer", sent=True), ErrorCode.NOT_COORDINATOR)
REFUSED = (Disconnected("broker 1", "refused", sent=False), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
SECONDS = st.sampled_from((0.0, 0.01, 0.2, 20.0))
Answer = ErrorCode | WireError
ABORTING = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT)
OPEN = {LaneState.SENDING, LaneState.CLOSING, LaneState.RECOVERING, LaneState.STUCK}


class DecidedLedger(LedgerInMemory):
    """Holds what the lanes wrote, by their ids, until their transactions are decided."""

    def __init__(self, *copies: PartitionCopy) -> None:
        super().__init__(*copies)
        self.pending: dict[str, dict[PartitionKey, Progress]] = {}

    async def write(self, tx: Transaction, sender: ProduceSender, transactional_id: str) -> None:
        tx.mark_joined()
        self.pending[transactional_id] = {entry.copy.key: entry.progress for entry in tx.entries}

    def decide(self, transactional_id: str, *, commit: bool) -> None:
        progress = self.pending.pop(transactional_id, {})
        self.stored.update(progress if commit else {})


class Coordinator(Destination):
    """Decides the transactions of the ledger.

    `commits_lost` says what becomes of a transaction whose end is not answered. While `unmarked`, the ids
    wait for a marker.
    """

    ledger: DecidedLedger
    commits_lost = False
    unmarked = False

    async def connection(self, node: int, purpose: str, within: float) -> Link:
        link = await super().connection(node, purpose, within)
        link.closed = False
        return link

    async def call(self, node: int, request: object, purpose: str, within: float | None) -> object:
        match request:
            case EndTransactionRequest(commit=True):
                arrived = not self.end_errors or (self.commits_lost and self.end_errors[0] in LOST)
                if arrived:
                    self.ledger.decide(request.transactional_id, commit=True)
            case EndTransactionRequest():
                self.ledger.decide(request.transactional_id, commit=False)
            case InitProducerIdRequest():
                if self.unmarked:
                    return ErrorCode.CONCURRENT_TRANSACTIONS
                if not self.init_errors:
                    self.ledger.decide(request.transactional_id or "", commit=False)
                    self.open.discard(request.transactional_id or "")
        return await super().call(node, request, purpose, within)


class Flow(Emitted):
    """Fetches rewound partitions again, and moves them between lanes, as a flow does."""

    lanes: LaneSet

    def __init__(self, copies: list[PartitionCopy]) -> None:
        super().__init__()
        self.copies = copies
        self.ends = dict.fromkeys(copies, FIRST)
        self.committed: Counter[PartitionCopy] = Counter()

    def fetch(self, copy: PartitionCopy) -> None:
        """Queues the records between the cursor and the end of the source's log."""
        if copy.releasing:
            return
        while (offset := copy.cursor.offset) < self.ends[copy]:
            copy.fetched([queued((offset, 1))], Cursor(offset + 1, 0))
        self.lanes.offer(copy)

    def emit(self, event: LaneEvent) -> None:
        super().emit(event)
        match event:
            case Rewound(copies):
                for copy in copies:
                    self.fetch(copy)
            case Committed(entries):
                for entry in entries:
                    self.committed[entry.copy] += entry.part.records if entry.part is not None else 0
                    if entry.copy.suspect and entry.part is not None:
                        entry.copy.clear_suspect()
                        self.lanes.place(entry.copy)
            case Aborted(_, failure):
                for copy in failure.copies:
                    copy.mark_suspect()
                    self.lanes.place(copy)
            case LaneStuck(transactional_id):
                self.lanes.move_from_stuck_lane(transactional_id)
            case LaneFreed():
                self.lanes.move_from_stuck_lanes()


class Lanes(VirtualTimeMachine):
    """Records come, partitions leave, brokers refuse and answers are lost, in any order."""

    @initialize(drains_at_once=st.booleans())
    def begin(self, drains_at_once: bool) -> None:
        self.drains_at_once = drains_at_once
        self.run(self._begin())

    async def _begin(self) -> None:
        self.copies = [partition(number) for number in range(3)]
        self.destination, self.flow = Coordinator(), Flow(self.copies)
        self.destination.ledger = DecidedLedger(*self.copies)
        self.log = self.destination.links[1]
        ahead = replace(SETTINGS, ahead_s=0.3, idle_commit_s=0.5)
        names = ("one", "other", "solo", "spare")
        self.flow.lanes = lanes_of(self.destination, self.flow, self.destination.ledger, ahead, names)
        self.lanes = self.flow.lanes.all
        await self.flow.lanes.begin()
        self.tasks = [asyncio.create_task(lane.run()) for lane in self.lanes]
        self.releases: list[asyncio.Task[None]] = []
        for copy in self.copies:
            copy.inspected(self.destination.leader_epoch)
            self.flow.lanes.place(copy)

    @rule(
        number=NUMBERS,
        add=st.sampled_from((None, None, *REFUSED, *LOST)),
        produce=st.sampled_from((None, None, *ABORTING)),
        end=st.sampled_from((None, None, *LOST)),
        commits_lost=st.booleans(),
        unmarked=st.booleans(),
        seconds=SECONDS,
    )
    def copy(
        self,
        number: int,
        add: Answer | None,
        produce: ErrorCode | None,
        end: Answer | None,
        commits_lost: bool,
        unmarked: bool,
        seconds: float,
    ) -> None:
        """A record comes, and these answers come to what copies it."""
        self.destination.add_errors += [add] if add is not None else []
        self.log.errors += [produce] if produce is not None else []
        if end is not None and not self.destination.end_errors:
            self.destination.commits_lost = commits_lost
            self.destination.end_errors += [end, *[REFUSED[0]] * 500]
        self.destination.unmarked = unmarked
        self.flow.ends[self.copies[number]] += 1
        self.act(lambda: self.flow.fetch(self.copies[number]), seconds)

    @rule(seconds=SECONDS)
    def recover(self, seconds: float) -> None:
        self.act(self._heal, seconds)

    @precondition(lambda self: not self.releases)
    @rule(number=NUMBERS)
    def release(self, number: int) -> None:
        copy = self.copies[number]
        copy.start_release()
        self.act(lambda: self.releases.append(asyncio.create_task(self.flow.lanes.release(copy))))

    @rule(number=NUMBERS, commit=st.booleans(), unmarked=st.booleans(), seconds=SECONDS)
    def miss_a_marker(self, number: int, commit: bool, unmarked: bool, seconds: float) -> None:
        copy = self.copies[number]
        if not copy.in_transaction:
            self.destination.unmarked = unmarked
            self.act(lambda: self.lanes[number].write_marker(copy, commit=commit), seconds)

    @rule()
    def hold_acknowledgements(self) -> None:
        self.log.held = self.log.held or []

    def _heal(self) -> None:
        self.destination.unmarked = False
        self.destination.add_errors.clear()
        self.destination.end_errors.clear()
        self.log.errors.clear()
        self.log.release()

    @invariant()
    def a_partition_is_in_the_open_transaction_of_its_lane(self) -> None:
        for copy in self.copies:
            lanes = [lane for lane in self.lanes if copy in lane.copies]
            assert len(lanes) == (0 if copy.releasing and not copy.in_transaction else 1)
            assert not copy.in_transaction or lanes[0].state in OPEN

    @invariant()
    def the_ledger_counts_what_was_committed_once(self) -> None:
        for copy in self.copies:
            assert FIRST + self.flow.committed[copy] == copy.progress.position <= self.flow.ends[copy]

    @invariant()
    def a_lane_that_failed_says_why(self) -> None:
        for lane, task in zip(self.lanes, self.tasks, strict=True):
            assert task.done() == (lane.state is LaneState.DRAINED)
            assert not task.done() or task.exception() is None

    def teardown(self) -> None:
        if self.drains_at_once:
            self.act(self._drain)
        self.act(self._heal, 60.0)
        assert all(release.done() for release in self.releases)
        working = {copy for lane in self.lanes if lane.state is LaneState.IDLE for copy in lane.copies}
        for copy in working:
            assert copy.progress.position == self.flow.ends[copy]
        self._drain()
        self.run(asyncio.sleep(60))
        assert all(task.done() for task in self.tasks)
        assert {lane.state for lane in self.lanes} == {LaneState.DRAINED}
        assert not any(copy.in_transaction for copy in self.copies)
        self.loop.close()

    def _drain(self) -> None:
        for lane in self.lanes:
            lane.drain()


TestLanes = pytest.mark.slow(Lanes.TestCase)
TestLanes.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)


def test_every_state_can_be_reached_and_only_a_drained_lane_has_ended() -> None:
    assert_reachable(TRANSITIONS, LaneState.NEW, LaneState.DRAINED, LaneState)
