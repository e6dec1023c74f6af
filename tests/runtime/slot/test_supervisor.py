"""A partition is inspected before it is copied, and its neighbours do not wait for it (R4, R7)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from runtime.contract.records.job_status import PartitionState as State
from runtime.contract.spec.jobspec import CopySettings
from runtime.kafka.errors import AuthenticationFailed, ErrorCode, Unsupported
from runtime.kafka.protocol.metadata import Partition, TopicMetadata
from runtime.slot.health.inspection import MissingMarker
from runtime.slot.health.supervisor import (
    MarkerMissing,
    PartitionSupervisor,
    Replaced,
    Resumed,
    SupervisorEvent,
)
from runtime.slot.health.watch import EVERY_S, TopicWatch
from runtime.slot.partition import CopyPhase, Cursor, PartitionCopy
from tests.fakes.clock import jumping, virtual
from tests.fakes.partition import partition, queued
from tests.fakes.side import Side
from tests.waiting import until

SAME, OTHER, GONE = bytes(16), b"x" * 16, b""  # a topic's id: the first one tells nothing


@pytest.fixture
def copy() -> PartitionCopy:
    return partition()


class Events:
    """What the supervisor emits; `resumed` is set once the partition may continue."""

    def __init__(self) -> None:
        self.resumed = asyncio.Event()
        self.replaced = 0
        self.markers: list[MissingMarker] = []
        self.marker_missing: Callable[[], None] = lambda: None

    def emit(self, event: SupervisorEvent) -> None:
        match event:
            case Resumed():
                self.resumed.set()
            case MarkerMissing(marker=marker):
                self.markers.append(marker)
                self.marker_missing()
            case Replaced():
                self.replaced += 1
                self.resumed.set()


def supervisor_of(source: Side, destination: Side, events: Events, **changes: int) -> PartitionSupervisor:
    """A supervisor of a flow that accepts every loss, and retries at once."""
    settings = CopySettings(**{"retry_ms": 1, **changes})
    return PartitionSupervisor(source, destination, settings, 1, True, events.emit, lambda: [7])  # type: ignore[arg-type]


async def while_supervising(supervisor: PartitionSupervisor, waits: Awaitable[object]) -> None:
    running = [asyncio.create_task(supervisor.run()), asyncio.create_task(supervisor.run_retries())]
    await asyncio.wait_for(waits, 60)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


@virtual
async def test_a_retried_partition_does_not_delay_the_inspection_of_others(copy: PartitionCopy) -> None:
    """R7: a look at a partition without a leader takes long."""

    events, source, destination = Events(), Side(b"s" * 16, 10), Side(b"d" * 16, 100)
    supervisor = supervisor_of(source, destination, events)
    asked = asyncio.Event()

    async def another() -> None:
        await asked.wait()
        supervisor.inspect_now(copy)
        await events.resumed.wait()

    source.answered = asked.set
    source.silent.set()
    supervisor.retry(partition(1), "it has no leader")
    await while_supervising(supervisor, another())
    assert copy.inspected_epoch == 5


async def test_what_was_fetched_before_a_new_leader_truncated_it_is_fetched_again(
    copy: PartitionCopy,
) -> None:
    """The log ends behind the committed position, and has grown past the cursor since (R4).

    Before Kafka 2.7, a fetch does not report that it diverges.
    """
    copy.fetched([queued((10, 5), epoch=4)], Cursor(15, 4))
    events = Events()
    supervisor = supervisor_of(Side(b"s" * 16, 12), Side(b"d" * 16, 100), events)
    supervisor.retry(copy, "FENCED_LEADER_EPOCH")
    await while_supervising(supervisor, events.resumed.wait())
    assert (copy.cursor, len(copy.queue)) == (Cursor(10, copy.progress.source_epoch), 0)


async def test_a_broker_that_lacks_a_request_stops_the_partition_by_name(copy: PartitionCopy) -> None:
    """It is not retried in short intervals: an operator upgrades the broker."""

    class Old(Side):
        async def call(self, node: int, request: object, purpose: str, within: float) -> object:
            raise Unsupported("OFFSET_FOR_LEADER_EPOCH", "broker 1 does not offer it")

    supervisor = supervisor_of(Old(b"s" * 16, 10), Side(b"d" * 16, 100), Events())
    supervisor.admit([copy])
    await while_supervising(supervisor, until(lambda: copy.phase is CopyPhase.HALTED))
    assert copy.state is State.UNSUPPORTED_VERSION


async def test_a_broker_that_refuses_the_login_is_named_and_does_not_delay_others() -> None:
    """R7: broker 2 leads the partition 1."""

    class Refusing(Side):
        def leader(self, *at: object) -> Partition:
            number, node = (1, 2) if at[1:] == (1,) else (0, 1)
            return Partition(number, node, 5, (node,), (node,))

        async def topics(self, names: Iterable[str], fresh: bool = False) -> dict[str, TopicMetadata]:
            partitions = {number: self.leader("orders", number) for number in (0, 1)}
            return {"orders": TopicMetadata("orders", b"s" * 16, ErrorCode.NONE, False, partitions)}

        async def call(self, node: int, request: object, purpose: str, within: float) -> object:
            if node == 2:
                raise AuthenticationFailed("broker 2", "no such user")
            return await super().call(node, request, purpose, within)

    events, copies = Events(), [partition(0), partition(1)]
    supervisor = supervisor_of(Refusing(b"s" * 16, 10), Side(b"d" * 16, 100), events)
    supervisor.admit(copies)
    await while_supervising(supervisor, until(lambda: events.resumed.is_set() and copies[1].failures > 1))
    assert (copies[0].failures, copies[1].state) == (0, State.RETRYING)
    assert copies[1].why == "the source's partition can't be asked at broker 2: SASL_AUTHENTICATION_FAILED"


@pytest.mark.parametrize("behind", ["source", "destination"])
async def test_metadata_of_a_broker_that_is_behind_is_retried(copy: PartitionCopy, behind: str) -> None:
    """It does not know the topic yet, and says that there is none; or it names a leader that was deposed."""

    events, source, destination = Events(), Side(b"s" * 16, 10), Side(b"d" * 16, 100)
    side, topic_id = (source, b"s" * 16) if behind == "source" else (destination, b"d" * 16)
    copy.committed(replace(copy.progress, source_epoch=5, destination_epoch=5))
    older = TopicMetadata("orders", topic_id, ErrorCode.NONE, False, {0: Partition(0, 2, 4, (2,), (2,))})
    side.first = [
        older,
        TopicMetadata("orders", bytes(16), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False, {}),
    ]
    supervisor = supervisor_of(source, destination, events)
    supervisor.admit([copy])
    await while_supervising(supervisor, events.resumed.wait())
    assert (side.first, events.replaced, copy.failures, copy.state) == ([], 0, 2, State.STARTING)


async def test_a_commit_during_an_inspection_makes_no_divergence(copy: PartitionCopy) -> None:
    """The ends that were seen are older than the ledger's: the partition is looked at again."""

    events, source, destination = Events(), Side(b"s" * 16, 10), Side(b"d" * 16, 100)
    ahead = replace(copy.progress, destination_end=140)

    def commit() -> None:
        destination.end = 140
        if copy.progress is not ahead:
            copy.committed(ahead)

    destination.answered = commit
    supervisor = supervisor_of(source, destination, events, retry_ms=10, retry_max_ms=20)
    supervisor.admit([copy])
    await while_supervising(supervisor, events.resumed.wait())
    assert copy.progress is ahead
    assert (events.replaced, copy.why) == (0, "")


