"""Idle intakes share one fetch session of a broker. It must lose no record, and delay none."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from runtime.contract.client.settings import WireSettings, wire_settings
from runtime.contract.spec import naming
from runtime.kafka.errors import Disconnected, ErrorCode, WireError
from runtime.kafka.protocol.fetch import FetchedPartition, FetchFrom, FetchResponse
from runtime.slot.budget import TokenBucket
from runtime.slot.partition import PartitionCopy
from runtime.slot.read.reader import BrokerIntake, Fetched, FetchEvent, FetchFailed
from tests.fakes.clock import virtual
from tests.fakes.intake import TOPIC_ID, copying, fetched, intake_of, memory_of
from tests.runtime.batch.forge import record

HEARTBEATS = 99  # the partition that holds heartbeats, of every flow
FIRST = 10  # where the copies of `partition` begin
IDLE = "fetch idle"


@dataclass(slots=True, eq=False)
class SessionBroker:
    """Keeps logs and incremental fetch sessions, and answers a fetch when a partition of it has a record.

    As Kafka's, it also answers once for each partition that is new in a session, at the end of the wait.
    """

    settings: WireSettings = field(default_factory=lambda: wire_settings("one:9092", {}))
    ends: defaultdict[int, int] = field(default_factory=lambda: defaultdict(lambda: FIRST))
    sessions: dict[int, dict[int, FetchFrom]] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)
    gone: bool = False
    fail_next: set[str] = field(default_factory=set)  # the purposes of connections that break
    value: bytes = b"v"
    moved: set[int] = field(default_factory=set)  # partitions that this broker does not lead any more
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def write(self, number: int) -> None:
        """Writes one record to a partition."""
        self.ends[number] += 1
        self.news.set()

    async def call(self, node: int, request: Any, purpose: str, within: float | None) -> FetchResponse:
        self.requests[purpose] += 1
        if self.gone:
            raise Disconnected("broker 1", "it is gone", sent=True)
        session_id = request.session_id or 1 + len(self.sessions)
        watched = self.sessions.setdefault(session_id, {})
        if not request.session_epoch:
            watched.clear()
        new = [number for _, number in request.partitions if number not in watched]
        watched.update((number, start) for (_, number), start in request.partitions.items())
        for _, number in request.forgotten:
            watched.pop(number, None)
        until = asyncio.get_running_loop().time() + request.max_wait_ms / 1000
        while not (answers := [self.answer(number, start) for number, start in watched.items()]) or not any(
            answers
        ):
            self.news.clear()
            try:
                async with asyncio.timeout_at(until):
                    await self.news.wait()
            except TimeoutError:
                break
            if self.gone or purpose in self.fail_next:
                self.fail_next.discard(purpose)
                raise Disconnected("broker 1", "it is gone", sent=True)
        answered = {one.partition: one for one in answers if one is not None}
        for number in new:
            answered.setdefault(number, fetched(number, self.ends[number]))
        return FetchResponse(0, ErrorCode.NONE, session_id, tuple(answered.values()))

    def answer(self, number: int, start: FetchFrom) -> FetchedPartition | None:
        end = self.ends[number]
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER if number in self.moved else ErrorCode.NONE
        records = [record(offset, self.value) for offset in range(start.offset, end)]
        if not records and not error:
            return None
        return fetched(number, end, records, error)

    def failed_lately(self, node: int) -> bool:
        return False

    def leader(self, topic: str, partition: int) -> None:
        return None

    def topic_by_id(self, topic_id: bytes) -> None:
        return None


class Slot:
    """Intakes of several flows at one broker; `fetched` holds when each record of a partition came."""

    def __init__(self, flows: int) -> None:
        self.broker = SessionBroker()
        self.memory = memory_of()
        self.fetched: list[tuple[int, int, float]] = []
        self.events: list[FetchEvent] = []
        now = asyncio.get_running_loop().time
        self.buckets = [TokenBucket(None, now) for _ in range(10)]
        self.intakes = [self.intake(flow) for flow in range(flows)]
        self.tasks = [asyncio.ensure_future(intake.run()) for intake in self.intakes]

    def intake(self, flow: int) -> BrokerIntake:
        shared, bucket = self.memory, self.buckets[flow]
        intake = intake_of(self.broker, self.handle, flow=str(flow), memory=shared, bucket=bucket)
        intake.add(copying(flow))
        intake.add(copying(HEARTBEATS, naming.HEARTBEATS))
        return intake

    def heartbeats(self) -> list[PartitionCopy]:
        return [intake.copies[TOPIC_ID, HEARTBEATS] for intake in self.intakes]

    def handle(self, event: FetchEvent) -> None:
        self.events.append(event)
        if isinstance(event, Fetched):
            at = asyncio.get_running_loop().time()
            self.fetched.append((event.copy.key.partition, event.copy.cursor.offset, at))
            queue = event.copy.queue
            while queue:  # as a lane that sends at once
                queue.popleft().held.release_memory()
        elif isinstance(event, FetchFailed):
            for intake in self.intakes:
                intake.remove(event.copy)

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


Slots = Callable[..., AbstractAsyncContextManager[Slot]]


@pytest.fixture
def slots(monkeypatch: pytest.MonkeyPatch) -> Slots:
    """slots(flows) → a slot with so many idle flows, on the loop's clocks; idle=False: they begin now."""

    @asynccontextmanager
    async def slot_of(flows: int, *, idle: bool = True) -> AsyncIterator[Slot]:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr("runtime.slot.read.reader.time.monotonic", loop.time)
        monkeypatch.setattr("runtime.kafka.fetch.now_ms", lambda: int(loop.time() * 1e3))
        monkeypatch.setattr("runtime.slot.read.reader.now_ms", lambda: int(loop.time() * 1e3))
        slot = Slot(flows)
        try:
            if idle:
                await asyncio.sleep(21)
                slot.broker.requests.clear()
            yield slot
        finally:
            await slot.stop()

    return slot_of


