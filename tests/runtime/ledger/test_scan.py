"""What is committed behind another's open transaction is seen (fencing 2), and so is what is not deleted."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

import pytest
from msgspec.structs import replace

from runtime.audit.partition_logs import CommittedRecordReader, RecordsExpired, fetch_records
from runtime.contract.spec.naming import TopicPartition
from runtime.driver.slots.channel import TopicTail
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import TimedOut
from runtime.kafka.protocol.offsets import ListOffsetsRequest
from runtime.ledger.records import InternalTopicScan
from tests.fakes.clock import virtual
from tests.fakes.partition_logs import PartitionLog, PartitionLogs
from tests.records import PATIENCE_S, open_transaction
from tests.runtime.batch.forge import batch_bytes, record
from tests.runtime.slot.world import Side

T = TypeVar("T")


@pytest.mark.integration
async def test_an_open_transaction_hides_no_later_commit(
    sides: dict[str, Side], fresh: Callable[[str], str]
) -> None:
    topic, side = fresh("ledger"), sides["dc2"]
    side.create(topic)

    slow, quick = (
        open_transaction(side.client, topic, fresh(name), 0, key=key)
        for name, key in (("slow", b"open"), ("quick", b"committed"))
    )
    quick.commit_transaction(60)
    async with await side.open() as cluster, asyncio.timeout(PATIENCE_S):
        scan = InternalTopicScan(cluster, topic, 0)
        for key in (b"committed", b"open"):
            while scan.fold.get(key) is None:  # an end is answered before its marker is written
                await scan.refresh()
                await asyncio.sleep(0.02)
            if key == b"committed":
                assert (scan.fold.get(b"open"), scan.fold.undecided(b"open")) == (None, True)
                await asyncio.to_thread(slow.commit_transaction, 60)


AT, ID = TopicPartition("t", 0), b"i" * 16


def log(first: int, end: int) -> dict[TopicPartition, PartitionLog]:
    """Records by their offsets, from the log start on."""
    batches = [batch_bytes([record(at, b"%d" % at, key=b"%d" % at)]) for at in range(first, end)]
    return {AT: PartitionLog(batches, start=first, end=end)}


async def test_records_that_were_deleted_stop_neither_a_running_nor_a_new_reader() -> None:
    cluster: Any = PartitionLogs(log(0, 5), {"t": ID})
    running, tail = InternalTopicScan(cluster, *AT), TopicTail(cluster, *AT)
    await running.refresh()
    assert running.fold.position == 5
    for first in (8, 10):  # at last, nothing is left to be read
        cluster.logs = log(first, 10)
        for scan in (running, InternalTopicScan(cluster, *AT)):
            await scan.refresh()
            assert (scan.fold.position, scan.fold.get(b"9") is not None) == (
                10,
                scan is running or first == 8,
            )
        assert [one.offset for one in await fetch_records(cluster, AT, 0, 10, 100)] == [*range(first, 10)]
        with pytest.raises(RecordsExpired, match=f"below {first}"):
            await CommittedRecordReader(cluster, AT, ID, 2, 10, 10).next_sets()
        if first == 8:
            assert [one.offset for one in await until_any(tail.read)] == [8, 9]


async def until_any(read: Callable[[], Awaitable[list[T]]]) -> list[T]:
    async with asyncio.timeout(60):
        while not (found := await read()):
            pass
    return found


class Truncated(PartitionLogs):
    """Its leader lost records after it had told their end."""

    lost = 2

    async def call(self, node: int, request: Any, purpose: str, within: float | None) -> Any:
        answer = await super().call(node, request, purpose, within)
        if isinstance(request, ListOffsetsRequest):
            return {at: replace(end, offset=end.offset + self.lost) for at, end in answer.items()}
        return answer


@virtual
async def test_a_scan_whose_end_is_never_reached_fails_in_time_and_reads_the_next_end() -> None:
    cluster = Truncated(log(0, 5), {"t": ID})
    scan = InternalTopicScan(cast(KafkaCluster, cluster), *AT)
    with pytest.raises(TimedOut, match="it ends at 5, and 7 was its end before"):
        await scan.refresh(within=5.0)
    cluster.lost = 0
    await scan.refresh()
    assert scan.fold.position == 5


class CorruptLog(PartitionLog):
    """The last byte of each answer was changed on a disk."""

    def read(self, offset: int, most: int, *, whole: bool) -> bytes:
        found = super().read(offset, most, whole=whole)
        return found[:-1] + bytes([found[-1] ^ 1]) if found else found


async def test_a_tail_passes_a_corrupt_batch_and_says_that_commands_are_lost() -> None:
    """A slot ends then, and its next attempt begins behind the batch."""
    batch = batch_bytes([record(0, b"v")])
    cluster: Any = PartitionLogs({AT: CorruptLog([batch])}, {"t": ID})
    tail = TopicTail(cluster, "t", 0)
    handled = asyncio.create_task(tail.handled(1))
    assert await tail.read() == []
    assert await asyncio.wait_for(handled, 20) is False
    assert (tail.skipped.count, "offset 0" in tail.skipped.note) == (1, True)
    assert await tail.read() == []
    assert tail.skipped.count == 1
