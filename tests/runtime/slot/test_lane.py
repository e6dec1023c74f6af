"""A lane: which partitions join its transaction, what stays in it, and how it recovers."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from runtime.kafka.errors import BrokerError, Disconnected, ErrorCode, TimedOut
from runtime.kafka.protocol.fetch import LeaderHint
from runtime.kafka.protocol.produce import ProducedPartition, ProduceRequest, ProduceResponse
from runtime.kafka.records import InternalRecord, build
from runtime.slot.budget import ByteBudget, ResponseMemory
from runtime.slot.context import LaneSettings
from runtime.slot.errors import ErrorPhase, SlotMustEnd
from runtime.slot.partition import Cursor, PartitionCopy, QueuedBatch, SessionAnswers, SourceLog
from runtime.slot.write.events import (
    Aborted,
    Committed,
    LaneEvent,
    LaneFreed,
    LaneStuck,
    LeaderChanged,
    NotReady,
    Rewound,
)
from runtime.slot.write.lane import Lane, LaneState
from runtime.slot.write.lanes import LaneSet
from runtime.slot.write.sender import ProduceSender
from runtime.slot.write.transaction import Transaction
from tests.fakes.clock import jumping
from tests.fakes.lane import SETTINGS, Destination, Emitted, LedgerInMemory, Link, lane_of
from tests.fakes.partition import outgoing, partition

NEAR, FAR = 1, 2
EPOCH = 5


def with_batch(copy: PartitionCopy) -> None:
    """The source's record at offset 10 is queued."""
    copy.inspected(EPOCH)
    batch = QueuedBatch(outgoing(0, (10, 1)), 0, ResponseMemory(ByteBudget(1 << 20), 0))
    copy.fetched([batch], Cursor(11, 0), ())


def with_idle_position(copy: PartitionCopy) -> None:
    """Nothing is queued, but the position moved over records that are not copied."""
    copy.fetched([], Cursor(25, 1), ())


