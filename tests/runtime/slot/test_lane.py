"""A lane: which partitions join its transaction, what stays in it, and how it recovers."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop
from msgspec.structs import replace

from runtime.kafka.errors import BrokerError, Disconnected, ErrorCode, TimedOut, WireError
from runtime.kafka.protocol.produce import ProduceRequest, ProduceResponse
from runtime.kafka.records import InternalRecord, build
from runtime.slot.errors import ErrorAction, ErrorPhase, SlotMustEnd
from runtime.slot.partition import Cursor, PartitionCopy, SessionAnswers, SourceLog
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
from tests.fakes.clock import virtual
from tests.fakes.lane import SETTINGS, Destination, Emitted, LedgerInMemory, Link, lane_of, lanes_of
from tests.fakes.partition import partition, queued
from tests.waiting import until

NEAR, FAR = 1, 2
EPOCH = 5
REFUSED = Disconnected("broker 2", "refused", sent=False)
LOST = TimedOut("broker 1", "no answer", sent=True)


def with_batch(copy: PartitionCopy) -> None:
    """The source's record at the cursor is queued."""
    copy.inspected(EPOCH)
    offset = copy.cursor.offset
    copy.fetched([queued((offset, 1))], Cursor(offset + 1, 0), ())


def with_idle_position(copy: PartitionCopy) -> None:
    """Nothing is queued, but the position moved over records that are not copied."""
    copy.fetched([], Cursor(25, 1), ())


def with_accepted_loss(copy: PartitionCopy) -> None:
    """What its source lost was given up: another progress is to be committed in place of the ledger."""
    copy.replace_progress(replace(copy.progress, position=30), "its loss was accepted")


