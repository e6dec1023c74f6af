"""The slot copies: everything a read_committed reader sees at the source, once, in order, byte for byte
(R2).
"""

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from runtime.contract.records.job_status import PartitionState as State
from runtime.contract.records.offset_map import EndOfOffsetMap, MappedOffset, OffsetMap
from tests.offset_maps import read_map
from tests.runtime.slot.workload import mixed
from tests.runtime.slot.world import Side, copying, in_state, until

pytestmark = pytest.mark.integration
Fresh = Callable[[str], str]


def test_every_kind_of_record_arrives_once_in_order_unchanged(sides: dict[str, Side], fresh: Fresh) -> None:
    orders = copying(sides, fresh, 3)
    mixed(orders.source, orders.topic, 3)
    orders.copy_through()
    orders.assert_equal()


def test_the_offset_map_leads_to_the_very_record(sides: dict[str, Side], fresh: Fresh) -> None:
    """R6, through aborted transactions, markers, several runs of the slot and a foreign writer."""
    orders = copying(sides, fresh, 2)
    for seed in (1, 2):
        mixed(orders.source, orders.topic, 2, seed=seed, count=300)
        orders.copy_through()
        foreign = [{"value": b"foreign", "partition": number} for number in range(2)]
        orders.destination.write(orders.topic, foreign)

    async def maps() -> dict[int, OffsetMap]:
        async with await orders.destination.open() as cluster:
            return {key.partition: one for key, one in (await read_map(cluster, orders.flow.name)).items()}

    found = asyncio.run(maps())
    sources, destinations = (side.read(orders.topic, 2) for side in (orders.source, orders.destination))
    for partition, (here, there) in enumerate(zip(sources, destinations, strict=True)):
        records = {row.offset: row for row in there}
        offsets = [row.offset for row in here]
        for offset in range(offsets[-1] + 1):
            answer = found[partition].translate(offset)
            assert isinstance(answer, MappedOffset)
            following = next(row for row in here if row.offset >= offset)
            assert records[answer.offset] == following
            assert answer.exact or offset not in offsets
            assert found[partition].origin(answer.offset) == MappedOffset(following.offset, exact=True)
        assert isinstance(found[partition].translate(offsets[-1] + 1), EndOfOffsetMap)


async def test_a_partition_without_progress_never_starts_over(sides: dict[str, Side], fresh: Fresh) -> None:
    orders = copying(sides, fresh, 2)
    await orders.write({"value": b"%d" % number, "partition": number % 2} for number in range(20))
    known, _ = orders.partitions
    assignment = await orders.driver.take_over(orders.flow, [known])
    assignment = replace(assignment, partitions=orders.partitions)
    async with orders.driver.running(assignment) as slot:
        await until(slot, lambda one: one.partition == 1 or one.position == 10)
        await until(slot, lambda one: one.partition == 0 or in_state(State.LEDGER_MISSING)(one))
    assert [len(rows) for rows in orders.destination.read(orders.topic, 2)] == [10, 0]