@virtual
async def test_idle_intakes_share_one_request(slots: Slots) -> None:
    """Ten flows ask together every 5 s, and each of them knows when the source answered last."""
    async with slots(10) as slot:
        await asyncio.sleep(60)
        assert slot.broker.requests == {IDLE: 12}
        now = asyncio.get_running_loop().time()
        ages = {now - copy.last_fetch_ms / 1000 for intake in slot.intakes for copy in intake.copies.values()}
        assert len(ages) == 1
        assert 0 <= ages.pop() < 5


@pytest.mark.parametrize("at_s", [0.1 + step * 0.73 for step in range(30)])
@virtual
async def test_no_record_waits_while_intakes_become_idle_or_are(slots: Slots, at_s: float) -> None:
    """A record of one flow comes at any time; then one of another, and another one of the first."""
    async with slots(3, idle=False) as slot:
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(at_s)
        for number in (0, 1, 0):
            slot.broker.write(number)
            await asyncio.sleep(2.3)
        arrived = [(number, offset, round(at - began - at_s, 6)) for number, offset, at in slot.fetched]
        assert arrived == [(0, FIRST + 1, 0.0), (1, FIRST + 1, 2.3), (0, FIRST + 2, 4.6)]


@virtual
async def test_heartbeats_come_to_every_flow_and_leave_it_idle(slots: Slots) -> None:
    """One request each, and none of the flows writes into the memory of another."""
    async with slots(4) as slot:
        for _ in range(10):
            slot.broker.write(HEARTBEATS)
            await asyncio.sleep(1)
        assert slot.broker.requests == {IDLE: 10}
        assert Counter(offset for _, offset, _ in slot.fetched) == {FIRST + n: 4 for n in range(1, 11)}


