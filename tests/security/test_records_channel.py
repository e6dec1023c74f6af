"""Hostile records in the control and status topics are skipped and said, and end nothing."""

import asyncio
import zlib
from typing import Any

import pytest

from runtime.batch import Codec
from runtime.batch.spec import MAX_UNPACKED
from runtime.contract.records import control, job_status
from runtime.contract.records.control import Assign, Assignment, SlotSpec, StopSlot
from runtime.contract.records.job_status import JobStatus, StatusKey
from runtime.contract.spec import naming
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.naming import TopicPartition
from runtime.driver.clusters import read_reported
from runtime.driver.slots.channel import TopicTail, UnreadableRecordCounter
from runtime.driver.slots.ticket import SlotStartRequest
from runtime.driver.slots.worker import listen
from runtime.kafka.records import InternalRecord
from runtime.slot.slot import Slot
from tests.fakes.internal_topics import InternalTopics
from tests.fakes.partition_logs import PartitionLog, PartitionLogs
from tests.runtime.batch.forge import batch_bytes, record

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


class ControlTopic(PartitionLogs):
    """The control topic with these batches. It answers in a later turn of the loop, as a broker does."""

    def __init__(self, *batches: bytes) -> None:
        at = TopicPartition(naming.CONTROL, 0)
        super().__init__({at: PartitionLog(batches)}, {naming.CONTROL: b"c" * 16})

    async def call(self, node: int, request: Any, purpose: str, within: float | None) -> Any:
        await asyncio.sleep(0)
        return await super().call(node, request, purpose, within)


async def test_a_slot_skips_what_it_cannot_read_and_obeys_the_next_word() -> None:
    spec = SlotSpec(
        job="j", slot=0, destination="dc2", cluster=ClusterSpec(bootstrap="b:1"), unpacked_bytes=MAX_UNPACKED
    )
    words = [control.encode(Assign("d", 1, Assignment(2))), control.encode(StopSlot("d", 1))]
    mine = control.slot_key(spec.job, 0)
    written = [record(at, value, key=mine) for at, value in enumerate([*HOSTILE, *words])]
    topic: Any = ControlTopic(*(batch_bytes([one]) for one in written))
    ticket = SlotStartRequest("d", 1, spec, Assignment(1), 0)
    told, stopped = list[Assignment](), asyncio.Event()
    slot = Slot(spec, ticket.first)
    slot.assign = told.append  # type: ignore[method-assign, assignment]  # it would open its destination
    slot.stop = stopped.set  # type: ignore[method-assign]
    tail = TopicTail(topic, naming.CONTROL, 0)
    listening = asyncio.create_task(listen(tail, ticket, slot, lambda _: None))
    await stopped.wait()
    listening.cancel()
    assert [one.version for one in told] == [2]
    assert tail.skipped.count == len(HOSTILE)
    assert f"{naming.CONTROL}: skipped the record at offset" in tail.skipped.note


async def test_a_batch_that_unpacks_past_the_bound_is_skipped() -> None:
    """64 MB in a batch of some KB: brokers take it."""
    bomb = batch_bytes([record(0, b"x" * (64 << 20))], Codec.ZSTD)
    topic: Any = ControlTopic(bomb, batch_bytes([record(1, b"next")]))
    tail = TopicTail(topic, naming.CONTROL, 0)
    assert [one.value for one in await tail.read()] == [b"next"]
    assert "unpacks to more than" in tail.skipped.note


@pytest.mark.parametrize("value", [b"", b"\x01junk"])
async def test_a_last_heartbeat_that_cannot_be_read_is_that_of_no_job(value: bytes) -> None:
    """A driver that starts reads it."""
    key = job_status.encode_key(StatusKey("job", "j"))
    good = InternalRecord(key, job_status.encode(JobStatus("j", "t", "d", "running", 1, 1)))
    topic: Any = InternalTopics({naming.STATUS: [good]})
    assert "j" in (await read_reported(topic)).jobs
    topic.grow(naming.STATUS, InternalRecord(key, value))
    assert "j" not in (await read_reported(topic)).jobs


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
