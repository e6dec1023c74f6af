"""Hostile records in the control and status topics are skipped and said, and end nothing: on real brokers."""

import asyncio
import zlib
from collections.abc import Awaitable, Callable

import pytest
from confluent_kafka import Producer

from runtime.batch import Record
from runtime.batch.spec import MAX_UNPACKED
from runtime.contract.records import control, job_status
from runtime.contract.records.control import Assign, Assignment, SlotSpec, StopSlot
from runtime.contract.records.job_status import JobStatus, StatusKey
from runtime.contract.spec import naming
from runtime.contract.spec.jobspec import JobSpec
from runtime.driver.clusters import DriverClusters, open_destination, read_reported
from runtime.driver.slots.channel import TopicTail, UnreadableRecordCounter, end_of, post
from runtime.driver.slots.ticket import SlotStartRequest
from runtime.driver.slots.worker import listen
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.records import InternalRecord
from runtime.slot.slot import Slot
from tests.records import PATIENCE_S
from tests.runtime.conftest import sides_of
from tests.runtime.slot.world import Side

pytestmark = pytest.mark.integration
Fresh = Callable[[str], str]

DEEP = b"[" * 100_000
HOSTILE = [
    b"",
    b"\x02{}",
    b"\x01junk",
    b"\x01" + DEEP,
    b"\x01" + zlib.compress(DEEP),
    b"\x01" + zlib.compress(b" " * (64 << 20)),
    b'\x01{"type": "assign", "driver": "d", "assignment": {"version": "x"}}',
    b'\x01{"type": "assign", "driver": "d", "assignment": ' + DEEP + b"}",
]


@pytest.fixture(scope="module")
def dc2(lab) -> Side:
    return sides_of(lab)["dc2"]


def at(side: Side, work: Callable[[KafkaCluster], Awaitable[None]]) -> None:
    async def scenario() -> None:
        cluster = await side.open()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await work(cluster)
        finally:
            await cluster.close()

    asyncio.run(scenario())


def test_a_slot_skips_what_it_cannot_read_and_obeys_the_next_word(dc2: Side, fresh: Fresh) -> None:
    spec = SlotSpec(
        job=fresh("job"), slot=0, destination="dc2", cluster=dc2.spec(), unpacked_bytes=MAX_UNPACKED
    )
    mine = control.slot_key(spec.job, 0)

    async def work(cluster: KafkaCluster) -> None:
        ticket = SlotStartRequest("d", 1, spec, Assignment(1), await end_of(cluster, naming.CONTROL))
        told: list[Assignment] = []
        slot = Slot(spec, ticket.first)
        slot.assign = told.append  # type: ignore[method-assign, assignment]  # it would open its destination
        ended = asyncio.Event()
        slot.stop = ended.set  # type: ignore[method-assign]
        tail = TopicTail(cluster, naming.CONTROL, ticket.control_offset)
        listening = asyncio.create_task(listen(tail, ticket, slot, lambda _: None))
        for value in HOSTILE:
            await post(cluster, naming.CONTROL, [InternalRecord(mine, value)])
        for word in (Assign("d", 1, Assignment(2)), StopSlot("d", 1)):
            await post(cluster, naming.CONTROL, [InternalRecord(mine, control.encode(word))])
        await ended.wait()
        listening.cancel()
        assert [one.version for one in told] == [2]
        assert tail.skipped.count == len(HOSTILE)
        assert f"{naming.CONTROL}: skipped the record at offset" in tail.skipped.note

    at(dc2, work)


def test_a_batch_that_unpacks_past_the_bound_is_skipped(dc2: Side, fresh: Fresh) -> None:
    """64 MB in a batch of some KB: brokers take it."""
    topic = fresh("words")
    dc2.create(topic)

    async def work(cluster: KafkaCluster) -> None:
        tail = TopicTail(cluster, topic, 0)
        large = {"compression.type": "zstd", "message.max.bytes": 100_000_000}
        producer = Producer({**dc2.client, **large})
        producer.produce(topic, b"x" * (64 << 20), partition=0)
        assert await asyncio.to_thread(producer.flush, 60) == 0
        await post(cluster, topic, [InternalRecord(b"k", b"next")])
        found: list[Record] = []
        while not found:
            found = await tail.read()
        assert [one.value for one in found] == [b"next"]
        assert "unpacks to more than" in tail.skipped.note

    at(dc2, work)


@pytest.mark.parametrize("value", [b"", b"\x01junk"])
def test_a_last_heartbeat_that_cannot_be_read_keeps_no_driver_from_starting(
    dc2: Side, fresh: Fresh, value: bytes
) -> None:
    job = fresh("job")
    key = job_status.encode_key(StatusKey("job", job))
    spec = JobSpec(job=job, topology="t", destination="dc2", clusters={"dc2": dc2.spec()}, flows=[])

    async def work(cluster: KafkaCluster) -> None:
        good = job_status.encode(JobStatus(job, "t", "d", "running", 1, 1))
        await post(cluster, naming.STATUS, [InternalRecord(key, good)])
        assert job in (await read_reported(cluster)).jobs
        await post(cluster, naming.STATUS, [InternalRecord(key, value)])
        assert job not in (await read_reported(cluster)).jobs
        clusters = DriverClusters(job, spec.clusters, {})
        try:
            assert job not in (await read_reported(await open_destination(spec, clusters))).jobs
        finally:
            await clusters.close()

    at(dc2, work)


def test_a_flood_is_logged_in_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "repl.events")
    now = 0.0
    skipped = UnreadableRecordCounter("__repl.control", lambda: now)
    for offset in range(1_000):
        skipped.add(offset, "junk")
    assert "offset 999, which can't be read: junk" in skipped.note
    assert len(caplog.records) == 10
    now = 3_600.0
    assert skipped.note == ""