@asynccontextmanager
async def running(lane: Lane) -> AsyncIterator[None]:
    assert await lane.begin()
    task = asyncio.create_task(lane.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(emitted: Emitted, holds: Callable[[], bool]) -> None:
    while not holds():
        emitted.arrived.clear()
        await emitted.arrived.wait()


async def passes() -> None:
    """Lets the lane do everything that it can do now."""
    for _ in range(50):
        await asyncio.sleep(0)


# Joining


async def test_a_partition_joins_once_its_leader_is_connected() -> None:
    """Its metadata is fetched again then: a broker that was away may lead under a new epoch."""

    destination, emitted, copy = Destination(), Emitted(), partition()
    lane = lane_of(destination, emitted, LedgerInMemory(copy))
    destination.leader_of[0] = FAR
    destination.connecting[FAR] = asyncio.get_running_loop().create_future()
    async with running(lane):
        with_batch(copy)
        lane.add(copy)
        await passes()
        assert not destination.added.is_set()
        destination.connecting[FAR].set_result(None)
        await until(emitted, lambda: bool(emitted.of(Committed)))
    assert (copy.progress.position, copy.in_transaction, destination.refreshes) == (11, False, 1)


async def test_a_partition_with_a_new_leader_is_inspected_before_it_joins() -> None:
    destination, emitted, copy = Destination(), Emitted(), partition()
    lane = lane_of(destination, emitted, LedgerInMemory(copy))
    async with running(lane):
        with_batch(copy)
        copy.inspected(EPOCH - 1)
        lane.add(copy)
        await until(emitted, lambda: bool(emitted.of(LeaderChanged)))
        assert not destination.added.is_set()
        copy.inspected(EPOCH)
        lane.offer(copy)
        await until(emitted, lambda: bool(emitted.of(Committed)))


async def test_a_partition_whose_leader_cannot_be_reached_backs_off() -> None:
    destination, emitted = Destination(), Emitted()
    removed, copy = partition(0), partition(1)
    lane = lane_of(destination, emitted, LedgerInMemory(removed, copy))
    destination.leader_of = {0: FAR, 1: FAR}
    destination.connecting[FAR] = asyncio.get_running_loop().create_future()
    async with running(lane):
        for each in (removed, copy):
            with_batch(each)
            lane.add(each)
        await passes()
        lane.remove(removed)
        destination.connecting[FAR].set_exception(Disconnected("broker 2", "refused", sent=False))
        await until(emitted, lambda: bool(emitted.events))
    assert [event.copy for event in emitted.of(NotReady)] == [copy]
    assert not destination.added.is_set()


@pytest.mark.parametrize("has", [with_batch, with_idle_position])
async def test_a_failed_connection_leaves_partitions_of_the_open_transaction_alone(
    has: Callable[[PartitionCopy], None],
) -> None:
    """The leader moved, and the partition joined; or its idle position is being committed."""

    destination, emitted = Destination(), Emitted()
    alone, copy = partition(0), partition(1)
    lane = lane_of(destination, emitted, LedgerInMemory(alone, copy))
    destination.leader_of = {0: FAR, 1: FAR}
    destination.connecting[FAR] = asyncio.get_running_loop().create_future()
    for each in (alone, copy):
        with_batch(each)
        lane.add(each)
    if has is with_batch:
        destination.leader_of[1] = NEAR
        destination.hold = True
        lane.offer(copy)
        async with running(lane):
            await destination.added.wait()
            destination.connecting[FAR].set_exception(Disconnected("broker 2", "refused", sent=False))
            await until(emitted, lambda: bool(emitted.events))
            assert copy.in_transaction
    else:
        copy.enter_transaction()
        destination.connecting[FAR].set_exception(Disconnected("broker 2", "refused", sent=False))
        await until(emitted, lambda: bool(emitted.events))
    assert [event.copy for event in emitted.of(NotReady)] == [alone]
    assert copy.queue


@jumping
async def test_a_transaction_stays_open_for_batches_of_a_partition_that_is_behind() -> None:
    destination, emitted, copy = Destination(), Emitted(), partition()
    lane = lane_of(destination, emitted, LedgerInMemory(copy))
    with_batch(copy)
    copy.resume()
    copy.answered(SourceLog(0, 12, 12), SessionAnswers(), 1)
    lane.add(copy)
    async with running(lane):
        await passes()
        queue(lane, copy)
        await until(emitted, lambda: bool(emitted.of(Committed)))
    assert (copy.progress.position, destination.ends) == (12, 1)


async def test_a_solo_lane_copies_one_partition_at_a_time() -> None:
    destination, emitted, copies = Destination(), Emitted(), [partition(0), partition(1)]
    lane = lane_of(destination, emitted, LedgerInMemory(*copies), solo=True)
    for copy in copies:
        with_batch(copy)
        lane.add(copy)
    async with running(lane):
        await until(emitted, lambda: len(emitted.of(Committed)) == 2)
    assert destination.joins == [["orders", "ledger"]] * 2


# Joining ahead

AHEAD = replace(SETTINGS, ahead_s=30.0)


def queue(lane: Lane, copy: PartitionCopy) -> None:
    """The source's next record is queued."""
    offset = copy.cursor.offset
    batch = QueuedBatch(outgoing(0, (offset, 1)), 0, ResponseMemory(ByteBudget(1 << 20), 0))
    copy.fetched([batch], Cursor(offset + 1, 0), ())
    lane.offer(copy)


async def commits(lane: Lane, emitted: Emitted, copy: PartitionCopy) -> None:
    """Queues a record, and waits until it is committed."""
    queue(lane, copy)
    await until(emitted, lambda: copy.progress.position == copy.cursor.offset)


@asynccontextmanager
async def active(
    settings: LaneSettings = AHEAD,
    copy: PartitionCopy | None = None,
    ledger_of: type[LedgerInMemory] = LedgerInMemory,
) -> AsyncIterator[tuple[Destination, Emitted, LedgerInMemory, Lane, PartitionCopy]]:
    """A partition that carried data in two transactions, and has none now."""
    destination, emitted, copy = Destination(), Emitted(), copy or partition()
    ledger = ledger_of(copy)
    destination.leader_of = {1: FAR}
    lane = lane_of(destination, emitted, ledger, settings=settings)
    copy.inspected(EPOCH)
    copy.resume()
    lane.add(copy)
    async with running(lane):
        await commits(lane, emitted, copy)
        await passes()
        assert len(destination.joins) == 1
        await commits(lane, emitted, copy)
        await passes()
        yield destination, emitted, ledger, lane, copy


async def test_a_partition_that_carried_data_twice_joins_the_next_transaction_ahead() -> None:
    async with active() as (destination, emitted, _, lane, copy):
        assert destination.joins == [["orders", "ledger"]] * 3
        assert (destination.ends, copy.in_transaction) == (2, True)
        destination.hold = True  # the coordinator answers nothing, and is not asked
        queue(lane, copy)
        await until(emitted, lambda: copy.progress.position == 13)
        assert destination.ends == 3


@jumping
async def test_a_transaction_without_data_ends_once_and_none_follows() -> None:
    async with active(replace(SETTINGS, ahead_s=0.02)) as (destination, emitted, _, _, copy):
        await until(emitted, lambda: destination.ends == 3)
        await passes()
        assert len(destination.joins) == 3
        assert not copy.in_transaction


async def test_an_idle_position_is_no_activity() -> None:
    """It ends the transaction without data; the next one, of the ledger alone, is not joined."""

    async with active() as (destination, emitted, _, lane, copy):
        other = partition(1)
        other.inspected(EPOCH)
        lane.add(other)
        for end in (20, 21):
            other.fetched([], Cursor(end, 0), ())
            lane.offer(other)
            await until(emitted, lambda: other.progress.position == other.cursor.offset)
        await passes()
        assert len(destination.joins) == 3
        assert not copy.in_transaction


async def test_a_partition_that_joined_ahead_of_a_new_leader_joins_again() -> None:
    """Its first batch waits for the inspection (R4); the transaction ends without it."""

    async with active() as (destination, emitted, _, lane, copy):
        destination.leader_epoch += 1
        queue(lane, copy)
        await until(emitted, lambda: bool(emitted.of(LeaderChanged)))
        assert (destination.ends, copy.progress.position, copy.in_transaction) == (3, 12, False)
        copy.inspected(destination.leader_epoch)
        lane.offer(copy)
        await until(emitted, lambda: copy.progress.position == 13)


async def test_a_release_ends_a_transaction_without_data() -> None:
    async with active() as (destination, _, _, lane, copy):
        copy.start_release()
        await lane.release(copy)
        assert (destination.ends, copy in lane.copies) == (3, False)
        await passes()
        assert len(destination.joins) == 3


# The ledger with the data


async def test_the_ledger_is_written_while_the_data_is_in_flight() -> None:
    async with active() as (destination, emitted, ledger, lane, copy):
        link = destination.links[NEAR]
        link.held = []
        ledger.written.clear()
        queue(lane, copy)
        await ledger.written.wait()
        await passes()
        assert (len(link.held), destination.ends) == (1, 2)  # it does not end before the acknowledgement
        link.release()
        await until(emitted, lambda: copy.progress.position == 13)
        assert copy.progress.destination_end == link.end_offset - 1  # its marker lies behind


async def test_an_acknowledgement_that_is_not_the_expected_one_aborts() -> None:
    """Another producer wrote; then the ledger waits for acknowledgements, and its map is exact (R6)."""

    async with active() as (destination, emitted, ledger, lane, copy):
        link = destination.links[NEAR]
        link.end_offset += 5
        ledger.takes_writes = False  # its record is aborted with the data
        queue(lane, copy)
        await until(emitted, lambda: bool(emitted.of(Aborted)))
        ledger.takes_writes = True
        assert emitted.of(Aborted)[0].failure.copies == ()
        assert (destination.ends, copy.progress.position, copy.cursor.offset) == (2, 12, 12)
        link.held = []
        ledger.written.clear()
        queue(lane, copy)
        while not link.held:
            await asyncio.sleep(0)
        await passes()
        assert not ledger.written.is_set()
        link.release()
        await until(emitted, lambda: copy.progress.position == 13)
        assert copy.progress.destination_end == link.end_offset - 1


async def test_where_others_write_by_design_the_ledger_waits_for_acknowledgements() -> None:
    copy = partition(shared=True)
    async with active(copy=copy) as (destination, emitted, ledger, lane, _):
        link = destination.links[NEAR]
        link.end_offset += 5
        link.held = []
        ledger.written.clear()
        queue(lane, copy)
        await passes()
        assert not ledger.written.is_set()
        link.release()
        await until(emitted, lambda: copy.progress.position == 13)
        assert not emitted.of(Aborted)


class SentLedger(LedgerInMemory):
    """Its record is sent to the destination."""

    async def write(self, tx: Transaction, sender: ProduceSender, transactional_id: str) -> None:
        await super().write(tx, sender, transactional_id)
        await sender.add_ledger_records(tx, self.partition, build([InternalRecord(b"k", b"v")], 1))


async def test_the_ledger_record_travels_with_the_last_batches_where_their_base_is_expected() -> None:
    async with active(ledger_of=SentLedger) as (destination, emitted, _, lane, copy):
        link = destination.links[NEAR]
        assert link.requests[:2] == [["orders"], ["ledger"]]
        link.requests.clear()
        await commits(lane, emitted, copy)
        assert link.requests == [["orders", "ledger"]]


async def test_a_ledger_of_another_broker_gets_a_request_of_its_own() -> None:
    async with active(copy=partition(1), ledger_of=SentLedger) as (destination, emitted, _, lane, copy):
        await commits(lane, emitted, copy)
        assert destination.links[FAR].requests == [["orders"]] * 3
        assert destination.links[NEAR].requests == [["ledger"]] * 3


async def test_a_ledger_record_that_is_refused_aborts_the_data_of_its_request() -> None:
    async with active(copy=partition(1), ledger_of=SentLedger) as (destination, emitted, ledger, lane, copy):
        destination.links[NEAR].refused = {"ledger": ErrorCode.NOT_LEADER_OR_FOLLOWER}
        ledger.takes_writes = False
        queue(lane, copy)
        await until(emitted, lambda: bool(emitted.of(Aborted)))
        failure = emitted.of(Aborted)[0].failure
        assert (failure.phase, failure.copies) == (ErrorPhase.LEDGER, ())
        assert (destination.ends, copy.progress.position) == (2, 12)
        destination.links[NEAR].refused = {}
        ledger.takes_writes = True
        await commits(lane, emitted, copy)
        assert copy.progress.position == 13


async def test_a_partition_with_data_in_every_eighth_transaction_waits_for_its_batch() -> None:
    destination, emitted, often, seldom = Destination(), Emitted(), partition(0), partition(1)
    destination.leader_of = {1: FAR}
    lane = lane_of(destination, emitted, LedgerInMemory(often, seldom), settings=AHEAD)
    async with running(lane):
        for copy in (often, seldom):
            copy.inspected(EPOCH)
            copy.resume()
            lane.add(copy)
        for number in range(24):
            if number % 8 == 0:
                queue(lane, seldom)
            await commits(lane, emitted, often)
            await passes()
            assert (often.in_transaction, seldom.in_transaction) == (number > 0, False)


# What an open transaction may still commit

Has = Callable[[PartitionCopy], None]


@asynccontextmanager
async def waiting_for_its_coordinator(
    has: Has,
) -> AsyncIterator[tuple[Destination, LaneSet, Lane, PartitionCopy]]:
    """The coordinator was asked to add partitions, and does not answer yet."""
    destination, emitted, copy = Destination(), Emitted(), partition()
    ledger = SlowLedger(destination)
    lanes = [lane_of(destination, emitted, ledger, name) for name in ("one", "other", "solo")]
    lane_set = LaneSet(lanes, 2)
    destination.hold = True
    has(copy)
    lane_set.place(copy)
    async with running(lanes[0]):
        await destination.added.wait()
        yield destination, lane_set, lanes[0], copy


class SlowLedger(LedgerInMemory):
    """Its writes ask the coordinator first, as those of the real one do for an idle position alone."""

    def __init__(self, destination: Destination) -> None:
        super().__init__()
        self._destination = destination

    async def write(self, *arguments: Any) -> None:
        self._destination.added.set()
        if self._destination.hold:
            await self._destination.answer.wait()
        await super().write(*arguments)


@pytest.mark.parametrize("has", [with_batch, with_idle_position])
async def test_a_partition_is_released_only_after_the_transaction_that_it_is_about_to_join(has: Has) -> None:
    async with waiting_for_its_coordinator(has) as (destination, lanes, lane, copy):
        copy.start_release()
        release = asyncio.create_task(lanes.release(copy))
        await passes()
        assert not release.done()
        assert copy in lane.copies
        destination.hold = False
        destination.answer.set()
        await release
        assert copy not in lane.copies


@pytest.mark.parametrize("has", [with_batch, with_idle_position])
async def test_no_other_lane_takes_a_partition_of_an_open_transaction(has: Has) -> None:
    async with waiting_for_its_coordinator(has) as (_, lanes, lane, copy):
        assert lanes.move_from_stuck_lane(lane.transactional_id) == [copy]
        assert copy in lane.copies
        copy.mark_suspect()
        with pytest.raises(AssertionError, match="between transactions"):
            lanes.place(copy)


async def test_a_released_partition_that_moves_to_another_lane_meanwhile_is_released_there() -> None:
    """A suspect partition returns to its home lane when its transaction is committed."""

    async with waiting_for_its_coordinator(with_batch) as (destination, lanes, _, copy):
        copy.start_release()
        release = asyncio.create_task(lanes.release(copy))
        await passes()
        copy.leave_transaction()
        copy.mark_suspect()
        lanes.place(copy)
        destination.hold = False
        destination.answer.set()
        await release
        assert not any(copy in each.copies for each in lanes.all)


# Recovery


class Refusing(Link):
    """Its broker does not lead the partition any more."""

    def start(self, request: ProduceRequest, within: float) -> asyncio.Future[ProduceResponse]:
        moved = ProducedPartition(
            "orders", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1, -1, leader=LeaderHint(2, 6)
        )
        answer: asyncio.Future[ProduceResponse] = asyncio.get_running_loop().create_future()
        answer.set_result(ProduceResponse(0, (moved,)))
        return answer


async def test_a_produce_error_aborts_and_its_partitions_resume_under_a_new_epoch() -> None:
    destination, emitted, copy = Destination(), Emitted(), partition()
    destination.links[NEAR] = Refusing()
    lane = lane_of(destination, emitted, LedgerInMemory(copy))
    async with running(lane):
        with_batch(copy)
        lane.add(copy)
        await until(emitted, lambda: bool(emitted.of(Aborted)))
        assert (copy.cursor.offset, len(copy.queue), copy.in_transaction) == (10, 0, False)
        await passes()
    assert [type(event) for event in emitted.events[-2:]] == [Rewound, Aborted]
    assert emitted.of(Aborted)[0].failure.copies == (copy,)
    assert (destination.epochs[lane.transactional_id], destination.ends, lane.aborts) == (1, 0, 1)


async def test_a_transaction_that_is_not_acknowledged_in_time_is_aborted_before_the_broker_ends_it() -> None:
    """The broker fences the producer of a transaction that it times out (fencing 1)."""

    settings = replace(SETTINGS, longest_s=0.01, transaction_timeout_ms=1_000)
    destination, emitted, copy = Destination(), Emitted(), partition()
    destination.links[NEAR] = link = Link()
    link.held = []
    lane = lane_of(destination, emitted, LedgerInMemory(copy), settings=settings)
    async with running(lane):
        with_batch(copy)
        lane.add(copy)
        await until(emitted, lambda: bool(emitted.of(Aborted)))
        await passes()
    assert "not written in 0.8 s" in str(emitted.of(Aborted)[0].failure)
    assert (destination.ends, destination.epochs[lane.transactional_id], copy.cursor.offset) == (0, 1, 10)


@pytest.mark.parametrize("committed", [True, False])
async def test_the_ledger_decides_where_the_response_to_the_end_was_lost(committed: bool) -> None:
    destination, emitted, copy = Destination(), Emitted(), partition()
    ledger = LedgerInMemory(copy)
    ledger.takes_writes = committed
    destination.end_errors = [TimedOut("broker 1", "no answer", sent=True)]
    lane = lane_of(destination, emitted, ledger)
    async with running(lane):
        with_batch(copy)
        lane.add(copy)
        await until(emitted, lambda: bool(emitted.of(Aborted)))
    assert [len(event.entries) for event in emitted.of(Committed)] == ([1] if committed else [])
    assert [list(event.copies) for event in emitted.of(Aborted)] == [[] if committed else [copy]]
    assert [list(event.copies) for event in emitted.of(Rewound)] == [[copy]]
    assert copy.cursor.offset == copy.progress.position == (11 if committed else 10)
    assert not copy.in_transaction


@pytest.mark.parametrize("committed", [True, False])
async def test_a_lane_that_was_fenced_while_its_answer_was_lost_does_not_become_valid_again(
    committed: bool,
) -> None:
    """KIP-360: another attempt of the slot, which has written nothing yet, would be fenced by that (R3)."""

    destination, copy = Destination(), partition()
    ledger = LedgerInMemory(copy)
    ledger.takes_writes = committed
    destination.end_errors = [Disconnected("broker 1", "cut", sent=True)]
    lane = lane_of(destination, Emitted(), ledger)
    assert await lane.begin()
    destination.epochs[lane.transactional_id] += 1  # the other attempt has initialised the id
    with_batch(copy)
    lane.add(copy)
    with pytest.raises(SlotMustEnd, match="PRODUCER_FENCED"):
        await lane.run()
    assert copy.in_transaction


# Missing markers


LOST = TimedOut("broker 1", "no answer", sent=True)


@pytest.mark.parametrize(
    ("commit", "added", "ended", "decisions"),
    [
        (True, [], [], [True]),
        (False, [], [], [False]),
        # An abort would take back records that the ledger holds as committed (R2).
        *((True, [], [lost], [True, True]) for lost in (LOST, ErrorCode.NOT_COORDINATOR)),
        (True, [], [ErrorCode.CONCURRENT_TRANSACTIONS], [True, True]),
        # The coordinator may still write the addition.
        (True, [LOST, ErrorCode.CONCURRENT_TRANSACTIONS], [], [True]),
        # What was refused is not ended.
        (True, [ErrorCode.TOPIC_AUTHORIZATION_FAILED], [], []),
        pytest.param(
            True, [ErrorCode.CONCURRENT_TRANSACTIONS] * 1_000, [], [], marks=pytest.mark.slow
        ),  # tried for 3 s
    ],
)
async def test_a_missing_marker_is_written_by_a_transaction_without_records(
    commit: bool, added: list[Any], ended: list[Any], decisions: list[bool]
) -> None:
    destination, emitted, copy = Destination(), Emitted(), partition()
    destination.add_errors, destination.end_errors = added, ended
    lane = lane_of(destination, emitted, LedgerInMemory(copy))
    async with running(lane):
        lane.write_marker(copy, commit=commit)
        while destination.epochs[lane.transactional_id] < 1:
            await asyncio.sleep(0.01)
    assert {tuple(topics) for topics in destination.joins} == {("orders",)}
    assert destination.decisions == [*decisions, False]  # The last one comes with the new epoch.
    assert (emitted.events, lane.aborts, copy.in_transaction) == ([], 0, False)


async def test_a_decision_about_a_marker_does_not_outlive_the_progress_that_it_was_made_from() -> None:
    destination, copy = Destination(), partition()
    lane = lane_of(destination, Emitted(), LedgerInMemory(copy))
    lane.write_marker(copy, commit=True)
    copy.committed(replace(copy.progress, position=copy.progress.position + 1))
    async with running(lane):
        await asyncio.wait_for(until_idle(lane), 10)
    assert (destination.joins, destination.decisions) == ([], [])


async def until_idle(lane: Lane) -> None:
    while lane._unmarked:
        await asyncio.sleep(0.01)


async def test_a_lane_that_was_fenced_while_it_wrote_a_missing_marker_ends_the_slot() -> None:
    destination, copy = Destination(), partition()
    destination.end_errors = [ErrorCode.INVALID_PRODUCER_EPOCH]
    lane = lane_of(destination, Emitted(), LedgerInMemory(copy))
    assert await lane.begin()
    lane.write_marker(copy, commit=True)
    with pytest.raises(SlotMustEnd, match="INVALID_PRODUCER_EPOCH"):
        await lane.run()


@jumping
async def test_the_first_lane_copies_a_quiet_flow_and_all_home_lanes_one_that_catches_up() -> None:
    copies = [partition(number) for number in range(4)]
    lanes = [lane_of(Destination(), Emitted(), transactional_id=name) for name in ("one", "other", "solo")]
    lane_set = LaneSet(lanes, 2)

    def shares() -> list[int]:
        return [len(lane.copies) for lane in lanes]

    for copy in copies:
        copy.resume()
        lane_set.place(copy)
    lane_set.committed(copies)
    assert shares() == [2, 2, 0]  # a flow that begins may be behind
    await asyncio.sleep(1.0)
    lane_set.committed(copies)
    assert shares() == [4, 0, 0]
    copies[0].answered(SourceLog(0, 12, 12), SessionAnswers(), 1)
    assert copies[0].behind
    lane_set.committed(copies)
    assert shares() == [2, 2, 0]
    copies[0].answered(SourceLog(0, 10, 10), SessionAnswers(), 1)
    lane_set.committed(copies)
    assert shares() == [2, 2, 0]
    lanes[0].state = LaneState.STUCK
    await asyncio.sleep(1.0)
    lane_set.committed(copies)
    assert shares() == [0, 4, 0]


async def test_every_transactional_id_is_initialised_at_the_start_spare_ones_too() -> None:
    """An older process of this slot may hold any of them (R3)."""

    destination = Destination()
    await LaneSet([lane_of(destination, Emitted(), None, name) for name in "abcd"], 2).begin()
    assert len(destination.epochs) == 4


class Flow(Emitted):
    """Handles the events of two lanes as a flow does: it fetches again, and leaves a stuck lane."""

    lanes: LaneSet

    def emit(self, event: LaneEvent) -> None:
        match event:
            case Rewound(copies):
                for copy in copies:
                    if copy.cursor.offset == 10:
                        with_batch(copy)
                        self.lanes.offer(copy)
            case LaneStuck(transactional_id):
                self.lanes.move_from_stuck_lane(transactional_id)
        super().emit(event)


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize(
    "answer",
    [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.CONCURRENT_TRANSACTIONS],
)
@jumping
async def test_no_other_lane_copies_a_transaction_whose_end_was_answered_with_a_temporary_error(
    answer: ErrorCode, committed: bool
) -> None:
    """The coordinator's log may hold the commit. The link is cut then, and a new coordinator lets the id wait
    for a slow marker, longer than the lane waits before its partitions may leave.
    """

    destination, flow, copy = Destination(), Flow(), partition()
    ledger = LedgerInMemory(copy)
    ledger.takes_writes = committed
    refused = Disconnected("broker 1", "refused", sent=False)
    destination.end_errors = [answer, *[refused] * 1_000]
    lanes = [lane_of(destination, flow, ledger, name) for name in ("one", "other", "solo")]
    flow.lanes = LaneSet(lanes, 2)
    async with running(lanes[0]), running(lanes[1]):
        destination.init_errors = [ErrorCode.CONCURRENT_TRANSACTIONS] * 500
        with_batch(copy)
        flow.lanes.place(copy)
        await until(flow, lambda: bool(flow.of(LaneStuck)))
        await passes()
        assert (copy.in_transaction, copy in lanes[0].copies, flow.of(Rewound)) == (True, True, [])
        destination.end_errors.clear()
        ledger.takes_writes = True
        await until(flow, lambda: bool(flow.of(LaneFreed)))
        await until(flow, lambda: copy.progress.position == 11)
    assert destination.links[NEAR].batches == (1 if committed else 2)
    assert len(flow.of(Committed)) == 1


def _epoch(lane: Lane) -> int:
    return lane._sender.identity.epoch


@pytest.mark.parametrize("seed", range(20))
@jumping
async def test_of_two_attempts_that_begin_at_the_same_time_at_most_one_goes_on(seed: int) -> None:
    """Else each might hold some of the ids, and a partition be in different lanes of the two (R3)."""
    dice = random.Random(seed)

    class Slow(Destination):
        async def call(self, node: int, request: object, purpose: str, within: float | None) -> object:
            answer = await super().call(node, request, purpose, within)
            await asyncio.sleep(dice.choice([0.0, 0.01, 0.02]))
            return answer

    names = ("one", "other", "solo", "spare")
    clients = [Slow(), Slow()]  # each is a process
    epochs = clients[1].epochs = clients[0].epochs
    attempts = [[lane_of(client, Emitted(), transactional_id=name) for name in names] for client in clients]
    begun = (LaneSet(lanes, 2).begin() for lanes in attempts)
    ends = await asyncio.gather(*begun, return_exceptions=True)
    held = [
        {lane.transactional_id for lane in lanes if _epoch(lane) == epochs[lane.transactional_id]}
        for lanes, end in zip(attempts, ends, strict=True)
        if not isinstance(end, SlotMustEnd)
    ]
    assert len([ids for ids in held if ids]) <= 1, held


@jumping
async def test_nothing_is_copied_while_an_id_of_an_earlier_attempt_waits_for_a_marker() -> None:
    """That attempt may be alive, and goes on under the id once the marker is written (R3)."""

    destination = Destination()
    lanes = [lane_of(destination, Emitted(), transactional_id=name) for name in ("one", "other", "solo")]
    destination.init_errors = [ErrorCode.NONE, *[ErrorCode.CONCURRENT_TRANSACTIONS] * 500]
    with pytest.raises(BrokerError, match="other waits for the marker"):
        await LaneSet(lanes, 2).begin()
    destination.init_errors.clear()
    await LaneSet(lanes, 2).begin()
    assert not any(lane.is_stuck for lane in lanes)


async def test_a_transactional_id_that_is_fenced_at_the_start_ends_the_slot() -> None:
    destination = Destination()
    destination.init_errors = [ErrorCode.PRODUCER_FENCED]
    with pytest.raises(SlotMustEnd, match="lane: "):
        await lane_of(destination, Emitted()).begin()


class Unprepared(Destination):
    """What it does with a response fails as nothing foresaw."""

    def topic(self, name: str) -> SimpleNamespace:
        raise ZeroDivisionError("a programming error")


async def test_an_unexpected_exception_at_a_response_ends_the_lane_before_anything_is_committed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    destination, copy = Unprepared(), partition()
    destination.links[NEAR] = Refusing()
    lane = lane_of(destination, Emitted(), LedgerInMemory(copy))
    with_batch(copy)
    await lane.begin()
    lane.add(copy)
    with pytest.raises(ZeroDivisionError):
        await lane.run()
    assert destination.ends == 0
    assert "a programming error" in caplog.text
