"""Internal records: callers that wait at the same time share a read, and a write of producer ids."""

import asyncio
from typing import Any, cast

import pytest

from runtime.batch import Batch, walk
from runtime.contract.records.ledger import PartitionKey, ProgressKey
from runtime.contract.records.provenance import FlowProducer, decode_producer, decode_producer_key
from runtime.contract.spec import naming
from runtime.contract.spec.naming import TopicPartition
from runtime.contract.spec.rename import Table
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import Disconnected, ErrorCode
from runtime.kafka.protocol.offsets import ListOffsetsRequest
from runtime.kafka.protocol.produce import ProducedPartition, ProduceRequest, ProduceResponse
from runtime.kafka.records import InternalRecord, read
from runtime.ledger.ledger import Ledger, register
from runtime.ledger.records import InternalTopicScan
from tests.fakes.internal_topics import InternalTopics, stored
from tests.fakes.permits import Permits, settled
from tests.fakes.progress import progress
from tests.runtime.batch.forge import HERE

TOPIC = "__records"


class HeldTopics(InternalTopics):
    """Each question about an end offset, and each write, waits for a permit."""

    def __init__(self) -> None:
        super().__init__({TOPIC: [], naming.PRODUCERS: [], naming.LEDGER: []})
        self.ends_asked = 0
        self.written: list[dict[int, FlowProducer]] = []
        self.permits = Permits()
        self.failures: list[Exception] = []

    async def call(self, node: int, request: Any, purpose: str, within: float | None) -> Any:
        if isinstance(request, ListOffsetsRequest):
            self.ends_asked += 1
            answer = await super().call(node, request, purpose, within)
            await self.permits.acquire()
            return answer
        if isinstance(request, ProduceRequest):
            await self.permits.acquire()
            if self.failures:
                raise self.failures.pop()
            return self._write(request)
        return await super().call(node, request, purpose, within)

    def doubt(self, topic: str) -> None:
        """The topic's leader failed: this cluster has another answer at once."""

    def _write(self, request: ProduceRequest) -> ProduceResponse:
        (part,) = request.partitions
        sets = walk(b"".join(part.records), TopicPartition(part.topic, 0)).sets
        records = [one for batch in sets if isinstance(batch, Batch) for one in read(batch, HERE)]
        self.written.append(
            {decode_producer_key(one.key): decode_producer(cast("bytes", one.value)) for one in records}
        )
        done = ProducedPartition(part.topic, part.partition, ErrorCode.NONE, 0, -1, 0)
        return ProduceResponse(0, (done,))


def scan_of(cluster: HeldTopics) -> InternalTopicScan:
    return InternalTopicScan(cast("KafkaCluster", cluster), TOPIC, 0)


async def test_callers_that_wait_for_a_read_share_the_next_one_and_see_what_was_written_before_they_called():
    cluster, told = HeldTopics(), []
    scan = scan_of(cluster)
    first = asyncio.create_task(scan.refresh())
    await settled()
    cluster.grow(TOPIC, InternalRecord(b"late", b"1"))  # after the first read has asked for the end
    others = [asyncio.create_task(scan.refresh(taken=lambda: told.append(len(told)))) for _ in range(5)]
    await settled()
    cluster.permits.allow(1)
    await first
    assert scan.fold.get(b"late") is None
    cluster.permits.allow(1)
    await asyncio.gather(*others)
    assert scan.fold.get(b"late") == b"1"
    assert cluster.ends_asked == 2
    assert len(told) == 5


async def test_a_read_that_was_cancelled_counts_for_nobody():
    cluster = HeldTopics()
    scan = scan_of(cluster)
    cluster.grow(TOPIC, InternalRecord(b"key", b"1"))
    first, second = (asyncio.create_task(scan.refresh()) for _ in range(2))
    await settled()
    first.cancel()
    await settled()
    cluster.permits.allow(1)
    await second
    assert scan.fold.get(b"key") == b"1"
    assert cluster.ends_asked == 2
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_ledger_partition_is_read_once_for_all_of_its_flows():
    cluster = HeldTopics()
    key = ProgressKey(PartitionKey("flow-3", "orders", 0))
    cluster.grow(naming.LEDGER, *stored({key: progress(7)}))
    ledger = Ledger(cast("KafkaCluster", cluster), 1)
    cluster.permits.allow(1)
    await ledger.refresh_all([f"flow-{number}" for number in range(10)])
    assert cluster.ends_asked == 1
    assert ledger.all_progress("flow-3") == {key.of: progress(7)}


def producer(flow: str) -> FlowProducer:
    return FlowProducer(flow, "dc1", "id", Table(names={}))


def registering(cluster: HeldTopics, number: int) -> asyncio.Task[None]:
    return asyncio.create_task(
        register(cast("KafkaCluster", cluster), number, producer(f"flow-{number % 2}"))
    )


async def test_producer_ids_are_registered_together():
    cluster = HeldTopics()
    lanes = [registering(cluster, number) for number in range(6)]
    await settled()
    assert not any(lane.done() for lane in lanes)  # each waits until its own record is written
    cluster.permits.allow(2)
    await asyncio.gather(*lanes)
    assert [list(one) for one in cluster.written] == [[0], [1, 2, 3, 4, 5]]
    for number, written in ((number, one) for some in cluster.written for number, one in some.items()):
        assert written == producer(f"flow-{number % 2}")


async def test_a_failed_write_of_producer_ids_fails_each_of_them():
    cluster = HeldTopics()
    lanes = [registering(cluster, number) for number in range(3)]
    await settled()
    cluster.permits.allow(1)
    await settled()
    cluster.failures = [Disconnected("localhost:1", "broken", sent=True)]
    cluster.permits.allow(1)
    found = await asyncio.gather(*lanes, return_exceptions=True)
    assert [type(one) for one in found] == [type(None), Disconnected, Disconnected]
    assert [list(one) for one in cluster.written] == [[0]]
