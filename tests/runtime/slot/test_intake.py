"""A session's answer counts for all its partitions: one that is idle is as fresh as its neighbours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runtime.contract.client.settings import WireSettings, wire_settings
from runtime.contract.spec import naming
from runtime.contract.spec.jobspec import CopySettings
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import Disconnected, ErrorCode, WireError
from runtime.kafka.protocol.fetch import FetchedPartition, FetchResponse
from runtime.slot.budget import ByteBudget, SessionShares, TokenBucket
from runtime.slot.context import SlotContext
from runtime.slot.partition import PartitionCopy
from runtime.slot.read.batch_filter import FlowFilter
from runtime.slot.read.reader import BrokerIntake, SourceReader
from tests.fakes.clock import jumping
from tests.fakes.partition import partition
from tests.runtime.batch.forge import batch_bytes, record
from tests.runtime.slot.world import flow_spec

TOPIC_ID = b"s" * 16
OK, GONE, NOT_HERE = ErrorCode.NONE, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.NOT_LEADER_OR_FOLLOWER


@dataclass(slots=True)
class Leader:
    """A broker that answers by script, a second of its clock after each other, then disconnects."""

    answers: list[FetchResponse]
    clock: Callable[[int], None]
    settings: WireSettings = field(default_factory=lambda: wire_settings("one:9092", {}))
    now: int = 0
    waits_ms: list[int] = field(default_factory=list)

    def failed_lately(self, node: int) -> bool:
        return False

    async def call(self, node: int, request: Any, purpose: str, within: float | None) -> FetchResponse:
        if not self.answers:
            raise Disconnected("broker 1", "it is gone", sent=True)
        self.now += 1_000
        self.clock(self.now)
        self.waits_ms.append(request.max_wait_ms)
        return self.answers.pop(0)

    def leader(self, topic: str, partition: int) -> None:
        return None

    def topic_by_id(self, topic_id: bytes) -> None:
        return None


def copying(number: int, topic: str = "orders") -> PartitionCopy:
    copy = partition(number, topic=topic)
    copy.resume()
    return copy


def told(*partitions: int, error: ErrorCode = OK, session: ErrorCode = OK) -> FetchResponse:
    found = (FetchedPartition(TOPIC_ID, one, error, 10, 10, 0, (), -1, memoryview(b"")) for one in partitions)
    return FetchResponse(0, session, 0 if session else 7, tuple(found))


def intake_of(leader: Leader, shares: SessionShares | None = None, linger_ms: int = 0) -> BrokerIntake:
    """Its events are ignored."""
    return BrokerIntake(
        1,
        cast(KafkaCluster, leader),
        CopySettings(linger_ms=linger_ms),
        ByteBudget(1 << 20),
        shares or SessionShares(ByteBudget(1 << 20)),
        TokenBucket(None, lambda: 0.0),
        FlowFilter(flow_spec("flow"), "id-1", "id-2", None),
        lambda _: None,
        "fetch",
    )


def heard(monkeypatch: pytest.MonkeyPatch, *answers: FetchResponse) -> tuple[int, int]:
    """When each of two partitions was heard of at last, in seconds of the leader's clock."""

    def clock(now: int) -> None:
        monkeypatch.setattr("runtime.kafka.fetch.time.time_ns", lambda: now * 1_000_000)
        monkeypatch.setattr("runtime.slot.read.reader.now_ms", lambda: now)

    intake = intake_of(Leader(list(answers), clock))
    copies = [copying(0), copying(1)]
    for copy in copies:
        intake.add(copy)
    with pytest.raises(WireError):
        asyncio.run(intake.run())
    return copies[0].status().last_fetch_ms // 1_000, copies[1].status().last_fetch_ms // 1_000


@pytest.mark.parametrize(
    ("answers", "times"),
    [
        ([told(0, 1)], (1, 1)),
        ([told(0, 1), told(), told(0)], (3, 3)),  # partition 1 has no news
        ([told(0, 1), told(), told()], (3, 3)),
        ([told(0), told()], (2, 0)),  # partition 1 was never answered
        ([told(0, 1), told(1, error=NOT_HERE), told()], (3, 1)),  # and is in the session no more
        ([told(0, 1), told(), told(session=GONE)], (2, 2)),  # an answer that looked at no partition
    ],
)
def test_the_last_answer_of_an_idle_partition_is_that_of_its_session(
    monkeypatch: pytest.MonkeyPatch, answers: list[FetchResponse], times: tuple[int, int]
) -> None:
    assert heard(monkeypatch, *answers) == times