async def test_a_partition_that_lacks_a_marker_continues_once_it_is_written(copy: PartitionCopy) -> None:
    """Until then, the end of any other transaction of that producer id would end the first one too (R2)."""

    events, source, destination = Events(), Side(b"s" * 16, 10), Side(b"d" * 16, 105)
    destination.open_since = 100

    def write() -> None:
        assert not events.resumed.is_set()
        assert "no marker for a transaction that is aborted: producer id 7" in copy.why
        destination.open_since = -1

    events.marker_missing = write
    supervisor = supervisor_of(source, destination, events)
    supervisor.admit([copy])
    await while_supervising(supervisor, events.resumed.wait())
    assert events.markers == [MissingMarker(7, 100, commit=False)]


class Watched:
    """A cluster whose topic has this id, and a leader of epoch 6."""

    def __init__(self, topic_id: bytes) -> None:
        leader = Partition(0, 0, 6, (0,), (0,))
        self._topic = TopicMetadata("orders", topic_id, ErrorCode.NONE, False, {0: leader})
        if topic_id == GONE:
            self._topic = TopicMetadata("orders", SAME, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False, {})

    async def recent_topics(self, names: Iterable[str], max_age_s: float) -> dict[str, TopicMetadata]:
        return {"orders": self._topic}


class Inspections(list[str]):
    """Why a partition is inspected."""

    def retry(self, copy: PartitionCopy, why: str) -> None:
        self.append(why)

    def leader_changed(self, copy: PartitionCopy) -> None:
        self.append("its leader changed")


