"""The slot copies: everything a read_committed reader sees at the source, once, in order, byte for byte
(R2).
"""

import asyncio
from collections.abc import Callable

import pytest

from runtime.contract.records.job_status import PartitionState as State
from runtime.contract.records.offset_map import EndOfOffsetMap, MappedOffset, OffsetMap
from tests.offset_maps import read_map
from tests.runtime.slot.workload import mixed
from tests.runtime.slot.world import (
    Driver,
    Side,
    assigned,
    copy_through,
    flow_spec,
    in_state,
    until,
)

pytestmark = pytest.mark.integration
Fresh = Callable[[str], str]


def test_every_kind_of_record_arrives_once_in_order_unchanged(sides: dict[str, Side], fresh: Fresh) -> None:
    topic, flow = fresh("orders"), flow_spec(fresh("flow"))
    for side in sides.values():
        side.create(topic, 3)
    mixed(sides["dc1"], topic, 3)
    copy_through(Driver(sides, job=fresh("job")), flow, assigned(flow.name, topic, 3))
    assert sides["dc2"].read(topic, 3) == sides["dc1"].read(topic, 3)


def test_the_offset_map_leads_to_the_very_record(sides: dict[str, Side], fresh: Fresh) -> None:
    """R6, through aborted transactions, markers, several runs of the slot and a foreign writer."""
    topic, flow = fresh("orders"), flow_spec(fresh("flow"))
    for side in sides.values():
        side.create(topic, 2)
    driver, partitions = Driver(sides, job=fresh("job")), assigned(flow.name, topic, 2)
    for seed in (1, 2):
        mixed(sides["dc1"], topic, 2, seed=seed, count=300)
        copy_through(driver, flow, partitions)
        sides["dc2"].write(topic, [{"value": b"foreign", "partition": one} for one in range(2)])
    here, there = sides["dc1"].read(topic, 2), sides["dc2"].read(topic, 2)

    async def maps() -> dict[int, OffsetMap]:
        cluster = await sides["dc2"].open()
        try:
            return {key.partition: one for key, one in (await read_map(cluster, flow.name)).items()}
        finally:
            await cluster.close()

    found = asyncio.run(maps())
    for partition in range(2):
        records = {row.offset: row for row in there[partition]}
        for row in here[partition]:
            answer = found[partition].translate(row.offset)
            assert isinstance(answer, MappedOffset)
            assert answer.exact
            assert records[answer.offset] == row
            assert found[partition].origin(answer.offset) == MappedOffset(row.offset, exact=True)
        offsets = [row.offset for row in here[partition]]
        for offset in range(offsets[-1]):
            answer = found[partition].translate(offset)
            assert isinstance(answer, MappedOffset)
            following = next(one for one in here[partition] if one.offset >= offset)
            assert records[answer.offset] == following
        assert isinstance(found[partition].translate(offsets[-1] + 1), EndOfOffsetMap)


async def test_a_partition_without_progress_never_starts_over(sides: dict[str, Side], fresh: Fresh) -> None:
    topic, flow = fresh("orders"), flow_spec(fresh("flow"))
    for side in sides.values():
        side.create(topic, 2)
    sides["dc1"].write(topic, ({"value": b"%d" % one, "partition": one % 2} for one in range(20)))
    driver = Driver(sides, job=fresh("job"))

    known, unknown = assigned(flow.name, topic, 2)
    assignment = await driver.take_over(flow, [known])
    assignment = assignment.__class__(assignment.version, assignment.flows, [known, unknown])
    async with driver.running(assignment) as slot:
        await until(slot, lambda one: one.partition == 1 or one.position == 10)
        await until(slot, lambda one: one.partition == 0 or in_state(State.LEDGER_MISSING)(one))
    assert [len(rows) for rows in sides["dc2"].read(topic, 2)] == [10, 0]
