"""The slot copies: everything a read_committed reader sees at the source, once, in order, byte for byte
(R2).
"""

import asyncio
import uuid
from collections.abc import Callable
from functools import lru_cache

import pytest
from confluent_kafka import Producer
from msgspec.structs import replace

from runtime.contract.records.control import driver_transactional_id
from runtime.contract.records.job_status import PartitionState as State
from runtime.contract.records.offset_map import EndOfOffsetMap, MappedOffset, OffsetMap, UnmappedOffset
from runtime.contract.spec import naming
from runtime.contract.spec.flow import AtTimestamp, Earliest, Latest, Start
from runtime.ledger.map_cleaner import clean_map
from runtime.ledger.transaction_writer import TransactionWriter
from tests.offset_maps import map_reader, read_map
from tests.records import PATIENCE_S, settled
from tests.runtime.slot.workload import mixed
from tests.runtime.slot.world import (
    FAST,
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


def test_a_long_map_is_sealed_into_segments_and_trimmed_behind_the_log_start(
    sides: dict[str, Side], fresh: Fresh
) -> None:
    """R6: many small transactions; what the destination has deleted is unmapped, never wrong."""
    topic, flow = fresh("orders"), flow_spec(fresh("flow"))
    for side in sides.values():
        side.create(topic)
    settings = replace(FAST, linger_ms=0, transaction_ms=1)
    driver = Driver(sides, job=fresh("job"), settings=settings)
    for _ in range(3):
        for each in range(130):  # every other record is aborted away: a run each
            _one_committed_one_aborted(sides["dc1"], topic, each)
        settled(sides["dc1"].client, topic)
        copy_through(driver, flow, assigned(flow.name, topic))

    async def trimmed() -> tuple[OffsetMap, int, OffsetMap]:
        cluster = await sides["dc2"].open()
        try:
            (before,) = (await read_map(cluster, flow.name)).values()
            sides["dc2"].forget(topic, before.spans[0].destination_end)
            writer = await TransactionWriter.open(cluster, driver_transactional_id(driver.job))
            count = (await clean_map(await map_reader(cluster), cluster, writer, flow.name)).deleted
            await asyncio.to_thread(settled, sides["dc2"].client, naming.OFFSET_MAP)
            (after,) = (await read_map(cluster, flow.name)).values()
            return before, count, after
        finally:
            await cluster.close()

    settled(sides["dc2"].client, naming.OFFSET_MAP)  # the last transaction has sealed the segments
    before, count, after = asyncio.run(trimmed())
    assert len(before.spans) > 2
    assert count == 1
    assert len(after.spans) == len(before.spans) - count
    for row in sides["dc1"].read(topic)[0]:
        whole, left = before.translate(row.offset), after.translate(row.offset)
        assert isinstance(whole, MappedOffset)
        assert left == whole or (isinstance(left, UnmappedOffset) and row.offset < after.low)


def _one_committed_one_aborted(side: Side, topic: str, number: int) -> None:
    producer = _transactional(side.name, side.bootstrap)
    for commit in (True, False):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        producer.flush(PATIENCE_S)
        (producer.commit_transaction if commit else producer.abort_transaction)(PATIENCE_S)


@lru_cache
def _transactional(name: str, bootstrap: str) -> Producer:
    side = Side(name, bootstrap, {"bootstrap.servers": bootstrap})
    producer = side.producer(transactional_id=f"app-{uuid.uuid4().hex}", linger_ms=0)
    producer.init_transactions(PATIENCE_S)
    return producer


@pytest.mark.parametrize(
    ("start", "first"),
    [
        (Earliest(), 0),
        (AtTimestamp(timestamp_ms=1_600_000_000_040), 40),
        (Latest(), 100),
    ],
)
def test_copying_starts_where_the_flow_says(
    sides: dict[str, Side], fresh: Fresh, start: Start, first: int
) -> None:
    topic, flow = fresh("orders"), flow_spec(fresh("flow"))
    for side in sides.values():
        side.create(topic)
    rows = [{"value": b"%d" % one, "timestamp": 1_600_000_000_000 + one} for one in range(200)]
    sides["dc1"].write(topic, rows[:100])
    driver, partitions = Driver(sides, job=fresh("job")), assigned(flow.name, topic)
    # The first positions are committed, and nothing copies yet: what comes now is new (R1).
    asyncio.run(driver.take_over(flow, partitions, start))
    sides["dc1"].write(topic, rows[100:])
    copy_through(driver, flow, partitions, start)
    assert [row.value for row in sides["dc2"].read(topic)[0]] == [row["value"] for row in rows[first:]]


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