@asynccontextmanager
async def watching(
    copy: PartitionCopy, source_id: bytes = SAME, destination_id: bytes = SAME
) -> AsyncIterator[list[str]]:
    """Checks every few seconds; yields why the partition is inspected."""
    source: Any = Watched(source_id)
    destination: Any = Watched(destination_id)
    seen: Any = Inspections()
    copy.resume()
    watch = TopicWatch(source, destination, {copy.key: copy}, seen, seen.leader_changed)
    task = asyncio.create_task(watch.run())
    yield seen
    task.cancel()


@pytest.mark.parametrize(
    ("inspected", "fetched", "busy", "ids", "why"),
    [
        (6, 6, False, (SAME, SAME), []),
        (6, -1, False, (SAME, SAME), []),
        (5, -1, False, (SAME, SAME), ["its leader changed"]),  # it may have missed a marker without a leader
        (5, -1, True, (SAME, SAME), []),  # it is inspected before its next transaction
        *(
            (6, -1, busy, ids, ["a topic's id changed"])
            for ids in ((OTHER, SAME), (SAME, OTHER), (SAME, GONE))
            for busy in (False, True)
        ),
        # The old leader may have gone without an answer to the fetch that waits there.
        *((6, 5, busy, (SAME, SAME), ["orders-0 has a new leader at the source"]) for busy in (False, True)),
    ],
)
@jumping
async def test_a_partition_with_a_new_leader_or_of_a_new_topic_is_inspected(
    copy: PartitionCopy, inspected: int, fetched: int, busy: bool, ids: tuple[bytes, bytes], why: list[str]
) -> None:
    copy.inspected(inspected)
    copy.fetch_under(fetched)
    if busy:
        copy.enter_transaction()
    async with watching(copy, *ids) as seen:
        await asyncio.sleep(EVERY_S + 1)
        assert seen[:1] == why


@jumping
async def test_a_partition_that_was_busy_is_compared_once_it_is_idle(copy: PartitionCopy) -> None:
    """The metadata are the same as at the last check."""
    copy.inspected(5)
    copy.enter_transaction()
    async with watching(copy) as seen:
        await asyncio.sleep(2 * EVERY_S + 1)
        assert seen == []
        copy.leave_transaction()
        await asyncio.sleep(EVERY_S)
        assert seen == ["its leader changed"]
        copy.inspected(6)
        await asyncio.sleep(2 * EVERY_S)
        assert seen == ["its leader changed"]
