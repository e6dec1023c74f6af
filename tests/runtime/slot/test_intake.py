"""A session's answer counts for all its partitions: one that is idle is as fresh as its neighbours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runtime.batch import OutgoingBatch, RewriteSpec
from runtime.contract.client.settings import WireSettings, wire_settings
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import Disconnected, ErrorCode, TimedOut, WireError
from runtime.kafka.protocol.fetch import FetchResponse
from runtime.kafka.protocol.metadata import Partition
from runtime.slot.budget import TokenBucket
from runtime.slot.context import SlotContext
from runtime.slot.partition import Cursor, PartitionCopy
from runtime.slot.read.reader import BrokerIntake, SourceReader
from runtime.sql.transformer import Transformed
from tests.fakes.clock import VirtualClock
from tests.fakes.intake import copying, fetched, intake_of, memory_of
from tests.fakes.partition import queued
from tests.runtime.batch.forge import record
from tests.runtime.slot.world import SLOT, flow_spec

OK, GONE, NOT_HERE = ErrorCode.NONE, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.NOT_LEADER_OR_FOLLOWER


@dataclass(slots=True, eq=False)
class Leader:
    """A broker that answers by script, a second of the process's clock after each other, then disconnects."""

    answers: list[FetchResponse]
    clock: Callable[[int], None]
    settings: WireSettings = field(default_factory=lambda: wire_settings("one:9092", {}))
    now: int = 0
    partitions: list[list[int]] = field(default_factory=list)
    forgotten: list[list[int]] = field(default_factory=list)

    def failed_lately(self, node: int) -> bool:
        return False

    async def call(self, node: int, request: Any, purpose: str, within: float | None) -> FetchResponse:
        if not self.answers:
            raise Disconnected("broker 1", "it is gone", sent=True)
        self.now += 1_000
        self.clock(self.now)
        self.partitions.append([number for _, number in request.partitions])
        self.forgotten.append([number for _, number in request.forgotten])
        return self.answers.pop(0)

    def leader(self, topic: str, partition: int) -> Partition | None:
        return None

    def topic_by_id(self, topic_id: bytes) -> None:
        return None


def answer(*partitions: int, error: ErrorCode = OK, session: ErrorCode = OK) -> FetchResponse:
    """These partitions have news."""
    news = tuple(fetched(one, 10, error=error) for one in partitions)
    return FetchResponse(0, session, 0 if session else 7, news)


def reader_of(
    source: object, started: list[Coroutine[None, None, None]], transformer: object | None = None
) -> SourceReader:
    """A reader that runs no intake: `started` are their coroutines."""
    destination = SimpleNamespace(cluster_id="id-2")
    context = SimpleNamespace(
        **vars(memory_of()), destination=destination, spec=SLOT, transformer=transformer
    )
    return SourceReader(
        flow_spec("flow"),
        cast(KafkaCluster, source),
        None,
        cast(SlotContext, context),
        TokenBucket(None, lambda: 0.0),
        lambda _: None,
        started.append,
    )


Fetches = Callable[..., tuple[BrokerIntake, Leader]]


@pytest.fixture
def fetch(monkeypatch: pytest.MonkeyPatch) -> Fetches:
    """Fetches until the leader is gone. The partitions hold no records."""

    def fetches(
        copies: Iterable[PartitionCopy], answers: Iterable[FetchResponse]
    ) -> tuple[BrokerIntake, Leader]:
        def clock(now: int) -> None:
            monkeypatch.setattr("runtime.kafka.fetch.now_ms", lambda: now)
            monkeypatch.setattr("runtime.slot.read.reader.now_ms", lambda: now)
            monkeypatch.setattr("runtime.slot.read.reader.time.monotonic", lambda: now / 1_000)

        leader = Leader(list(answers), clock)
        clock(0)
        intake = intake_of(leader)
        for copy in copies:
            intake.add(copy)
        with pytest.raises(WireError):
            asyncio.run(intake.run())
        return intake, leader

    return fetches


