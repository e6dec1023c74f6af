"""The slot copies: everything a read_committed reader sees at the source, once, in order, byte for byte
(R2).
"""

import asyncio
import time
import uuid
from collections.abc import Callable
from functools import lru_cache

import pytest
from confluent_kafka import Producer
from msgspec.structs import replace

from runtime.contract.records.control import driver_transactional_id
from runtime.contract.records.job_status import PartitionState as State
from runtime.contract.records.offset_map import EndOfOffsetMap, MappedOffset, OffsetMap, UnmappedOffset
from runtime.contract.records.provenance import origins
from runtime.contract.spec import naming
from runtime.contract.spec.flow import AtOffsets, AtTimestamp, Earliest, Latest, Start
from runtime.ledger.map_cleaner import clean_map
from runtime.ledger.transaction_writer import TransactionWriter
from tests.offset_maps import map_reader, read_map
from tests.records import PATIENCE_S, settled, wait_for
from tests.runtime.slot.workload import mixed
from tests.runtime.slot.world import (
    FAST,
    Driver,
    Side,
    assigned,
    at_end,
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


def test_compaction_holes_and_append_time_are_copied_exactly(sides: dict[str, Side], fresh: Fresh) -> None:
    topic, flow, keys = fresh("compacted"), flow_spec(fresh("flow")), 37
    sides["dc1"].create(
        topic,
        cleanup_policy="compact",
        segment_bytes=str(1 << 20),
        segment_ms="500",
        min_cleanable_dirty_ratio="0.001",
        max_compaction_lag_ms="500",
        message_timestamp_type="LogAppendTime",
    )
    sides["dc2"].create(topic, cleanup_policy="compact")
    sides["dc1"].write(
        topic,
        ({"key": b"%d" % (one % keys), "value": b"%d" % one} for one in range(2_000)),
        compression_type="lz4",
    )
    time.sleep(
        0.6
    )  # the time of a segment: the next record begins a new one, and what lies before is compacted
    sides["dc1"].write(topic, [{"key": b"last", "value": b"last"}])
    wait_for(lambda: len(sides["dc1"].read(topic)[0]) == keys + 1)
    copy_through(Driver(sides, job=fresh("job")), flow, assigned(flow.name, topic))
    assert sides["dc2"].read(topic) == sides["dc1"].read(topic)


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


def test_start_offsets_are_by_topic_and_partition(sides: dict[str, Side], fresh: Fresh) -> None:
    topic, flow = fresh("orders"), flow_spec(fresh("flow"))
    for side in sides.values():
        side.create(topic, 2)
    sides["dc1"].write(topic, ({"value": b"%d" % one, "partition": one % 2} for one in range(20)))
    start = AtOffsets(offsets={topic: {1: 7}})
    copy_through(Driver(sides, job=fresh("job")), flow, assigned(flow.name, topic, 2), start)
    assert [len(rows) for rows in sides["dc2"].read(topic, 2)] == [10, 3]


def test_a_partition_without_progress_never_starts_over(sides: dict[str, Side], fresh: Fresh) -> None:
    topic, flow = fresh("orders"), flow_spec(fresh("flow"))
    for side in sides.values():
        side.create(topic, 2)
    sides["dc1"].write(topic, ({"value": b"%d" % one, "partition": one % 2} for one in range(20)))
    driver = Driver(sides, job=fresh("job"))

    async def copy() -> None:
        known, unknown = assigned(flow.name, topic, 2)
        assignment = await driver.take_over(flow, [known])
        assignment = assignment.__class__(assignment.version, assignment.flows, [known, unknown])
        async with driver.running(assignment) as slot:
            await until(slot, lambda one: one.partition == 1 or one.position == 10)
            await until(slot, lambda one: one.partition == 0 or in_state(State.LEDGER_MISSING)(one))

    asyncio.run(copy())
    assert [len(rows) for rows in sides["dc2"].read(topic, 2)] == [10, 0]


def test_headers_provenance_says_where_each_record_came_from(sides: dict[str, Side], fresh: Fresh) -> None:
    topic, flow = fresh("orders"), flow_spec(fresh("flow"), provenance="headers")
    for side in sides.values():
        side.create(topic)
    mixed(sides["dc1"], topic, count=200)
    copy_through(Driver(sides, job=fresh("job")), flow, assigned(flow.name, topic))
    here, there = sides["dc1"].read(topic)[0], sides["dc2"].read(topic)[0]
    assert [(row.key, row.value, row.timestamp) for row in there] == [
        (row.key, row.value, row.timestamp) for row in here
    ]
    assert [row.headers[: len(one.headers)] for row, one in zip(there, here, strict=True)] == [
        row.headers for row in here
    ]
    for row, one in zip(there, here, strict=True):
        (origin,) = origins(row.headers)
        assert (origin.topic, origin.partition, origin.offset) == (topic, 0, one.offset)


def test_a_transaction_does_not_wait_for_more_when_there_is_little_to_do(
    sides: dict[str, Side], fresh: Fresh
) -> None:
    topic, flow = fresh("trickle"), flow_spec(fresh("flow"))
    for side in sides.values():
        side.create(topic)
    # Whatever waited for its time to be over would wait for longer than it is waited for here.
    long = dict.fromkeys(("transaction_ms", "tail_every_ms", "transaction_timeout_ms"), 600_000)
    driver = Driver(sides, job=fresh("job"), settings=replace(FAST, fetch_wait_ms=50_000, **long))

    async def copy() -> None:
        assignment = await driver.take_over(flow, assigned(flow.name, topic))
        producer = sides["dc1"].producer(linger_ms=0)
        async with driver.running(assignment) as slot:
            for number in range(1, 21):
                producer.produce(topic, b"x")
                await asyncio.to_thread(producer.flush, PATIENCE_S)
                await until(slot, at_end([number]), 40)

    asyncio.run(copy())