@asynccontextmanager
async def running(lane: Lane) -> AsyncIterator[None]:
    assert await lane.begin()
    task = asyncio.create_task(lane.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def passes() -> None:
    """Lets the lane do everything that it can do now."""
    for _ in range(50):
        await asyncio.sleep(0)


class Bench(Emitted):
    """A lane and its partitions, each with a queued record, at a destination whose broker 1 leads all but 1.

    With `far`, broker 2 leads all, and the connection to it ends as the future `connecting` does.
    """

    def __init__(
        self,
        *copies: PartitionCopy,
        destination: Destination | None = None,
        far: bool = False,
        has: Callable[[PartitionCopy], None] = with_batch,
        ledger_of: type[LedgerInMemory] = LedgerInMemory,
        **lane: Any,
    ) -> None:
        super().__init__()
        self.copies = copies or (partition(),)
        self.copy = self.copies[0]
        self.destination = destination or Destination()
        self.ledger = ledger_of(*self.copies)
        self.lane = lane_of(self.destination, self, self.ledger, **lane)
        self.connecting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.destination.leader_of = {copy.key.partition: FAR for copy in self.copies if far} | {1: FAR}
        self.destination.connecting |= {FAR: self.connecting} if far else {}
        for copy in self.copies:
            has(copy)
            self.lane.add(copy)

    @property
    def link(self) -> Link:
        return self.destination.links[NEAR]

    def queue(self) -> None:
        """The source's next record is queued."""
        with_batch(self.copy)
        self.lane.offer(self.copy)

    async def commits(self) -> None:
        """Waits until everything that was fetched is committed."""
        await self.until(lambda: self.copy.progress.position == self.copy.cursor.offset)


# Joining


async def test_a_partition_joins_once_its_leader_is_connected() -> None:
    """Its metadata is fetched again then: a broker that was away may lead under a new epoch."""
    bench = Bench(far=True)
    async with running(bench.lane):
        await passes()
        assert not bench.destination.added.is_set()
        bench.connecting.set_result(None)
        await bench.emits(Committed)
    copy = bench.copy
    assert (copy.progress.position, copy.in_transaction, bench.destination.refreshes) == (11, False, 1)


async def test_a_partition_with_a_new_leader_is_inspected_before_it_joins() -> None:
    bench = Bench()
    bench.copy.inspected(EPOCH - 1)
    async with running(bench.lane):
        await bench.emits(LeaderChanged)
        assert not bench.destination.added.is_set()
        bench.copy.inspected(EPOCH)
        bench.lane.offer(bench.copy)
        await bench.emits(Committed)


async def test_a_partition_whose_leader_cannot_be_reached_backs_off() -> None:
    removed, copy = partition(0), partition(1)
    bench = Bench(removed, copy, far=True)
    async with running(bench.lane):
        await passes()
        bench.lane.remove(removed)
        bench.connecting.set_exception(REFUSED)
        await bench.until(lambda: bool(bench.events))
    assert [event.copy for event in bench.of(NotReady)] == [copy]
    assert not bench.destination.added.is_set()


async def test_a_failed_connection_leaves_a_partition_that_joined_at_another_leader_alone() -> None:
    alone, copy = partition(0), partition(1)
    bench = Bench(alone, copy, far=True)
    bench.destination.leader_of[1] = NEAR
    bench.destination.hold = True
    bench.lane.offer(copy)
    async with running(bench.lane):
        await bench.destination.added.wait()
        bench.connecting.set_exception(REFUSED)
        await bench.until(lambda: bool(bench.events))
        assert copy.in_transaction
    assert [event.copy for event in bench.of(NotReady)] == [alone]
    assert copy.queue


@virtual
async def test_a_transaction_stays_open_for_batches_of_a_partition_that_is_behind() -> None:
    bench = Bench()
    bench.copy.resume()
    bench.copy.answered(SourceLog(0, 12, 12), SessionAnswers(), 1)
    async with running(bench.lane):
        await passes()
        bench.queue()
        await bench.emits(Committed)
    assert (bench.copy.progress.position, bench.destination.ends) == (12, 1)


async def test_a_solo_lane_copies_one_partition_at_a_time() -> None:
    bench = Bench(partition(0), partition(1), solo=True)
    async with running(bench.lane):
        await bench.until(lambda: len(bench.of(Committed)) == 2)
    assert bench.destination.joins == [["orders", "ledger"]] * 2


# Joining ahead


@asynccontextmanager
async def active(
    *copies: PartitionCopy, ahead_s: float = 30.0, ledger_of: type[LedgerInMemory] = LedgerInMemory
) -> AsyncIterator[Bench]:
    """A partition that carried data in two transactions, and has none now. Its position is 12."""
    bench = Bench(*copies, settings=replace(SETTINGS, ahead_s=ahead_s), ledger_of=ledger_of)
    bench.copy.resume()
    async with running(bench.lane):
        await bench.commits()
        await passes()
        assert len(bench.destination.joins) == 1
        bench.queue()
        await bench.commits()
        await until(lambda: len(bench.destination.joins) == 3)
        await passes()
        yield bench


async def test_a_partition_that_carried_data_twice_joins_the_next_transaction_ahead() -> None:
    async with active() as bench:
        assert bench.destination.joins == [["orders", "ledger"]] * 3
        assert (bench.destination.ends, bench.copy.in_transaction) == (2, True)
        bench.destination.hold = True  # the coordinator answers nothing, and is not asked
        bench.queue()
        await bench.commits()
        assert bench.destination.ends == 3


@virtual
@pytest.mark.parametrize(
    ("event", "joins", "ends"),
    [("nothing", 3, 2), ("a batch", 3, 3), ("the end of the lane", 2, 2)],
)
async def test_a_partition_joins_ahead_once_the_last_markers_are_due_or_a_batch_waits(
    event: str, joins: int, ends: int
) -> None:
    bench, loop = Bench(settings=replace(SETTINGS, ahead_s=30.0)), asyncio.get_running_loop()
    bench.copy.resume()
    async with running(bench.lane):
        await bench.commits()
        await passes()
        bench.queue()
        await bench.commits()
        committed_at = loop.time()
        await passes()
        assert (len(bench.destination.joins), loop.time()) == (2, committed_at)
        match event:
            case "a batch":
                bench.queue()
            case "the end of the lane":
                bench.lane.drain()
            case _:
                await asyncio.sleep(0.001)
        await passes()
        assert (len(bench.destination.joins), bench.destination.ends) == (joins, ends)


@virtual
async def test_a_transaction_without_data_ends_once_and_none_follows() -> None:
    async with active(ahead_s=5.0) as bench:
        await bench.until(lambda: bench.destination.ends == 3)
        await passes()
        assert (len(bench.destination.joins), bench.copy.in_transaction) == (3, False)


async def test_an_idle_position_is_no_activity() -> None:
    """It ends the transaction without data; the next one, of the ledger alone, is not joined."""
    async with active() as bench:
        other = partition(1)
        other.inspected(EPOCH)
        bench.lane.add(other)
        for end in (20, 21):
            other.fetched([], Cursor(end, 0), ())
            bench.lane.offer(other)
            await bench.until(lambda: other.progress.position == other.cursor.offset)
        await passes()
        assert (len(bench.destination.joins), bench.copy.in_transaction) == (3, False)


async def test_a_partition_that_joined_ahead_of_a_new_leader_joins_again() -> None:
    """Its first batch waits for the inspection (R4); the transaction ends without it."""
    async with active() as bench:
        bench.destination.leader_epoch += 1
        bench.queue()
        await bench.emits(LeaderChanged)
        copy = bench.copy
        assert (bench.destination.ends, copy.progress.position, copy.in_transaction) == (3, 12, False)
        copy.inspected(bench.destination.leader_epoch)
        bench.lane.offer(copy)
        await bench.commits()


async def test_a_release_ends_a_transaction_without_data() -> None:
    async with active() as bench:
        bench.copy.start_release()
        await bench.lane.release(bench.copy)
        assert (bench.destination.ends, bench.copy in bench.lane.copies) == (3, False)
        await passes()
        assert len(bench.destination.joins) == 3


# The ledger with the data


async def test_the_ledger_is_written_while_the_data_is_in_flight() -> None:
    async with active() as bench:
        bench.link.held = []
        bench.ledger.written.clear()
        bench.queue()
        await bench.ledger.written.wait()
        await passes()
        assert (len(bench.link.held), bench.destination.ends) == (
            1,
            2,
        )  # it does not end before the acknowledgement
        bench.link.release()
        await bench.commits()
        assert bench.copy.progress.destination_end == bench.link.end_offset - 1  # its marker lies behind


async def test_an_acknowledgement_that_is_not_the_expected_one_aborts() -> None:
    """Another producer wrote; then the ledger waits for acknowledgements, and its map is exact (R6)."""
    async with active() as bench:
        bench.link.end_offset += 5
        bench.ledger.takes_writes = False  # its record is aborted with the data
        bench.queue()
        await bench.emits(Aborted)
        assert bench.of(Aborted)[0].failure.copies == ()
        assert (bench.destination.ends, bench.copy.progress.position, bench.copy.cursor.offset) == (2, 12, 12)
        bench.ledger.takes_writes = True
        await ledger_waits(bench)


async def test_where_others_write_by_design_the_ledger_waits_for_acknowledgements() -> None:
    async with active(partition(shared=True)) as bench:
        bench.link.end_offset += 5
        await ledger_waits(bench)
        assert not bench.of(Aborted)


async def ledger_waits(bench: Bench) -> None:
    """The next record is written to the ledger only behind the acknowledgement of its batch."""
    bench.link.held = []
    bench.ledger.written.clear()
    bench.queue()
    await until(lambda: bool(bench.link.held))
    await passes()
    assert not bench.ledger.written.is_set()
    bench.link.release()
    await bench.commits()
    assert bench.copy.progress.destination_end == bench.link.end_offset - 1


class SentLedger(LedgerInMemory):
    """Its record is sent to the destination."""

    async def write(self, tx: Transaction, sender: ProduceSender, transactional_id: str) -> None:
        await super().write(tx, sender, transactional_id)
        await sender.add_ledger_records(tx, self.partition, build([InternalRecord(b"k", b"v")], 1))


async def test_the_ledger_record_travels_with_the_last_batches_where_their_base_is_expected() -> None:
    async with active(ledger_of=SentLedger) as bench:
        assert bench.link.requests[:2] == [["orders"], ["ledger"]]
        bench.link.requests.clear()
        bench.queue()
        await bench.commits()
        assert bench.link.requests == [["orders", "ledger"]]


async def test_a_ledger_of_another_broker_gets_a_request_of_its_own() -> None:
    async with active(partition(1), ledger_of=SentLedger) as bench:
        bench.queue()
        await bench.commits()
        assert bench.destination.links[FAR].requests == [["orders"]] * 3
        assert bench.link.requests == [["ledger"]] * 3


async def test_a_ledger_record_that_is_refused_aborts_the_data_of_its_request() -> None:
    async with active(partition(1), ledger_of=SentLedger) as bench:
        bench.link.refused = {"ledger": ErrorCode.NOT_LEADER_OR_FOLLOWER}
        bench.ledger.takes_writes = False
        bench.queue()
        await bench.emits(Aborted)
        failure = bench.of(Aborted)[0].failure
        assert (failure.phase, failure.copies) == (ErrorPhase.LEDGER, ())
        assert (bench.destination.ends, bench.copy.progress.position) == (2, 12)
        bench.link.refused = {}
        bench.ledger.takes_writes = True
        bench.queue()
        await bench.commits()
        assert bench.copy.progress.position == 13


async def test_a_partition_with_data_in_every_eighth_transaction_waits_for_its_batch() -> None:
    often, seldom = partition(0), partition(1)
    bench = Bench(often, seldom, has=lambda _: None, settings=replace(SETTINGS, ahead_s=30.0))
    for copy in (often, seldom):
        copy.inspected(EPOCH)
        copy.resume()
    async with running(bench.lane):
        for number in range(24):
            if number % 8 == 0:
                with_batch(seldom)
                bench.lane.offer(seldom)
            bench.queue()
            await bench.commits()
            joins_ahead = number > 0
            await until(lambda: often.in_transaction == joins_ahead)  # noqa: B023 - it ends before
            await passes()
            assert (often.in_transaction, seldom.in_transaction) == (joins_ahead, False)


# What an open transaction may still commit

Has = Callable[[PartitionCopy], None]


@asynccontextmanager
async def waiting_for_its_coordinator(
    has: Has,
) -> AsyncIterator[tuple[Destination, LaneSet, Lane, PartitionCopy]]:
    """The coordinator was asked to add partitions, and does not answer yet."""
    destination, copy = Destination(), partition()
    lanes = lanes_of(destination, Emitted(), SlowLedger(destination))
    destination.hold = True
    has(copy)
    lanes.place(copy)
    async with running(lanes.all[0]):
        await destination.added.wait()
        yield destination, lanes, lanes.all[0], copy


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


async def test_a_produce_error_aborts_and_its_partitions_resume_under_a_new_epoch() -> None:
    bench = Bench()
    bench.link.refused["orders"] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    async with running(bench.lane):
        await bench.emits(Aborted)
        assert (bench.copy.cursor.offset, len(bench.copy.queue), bench.copy.in_transaction) == (10, 0, False)
        await passes()
    assert [type(event) for event in bench.events[-2:]] == [Rewound, Aborted]
    assert bench.of(Aborted)[0].failure.copies == (bench.copy,)
    assert (bench.destination.epochs["lane"], bench.destination.ends, bench.lane.aborts) == (1, 0, 1)


@pytest.mark.parametrize("replaced", [False, True])
async def test_the_coordinator_says_whether_a_lane_whose_partition_refuses_its_epoch_is_fenced(
    replaced: bool,
) -> None:
    """A client may have written there under the lane's producer id and a newer epoch: only that partition
    leaves the lane (R7). A lane that another attempt has replaced ends its slot (R3).
    """
    bench = Bench()
    bench.link.refused["orders"] = ErrorCode.INVALID_PRODUCER_EPOCH
    assert await bench.lane.begin()
    if replaced:
        bench.destination.epochs["lane"] += 1
        with pytest.raises(SlotMustEnd, match="PRODUCER_FENCED"):
            await bench.lane.run()
    else:
        running_lane = asyncio.ensure_future(bench.lane.run())
        await bench.emits(Aborted)
        bench.lane.drain()
        await running_lane
        assert bench.of(Aborted)[0].decision.action is ErrorAction.SUSPECT
        assert bench.of(Aborted)[0].failure.copies == (bench.copy,)
    assert bench.of(Committed) == []


class Silent(Link):
    """Its broker answers no produce request."""

    def start(self, request: ProduceRequest, within: float) -> asyncio.Future[ProduceResponse]:
        answer: asyncio.Future[ProduceResponse] = asyncio.get_running_loop().create_future()
        answer.get_loop().call_later(within, answer.set_exception, LOST)
        return answer


@virtual
async def test_a_broker_that_does_not_answer_is_blamed_on_its_own_partitions() -> None:
    """They leave the lane, so the partitions of other brokers are committed there (R7)."""
    near, far = partition(0), partition(1)
    bench = Bench(near, far)
    bench.destination.links[FAR] = Silent()
    async with running(bench.lane):
        await bench.emits(Aborted)
        (aborted,) = bench.of(Aborted)
        assert (aborted.failure.copies, aborted.decision.action) == ((far,), ErrorAction.SUSPECT)
        bench.lane.remove(far)
        bench.queue()
        await bench.commits()


@virtual
async def test_a_transaction_is_aborted_in_time_while_a_broker_is_connected_to_again() -> None:
    """Its partition has more records, so the transaction is not due to end yet (fencing 1)."""
    bench = Bench(settings=replace(SETTINGS, transaction_timeout_ms=1_000, longest_s=30.0))
    bench.copy.resume()
    bench.copy.answered(SourceLog(0, 99, 99), SessionAnswers(), 1)
    async with running(bench.lane):
        await until(lambda: bool(bench.link.requests))
        bench.link.closed = True
        bench.destination.connecting[NEAR] = bench.connecting
        bench.queue()
        await bench.emits(Aborted)
    assert "not written in 0.8 s" in str(bench.of(Aborted)[0].failure)


def test_a_transaction_whose_partition_is_behind_ends_when_its_timer_is_early() -> None:
    """uvloop rounds timers to whole milliseconds, and nothing else wakes the lane."""

    async def commits() -> None:
        bench = Bench(settings=replace(SETTINGS, longest_s=0.0504))
        bench.copy.resume()
        bench.copy.answered(SourceLog(0, 99, 99), SessionAnswers(), 1)
        async with running(bench.lane):
            await bench.emits(Committed)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(commits(), 20))


