"""Partitions that join ahead, and the ledger that is written with the data, on real brokers (R1, R5, R6)."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
from msgspec.structs import replace

from runtime.contract.records.job_status import PartitionStatus
from runtime.contract.records.offset_map import MappedOffset
from runtime.slot.slot import Slot
from tests.offset_maps import read_map
from tests.records import PATIENCE_S
from tests.runtime.slot.world import FAST, Driver, Side, assigned, flow_spec, until

pytestmark = pytest.mark.integration
Fresh = Callable[[str], str]
RECORDS = 60
ACTIVE = replace(FAST, tail_every_ms=1_000)  # a busy machine delays a record by less


def copied(records: int) -> Callable[[PartitionStatus], bool]:
    return lambda status: status.records >= records


async def stream(
    sides: Mapping[str, Side], topic: str, slots: Mapping[str, Slot], between: Callable[[int], object]
) -> None:
    """Writes a record to each source once the one before is copied, so that partitions stay active."""
    producers = {name: sides[name].producer(linger_ms=0) for name in slots}
    for number in range(RECORDS):
        for name, slot in slots.items():
            producers[name].produce(topic, b"%d" % number, partition=0)
            assert await asyncio.to_thread(producers[name].flush, PATIENCE_S) == 0
            await until(slot, copied(number + 1))
        between(number)


def test_the_map_is_exact_while_another_producer_writes_between_the_flows_batches(
    sides: dict[str, Side], fresh: Fresh
) -> None:
    """Its records make acknowledgements differ from what the ledger's record, sent with the data, says."""
    topic, flow = fresh("orders"), flow_spec(fresh("flow"))
    for side in sides.values():
        side.create(topic)
    driver = Driver(sides, job=fresh("job"), settings=ACTIVE)
    foreign = sides["dc2"].producer(linger_ms=0)

    def disturb(number: int) -> None:
        if number == RECORDS // 2:
            foreign.produce(topic, b"foreign", partition=0)
            foreign.flush(PATIENCE_S)

    async def copy() -> int:
        assignment = await driver.take_over(flow, assigned(flow.name, topic))
        async with driver.running(assignment) as slot:
            await stream(sides, topic, {"dc1": slot}, disturb)
            await until(slot, lambda one: one.foreign_writes)
            return slot.status().flows[0].aborts

    aborts = asyncio.run(copy())
    here = sides["dc1"].read(topic)[0]
    there = {row.offset: row for row in sides["dc2"].read(topic)[0]}
    assert [row for row in there.values() if row.value != b"foreign"] == here
    assert aborts == 1

    async def check() -> None:
        cluster = await sides["dc2"].open()
        try:
            (found,) = (await read_map(cluster, flow.name)).values()
        finally:
            await cluster.close()
        for row in here:
            answer = found.translate(row.offset)
            assert isinstance(answer, MappedOffset)
            assert answer.exact
            assert there[answer.offset] == row

    asyncio.run(check())