@pytest.mark.parametrize(
    ("answers", "times"),
    [
        ([answer(0, 1)], (1, 1)),
        ([answer(0, 1), answer(), answer(0)], (3, 3)),  # partition 1 has no news
        ([answer(0, 1), answer(), answer()], (3, 3)),
        ([answer(0), answer()], (2, 0)),  # partition 1 was never answered
        ([answer(0, 1), answer(1, error=NOT_HERE), answer()], (3, 1)),  # and is in the session no more
        ([answer(0, 1), answer(), answer(session=GONE)], (2, 2)),  # an answer that looked at no partition
    ],
)
def test_the_last_answer_of_an_idle_partition_is_that_of_its_session(
    fetch: Fetches, answers: list[FetchResponse], times: tuple[int, int]
) -> None:
    """A partition that is removed keeps it."""
    copies = copying(0), copying(1)
    intake, _ = fetch(copies, answers)
    for _ in range(2):
        assert tuple(copy.status().last_fetch_ms // 1_000 for copy in copies) == times
        intake.remove(copies[0])


@pytest.mark.parametrize(
    ("source_end", "pause_s"),
    [(11, 0.05), (12, 0.0)],
    ids=["linger_ms", "not where the source has more"],
)
def test_the_next_fetch_waits_after_one_that_brought_all_there_was(source_end: int, pause_s: float) -> None:
    fetched_at: list[float] = []
    response = FetchResponse(0, OK, 7, (fetched(0, source_end, [record(10)]),))
    leader = Leader([response], lambda _: fetched_at.append(asyncio.get_running_loop().time()))
    copy = copying(0)

    async def run() -> None:
        intake = intake_of(leader, linger_ms=50)
        loop = asyncio.get_running_loop()
        intake.add(copy)
        with pytest.raises(WireError):
            await intake.run()
        assert loop.time() - fetched_at[0] == pytest.approx(pause_s, abs=0.001)

    with asyncio.Runner(loop_factory=VirtualClock) as runner:
        runner.run(run())
    assert copy.cursor.offset == 11


@pytest.mark.parametrize("source_end", [11, 12])
def test_a_partition_is_not_behind_for_the_response_that_is_transformed(source_end: int) -> None:
    """A transaction with the partition's earlier records does not wait for the transform."""
    copy = copying(0)
    behind: list[bool] = []

    async def apply(partitions: Sequence[tuple[Sequence[OutgoingBatch], RewriteSpec]]) -> list[Transformed]:
        behind.append(copy.behind)
        return [Transformed(list(batches), [], None, []) for batches, _ in partitions]

    response = FetchResponse(0, OK, 7, (fetched(0, source_end, [record(10)]),))
    intake = intake_of(Leader([response], lambda _: None), transformer=SimpleNamespace(apply=apply))
    intake.add(copy)
    with pytest.raises(WireError):
        asyncio.run(intake.run())
    assert behind == [False]
    assert copy.behind == (source_end > 11)


def test_a_partition_is_not_fetched_while_twice_as_much_as_one_fetch_is_queued() -> None:
    """R8. The others of its leader are. The queue of partition 1 gets full with the first answer."""
    copies = [copying(number) for number in range(3)]

    def fill(copy: PartitionCopy) -> None:
        copy.fetched([queued((10, 1))], Cursor(11, 0), ())
        intake.mark_changed(copy)

    leader = Leader([answer(1, 2), answer()], lambda _: fill(copies[1]))
    intake = intake_of(leader, partition_fetch_bytes=1)
    for copy in copies:
        intake.add(copy)
    fill(copies[0])
    with pytest.raises(WireError):
        asyncio.run(intake.run())
    assert (leader.partitions, leader.forgotten) == ([[1, 2], []], [[], [1]])


@pytest.mark.parametrize(("transformer", "intakes"), [(None, 1), (object(), 2)])
def test_a_transformed_flow_has_two_intakes_of_a_leader(transformer: object, intakes: int) -> None:
    """One of them fetches while Spark evaluates the response of the other."""
    started: list[Coroutine[None, None, None]] = []
    leader = SimpleNamespace(
        cluster_id="id-1",
        settings=wire_settings("one:9092", {}),
        leader=lambda *_: SimpleNamespace(leader=1, leader_epoch=0),
    )
    reader = reader_of(leader, started, transformer)
    for number in range(5):
        reader.add(copying(number))
    assert len(started) == intakes
    for one in started:
        one.close()


@dataclass(slots=True, eq=False)
class Moved(Leader):
    """A broker that leads in epoch 5; while it answers, the metadata name a new leader in epoch 6."""

    cluster_id: str = "id-1"
    led: Partition = field(default_factory=lambda: Partition(0, 1, 5, (1, 2), (1, 2)))
    epochs: list[int] = field(default_factory=list)

    async def call(self, node: int, request: Any, purpose: str, within: float | None) -> FetchResponse:
        assert node == 1
        self.epochs += [start.leader_epoch for start in request.partitions.values()]
        self.led = Partition(0, 2, 6, (2,), (2,))
        return await super(Moved, self).call(node, request, purpose, within)

    def leader(self, topic: str, partition: int) -> Partition:
        return self.led


def test_a_partition_is_fetched_under_the_epoch_of_the_leader_that_it_was_assigned_to() -> None:
    """A broker that became a follower accepts the epoch of the new leader, and would be read from on."""
    copy = copying(0)
    started: list[Coroutine[None, None, None]] = []

    def move(now: int) -> None:
        copy.fetched([], Cursor(10 + now, 0), ())
        reader.mark_changed(copy)

    leader = Moved([answer(0), answer(0)], move)
    reader = reader_of(leader, started)
    reader.add(copy)
    asyncio.run(started.pop())
    assert (leader.epochs, copy.fetched_epoch) == ([5, 5, 5], 5)
    reader.add(copy)
    assert copy.fetched_epoch == 6
    started.pop().close()


@pytest.mark.parametrize("back", [False, True])
def test_a_broker_that_hangs_holds_no_memory_once_its_partitions_are_removed(back: bool) -> None:
    """R8. It takes a minute until the request fails, and others lead the partitions before that."""
    dropped: list[bool] = []

    class Hung(Leader):
        async def call(self, node: int, request: Any, purpose: str, within: float | None) -> FetchResponse:
            await asyncio.sleep(60)
            raise AssertionError("the fetch was waited for")

        def kept(self, node: int, purpose: str) -> Any:
            return SimpleNamespace(drop=lambda: dropped.append(True))

    async def run() -> None:
        memory = memory_of()
        intake = intake_of(Hung([], lambda _: None), memory=memory)
        copies = copying(0), copying(1)
        for copy in copies:
            intake.add(copy)
        running = asyncio.create_task(intake.run())
        await asyncio.sleep(12)
        assert memory.budget.used > 0
        intake.remove(copies[0])
        await asyncio.sleep(12)
        assert memory.budget.used > 0  # partition 1 waits for the answer
        intake.remove(copies[1])
        if back:
            intake.add(copies[1])
        with pytest.raises(TimedOut):
            await running
        assert (memory.budget.used, dropped) == (0, [True])

    with asyncio.Runner(loop_factory=VirtualClock) as runner:
        runner.run(run())


def test_an_answer_in_time_is_taken_although_the_partition_was_away() -> None:
    copy = copying(0)

    def away(_: int) -> None:
        intake.remove(copy)
        intake.add(copy)

    leader = Leader([answer(0), answer()], away)
    intake = intake_of(leader)
    intake.add(copy)
    with pytest.raises(Disconnected):
        asyncio.run(intake.run())
    assert leader.partitions[1] == [0]