@virtual
async def test_a_transaction_that_is_not_acknowledged_in_time_is_aborted_before_the_broker_ends_it() -> None:
    """The broker fences the producer of a transaction that it times out (fencing 1)."""
    bench = Bench(settings=replace(SETTINGS, longest_s=0.01, transaction_timeout_ms=1_000))
    bench.link.held = []
    async with running(bench.lane):
        await bench.emits(Aborted)
        await passes()
    assert "not written in 0.8 s" in str(bench.of(Aborted)[0].failure)
    assert (bench.destination.ends, bench.copy.cursor.offset) == (0, 10)


@pytest.mark.parametrize(
    "refused",
    [[], [LOST], [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2, [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]],
)
@virtual
async def test_a_request_without_a_response_is_fenced_by_abort_markers_of_a_newer_epoch(
    refused: list[ErrorCode | WireError],
) -> None:
    """Behind a marker of its own epoch, a broker before Kafka 3.6 would still take it (R2).

    A partition that is gone has no marker to write, and takes no request.
    """
    bench = Bench()
    bench.destination.links[NEAR] = Silent()
    async with running(bench.lane):
        await bench.destination.added.wait()
        await passes()
        bench.destination.add_errors = list(refused)
        await bench.emits(Aborted)
        await until(lambda: bench.lane.state is LaneState.IDLE)
    joins = bench.destination.joins
    assert (joins[0], joins[1:]) == (["orders", "ledger"], [["orders"]] * (len(joins) - 1))
    assert len(joins) > 1
    assert (bench.destination.epochs["lane"], bench.lane._sender.late) == (2, set())
    gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION in refused
    assert bench.destination.markers["orders", 0] == (0 if gone else 1)  # The request has the epoch 0.


@pytest.mark.parametrize(
    ("has", "committed", "position"),
    [
        (with_batch, True, 11),
        (with_batch, False, 10),
        (with_idle_position, True, 25),
        (with_idle_position, False, 10),
        (with_accepted_loss, True, 30),
    ],
)
@virtual
async def test_the_ledger_decides_where_the_response_to_the_end_was_lost(
    has: Has, committed: bool, position: int
) -> None:
    """What is undone was of a batch, or only moved the position: that is no aborted record."""
    bench = Bench(has=has)
    bench.ledger.takes_writes = committed
    bench.destination.end_errors = [LOST]
    async with running(bench.lane):
        await bench.emits(Aborted)
    copy = bench.copy
    taken = [entry.copy for event in bench.of(Committed) for entry in event.entries]
    assert taken == ([copy] if committed else [])
    aborted = not committed and has is with_batch
    assert [list(event.copies) for event in bench.of(Aborted)] == [[copy] if aborted else []]
    assert [list(event.copies) for event in bench.of(Rewound)] == [[copy]]
    assert copy.cursor.offset == copy.progress.position == position
    assert not copy.in_transaction


@pytest.mark.parametrize("committed", [True, False])
async def test_a_lane_that_was_fenced_while_its_answer_was_lost_does_not_become_valid_again(
    committed: bool,
) -> None:
    """KIP-360: another attempt of the slot, which has written nothing yet, would be fenced by that (R3)."""
    bench = Bench()
    bench.ledger.takes_writes = committed
    bench.destination.end_errors = [LOST]
    assert await bench.lane.begin()
    bench.destination.epochs["lane"] += 1  # the other attempt has initialised the id
    with pytest.raises(SlotMustEnd, match="PRODUCER_FENCED"):
        await bench.lane.run()
    assert bench.copy.in_transaction


# Missing markers


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
@virtual
async def test_a_missing_marker_is_written_by_a_transaction_without_records(
    commit: bool, added: list[Any], ended: list[Any], decisions: list[bool]
) -> None:
    bench = Bench(has=lambda _: None)
    bench.destination.add_errors, bench.destination.end_errors = added, ended
    async with running(bench.lane):
        bench.lane.write_marker(bench.copy, commit=commit)
        await until(lambda: bench.destination.epochs["lane"] == 1)
    assert {tuple(topics) for topics in bench.destination.joins} == {("orders",)}
    assert bench.destination.decisions == [*decisions, False]  # The last one comes with the new epoch.
    assert (bench.events, bench.lane.aborts, bench.copy.in_transaction) == ([], 0, False)


async def test_a_decision_about_a_marker_does_not_outlive_the_progress_that_it_was_made_from() -> None:
    bench = Bench(has=lambda _: None)
    bench.lane.write_marker(bench.copy, commit=True)
    bench.copy.committed(replace(bench.copy.progress, position=bench.copy.progress.position + 1))
    async with running(bench.lane):
        await until(lambda: not bench.lane._unmarked)
    assert (bench.destination.joins, bench.destination.decisions) == ([], [])


async def test_a_lane_that_was_fenced_while_it_wrote_a_missing_marker_ends_the_slot() -> None:
    bench = Bench(has=lambda _: None)
    bench.destination.end_errors = [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert await bench.lane.begin()
    bench.lane.write_marker(bench.copy, commit=True)
    with pytest.raises(SlotMustEnd, match="INVALID_PRODUCER_EPOCH"):
        await bench.lane.run()


@virtual
async def test_the_first_lane_copies_a_quiet_flow_and_all_home_lanes_one_that_catches_up() -> None:
    copies = [partition(number) for number in range(4)]
    lanes = lanes_of(Destination(), Emitted())

    def shares() -> list[int]:
        return [len(lane.copies) for lane in lanes.all]

    for copy in copies:
        copy.resume()
        lanes.place(copy)
    lanes.rebalance_after(copies)
    assert shares() == [2, 2, 0]  # a flow that begins may be behind
    await asyncio.sleep(1.0)
    lanes.rebalance_after(copies)
    assert shares() == [4, 0, 0]
    copies[0].answered(SourceLog(0, 12, 12), SessionAnswers(), 1)
    assert copies[0].behind
    lanes.rebalance_after(copies)
    assert shares() == [2, 2, 0]
    copies[0].answered(SourceLog(0, 10, 10), SessionAnswers(), 1)
    lanes.rebalance_after(copies)
    assert shares() == [2, 2, 0]
    lanes.all[0].state = LaneState.STUCK
    await asyncio.sleep(1.0)
    lanes.rebalance_after(copies)
    assert shares() == [0, 4, 0]


async def test_every_transactional_id_is_initialised_at_the_start_spare_ones_too() -> None:
    """An older process of this slot may hold any of them (R3)."""
    destination = Destination()
    await lanes_of(destination, Emitted(), names="abcd").begin()
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


@pytest.mark.parametrize(
    ("answer", "ledger_away"),
    [
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, False),
        (ErrorCode.CONCURRENT_TRANSACTIONS, False),
        (ErrorCode.NONE, True),
    ],
)
@virtual
async def test_a_lane_that_cannot_recover_leaves_its_partitions_to_another_one(
    answer: ErrorCode, ledger_away: bool
) -> None:
    """Its coordinator or the ledger does not answer; it takes partitions again once it has recovered (R7)."""
    destination, flow, copy = Destination(), Flow(), partition()
    ledger = LedgerInMemory(copy)
    flow.lanes = lanes_of(destination, flow, ledger)
    lanes = flow.lanes.all
    destination.links[NEAR].refused["orders"] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    async with running(lanes[0]):
        destination.init_errors = [answer] * 500
        ledger.unreadable = REFUSED if ledger_away else None
        with_batch(copy)
        flow.lanes.place(copy)
        await flow.emits(LaneStuck)
        assert (copy in lanes[1].copies, lanes[0].state) == (True, LaneState.STUCK)
        destination.init_errors.clear()
        ledger.unreadable = None
        await flow.emits(LaneFreed)
        await until(lambda: lanes[0].state is LaneState.IDLE)


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize(
    "answer",
    [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.CONCURRENT_TRANSACTIONS],
)
@virtual
async def test_no_other_lane_copies_a_transaction_whose_end_was_answered_with_a_temporary_error(
    answer: ErrorCode, committed: bool
) -> None:
    """The coordinator's log may hold the commit. The link is cut then, and a new coordinator lets the id wait
    for a slow marker, longer than the lane waits before its partitions may leave.
    """
    destination, flow, copy = Destination(), Flow(), partition()
    ledger = LedgerInMemory(copy)
    ledger.takes_writes = committed
    destination.end_errors = [answer, *[REFUSED] * 1_000]
    flow.lanes = lanes_of(destination, flow, ledger)
    lanes = flow.lanes.all
    async with running(lanes[0]), running(lanes[1]):
        destination.init_errors = [ErrorCode.CONCURRENT_TRANSACTIONS] * 500
        with_batch(copy)
        flow.lanes.place(copy)
        await flow.emits(LaneStuck)
        await passes()
        assert (copy.in_transaction, copy in lanes[0].copies, flow.of(Rewound)) == (True, True, [])
        destination.end_errors.clear()
        ledger.takes_writes = True
        await flow.emits(LaneFreed)
        await flow.until(lambda: copy.progress.position == 11)
    assert destination.links[NEAR].batches == (1 if committed else 2)
    assert len(flow.of(Committed)) == 1


@pytest.mark.parametrize("seed", range(20))
@virtual
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
    attempts = [lanes_of(client, Emitted(), names=names) for client in clients]
    ends = await asyncio.gather(*(lanes.begin() for lanes in attempts), return_exceptions=True)
    held = [
        {
            lane.transactional_id
            for lane in lanes.all
            if lane._sender.identity.epoch == epochs[lane.transactional_id]
        }
        for lanes, end in zip(attempts, ends, strict=True)
        if not isinstance(end, SlotMustEnd)
    ]
    assert len([ids for ids in held if ids]) <= 1, held


@virtual
async def test_nothing_is_copied_while_an_id_of_an_earlier_attempt_waits_for_a_marker() -> None:
    """That attempt may be alive, and goes on under the id once the marker is written (R3)."""
    destination = Destination()
    lanes = lanes_of(destination, Emitted())
    destination.init_errors = [ErrorCode.NONE, *[ErrorCode.CONCURRENT_TRANSACTIONS] * 500]
    with pytest.raises(BrokerError, match="other waits for the marker"):
        await lanes.begin()
    destination.init_errors.clear()
    await lanes.begin()
    assert lanes.stuck() == []


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
    bench = Bench(destination=Unprepared())
    bench.link.refused["orders"] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    await bench.lane.begin()
    with pytest.raises(ZeroDivisionError):
        await bench.lane.run()
    assert bench.destination.ends == 0
    assert "a programming error" in caplog.text