def test_fetches_wait_longer_while_no_records_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer takes a second of the leader's clock. The last answer but one has news."""
    time = SimpleNamespace(now=0.0)

    def clock(now: int) -> None:
        time.now = now / 1_000

    monkeypatch.setattr("runtime.slot.read.reader.time.monotonic", lambda: time.now)
    leader = Leader([told(0), told(), told(), told(), told(0), told()], clock)
    shares = SessionShares(ByteBudget(1 << 20), idle_per_s=2, longest_ms=2_500)
    for _ in range(9):
        shares.join()
    intake = intake_of(leader, shares)
    intake.add(copying(0))
    with pytest.raises(WireError):
        asyncio.run(intake.run())

    assert leader.waits_ms == [500, 500, 1_000, 2_000, 2_500, 500]


@pytest.mark.parametrize(
    ("topic", "last_wait_ms"), [("orders", 500), (naming.HEARTBEATS, 3_000)], ids=["records", "heartbeats"]
)
def test_heartbeats_make_no_session_busy(
    monkeypatch: pytest.MonkeyPatch, topic: str, last_wait_ms: int
) -> None:
    time = SimpleNamespace(now=0.0)

    def clock(now: int) -> None:
        time.now = now / 1_000

    monkeypatch.setattr("runtime.slot.read.reader.time.monotonic", lambda: time.now)
    leader = Leader([told(), told(), told(0), told()], clock)
    shares = SessionShares(ByteBudget(1 << 20), idle_per_s=1)
    for _ in range(9):
        shares.join()
    intake = intake_of(leader, shares)
    intake.add(copying(0, topic))
    with pytest.raises(WireError):
        asyncio.run(intake.run())

    assert leader.waits_ms == [500, 1_000, 2_000, last_wait_ms]


def test_a_partition_that_is_removed_keeps_the_time_of_its_last_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def clock(now: int) -> None:
        monkeypatch.setattr("runtime.slot.read.reader.now_ms", lambda: now)

    copy = copying(0)
    intake = intake_of(Leader([told(0)], clock))
    intake.add(copy)
    with pytest.raises(WireError):
        asyncio.run(intake.run())
    before = copy.status().last_fetch_ms

    intake.remove(copy)

    assert copy.status().last_fetch_ms == before >= 1_000


@pytest.mark.parametrize(
    ("source_end", "committed_after_s", "pause_s"),
    [(11, 0.02, 0.02), (11, 3.0, 0.05), (12, 3.0, 0.0)],
    ids=["until they are committed", "at most linger_ms", "not where the source has more"],
)
def test_the_next_fetch_waits_for_the_records_of_one_that_brought_all_there_were(
    monkeypatch: pytest.MonkeyPatch, source_end: int, committed_after_s: float, pause_s: float
) -> None:
    fetched_at: list[float] = []
    records = FetchedPartition(
        TOPIC_ID, 0, OK, source_end, source_end, 0, (), -1, memoryview(batch_bytes([record(10)]))
    )
    leader = Leader(
        [FetchResponse(0, OK, 7, (records,))], lambda _: fetched_at.append(asyncio.get_running_loop().time())
    )
    copy = copying(0)

    async def run() -> None:
        intake = intake_of(leader, linger_ms=50)
        loop = asyncio.get_running_loop()
        loop.call_later(committed_after_s, intake.committed, copy)
        intake.add(copy)
        with pytest.raises(WireError):
            await intake.run()
        assert loop.time() - fetched_at[0] == pytest.approx(pause_s, abs=0.01)

    jumping(run)()
    assert copy.cursor.offset == 11


@pytest.mark.parametrize(("transformer", "intakes"), [(None, 1), (object(), 2)])
def test_a_transformed_flow_has_two_intakes_of_a_leader(transformer: object, intakes: int) -> None:
    """One of them fetches while Spark evaluates the response of the other."""
    started: list[Coroutine[None, None, None]] = []
    leader = SimpleNamespace(
        cluster_id="id-1",
        settings=wire_settings("one:9092", {}),
        leader=lambda *_: SimpleNamespace(leader=1, leader_epoch=0),
    )
    context = SimpleNamespace(
        destination=SimpleNamespace(cluster_id="id-2"),
        settings=CopySettings(),
        budget=ByteBudget(1 << 20),
        shares=SessionShares(ByteBudget(1 << 20)),
        transformer=transformer,
    )
    reader = SourceReader(
        flow_spec("flow"),
        cast(KafkaCluster, leader),
        None,
        cast(SlotContext, context),
        TokenBucket(None, lambda: 0.0),
        lambda _: None,
        started.append,
    )
    for number in range(5):
        reader.add(copying(number))
    assert len(started) == intakes
    for one in started:
        one.close()
