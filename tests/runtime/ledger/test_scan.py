"""Fencing 2 on a real broker: what is committed behind another's open transaction is seen."""

import asyncio
from collections.abc import Callable, Iterable

import pytest
from confluent_kafka import Producer

from runtime.audit import partition_logs as audited
from runtime.audit.partition_logs import RecordsExpired, fetch_records
from runtime.batch import Record
from runtime.driver.slots.channel import TopicTail
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.ledger.records import InternalTopicScan
from tests.records import PATIENCE_S
from tests.runtime.slot.world import Side

pytestmark = pytest.mark.integration


async def test_an_open_transaction_hides_no_later_commit(
    sides: dict[str, Side], fresh: Callable[[str], str]
) -> None:
    topic = fresh("ledger")
    sides["dc2"].create(topic)
    slow, quick = (_begun(sides["dc2"], fresh(name)) for name in ("slow", "quick"))
    for producer, key in ((slow, b"open"), (quick, b"committed")):
        producer.produce(topic, key=key, value=b"1")
        assert producer.flush(60) == 0
    quick.commit_transaction(60)

    cluster = await sides["dc2"].open()
    try:
        scan = InternalTopicScan(cluster, topic, 0)
        await _read_on(scan, b"committed")
        assert scan.fold.get(b"open") is None
        assert scan.fold.undecided(b"open")
        await asyncio.to_thread(slow.commit_transaction, 60)
        await _read_on(scan, b"open")
    finally:
        await cluster.close()


@pytest.mark.parametrize("cleanup", ["compact,delete", "delete"])
async def test_records_that_were_deleted_stop_neither_a_running_nor_a_new_reader(
    sides: dict[str, Side], fresh: Callable[[str], str], cleanup: str
) -> None:
    topic, side = fresh("deleted"), sides["dc2"]
    side.create(topic, cleanup_policy=cleanup)
    at = TopicPartition(topic, 0)

    cluster = await side.open()
    try:
        running, tail = InternalTopicScan(cluster, topic, 0), TopicTail(cluster, topic, 0)
        _write(side, topic, range(5))
        await running.refresh()
        assert running.fold.position == 5
        _write(side, topic, range(5, 10))
        side.forget(topic, 8)
        topics = await cluster.topics([topic], fresh=True)
        with pytest.raises(RecordsExpired, match="below 8"):
            await audited.CommittedRecordReader(cluster, at, topics[topic].id, 2, 10, 10).next_sets()
        for scan in (running, InternalTopicScan(cluster, topic, 0)):
            await scan.refresh()
            assert (scan.fold.position, scan.fold.get(b"9")) == (10, b"9")
        assert [one.offset for one in await fetch_records(cluster, at, 0, 10, 100)] == [8, 9]
        assert [one.offset for one in await _next(tail)] == [8, 9]

        side.forget(topic, 10)  # nothing is left to be read
        for scan in (running, InternalTopicScan(cluster, topic, 0)):
            await scan.refresh()
            assert scan.fold.position == 10
        assert await fetch_records(cluster, at, 0, 10, 100) == []
    finally:
        await cluster.close()


def _write(side: Side, topic: str, numbers: Iterable[int]) -> None:
    side.write(topic, [{"key": b"%d" % one, "value": b"%d" % one} for one in numbers])


async def _next(tail: TopicTail) -> list[Record]:
    async with asyncio.timeout(PATIENCE_S):
        while not (found := await tail.read()):
            pass
    return found


async def _read_on(scan: InternalTopicScan, key: bytes) -> None:
    """An end is answered before its mark is written."""
    async with asyncio.timeout(PATIENCE_S):
        while scan.fold.get(key) is None:
            await scan.refresh()
            await asyncio.sleep(0.02)


def _begun(side: Side, transactional_id: str) -> Producer:
    producer = side.producer(transactional_id=transactional_id)
    producer.init_transactions(60)
    producer.begin_transaction()
    return producer
