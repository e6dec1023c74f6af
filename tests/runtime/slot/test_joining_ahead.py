"""Partitions that join ahead, and the ledger that is written with the data, on real brokers (R1, R5, R6)."""

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from runtime.contract.records.offset_map import MappedOffset
from tests.offset_maps import read_map
from tests.records import PATIENCE_S
from tests.runtime.slot.world import FAST, Side, copying, until

pytestmark = pytest.mark.integration
RECORDS = 60
ACTIVE = replace(FAST, tail_every_ms=1_000)  # a busy machine delays a record by less


async def test_the_map_is_exact_while_another_producer_writes_between_the_flows_batches(
    sides: dict[str, Side], fresh: Callable[[str], str]
) -> None:
    """Its records make acknowledgements differ from what the ledger's record, sent with the data, says.

    A record is written once the one before is copied, so that the partition stays active.
    """
    orders = copying(sides, fresh, settings=ACTIVE)
    own, foreign = (side.producer(linger_ms=0) for side in (orders.source, orders.destination))
    async with orders.running() as slot:
        for number in range(RECORDS):
            own.produce(orders.topic, b"%d" % number, partition=0)
            assert await asyncio.to_thread(own.flush, PATIENCE_S) == 0
            await until(slot, lambda one, count=number + 1: one.records >= count)  # type: ignore[misc]
            if number == RECORDS // 2:
                foreign.produce(orders.topic, b"foreign", partition=0)
                assert await asyncio.to_thread(foreign.flush, PATIENCE_S) == 0
        await until(slot, lambda one: one.foreign_writes)
        assert slot.status().flows[0].aborts == 1
    here, copies = [
        (await asyncio.to_thread(side.read, orders.topic))[0] for side in (orders.source, orders.destination)
    ]
    there = {row.offset: row for row in copies}
    assert [row for row in copies if row.value != b"foreign"] == here
    async with await orders.destination.open() as cluster:
        (offsets,) = (await read_map(cluster, orders.flow.name)).values()
    for row in here:
        answer = offsets.translate(row.offset)
        assert isinstance(answer, MappedOffset)
        assert (answer.exact, there[answer.offset]) == (True, row)
