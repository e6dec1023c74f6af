"""`foreign_writes` on real brokers: never for the flow's own records and markers, always for another's."""

import asyncio
from collections.abc import Callable

import pytest

from runtime.batch import Batch, walk
from runtime.batch.layout import HEADER_SIZE
from runtime.batch.stamp import StampedBatch
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.fetch import fetch_once
from runtime.kafka.protocol.fetch import Isolation
from runtime.ledger.transaction_writer import send
from tests.records import PATIENCE_S
from tests.runtime.batch.forge import batch_bytes, record
from tests.runtime.slot.world import Side, at_end, copying, until

pytestmark = pytest.mark.integration


async def test_another_writer_is_seen_while_the_flow_copies(
    sides: dict[str, Side], fresh: Callable[[str], str]
) -> None:
    """Also one whose transaction aborts: readers never see its record."""
    orders = copying(sides, fresh)
    async with orders.running() as slot:
        for step in (1, 2, 3):
            await orders.write([{"value": b"%d" % step * 1_000}] * 10)
            (status,) = await until(slot, at_end([10 * step]))
            assert not status.foreign_writes
        another = orders.destination.producer(transactional_id=fresh("other"))
        await asyncio.to_thread(another.init_transactions, PATIENCE_S)
        another.begin_transaction()
        another.produce(orders.topic, b"-1", partition=0)
        assert await asyncio.to_thread(another.flush, PATIENCE_S) == 0
        await asyncio.to_thread(another.abort_transaction, PATIENCE_S)
        await orders.write([{"value": b"last"}])
        await until(slot, lambda one: one.foreign_writes and one.position == 31)


async def test_a_client_that_writes_under_the_id_of_a_lane_stops_no_partition(
    sides: dict[str, Side], fresh: Callable[[str], str]
) -> None:
    """Brokers check neither whose producer id a batch has, nor its epoch, unless that is an older one."""
    orders = copying(sides, fresh, 2)
    async with orders.running() as slot:
        await orders.write({"value": b"%d" % number, "partition": number % 2} for number in range(10))
        await until(slot, at_end([5, 5]))
        async with await orders.destination.open() as cluster:
            at = TopicPartition(orders.topic, 0)
            answer = await fetch_once(cluster, at, 0, 1 << 20, "t", isolation=Isolation.READ_UNCOMMITTED)
            copied = next(one for one in walk(answer.records, at).sets if isinstance(one, Batch))
            data = batch_bytes([record(0, b"forged")], producer=(copied.producer_id, 32_767, 0))
            await send(cluster, at, StampedBatch(data[:HEADER_SIZE], memoryview(data)[HEADER_SIZE:]))
        await orders.write({"value": b"%d" % number, "partition": number % 2} for number in range(10, 30))
        await until(slot, at_end([15, 15]))
    found, wanted = (side.read(orders.topic, 2) for side in (orders.destination, orders.source))
    values = [[row.value for row in rows if row.value != b"forged"] for rows in found]
    assert values == [[row.value for row in rows] for rows in wanted]