@virtual
async def test_the_records_of_heartbeats_are_not_shared(slots: Slots) -> None:
    """Each flow stamps its batches in place."""
    queued: list[memoryview] = []
    async with slots(3) as slot:

        def keep(event: FetchEvent) -> None:
            assert isinstance(event, Fetched)
            queued.extend(batch.out.batch.body for batch in event.copy.queue)

        for intake in slot.intakes:
            intake._emit = keep
        slot.broker.write(HEARTBEATS)
        await asyncio.sleep(1)
        queued[0][0] ^= 0xFF
        assert len(queued) == 3
        assert len({bytes(view) for view in queued}) == 2


@pytest.mark.parametrize("size", [100, 200_000])
@virtual
async def test_answers_do_not_pile_up(slots: Slots, size: int) -> None:
    """R8. The rate limit of flow 0 lets it fetch nothing for a while. Heartbeats go on, small or large."""
    async with slots(3) as slot:
        slot.broker.value = b"v" * size
        slot.buckets[0].set_rate(1)
        slot.buckets[0].take(60)
        for _ in range(20):
            slot.broker.write(HEARTBEATS)
            await asyncio.sleep(1)
        idle = slot.intakes[0]._idle
        assert idle is None or len(idle._arrived) <= 1
        slot.buckets[0].set_rate(None)
        await asyncio.sleep(10)
        assert all(copy.cursor.offset == FIRST + 20 for copy in slot.heartbeats())


@virtual
async def test_a_partition_that_is_added_is_fetched_at_once(slots: Slots) -> None:
    async with slots(2) as slot:
        slot.broker.write(7)
        slot.intakes[0].add(copying(7))
        await asyncio.sleep(0.001)
        assert [number for number, _, _ in slot.fetched] == [7]


@virtual
async def test_a_flow_reads_by_itself_while_it_has_records(slots: Slots) -> None:
    """The other ones stay in the idle session. It comes back after 5 s without records."""
    async with slots(3) as slot:
        for _ in range(10):
            slot.broker.write(0)
            await asyncio.sleep(1)
        assert slot.broker.requests.keys() == {IDLE, "fetch 0"}
        await asyncio.sleep(10)
        slot.broker.requests.clear()
        await asyncio.sleep(21)
        assert slot.broker.requests.keys() == {IDLE}


@virtual
async def test_a_partition_with_an_error_concerns_its_flow_alone(slots: Slots) -> None:
    async with slots(3) as slot:
        slot.broker.moved.add(1)
        slot.broker.write(0)
        await asyncio.sleep(0.001)
        failed = [event for event in slot.events if not isinstance(event, Fetched)]
        assert [event.copy.key.partition for event in failed] == [1]
        assert [number for number, _, _ in slot.fetched] == [0]


@virtual
async def test_all_idle_flows_fail_with_their_broker(slots: Slots) -> None:
    """R7: each of them retries its partitions, as after a fetch of its own. The memory is returned (R8)."""
    async with slots(3) as slot:
        slot.broker.gone = True
        slot.broker.write(0)
        failures = await asyncio.gather(*slot.tasks, return_exceptions=True)
        assert [type(failure) for failure in failures] == [Disconnected] * 3
        assert all(isinstance(failure, WireError) for failure in failures)
        assert slot.memory.budget.used == 0


@virtual
async def test_an_intake_that_waits_to_join_outlives_the_end_of_the_session(slots: Slots) -> None:
    """The session fails before its next request. The intake goes on by itself, and joins the next one."""
    async with slots(1) as slot:
        late = slot.intake(5)
        slot.tasks.append(asyncio.ensure_future(late.run()))
        await asyncio.sleep(2.6)  # it is idle, and the request of the session is under way
        slot.broker.fail_next.add(IDLE)
        slot.broker.news.set()
        await asyncio.sleep(21)
        assert not slot.tasks[-1].done()
        slot.broker.requests.clear()
        await asyncio.sleep(20)
        assert slot.broker.requests.keys() == {IDLE}
