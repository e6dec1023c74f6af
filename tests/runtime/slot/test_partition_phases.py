"""A partition walks its table of phases: whatever happens in between, it stops and continues (R4, R7)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import initialize, invariant, precondition, rule
from msgspec.structs import replace

from runtime.contract.records.job_status import PartitionState as State
from runtime.contract.spec.jobspec import CopySettings
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import Disconnected
from runtime.kafka.protocol.offsets import EARLIEST, ListedOffset, ListOffsetsRequest
from runtime.slot.health.supervisor import Halted, PartitionSupervisor, Replaced, Resumed, SupervisorEvent
from runtime.slot.partition import PHASES, CopyPhase, Cursor, SessionAnswers, SourceLog
from tests.fakes.machine import VirtualTimeMachine, assert_reachable
from tests.fakes.partition import partition
from tests.fakes.side import Side

POSITION = 10  # of the ledger, at the start; the destination ends at 100
SECONDS = st.sampled_from((0.0, 0.1, 5.0, 70.0))


class Source(Side):
    """A source whose log starts at `start`; it may fail to answer, or answer late."""

    start = 0
    silent_for_s = 0.0
    fails = False

    async def call(self, node: int, request: object, purpose: str, within: float) -> object:
        await asyncio.sleep(self.silent_for_s)
        if self.fails:
            raise Disconnected("broker 1", "cut", sent=True)
        match request:
            case ListOffsetsRequest(times=times):
                return {
                    at: ListedOffset(self.start if time == EARLIEST else self.end, -1, 5)
                    for at, time in times.items()
                }
        return await super().call(node, request, purpose, within)


class Phases(VirtualTimeMachine):
    """The source answers, loses records and comes back; a lane commits, aborts and is stuck meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.copy = partition()
        self.fetched = False  # whether the reader has the partition
        self.pending: Callable[[], None] | None = None  # what the end of its transaction commits

    def handle(self, event: SupervisorEvent) -> None:
        """Does what a flow does."""
        match event:
            case Halted():
                self.fetched = False
            case Resumed(copy):
                assert not copy.in_transaction
                self.fetched = True
            case Replaced(copy):
                assert copy.idle_position_moved

    @initialize(accepts_loss=st.booleans(), leaves_at_once=st.booleans())
    def begin(self, accepts_loss: bool, leaves_at_once: bool) -> None:
        self.leaves_at_once = leaves_at_once
        self.run(self._begin(accepts_loss))

    async def _begin(self, accepts_loss: bool) -> None:
        self.source, self.destination = Source(b"s" * 16, 100_000), Side(b"d" * 16, 1_000)
        sides = cast(KafkaCluster, self.source), cast(KafkaCluster, self.destination)
        supervisor = PartitionSupervisor(*sides, CopySettings(), 1, accepts_loss, self.handle, lambda: [7])
        self.tasks = [asyncio.create_task(work) for work in (supervisor.run(), supervisor.run_retries())]
        self.supervisor = supervisor
        supervisor.admit([self.copy])

    # The source

    @precondition(lambda self: self.fetched)
    @rule(records=st.integers(0, 2), end=st.integers(0, 3))
    def respond(self, records: int, end: int) -> None:
        cursor = self.copy.cursor.offset + records
        self.copy.answered(SourceLog(0, cursor + end, cursor + end), SessionAnswers(), 1)
        self.copy.fetched([], Cursor(cursor, 5))
        self.copy.settle()

    @precondition(lambda self: self.fetched)
    @rule()
    def block(self) -> None:
        self.copy.block(None, "by a transaction")

    @precondition(lambda self: self.fetched)
    @rule(stops=st.booleans(), seconds=SECONDS)
    def fail_to_fetch(self, stops: bool, seconds: float) -> None:
        if stops:
            fail = lambda: self.supervisor.stop(self.copy, State.RECORD_CORRUPT, "bad checksum")  # noqa: E731
        else:
            fail = lambda: self.supervisor.retry(self.copy, "no leader")  # noqa: E731
        self.act(fail, seconds)

    @rule(loses=st.booleans(), fails=st.booleans(), silent=st.sampled_from((0.0, 0.5, 3.0)), seconds=SECONDS)
    def change_the_source(self, loses: bool, fails: bool, silent: float, seconds: float) -> None:
        self.source.start = self.copy.progress.position + 5 if loses else 0
        self.source.fails, self.source.silent_for_s = fails, silent
        self.act(seconds=seconds)

    # The lane

    @precondition(lambda self: not self.copy.in_transaction and not self.copy.releasing)
    @rule(stuck=st.booleans())
    def join(self, stuck: bool) -> None:
        """It joins with an idle position, with its replacement, or ahead of its batches.

        The lane may then be stuck, without an answer to its end.
        """
        copy = self.copy
        progress = copy.replacement
        moved = replace(copy.progress, position=copy.cursor.offset)

        def commit() -> None:
            if progress is None:
                copy.committed(moved)
            else:
                copy.replaced(progress)
                self.supervisor.admit([copy])

        self.pending = commit
        copy.enter_transaction()
        if stuck:
            self.fetched = False
            copy.hold()

    @precondition(lambda self: self.copy.in_transaction)
    @rule(seconds=SECONDS)
    def commit(self, seconds: float) -> None:
        assert self.pending is not None
        self.copy.leave_transaction()
        self.act(self.pending, seconds)
        if self.copy.phase is CopyPhase.HELD:  # The ledger decided that it was committed.
            self._rewind()
        self.copy.settle()

    @precondition(lambda self: self.copy.in_transaction)
    @rule(blamed=st.booleans(), seconds=SECONDS)
    def abort(self, blamed: bool, seconds: float) -> None:
        def end() -> None:
            self._rewind()
            self.copy.aborted("broker 1: gone")
            if blamed:
                self.copy.mark_suspect()
                self.supervisor.retry(self.copy, "broker 1: gone")

        self.act(end, seconds)

    def _rewind(self) -> None:
        self.copy.rewind()
        self.copy.leave_transaction()
        if not self.fetched and self.copy.phase is CopyPhase.HELD:
            self.supervisor.admit([self.copy])

    @precondition(lambda self: self.copy.fetchable and not self.copy.in_transaction)
    @rule(seconds=SECONDS)
    def change_the_leader(self, seconds: float) -> None:
        self.copy.rewind()
        self.act(lambda: self.supervisor.inspect_now(self.copy), seconds)

    @precondition(lambda self: not self.copy.releasing)
    @rule(seconds=SECONDS)
    def wait(self, seconds: float) -> None:
        self.act(seconds=seconds)

    @invariant()
    def the_reader_has_it_while_it_runs(self) -> None:
        assert self.fetched == self.copy.fetchable == (self.copy.phase is CopyPhase.RUNNING)

    @invariant()
    def what_belongs_to_a_phase_or_state_does_not_outlive_it(self) -> None:
        copy, status = self.copy, self.copy.status()
        assert (copy.replacement is not None) == (copy.phase is CopyPhase.REPLACING)
        assert (status.caught_up_since_ms > 0) == (copy.state is State.CAUGHT_UP)
        assert not (copy.fetchable and copy.state.needs_decision)

    def teardown(self) -> None:
        if self.leaves_at_once:
            self.copy.start_release()
        if self.copy.in_transaction:
            self._rewind()
        self.source.start, self.source.fails, self.source.silent_for_s = 0, False, 0.0
        self.run(asyncio.sleep(200))
        if self.copy.phase is CopyPhase.REPLACING:
            self.join(stuck=True)
            self.commit(200.0)
        if not self.leaves_at_once:
            assert self.copy.phase is CopyPhase.RUNNING, self.copy.why
            self.copy.start_release()
        self.supervisor.forget(self.copy)
        self.act(lambda: self.supervisor.retry(self.copy, "its transaction failed"), 200.0)
        self.supervisor.admit([self.copy])
        assert (self.copy.phase, self.copy.fetchable) == (CopyPhase.RELEASING, False)
        for task in self.tasks:
            task.cancel()
        self.act()
        self.loop.close()


TestPhases = pytest.mark.slow(Phases.TestCase)
TestPhases.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)


def test_every_phase_can_be_reached_and_only_a_released_partition_has_left() -> None:
    assert_reachable(PHASES, CopyPhase.INSPECTING, CopyPhase.RELEASING, CopyPhase)
